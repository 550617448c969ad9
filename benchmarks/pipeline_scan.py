"""The pipeline on two cores: an estate by our own writers, and what reading it with Spark costs.

``python benchmarks/pipeline_scan.py [--mib 256] [--coordinators 4] [--resources 3]
[--transactions 100] [--fault-every 10] [--keep DIR]`` writes an estate: Bitronix coordinators over
native journals, each filled up with plain records. Every so many transactions are left at a fault,
in turn: no decision, an open decision, a commit that a resource lost. Then, in one session that has
read something before:

* count: files to the number of records, every checksum verified. Spark does not tell a Python
  data source which columns a query needs, so one is declared (``columns``); beside it the same
  with every column on its way through Spark
* all tables: files to the seven tables, beside the same rows from Parquet to Parquet by Spark with
  its defaults. Both as the first work of a session of its own that has counted something before,
  when queries are compiled while they run; and both once more in the session of the tables
* one changed: a run after one log of all was touched
* nothing new: a second run over the same files

Rates are of valid bytes: what segments keep free counts for nothing. Log files are in the page
cache: written just before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from estates import Estate
from pipeline_scale import Peaks
from pyspark.sql import SparkSession

from tallystick.pipeline.runner import OUTPUT, Run
from tallystick.pipeline.session import start


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def copy_tables(spark: SparkSession, tables: Path, out: Path) -> None:
    """The same rows, Parquet to Parquet."""
    for table in OUTPUT:
        spark.read.parquet(str(tables / table)).write.parquet(str(out / table))


def copy_first(tables: Path, out: Path) -> float:
    """Seconds of `copy_tables` as the first work of a session, in a process of its own."""
    command = [sys.executable, __file__, "--copy", str(tables), str(out)]
    reported = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(reported.split()[-1])


def valid_bytes(spark: SparkSession, logs: Path) -> int:
    """Bytes of records, headers and footers."""
    files = spark.read.format("tallystick").option("table", "files").load(str(logs))
    return int(files.selectExpr("sum(valid_bytes)").collect()[0][0])


def measure_counts(spark: SparkSession, logs: Path, size: int) -> None:
    """Print a line per way to count records, with the processor time of all processes."""
    reader = spark.read.format("tallystick")
    whole_rows = reader.load(str(logs))
    records = whole_rows.count()  # starts the workers
    print(f"{size / 1e6:,.0f} MB, {records:,} records")
    for name, frame in (
        ("count", reader.option("columns", "outcome").load(str(logs))),
        ("all columns", whole_rows),
    ):
        taken = [processor_timed(frame.count) for _ in range(3)]
        counted, processor = (min(column) for column in zip(*taken, strict=True))
        print(
            f"{name:12} {counted:8.2f} s {size / counted / 1e6:8,.0f} MB/s"
            f" {processor:8.2f} s of processor"
        )


def processor_timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that ``work`` takes, and those of the processor in all processes."""
    peaks = Peaks()
    peaks.sample()
    before = peaks.processor_seconds
    seconds = timed(work)
    peaks.sample()
    return seconds, peaks.processor_seconds - before


def measure(spark: SparkSession, logs: Path, out: Path) -> None:
    """Print one line per measurement."""
    size = valid_bytes(spark, logs)
    measure_counts(spark, logs, size)
    for number, when in enumerate(("first", "again")):
        run = Run([str(logs)], str(out / f"tables-{number}"))
        whole = timed(partial(run.advance, spark))
        tables, copy = Path(run.out), out / f"copy-{number}"
        if when == "first":
            copied = copy_first(tables, copy)
        else:
            copied = timed(partial(copy_tables, spark, tables, copy))
        print(f"all tables   {whole:8.2f} s {size / whole / 1e6:8,.0f} MB/s {when}")
        print(f"Parquet copy {copied:8.2f} s; all tables take {whole / copied:.1f} x")
    os.utime(next(logs.glob("site-0/resource-0/*1.tally")))
    print(f"one changed  {timed(lambda: run.advance(spark)):8.2f} s")
    print(f"nothing new  {timed(lambda: run.advance(spark)):8.2f} s")
    due = spark.read.parquet(f"{run.out}/global_transactions")
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
    parser.add_argument("--copy", type=Path, nargs=2, help="time a Parquet copy of tables only")
    given = parser.parse_args()
    if given.copy:
        spark = start("local[2]")
        spark.read.parquet(str(given.copy[0] / "files")).count()
        print(timed(partial(copy_tables, spark, *given.copy)))
        spark.stop()
        return
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
