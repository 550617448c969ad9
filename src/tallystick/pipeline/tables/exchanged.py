"""Tables of a run made by Spark: the rows of logs that changed are put in place of their old ones.

In: the rows of changed logs, and a place that keeps tables (`TablePlace`): a folder of files, or
tables of Delta or Iceberg. Out: all tables of the run in that place; its ``commit`` publishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tallystick.arrow.schemas import batch_of, finding_rows
from tallystick.pipeline import stages
from tallystick.pipeline.planning import Plan
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.tables.judge_task import JUDGED_AT_ONCE, judged
from tallystick.pipeline.tables.output_dir import OF_LOGS, SCHEMAS, kept_rows
from tallystick.pipeline.tables.run_state import RunState
from tallystick.pipeline.tables.write_task import PROFILE_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TablePlace(Protocol):
    """Where the tables of a run are kept: as the last run left them, until this one commits."""

    @property
    def spark(self) -> SparkSession:
        """The session that reads and writes them."""

    def open(self) -> RunState | None:
        """Return what the tables hold; None if they must all be made."""

    def begin(self, now: RunState, last: RunState | None) -> None:
        """Note that the rows of changed logs are going to be exchanged."""

    def last(self, table: str) -> DataFrame:
        """Return a table before this run exchanges its rows."""

    def read(self, table: str) -> DataFrame:
        """Return a table whose rows this run has exchanged."""

    def exchange(self, rows: DataFrame, table: str, logs: Iterable[str] | None = None) -> None:
        """Put rows in the place of those of some logs, or of all rows there are."""

    def commit(self, tables: Sequence[str], now: RunState) -> None:
        """Publish the tables, all at once where the form can."""


@dataclass
class ExchangedTables:
    """The making of all tables of one run."""

    place: TablePlace
    plan: Plan
    last: RunState | None
    now: RunState
    fresh: Callable[[str], DataFrame]
    """Returns the rows of a table that the changed logs give."""
    resources: Mapping[str, str] | None = None

    def write(self, progress: Callable[[str, int, int], None]) -> None:
        """Exchange what changed in every table."""
        steps = (*OF_LOGS, PROFILE_TABLE, "global_transactions", "findings")
        self.now.generation = 1 + (self.last.generation if self.last else 0)
        self.place.begin(self.now, self.last)
        for number, table in enumerate(OF_LOGS):
            progress(table, number, len(steps))
            self.place.exchange(self.fresh(table), table, self._stale)
        progress(PROFILE_TABLE, len(OF_LOGS), len(steps))
        self.place.exchange(self._profile(), PROFILE_TABLE, self._stale)
        progress("global_transactions", len(OF_LOGS) + 1, len(steps))
        self._judge()
        progress("", len(steps), len(steps))

    @property
    def _stale(self) -> set[str] | None:
        """Logs whose rows are exchanged; None for all rows there are."""
        changed = self.now.changed(self.last)
        if self.last is None or changed == set(self.now.logs):
            return None
        return changed | self.now.vanished(self.last)

    def _profile(self) -> DataFrame:
        changed = list(self.now.changed(self.last))
        records, transactions = (
            table.where(table["log"].isin(changed))
            for table in map(self.place.read, ("records", "transactions"))
        )
        return stages.profile(records, transactions)

    def _judge(self) -> None:
        """Write what only all logs together show, and the findings."""
        transactions, of_logs = self.place.read("transactions"), self._findings()
        coordinators = self.plan.coordinators()
        some = transactions.limit(JUDGED_AT_ONCE + 1).toArrow()
        if some.num_rows <= JUDGED_AT_ONCE:
            known = of_logs.select("system", "log", "code", "severity").toArrow()
            rows, over = judged(
                some.to_pylist(), known.to_pylist(), (), coordinators, self.resources
            )
            self.place.exchange(self._frame(rows, "global_transactions"), "global_transactions")
            found = of_logs.unionByName(self._frame(over, "findings"))
        else:
            reconciled = stages.reconciled(transactions, self.resources, of_logs, coordinators)
            self.place.exchange(reconciled.rows, "global_transactions")
            alarms = self.place.read("global_transactions")
            found = stages.findings(of_logs, alarms, reconciled.copies)
        self.place.exchange(found, "findings")

    def _findings(self) -> DataFrame:
        """Return the findings of single logs, kept and fresh, and of the search for them."""
        found = self.fresh("findings")
        if self.plan.problems:
            rows = finding_rows(self.plan.problems)
            found = found.unionByName(self._frame(rows, "findings"))
        kept = set(self.now.logs) - self.now.changed(self.last)
        if self.last is not None and kept:
            found = found.unionByName(kept_rows(self.place.last("findings"), "findings", kept))
        return found

    def _frame(self, rows: list[dict[str, Any]], table: str) -> DataFrame:
        schema = SCHEMAS[table]
        made = pa.Table.from_batches([batch_of(rows, schema)])
        return self.place.spark.createDataFrame(made, spark_schema(schema))
