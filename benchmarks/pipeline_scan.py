"""The pipeline on two cores: an estate by our own writers, and what reading it with Spark costs.

``python benchmarks/pipeline_scan.py [--mib 256] [--coordinators 4] [--resources 3]
[--transactions 100] [--fault-every 10] [--keep DIR]`` writes an estate: Bitronix coordinators over
native journals, each filled up with plain records. Every so many transactions are left at a fault,
in turn: no decision, an open decision, a commit that a resource lost. Then, in one session that has
read something before:

* count: files to the number of records, every checksum verified. Spark does not tell a Python
  data source which columns a query needs, so one is declared (``columns``); beside it the same
  with every column on its way through Spark
* all tables: files to the seven tables, beside the same rows from Parquet to Parquet
* nothing new: a second run over the same files

Rates are of valid bytes: what segments keep free counts for nothing. Log files are in the page
cache: written just before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tallystick.pipeline.runner import OUTPUT, Run
from tallystick.pipeline.session import start
from tallystick.records import State, Xid
from tallystick.services.roles import DecisionOutcome
from tallystick.systems.bitronix.role import BitronixDecisionLog
from tallystick.systems.tally.journal import TallyJournal, open_journal
from tallystick.systems.tally.settings import Settings

FORMAT_ID = 0x42746E78
BODY = bytes(range(200))
FILL_ROUND = 20_000
FAULTS = ("no-decision", "open-decision", "lost-commit")


@dataclass(frozen=True, slots=True)
class Estate:
    """How large, and how often a transaction is left at a fault (0: never). ``mib`` is the size
    of all plain records."""

    coordinators: int
    resources: int
    transactions: int
    fault_every: int
    mib: int

    def write(self, root: Path) -> None:
        """Write it below ``root``."""
        fill = (self.mib << 20) // (self.coordinators * self.resources * len(BODY))
        for number in range(self.coordinators):
            self._write_one(root / f"site-{number}", f"site-{number}", fill)

    def _write_one(self, home: Path, owner: str, fill: int) -> None:
        home.mkdir(parents=True)
        names = [f"jdbc/{owner}-{number}" for number in range(self.resources)]
        with ExitStack() as opened:
            decisions = BitronixDecisionLog(home / "coordinator", forced_write_enabled=False)
            opened.callback(decisions.close)
            journals = {}
            for number, name in enumerate(names):
                settings = Settings(spares=0, preallocate=False)
                journal = open_journal(str(home / f"resource-{number}"), settings=settings)
                opened.callback(journal.close)
                journals[name] = journal
            for number in range(1, self.transactions + 1):
                transfer(decisions, journals, number, owner.encode(), self._fault(number))
            for journal in journals.values():
                for begin in range(0, fill, FILL_ROUND):
                    journal.append_many([BODY] * min(FILL_ROUND, fill - begin))

    def _fault(self, number: int) -> str | None:
        if not self.fault_every or number % self.fault_every:
            return None
        return FAULTS[number // self.fault_every % len(FAULTS)]


def transfer(
    decisions: BitronixDecisionLog,
    journals: dict[str, TallyJournal],
    number: int,
    owner: bytes,
    fault: str | None,
) -> None:
    """One global transaction over all resources, up to the end or to its fault."""
    clock = time.time_ns() // 1_000_000
    gtrid = owner + clock.to_bytes(8, "big") + number.to_bytes(4, "big")
    decisions.note(State.ACTIVE, gtrid, set())
    for name, journal in journals.items():
        journal.add_in(number, number, BODY)
        journal.prepare(number, xid=Xid(FORMAT_ID, gtrid, gtrid + name.encode())).wait()
    if fault == "no-decision":
        return
    decisions.decide(gtrid, set(journals)).wait()
    if fault == "open-decision":
        return
    kept = list(journals.values())[fault == "lost-commit" :]
    for journal in kept:
        journal.commit(number).wait()
    decisions.finish(gtrid, set(journals), DecisionOutcome.COMMITTED)


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def copy_tables(spark: SparkSession, tables: Path, out: Path) -> None:
    """The same rows, Parquet to Parquet."""
    for table in OUTPUT:
        spark.read.parquet(str(tables / table)).write.parquet(str(out / table))


def valid_bytes(spark: SparkSession, logs: Path) -> int:
    """Bytes of records, headers and footers."""
    files = spark.read.format("tallystick").option("table", "files").load(str(logs))
    return int(files.selectExpr("sum(valid_bytes)").collect()[0][0])


def measure(spark: SparkSession, logs: Path, out: Path) -> None:
    """Print one line per measurement."""
    size = valid_bytes(spark, logs)
    reader = spark.read.format("tallystick")
    whole_rows = reader.load(str(logs))
    records = whole_rows.count()  # starts the workers
    print(f"{size / 1e6:,.0f} MB, {records:,} records")
    for name, frame in (
        ("count", reader.option("columns", "outcome").load(str(logs))),
        ("all columns", whole_rows),
    ):
        counted = min(timed(frame.count) for _ in range(3))
        print(f"{name:12} {counted:8.2f} s {size / counted / 1e6:8,.0f} MB/s")
    run = Run([str(logs)], str(out / "tables"))
    whole = timed(lambda: run.advance(spark))
    copied = timed(lambda: copy_tables(spark, out / "tables", out / "copy"))
    print(f"all tables   {whole:8.2f} s {size / whole / 1e6:8,.0f} MB/s")
    print(f"Parquet copy {copied:8.2f} s; all tables take {whole / copied:.1f} x")
    print(f"nothing new  {timed(lambda: run.advance(spark)):8.2f} s")
    due = spark.read.parquet(str(out / "tables" / "global_transactions"))
    for row in due.groupBy("resolution", "alarm").count().orderBy("resolution").collect():
        print(f"{row['count']:8,} {row.resolution} {row.alarm or ''}")


def main() -> None:
    """Write an estate, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--coordinators", type=int, default=4)
    parser.add_argument("--resources", type=int, default=3)
    parser.add_argument("--transactions", type=int, default=100)
    parser.add_argument("--fault-every", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="leave the estate in this folder")
    given = parser.parse_args()
    estate = Estate(
        given.coordinators, given.resources, given.transactions, given.fault_every, given.mib
    )
    with tempfile.TemporaryDirectory() as name:
        logs = given.keep or Path(name, "logs")
        estate.write(logs)
        spark = start("local[2]")
        try:
            measure(spark, logs, Path(name))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
