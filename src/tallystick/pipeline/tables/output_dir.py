"""Where a run's tables lie, and how a failed run leaves the last good ones.

In: tables written one by one. Out: all of them in place at once. On a local file system
new tables are staged beside the old and swapped in after a note of intent, which the next
run completes if this one was interrupted. Remote folders are overwritten in place, table by
table, unless what is there is none of ours; Delta and Iceberg are `lakehouse`'s.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from tallystick.pipeline.fingerprint import fingerprint
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.tables import run_state as state
from tallystick.pipeline.tables.run_state import RunState
from tallystick.pipeline.tables.write_task import PROFILE_TABLE
from tallystick.reading.profiling import PROFILE
from tallystick.reading.tables import TABLES
from tallystick.reconcile.alarms import COPY_CODE, SEVERITIES
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.storage.local import LOCAL
from tallystick.storage.source import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PLAIN_FORMATS = ("parquet", "orc", "avro", "json", "csv")
"""Formats that are nothing but files in a folder."""

FLAT_FORMATS = ("csv", "text")
"""Formats that hold neither lists nor structures nor bytes."""

OF_LOGS = ("logs", "files", "records", "transactions", "changes")
"""Tables whose rows each come from one log; the profile's do, too, and are made of theirs."""

STATE = "_tallystick.json"
_SCHEMA = "_schema.json"
"""The types of a table in json. Else they are guessed: text for bytes, none where it is empty."""

_NO_ROWS, _OTHER_FORM = ("[PATH_NOT_FOUND]", "[UNABLE_TO_INFER_SCHEMA]"), "[FAILED_READ_FILE"
"""What Spark says of a folder that is not there, or has only what a killed writer leaves; and of
files in another form."""

_OF_PATTERNS = re.compile(r"[][{}*?\\]")

_INTENT = "_swap.json"
_STAGING = "_staging"
_OLD = "_old"


SCHEMAS = {**TABLES, "global_transactions": GLOBAL_TRANSACTIONS}
"""Of the tables that a task can write whole."""

_COLUMNS = {table: {*known.names} for table, known in {**SCHEMAS, PROFILE_TABLE: PROFILE}.items()}


def known_form(form: str) -> str:
    """Return a format by the name that it has here: Spark takes it in any letters of case.

    Needs no Spark. Raises `OptionError` for a format that cannot hold the tables.
    """
    if "." not in form:  # else it is the name of a class
        form = form.lower()
    if form in FLAT_FORMATS:
        raise OptionError(
            f"the format {form} cannot hold the tables: ids and bodies are bytes, participants and "
            "branches are lists and structures",
            advice="Use parquet, orc or json",
        )
    return form


def literal(path: str, form: str) -> str:
    """Return a path as a reader of Spark's takes it, for which some letters make a pattern."""
    return _OF_PATTERNS.sub(r"\\\g<0>", path) if form in PLAIN_FORMATS else path


def require_none(root: str, found: Collection[str]) -> None:
    """Check that nothing was found that a run would replace. Raises `OptionError`."""
    if found:
        raise OptionError(
            f"{root} holds what has the name of a table, and no run has written it",
            found=", ".join(found),
            advice="Name a folder of the tables' own, or a new one",
        )


