"""The tables of a run as Delta or Iceberg: what changed is exchanged, in one commit per table.

In: the logs that changed, and what the last run left. Out: the tables of that form, and the table
``runs``, which says which version of each belongs together: one commit to it publishes them all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.pipeline.options import OptionError
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.tables import run_state
from tallystick.pipeline.tables.output_dir import OF_LOGS, SCHEMAS, known_form
from tallystick.pipeline.tables.run_state import RunState
from tallystick.pipeline.tables.write_task import PROFILE_TABLE
from tallystick.reading.profiling import PROFILE
from tallystick.storage.source import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

LAKE_FORMS = ("delta", "iceberg")
"""Forms whose tables have transactions, and versions that can be read later."""

RUNS = "runs"
"""The table of at most two rows: the run that is published, and one that began after it."""

_RUNS_TYPES = {
    "generation": "bigint",
    "state": "string",
    "touched": "array<string>",
    "versions": "map<string,string>",
}

_TABLES = SCHEMAS | {PROFILE_TABLE: PROFILE}

REQUIRED = "required "
"""Stands before the type of a column in which each row has to have a value."""

_FILLED = frozenset({"CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"})
"""In the metadata of a column: it is filled where rows have no value."""

_WIDER = {"tinyint": 1, "smallint": 2, "int": 3, "integer": 3, "bigint": 4}
"""Types of whole numbers: one takes the values of those before it."""


@dataclass(frozen=True, slots=True)
class Lake:
    """The tables below ``root``: a folder or URL for Delta, ``CATALOG.NAMESPACE`` for Iceberg."""

    spark: SparkSession
    root: str
    form: str

    def __post_init__(self) -> None:
        """Raise `OptionError` for a root of another form."""
        if self.form == "iceberg" and "/" in self.root:
            raise OptionError(
                "tables of Iceberg are in a namespace of a catalog, not in a folder",
                expected="CATALOG.NAMESPACE",
                found=self.root,
            )

    # -- runs -----------------------------------------------------------------------------

    def open(self) -> RunState | None:
        """Return what the tables hold; logs that an unfinished run touched count as not read.

        Raises `OptionError` where a table of other columns has the name of one of them.
        """
        self._require_fit()
        self._make(RUNS, _RUNS_TYPES)
        published, begun = self._runs()
        if published is None:
            return None
        state = run_state.from_json(json.loads(published["state"]))
        for log in begun["touched"] if begun else ():
            state.logs[log] = []
        return state

    def begin(self, now: RunState, last: RunState | None) -> None:
        """Note which logs' rows are going to be exchanged: a run that is killed has to say."""
        published, begun = self._runs()
        touched = now.changed(last) | now.vanished(last) | set(begun["touched"] if begun else ())
        row = (now.generation, None, sorted(touched), None)
        self._note([row] if published is None else [tuple(published), row])

    def commit(self, tables: Sequence[str], now: RunState) -> None:
        """Publish the present versions of the tables, all at once."""
        versions = {table: self._version(table) for table in tables}
        self._note([(now.generation, json.dumps(asdict(now)), [], versions)])

    def versions(self) -> dict[str, str]:
        """Return the version of each table in the run that is published; empty before the first."""
        published, _ = self._runs()
        return {} if published is None else dict(published["versions"])

    # -- tables ---------------------------------------------------------------------------

    def last(self, table: str) -> DataFrame:
        """Return a table before this run exchanges its rows."""
        return self.read(table)

    def read(self, table: str, version: str | None = None) -> DataFrame:
        """Return a table as it is now, or as it was at a version."""
        if version is None:
            return self.spark.table(self._name(table))
        reader = self.spark.read.option("versionAsOf", version)
        if self.form == "iceberg":
            return reader.table(self._name(table))
        return reader.format("delta").load(self._place(table))

    def exchange(self, rows: DataFrame, table: str, logs: Iterable[str] | None = None) -> None:
        """Put rows in the place of those of some logs, or of all rows, in one commit."""
        names = sorted(logs) if logs is not None else None
        if names == []:
            return
        self._make(table, types_of(rows.schema), by_log=table in (*OF_LOGS, PROFILE_TABLE))
        ours = F.lit(True) if names is None else F.col("log").isin(names)
        rows = rows.where(ours)  # a log that came meanwhile is for the next run
        if self.form == "iceberg":
            rows.writeTo(self._name(table)).overwrite(ours)
            return
        writer = rows.write.format("delta").mode("overwrite")
        if names is not None:
            quoted = ", ".join(_text(name) for name in names)
            writer = writer.option("replaceWhere", f"log IN ({quoted})")
        writer.save(self._place(table))

    def _require_fit(self) -> None:
        """Check that the tables that are there are those of a run: nothing is written before."""
        wanted = {table: types_of(spark_schema(schema)) for table, schema in _TABLES.items()}
        same_case = is_case_sensitive(self.spark)
        for table, types in {RUNS: _RUNS_TYPES, **wanted}.items():
            there = columns_there(self.spark, self._name(table))
            if there is not None:
                require_fit(self._name(table), types, there, same_case=same_case, whole=True)

    def _make(self, table: str, types: Mapping[str, str], *, by_log: bool = False) -> None:
        parts = "PARTITIONED BY (log)" if by_log else ""
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._name(table)} ({in_sql(types)}) "
            f"USING {self.form} {parts}"
        )

    def _version(self, table: str) -> str:
        name = self._name(table)
        if self.form == "delta":
            return str(self.spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").head()["version"])  # type: ignore[index]
        found = self.spark.sql(f"SELECT snapshot_id FROM {name}.refs WHERE name = 'main'").head()
        assert found is not None, f"{table} was written by this run"
        return str(found["snapshot_id"])

    def _runs(self) -> tuple[Any | None, Any | None]:
        """Return the rows of the run that is published and of one that began after it."""
        published = begun = None
        for row in self.read(RUNS).collect():
            if row["versions"] is None:
                begun = row
            else:
                published = row
        return published, begun

    def _note(self, rows: Sequence[tuple[Any, ...]]) -> None:
        frame = self.spark.createDataFrame(list(rows), in_sql(_RUNS_TYPES)).coalesce(1)
        if self.form == "iceberg":
            frame.writeTo(self._name(RUNS)).overwrite(F.lit(True))
        else:
            frame.write.format("delta").mode("overwrite").save(self._place(RUNS))

    def _name(self, table: str) -> str:
        if self.form == "iceberg":
            return f"{self.root}.{table}"
        return f"delta.`{self._place(table).replace('`', '``')}`"

    def _place(self, table: str) -> str:
        root = self.root if is_remote(self.root) else str(Path(self.root).absolute())
        return f"{root}/{table}"


def published(spark: SparkSession, root: str, form: str) -> dict[str, DataFrame]:
    """Return the tables as the last whole run left them, whatever a later one is doing.

    Args:
        spark: a session that has the form's jars and settings.
        root: what the run was given as ``--out``.
        form: one of `LAKE_FORMS`.
    """
    lake = Lake(spark, root.rstrip("/"), known_form(form))
    return {table: lake.read(table, version) for table, version in lake.versions().items()}


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether names of columns that differ in case alone are two to a session."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def types_of(schema: StructType) -> dict[str, str]:
    """Return the columns of a schema with their types in SQL."""
    return {one.name: one.dataType.simpleString() for one in schema}


def in_sql(types: Mapping[str, str]) -> str:
    """Return columns with their types as a statement that makes a table names them."""
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())


