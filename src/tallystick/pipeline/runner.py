"""One run of the pipeline: logs to tables, incremental and idempotent.

In: paths that hold logs, and a folder for the tables. Out: the seven tables in that folder,
each with exactly one row per thing whatever ran before, and a `RunSummary`. Only logs that
changed are read; rows of the others are carried over. A run that fails leaves
the tables of the last good one.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from tallystick.arrow.schemas import finding_rows
from tallystick.callables import checked
from tallystick.pipeline import stages
from tallystick.pipeline.options import OptionError, SourceOptions, parse
from tallystick.pipeline.planning import Plan, find
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.summary import RunSummary, summarise
from tallystick.pipeline.tables.bucket import publish
from tallystick.pipeline.tables.decoded import decoded, on_one_machine
from tallystick.pipeline.tables.incremental import BundledTables
from tallystick.pipeline.tables.lakehouse import LAKE_FORMS, Lake, LakeTables, published
from tallystick.pipeline.tables.output_dir import TableSpace, check_form, kept_rows
from tallystick.pipeline.tables.run_state import RunState, state_of
from tallystick.reading.names import log_name
from tallystick.reading.tables import TABLES
from tallystick.storage.source import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTPUT = (
    "logs",
    "files",
    "records",
    "transactions",
    "changes",
    "profile",
    "global_transactions",
    "findings",
)
"""Every table, in the order of writing: each may read those before it."""

_NOT_COUNTED = ("logs", "changes", "profile")
"""Tables that a summary says nothing of."""

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Run:
    """What one run reads and where it writes.

    ``options`` go to the data source (see `tallystick.pipeline.options`), ``resources`` maps
    resource names to log paths where the logs alone leave it open.
    """

    sources: Sequence[str]
    out: str
    form: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] | None = None
    anew: bool = False
    """Read everything once, whatever the tables hold."""
    publish: str | None = None
    """URL in an object store to which the tables are brought after every run."""

    def __post_init__(self) -> None:
        """Raise `OptionError` for a format that cannot hold the tables, or cannot be published."""
        check_form(self.form)
        if self.publish and (self.form != "parquet" or is_remote(self.out)):
            raise OptionError("what is published are Parquet tables in a local folder")

    def __call__(self, spark: SparkSession, progress: Progress | None = None) -> RunSummary:
        """Bring the tables up to date, and sum them up.

        Raises `LogUnreadableError` if a source cannot be read.
        """
        begun = time.monotonic()
        read = self.advance(spark, progress)
        if self.form in LAKE_FORMS:
            every = published(spark, self.out, self.form)
        else:
            every = {name: self._space().read(spark, name) for name in OUTPUT}
        tables = {name: frame for name, frame in every.items() if name not in _NOT_COUNTED}
        return summarise(tables, read, time.monotonic() - begun)

    def advance(self, spark: SparkSession, progress: Progress | None = None) -> list[str]:
        """Bring the tables up to date; return the logs that had to be read.

        Raises `LogUnreadableError` if a source, or in `failfast` any file, cannot be read.
        """
        progress = checked(progress, "progress")
        plan = find(self.sources)
        self._require_logs(plan)
        if self._source_options().mode == "failfast":
            plan.require_readable()
        if self.form in LAKE_FORMS:
            return self._advance_lake(spark, plan, progress or _silent)
        space = self._space()
        last = space.open()
        now = self._state(plan)
        if self.anew or not all(map(space.has, OUTPUT)):
            last = None
        if last is None or last != now:
            if space.staged and self.form == "parquet":
                options = self._source_options()
                tables = BundledTables(spark, plan, space, last, now, options, self.resources)
                tables.write(progress or _silent)
            else:
                _Work(spark, self, plan, space, last, now).write(progress or _silent)
            space.commit(list(OUTPUT), now)
            self.anew = False
        if self.publish:
            publish(self.out, self.publish, OUTPUT)
        return sorted(now.changed(last))

    def _require_logs(self, plan: Plan) -> None:
        """Check that every resource means a log. Raises `OptionError`."""
        logs = {log_name(log) for log in plan.logs}
        for name, log in (self.resources or {}).items():
            if log not in logs:
                raise OptionError(
                    f"the resource {name} is in no log that is read",
                    expected="the path of a log below the sources, as the table logs has it",
                    found=log,
                )

    def _advance_lake(self, spark: SparkSession, plan: Plan, progress: Progress) -> list[str]:
        """Bring tables of Delta or Iceberg up to date."""
        lake, now = Lake(spark, self.out.rstrip("/"), self.form), self._state(plan)
        last = lake.open()
        if self.anew:
            last = None
        if last is None or last != now:
            with self._fresh_rows(spark, plan, now, last) as rows:
                LakeTables(lake, plan, last, now, rows, self.resources).write(progress, OUTPUT)
            lake.commit(OUTPUT, now)
            self.anew = False
        return sorted(now.changed(last))

    def follow(
        self, spark: SparkSession, every: float, stopped: threading.Event
    ) -> Iterator[list[str]]:
        """Bring the tables up to date until stopped, looking every ``every`` seconds.

        Yields:
            The logs that were read, after every look.
        """
        while not stopped.wait(every):
            yield self.advance(spark)

    def _space(self) -> TableSpace:
        return TableSpace(self.out.rstrip("/"), self.form)

    @contextmanager
    def _fresh_rows(
        self, spark: SparkSession, plan: Plan, now: RunState, last: RunState | None
    ) -> Iterator[Callable[[str], DataFrame]]:
        """Give what returns the rows of changed logs: decoded once for all tables, if possible."""
        if not on_one_machine(spark):
            yield partial(_fresh, spark, self, plan, now, last)
            return
        changed = now.changed(last)
        logs = [log for log in plan.logs if log_name(log) in changed]
        with decoded(spark, logs, self._source_options()) as rows:
            yield rows

    def _source_options(self) -> SourceOptions:
        return parse({**self.options, "paths": json.dumps(list(self.sources))})

    def _state(self, plan: Plan) -> RunState:
        settings = {"form": self.form, "options": dict(self.options)}
        settings["resources"] = dict(self.resources or {})
        return state_of(plan.logs, settings, plan.problems)


@dataclass
class _Work:
    """The making of all tables of one run."""

    spark: SparkSession
    run: Run
    plan: Plan
    space: TableSpace
    last: RunState | None
    now: RunState

    def write(self, progress: Progress) -> None:
        for number, table in enumerate(OUTPUT):
            progress(table, number, len(OUTPUT))
            self.space.write(self._table(table), table)
        progress("", len(OUTPUT), len(OUTPUT))

    def _table(self, table: str) -> DataFrame:
        if table == "global_transactions":
            return self._reconciled.rows
        if table == "findings":
            alarms = self.space.written(self.spark, "global_transactions")
            return stages.findings(self._of_logs(), alarms, self._reconciled.copies)
        if table == "profile":
            return self._with_kept(table, self._profile())
        return self._with_kept(
            table, _fresh(self.spark, self.run, self.plan, self.now, self.last, table)
        )

    def _profile(self) -> DataFrame:
        changed = list(self._changed())
        records, transactions = (
            self.space.written(self.spark, name) for name in ("records", "transactions")
        )
        return stages.profile(
            records.where(records["log"].isin(changed)),
            transactions.where(transactions["log"].isin(changed)),
        )

    @cached_property
    def _reconciled(self) -> stages.Reconciled:
        transactions = self.space.written(self.spark, "transactions")
        return stages.reconciled(transactions, self.run.resources, self._of_logs())

    def _of_logs(self) -> DataFrame:
        """Return the findings of single logs, and of the search for them."""
        fresh = _fresh(self.spark, self.run, self.plan, self.now, self.last, "findings")
        if self.plan.problems:
            rows = [tuple(row.values()) for row in finding_rows(self.plan.problems)]
            schema = spark_schema(TABLES["findings"])
            fresh = fresh.unionByName(self.spark.createDataFrame(rows, schema))
        return self._with_kept("findings", fresh)

    def _changed(self) -> set[str]:
        return self.now.changed(self.last)

    def _with_kept(self, table: str, fresh: DataFrame) -> DataFrame:
        """Fresh rows, and those of the last run whose logs did not change."""
        kept = set(self.now.logs) - self._changed()
        if self.last is None or not kept:
            return fresh
        return kept_rows(self.space.read(self.spark, table), table, kept).unionByName(fresh)


def _fresh(
    spark: SparkSession, run: Run, plan: Plan, now: RunState, last: RunState | None, table: str
) -> DataFrame:
    """Return the rows of logs that changed."""
    changed = now.changed(last)
    files = [log.files[0] for log in plan.logs if log_name(log) in changed]
    paths = list(run.sources) if len(changed) == len(now.logs) else files
    if not files:
        return spark.createDataFrame([], spark_schema(TABLES[table]))
    # The findings of the search come from the plan, once for all.
    settings = {**run.options, "search": "false", "feed": "false"}
    schema = spark_schema(TABLES[table])
    if table == "records":  # whose attributes are left out, in tables of every form
        settings["columns"] = ",".join(name for name in schema.names if name != "attributes")
    reader = spark.read.format("tallystick").option("table", table).options(**settings)
    rows = reader.option("paths", json.dumps(paths)).load()
    return spark.createDataFrame([], schema).unionByName(rows, allowMissingColumns=True)


def _silent(_table: str, _done: int, _of: int) -> None: ...
