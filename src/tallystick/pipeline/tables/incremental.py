"""Tables in bundles: what a run reads again, what it writes again, and what it leaves as it is.

In: the plan of a run and what the last one left. Out: staged Parquet tables. Logs are put together
into bundles, each with a file of its own in every table. A log that changed leaves its bundle and
comes into a new one; a file none of whose logs changed is linked, neither read nor written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tallystick.arrow.schemas import finding_rows
from tallystick.pipeline import stages
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Plan, bundles
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.tables import judge_task as judging
from tallystick.pipeline.tables.bundle_tasks import PARTS, BundleTasks
from tallystick.pipeline.tables.finished import watched
from tallystick.pipeline.tables.output_dir import TableSpace, literal
from tallystick.pipeline.tables.run_state import RunState
from tallystick.pipeline.tables.write_task import (
    PROFILE_TABLE,
    SUFFIX,
    FileRewrite,
    WriteTask,
    do_all,
    link_file,
    parquet_writer,
)
from tallystick.reading.names import row_name
from tallystick.reading.profiling import PROFILE
from tallystick.reading.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEPS = ("logs", "profile", "global_transactions", "findings")
"""What a run does, in order: each step may read what those before it wrote."""
_SHARES = (85, 5, 7, 3)
"""Percent of the time of a run that these take, about."""

_ALL = "all"
"""In the names of files whose rows came from several bundles of a generation."""
_OVER = "over"
"""The generation in the names of files with rows that need all logs: never kept."""

_CODEC = "spark.sql.parquet.compression.codec"
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
"""Spark's names of what Arrow calls otherwise."""