def columns_there(spark: SparkSession, table: str) -> dict[str, str] | None:
    """Return the columns of a table with their types, or None where it is not there.

    A column that has to be filled, and by what is written only, has the type ``required``.
    """
    from pyspark.errors import AnalysisException

    try:
        found: StructType = spark.table(table).schema
    except AnalysisException:
        return None  # who makes it says why it can be neither read nor made
    return {one.name: _type_of(one) for one in found}


def _type_of(column: StructField) -> str:
    required = not column.nullable and _FILLED.isdisjoint(column.metadata)
    return REQUIRED * required + column.dataType.simpleString()


def require_fit(
    table: str,
    wanted: Mapping[str, str],
    there: Mapping[str, str],
    *,
    same_case: bool,
    whole: bool = False,
) -> None:
    """Check that a table that is there takes rows with columns of these names and types.

    Args:
        table: its name.
        wanted: the types by column, of the rows.
        there: those of the table, each after `REQUIRED` where a row has to have a value.
        same_case: names that differ in case are two, as the table's engine has it.
        whole: the table may have no other columns.

    Raises:
        OptionError: it does not; a column is named.
    """
    known = {name if same_case else name.lower(): name for name in there}
    for name, kind in wanted.items():
        found = known.pop(name if same_case else name.lower(), None)
        if found is None:
            near = [one for one in there if one.lower() == name.lower()]
            raise _misfit(table, f"has no column {name}", f"{name} {kind}", ", ".join(near))
        has = there[found].removeprefix(REQUIRED)
        if has != kind and not _WIDER.get(has, 0) > _WIDER.get(kind, 9):
            raise _misfit(table, f"has another type in the column {name}", kind, has)
    for name in known.values():
        if whole or there[name].startswith(REQUIRED):
            raise _misfit(table, f"has a column {name}, which no row has a value for", "", name)


def _misfit(table: str, problem: str, expected: str, found: str) -> OptionError:
    return OptionError(
        f"the table {table} is there, and {problem}",
        expected=expected or None,
        found=found or None,
        advice="Nothing was written; name another table, which is made as it has to be, or drop "
        "this one",
    )


def _text(value: str) -> str:
    """Return a literal of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
