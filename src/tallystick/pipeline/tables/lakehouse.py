"""The tables of a run as Delta or Iceberg: what changed is exchanged, in one commit per table.

In: the logs that changed, and what the last run left. Out: the tables of that form, and the table
``runs``, which says which version of each belongs together: one commit to it publishes them all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from tallystick.arrow.schemas import batch_of, finding_rows
from tallystick.pipeline import stages
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.planning import Plan
from tallystick.pipeline.source.batch import spark_schema
from tallystick.pipeline.tables import run_state
from tallystick.pipeline.tables.judge_task import JUDGED_AT_ONCE, judged
from tallystick.pipeline.tables.output_dir import SCHEMAS, kept_rows
from tallystick.pipeline.tables.run_state import RunState
from tallystick.storage.source import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAKE_FORMS = ("delta", "iceberg")
"""Forms whose tables have transactions, and versions that can be read later."""

RUNS = "runs"
"""The table of at most two rows: the run that is published, and one that began after it."""

OF_LOGS = ("logs", "files", "records", "transactions", "changes")
"""Tables whose rows each come from one log; they, and the profile, are partitioned by it."""

_RUNS_COLUMNS = (
    "generation bigint, state string, touched array<string>, versions map<string,string>"
)


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
        """Return what the tables hold; logs that an unfinished run touched count as not read."""
        self._make(RUNS, _RUNS_COLUMNS)
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

    def commit(self, tables: Iterable[str], now: RunState) -> None:
        """Publish the present versions of the tables, all at once."""
        versions = {table: self._version(table) for table in tables}
        self._note([(now.generation, json.dumps(asdict(now)), [], versions)])

    def versions(self) -> dict[str, str]:
        """Return the version of each table in the run that is published; empty before the first."""
        published, _ = self._runs()
        return {} if published is None else dict(published["versions"])

    # -- tables ---------------------------------------------------------------------------

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
        fields = ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in rows.schema)
        self._make(table, fields, by_log=table in (*OF_LOGS, "profile"))
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

    def _make(self, table: str, columns: str, *, by_log: bool = False) -> None:
        parts = "PARTITIONED BY (log)" if by_log else ""
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._name(table)} ({columns}) USING {self.form} {parts}"
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
        frame = self.spark.createDataFrame(list(rows), _RUNS_COLUMNS).coalesce(1)
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


@dataclass
class LakeTables:
    """The making of all tables of one run in Delta or Iceberg."""

    lake: Lake
    plan: Plan
    last: RunState | None
    now: RunState
    fresh: Callable[[str], DataFrame]
    """Returns the rows of a table that the changed logs give."""
    resources: Mapping[str, str] | None = None

    def write(self, progress: Callable[[str, int, int], None], tables: Sequence[str]) -> None:
        """Exchange what changed in every table; `Lake.commit` publishes it."""
        self.now.generation = 1 + (self.last.generation if self.last else 0)
        self.lake.begin(self.now, self.last)
        for number, table in enumerate(OF_LOGS):
            progress(table, number, len(tables))
            self.lake.exchange(self.fresh(table), table, self._stale)
        progress("profile", len(OF_LOGS), len(tables))
        self.lake.exchange(self._profile(), "profile", self._stale)
        progress("global_transactions", len(OF_LOGS) + 1, len(tables))
        self._judge()
        progress("", len(tables), len(tables))

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
            for table in map(self.lake.read, ("records", "transactions"))
        )
        return stages.profile(records, transactions)

    def _judge(self) -> None:
        """Write what only all logs together show, and the findings."""
        transactions, of_logs = self.lake.read("transactions"), self._findings()
        some = transactions.limit(JUDGED_AT_ONCE + 1).toArrow()
        if some.num_rows <= JUDGED_AT_ONCE:
            known = of_logs.select("system", "log", "code", "severity").toArrow()
            rows, over = judged(some.to_pylist(), known.to_pylist(), (), self.resources)
            self.lake.exchange(self._frame(rows, "global_transactions"), "global_transactions")
            found = of_logs.unionByName(self._frame(over, "findings"))
        else:
            reconciled = stages.reconciled(transactions, self.resources, of_logs)
            self.lake.exchange(reconciled.rows, "global_transactions")
            alarms = self.lake.read("global_transactions")
            found = stages.findings(of_logs, alarms, reconciled.copies)
        self.lake.exchange(found, "findings")

    def _findings(self) -> DataFrame:
        """Return the findings of single logs, kept and fresh, and of the search for them."""
        found = self.fresh("findings")
        if self.plan.problems:
            rows = finding_rows(self.plan.problems)
            found = found.unionByName(self._frame(rows, "findings"))
        kept = set(self.now.logs) - self.now.changed(self.last)
        if self.last is not None and kept:
            found = found.unionByName(kept_rows(self.lake.read("findings"), "findings", kept))
        return found

    def _frame(self, rows: list[dict[str, Any]], table: str) -> DataFrame:
        schema = SCHEMAS[table]
        made = pa.Table.from_batches([batch_of(rows, schema)])
        return self.lake.spark.createDataFrame(made, spark_schema(schema))


def published(spark: SparkSession, root: str, form: str) -> dict[str, DataFrame]:
    """Return the tables as the last whole run left them, whatever a later one is doing.

    Args:
        spark: a session that has the form's jars and settings.
        root: what the run was given as ``--out``.
        form: one of `LAKE_FORMS`.
    """
    lake = Lake(spark, root.rstrip("/"), form)
    return {table: lake.read(table, version) for table, version in lake.versions().items()}


def _text(value: str) -> str:
    """Return a literal of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