@dataclass(frozen=True, slots=True)
class TableSpace:
    """The folder ``root`` with one folder per table, in ``form``."""

    root: str
    form: str = "parquet"

    @property
    def staged(self) -> bool:
        """True where tables are staged and swapped."""
        return self.form in PLAIN_FORMATS and not is_remote(self.root)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other run is at work in a local folder, and keep others out meanwhile."""
        with ExitStack() as held:
            if self.staged:
                Path(self.root).mkdir(parents=True, exist_ok=True)
                with suppress(OSError):  # a file system without locks
                    held.enter_context(LOCAL.locked_folder(self.root))
            yield

    def mark(self) -> list[int]:
        """Return what is another one once a run has committed tables in a local folder."""
        return fingerprint(f"{self.root}/{STATE}") if self.staged else []

    def open(self) -> RunState | None:
        """Complete an interrupted swap, and return the state of the tables.

        Returns:
            The state; None if there are no tables, or somebody removed, added or cut files of them,
            or of an interrupted swap nothing tells what it was to bring.

        Raises:
            OptionError: tables would replace files that no run has written.
        """
        if is_remote(self.root):
            return None
        home = Path(self.root)
        home.mkdir(parents=True, exist_ok=True)
        self._require_own(home)
        completed = self._complete(home / _INTENT)
        for leftover in (_STAGING, _OLD):
            shutil.rmtree(home / leftover, ignore_errors=True)
        found = state.load(home / STATE) if completed else None
        if found is None or any(
            _sizes(home / table) != files for table, files in found.files.items()
        ):
            return None
        return found

    def _require_own(self, home: Path) -> None:
        """Check that what a run would replace is of an earlier run, which leaves its state."""
        if any((home / name).exists() for name in (STATE, _INTENT)):
            return
        require_none(
            self.root,
            [name for name in (*_COLUMNS, _OLD) if os.path.lexists(home / name)],
        )

    def has(self, table: str) -> bool:
        """Return True if the table is there."""
        return is_remote(self.root) or Path(self.root, table).is_dir()

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """Return the table as the last good run left it."""
        return self._load(spark, table)

    def read_as_found(self, spark: SparkSession, table: str) -> DataFrame:
        """Return what lies there under the name of a table, in the columns that its files have."""
        return spark.read.format(self.form).load(literal(f"{self.root}/{table}", self.form))

    def write(self, frame: DataFrame, table: str) -> None:
        """Write a table; it is visible after `commit` where tables are staged."""
        folder = f"{_STAGING}/{table}" if self.staged else table
        frame.write.format(self.form).mode("overwrite").save(f"{self.root}/{folder}")
        if self.staged and self.form == "json":
            Path(self.root, folder, _SCHEMA).write_text(frame.schema.json())

    def staging(self, table: str) -> Path:
        """Return the folder of a staged table; `commit` brings it in its place."""
        return Path(self.root, _STAGING, table)

    def files(self, table: str) -> list[Path]:
        """Return the data files of the table as the last good run left it."""
        return sorted(Path(self.root, table).glob(f"[!._]*.{self.form}"))

    def written(self, spark: SparkSession, table: str) -> DataFrame:
        """Return a table that this run has written."""
        folder = f"{_STAGING}/{table}" if self.staged else table
        return self._load(spark, folder)

    def commit(self, tables: Sequence[str], now: RunState) -> None:
        """Make the written tables the current ones."""
        home = Path(self.root)
        if self.staged:
            now.files = {table: _sizes(home / _STAGING / table) for table in tables}
            intent = {"tables": list(tables), "state": asdict(now)}
            (home / "_swap.partial").write_text(json.dumps(intent))
            (home / "_swap.partial").rename(home / _INTENT)
            self._swap(intent)
        elif not is_remote(self.root):
            state.save(home / STATE, now)

    def _load(self, spark: SparkSession, folder: str) -> DataFrame:
        reader = spark.read.format(self.form)
        if self.form == "parquet" and (known := SCHEMAS.get(PurePath(folder).name)) is not None:
            reader = reader.schema(spark_schema(known))  # else a job reads it from a file
        noted = Path(self.root, folder, _SCHEMA)
        if self.form == "json" and noted.is_file():
            reader = reader.schema(_schema_of(noted.read_text()))
        return reader.load(literal(f"{self.root}/{folder}", self.form))

    def _complete(self, note: Path) -> bool:
        """Complete the swap that was noted; return False if the note cannot be used."""
        if not note.exists():
            return True
        try:
            intent = json.loads(note.read_text())
            _ = state.from_json(intent["state"]), intent["tables"]
        except (ValueError, KeyError, TypeError):
            return False  # it stays until the next swap: it tells that the tables are a run's
        self._swap(intent)
        return True

    def _swap(self, intent: dict[str, Any]) -> None:
        home = Path(self.root)
        (home / _OLD).mkdir(exist_ok=True)
        for table in intent["tables"]:
            if (home / _STAGING / table).is_dir():  # else it is in place since before
                shutil.rmtree(home / _OLD / table, ignore_errors=True)
                if (home / table).is_dir():
                    (home / table).rename(home / _OLD / table)
                (home / _STAGING / table).rename(home / table)
        state.save(home / STATE, state.from_json(intent["state"]))
        (home / _INTENT).unlink()
        shutil.rmtree(home / _OLD, ignore_errors=True)
        shutil.rmtree(home / _STAGING, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A `TableSpace` as a run exchanges its rows: tables are written anew, with what they keep."""

    spark: SparkSession
    space: TableSpace

    def open(self) -> RunState | None:
        """Return what the tables hold; None if they must all be made.

        Raises `OptionError` where tables would replace what no run has written.
        """
        last = self.space.open()
        if is_remote(self.space.root):
            require_none(self.space.root, [table for table in _COLUMNS if not self._is_ours(table)])
        return last if all(map(self.space.has, _COLUMNS)) else None

    def _is_ours(self, table: str) -> bool:
        """Return False if a remote folder of that name holds other files than those of the table.

        A run leaves no state there: the columns tell, some of which an older run may not have.
        """
        try:
            there = {*self.space.read_as_found(self.spark, table).columns}
        except Exception as error:  # each engine, and Java, has types of its own
            if any(one in str(error) for one in _NO_ROWS):
                return True
            if _OTHER_FORM in str(error):
                return False
            raise
        return there <= _COLUMNS[table] or _COLUMNS[table] <= there

    def begin(self, now: RunState, last: RunState | None) -> None:
        """Do nothing: what is staged by a run that is killed is in nobody's way."""

    def last(self, table: str) -> DataFrame:
        """Return a table as the last run left it."""
        return self.space.read(self.spark, table)

    def read(self, table: str) -> DataFrame:
        """Return a table that this run has written."""
        return self.space.written(self.spark, table)

    def exchange(self, rows: DataFrame, table: str, logs: Iterable[str] | None = None) -> None:
        """Write rows, and those of the last run but of some logs, or of all."""
        if logs is not None:
            old = self.last(table)
            rows = old.where(~old["log"].isin(list(logs))).unionByName(rows)
        self.space.write(rows, table)

    def commit(self, tables: Sequence[str], now: RunState) -> None:
        """Make the written tables the current ones."""
        self.space.commit(tables, now)


def kept_rows(old: DataFrame, table: str, logs: Collection[str]) -> DataFrame:
    """Return the rows of the last run that stay: those of logs that did not change."""
    kept = old.where(old["log"].isin(list(logs)))
    if table == "findings":  # what the search and all logs together gave is found anew
        kept = kept.where(~kept["code"].isin([*SEVERITIES, COPY_CODE, "not-a-log"]))
    return kept


def _sizes(folder: Path) -> dict[str, int]:
    """Return the files of a table with their sizes."""
    return {path.name: path.stat().st_size for path in folder.glob("[!._]*")}


def _schema_of(text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))