@dataclass
class BundledTables:
    """The making of all tables of one run; ``now`` learns the bundle of every log."""

    spark: SparkSession
    plan: Plan
    space: TableSpace
    last: RunState | None
    now: RunState
    options: SourceOptions
    resources: Mapping[str, str] | None = None
    _folds: list[WriteTask] = field(default_factory=list)

    def write(self, progress: Callable[[str, int, int], None]) -> None:
        """Stage every table."""
        self.now.generation = 1 + (self.last.generation if self.last else 0)
        steps = (
            lambda: self._logs(lambda done, of: progress("logs", _SHARES[0] * done // of, 100)),
            self._folded, self._global_transactions, self._findings,
        )  # fmt: skip
        for number, (name, step) in enumerate(zip(STEPS, steps, strict=True)):
            progress(name, sum(_SHARES[:number]), 100)
            step()
        progress("", 100, 100)

    # -- steps --------------------------------------------------------------------------

    def _logs(self, tell: Callable[[int, int], None]) -> None:
        """Write the tables of single logs in one job, and keep what the last run left."""
        tables = (*TABLES, PROFILE_TABLE)
        for table in tables:
            self.space.staging(table).mkdir(parents=True)
        work = [
            *self._table_writes(),
            *(one for table in tables for one in self._kept_files(table)),
        ]
        if work:
            with watched(self.spark, len(work), tell):
                do_all(self.spark, work, self._root)

    def _folded(self) -> None:
        """Write what the parts of large logs left open: the tasks wrote all others' rows."""
        if self._folds:
            do_all(self.spark, self._folds, self._root)
            shutil.rmtree(self.space.staging(PARTS))
        for table, schema in {**TABLES, PROFILE_TABLE: PROFILE}.items():
            for partial in self.space.staging(table).glob(".*"):
                partial.unlink()  # of attempts that failed
            self._require_file(table, schema)

    def _global_transactions(self) -> None:
        """Judge few transactions in one task, which also writes the findings of all logs together.

        Many are brought together by joins.
        """
        if not self._few:
            self.space.write(self._reconciled.rows, "global_transactions")
            return
        task = judging.EstateJudgement(
            self._root,
            tuple(self._staged("transactions")),
            tuple(self._staged("findings")),
            tuple(self.plan.problems),
            self.plan.coordinators(),
            self.resources,
            f"{_OVER}-{_ALL}-00000",
            self._codec,
        )
        do_all(self.spark, [task], self._root)

    @cached_property
    def _few(self) -> bool:
        rows: int = sum(pq.read_metadata(file).num_rows for file in self._staged("transactions"))
        return rows <= judging.JUDGED_AT_ONCE

    def _findings(self) -> None:
        """Beside those of the logs: of the search for logs, and of all logs together."""
        if self._few:
            return
        rows = [tuple(row.values()) for row in finding_rows(self.plan.problems)]
        found = self.spark.createDataFrame(rows, spark_schema(TABLES["findings"]))
        alarms = self.space.written(self.spark, "global_transactions")
        self._add(
            "findings", stages.findings(found, alarms, self._reconciled.copies).coalesce(1), _OVER
        )

    @cached_property
    def _reconciled(self) -> stages.Reconciled:
        transactions, found = (
            self._frame(table, self._staged(table)) for table in ("transactions", "findings")
        )
        return stages.reconciled(transactions, self.resources, found, self.plan.coordinators())

    # -- bundles ------------------------------------------------------------------------

    @property
    def _generation(self) -> str:
        return f"{self.now.generation:08d}"

    @cached_property
    def _fresh(self) -> set[str]:
        return self.now.changed(self.last)

    @cached_property
    def _stale(self) -> set[str]:
        """Logs whose rows in the last tables count no more."""
        return self._fresh | self.now.vanished(self.last)

    @cached_property
    def _logs_of(self) -> dict[str, set[str]]:
        """Logs by bundle, and by generation, as the last run left them."""
        found: dict[str, set[str]] = {}
        for log, name in self.last.bundles.items() if self.last else ():
            for part in (name, f"{name.partition('-')[0]}-{_ALL}"):
                found.setdefault(part, set()).add(log)
        return found

    def _table_writes(self) -> Iterator[WriteTask]:
        """Yield the writing of every changed log, and note the new bundle of each."""
        if self.last is not None:
            kept = set(self.now.logs) - self._fresh
            self.now.bundles = {log: self.last.bundles[log] for log in kept}
        logs = [log for log in self.plan.logs if row_name(log) in self._fresh]
        for number, bundle in enumerate(bundles(logs, self.options)):
            name = f"{self._generation}-{number:05d}"
            self.now.bundles |= {row_name(piece.source): name for piece in bundle.whole.pieces}
            tasks = BundleTasks(bundle, name, self._root, self.options, self._codec, profile=True)
            self._folds += tasks.folds
            yield from tasks.writes

    def _kept_files(self, table: str) -> Iterator[WriteTask]:
        """Link the files that stay as they are; yields the writing of those that lose a log."""
        if self.last is None or not set(self.now.logs) - self._fresh:
            return
        staging = self.space.staging(table)
        for file in self.space.files(table):
            logs = self._logs_of.get(_part_of(file.name), set())
            if logs and logs.isdisjoint(self._stale):
                link_file(file, staging / file.name)
            elif logs - self._stale:
                yield FileRewrite(
                    str(file), str(staging), frozenset(logs & self._stale), self._codec
                )

    # -- files --------------------------------------------------------------------------

    @property
    def _root(self) -> str:
        return str(self.space.staging(""))

    @property
    def _codec(self) -> str:
        name = self.spark.conf.get(_CODEC, "snappy") or "snappy"
        return _CODECS.get(name.lower(), name.lower())

    def _staged(self, table: str) -> list[str]:
        return sorted(map(str, self.space.staging(table).glob(f"*{SUFFIX}")))

    def _require_file(self, table: str, schema: pa.Schema) -> None:
        """Write a file without rows if a table has no file."""
        if not any(self._staged(table)):
            parquet_writer(self.space.staging(table) / f"none{SUFFIX}", schema, "none").close()

    def _frame(self, table: str, files: Iterable[str]) -> DataFrame:
        return rows_in(self.spark, table, files)

    def _add(self, table: str, frame: DataFrame, prefix: str) -> None:
        """Rows that Spark made, in files of that prefix beside those of the bundles."""
        folder = self.space.staging(f"_{table}")
        frame.write.parquet(str(folder))
        for number, part in enumerate(sorted(folder.glob(f"*{SUFFIX}"))):
            part.rename(self.space.staging(table) / f"{prefix}-{_ALL}-{number:05d}{SUFFIX}")
        shutil.rmtree(folder)


def rows_in(spark: SparkSession, table: str, files: Iterable[str]) -> DataFrame:
    """Return the rows of a table in files that were written."""
    schema = spark_schema(TABLES[table])
    paths = list(files)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(literal(path, "parquet") for path in paths))


def _part_of(name: str) -> str:
    """Return the bundle whose rows a file has, or the generation."""
    return "-".join(name.removesuffix(SUFFIX).split("-")[:2])
