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
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tallystick.arguments import seconds
from tallystick.arrow.texts import whole_text
from tallystick.callables import checked
from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.pipeline.options import (
    OptionError,
    SourceOptions,
    parse,
    require_matches,
    require_of_runs,
)
from tallystick.pipeline.planning import Plan, find
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.summary import RunSummary, summarise
from tallystick.pipeline.tables.bucket import connected, publish
from tallystick.pipeline.tables.decoded import decoded, on_one_machine
from tallystick.pipeline.tables.exchanged import ExchangedTables, TablePlace
from tallystick.pipeline.tables.incremental import BundledTables
from tallystick.pipeline.tables.lakehouse import LAKE_FORMS, Lake, published
from tallystick.pipeline.tables.output_dir import TableFolder, TableSpace, known_form
from tallystick.pipeline.tables.run_state import RunState, state_of
from tallystick.reading.discovery import real
from tallystick.reading.names import row_name
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
"""Takes what a run does now, how much of it is done, and how much there is in all.

It may be called by a thread of the run's own.
"""


class RunTables(Protocol):
    """The making of all tables of one run."""

    def write(self, progress: Progress) -> None:
        """Write every table; they are published when their place commits."""


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
    goes_on: bool = False
    """Publishing that fails is noted in ``unpublished``, and every later run tries it again."""
    unpublished: TallystickError | None = field(default=None, init=False)
    """Why the tables of the last run are not where they are published; None where they are."""

    def __post_init__(self) -> None:
        """Raise `OptionError` for what fits no run: a format, options, places.

        And `LogUnreadableError` where there is no access to a store to publish to.
        """
        self.form = known_form(self.form)
        if self.resources is not None:  # of rows are their logs
            self.resources = {name: whole_text(log) for name, log in self.resources.items()}
        require_of_runs(self.options)
        if not self.out.rstrip("/"):  # as of a variable of a shell that is not set
            raise OptionError("the tables need a folder of their own", found=repr(self.out))
        if self.publish is not None:
            if self.form != "parquet" or is_remote(self.out):
                raise OptionError("what is published are Parquet tables in a local folder")
            _ = connected(self.publish)  # else a run would end with its refusal

    def __call__(self, spark: SparkSession, progress: Progress | None = None) -> RunSummary:
        """Bring the tables up to date, and sum them up.

        Raises `LogUnreadableError` if a source cannot be read, or the tables cannot be published.
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

        Raises:
            LogUnreadableError: a source, or in `failfast` any file, cannot be read; or the store
                that the tables are published to cannot be written, unless the run ``goes_on``.
            OptionError: the tables would replace a log, or what no run has written; or nothing
                matches a pattern.
        """
        progress = checked(progress, "progress")
        space = self._space()
        mark, plan = space.mark(), self._planned()
        place = self._place(spark)
        with space.alone():
            last = place.open()
            if space.mark() != mark:  # by another run, which may have seen more than this one
                plan = self._planned()
            now = self._state(plan)
            if self.anew:
                last = None
            if last is None or last != now:
                with self._tables(place, plan, last, now) as tables:
                    tables.write(progress or _silent)
                place.commit(OUTPUT, now)
                self.anew = False
            if self.publish is not None:
                self._bring(self.publish)
        return sorted(now.changed(last))

    def _bring(self, url: str) -> None:
        """Publish the tables; what keeps them from there for a while is no end of what follows."""
        try:
            publish(self.out, url, OUTPUT)
        except LogUnreadableError as error:
            self.unpublished = error
            if not self.goes_on:
                raise
        else:
            self.unpublished = None

    def _planned(self) -> Plan:
        """Search for logs, and check that tables can be made of them.

        Raises as `advance` does.
        """
        require_matches(self.sources)
        plan = find(self.sources)
        self._require_logs(plan)
        self._require_apart(plan)
        if self._source_options().mode == "failfast":
            plan.require_readable()
        out = real(self.out.rstrip("/"))
        plan.problems = [
            one
            for one in plan.problems
            # The tables of the last run are no strangers where they lie below a source.
            if one.code != "not-a-log" or not f"{real(one.log)}/".startswith(f"{out}/")
        ]
        return plan

    def _require_logs(self, plan: Plan) -> None:
        """Check that every resource means a log. Raises `OptionError`."""
        logs = {row_name(log) for log in plan.logs}
        for name, log in (self.resources or {}).items():
            if log not in logs:
                raise OptionError(
                    f"the resource {name} is in no log that is read",
                    expected="the path of a log below the sources, as the table logs has it",
                    found=log,
                )

    def _require_apart(self, plan: Plan) -> None:
        """Check that no log lies where a table is going to be, nor a table among a log's files.

        Raises `OptionError`.
        """
        out = f"{real(self.out.rstrip('/'))}/"
        places = tuple(f"{out}{table}/" for table in OUTPUT)
        for log in plan.logs:
            path = f"{real(log.path)}/"
            wrong = ""
            if path.startswith(places):
                wrong = "a table would replace a log that is read"
            elif out.startswith(path):
                wrong = "the tables would lie among the files of a log that is read"
            if wrong:
                raise OptionError(
                    wrong,
                    expected="a folder for the tables that holds no logs",
                    found=log.path,
                )

    def follow(
        self, spark: SparkSession, every: float, stopped: threading.Event
    ) -> Iterator[list[str]]:
        """Bring the tables up to date until stopped, looking every ``every`` seconds.

        From then on the run ``goes_on`` where publishing fails.

        Yields:
            The logs that were read, after every look.

        Raises:
            ValueError: ``every`` is not more than 0.
        """
        every = seconds(every, "every", positive=True)
        self.goes_on = True
        while not stopped.wait(every):
            yield self.advance(spark)

    def _space(self) -> TableSpace:
        return TableSpace(self.out.rstrip("/"), self.form)

    def _place(self, spark: SparkSession) -> TablePlace:
        if self.form in LAKE_FORMS:
            return Lake(spark, self.out.rstrip("/"), self.form)
        return TableFolder(spark, self._space())

    @contextmanager
    def _tables(
        self, place: TablePlace, plan: Plan, last: RunState | None, now: RunState
    ) -> Iterator[RunTables]:
        """Give what makes the tables: Parquet in bundles, written by tasks; others by Spark."""
        spark, options = place.spark, self._source_options()
        if self.form == "parquet" and self._space().staged:
            yield BundledTables(spark, plan, self._space(), last, now, options, self.resources)
        elif on_one_machine(spark):
            logs = [log for log in plan.logs if row_name(log) in now.changed(last)]
            with decoded(spark, logs, options) as rows:  # once for all tables
                yield ExchangedTables(place, plan, last, now, rows, self.resources)
        else:
            rows = partial(_fresh, spark, self, plan, now, last)
            yield ExchangedTables(place, plan, last, now, rows, self.resources)

    def _source_options(self) -> SourceOptions:
        return parse({**self.options, "paths": json.dumps(list(self.sources))})

    def _state(self, plan: Plan) -> RunState:
        settings = {"form": self.form, "options": dict(self.options)}
        settings["resources"] = dict(self.resources or {})
        return state_of(plan, settings)


def _fresh(
    spark: SparkSession, run: Run, plan: Plan, now: RunState, last: RunState | None, table: str
) -> DataFrame:
    """Return the rows of logs that changed."""
    changed = now.changed(last)
    files = [log.files[0] for log in plan.logs if row_name(log) in changed]
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
