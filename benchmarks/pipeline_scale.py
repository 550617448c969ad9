"""What all tables cost as an estate grows: time, memory and shuffle at several sizes.

``python benchmarks/pipeline_scale.py [--gib 0.25 0.5 1 2] [--transactions 50] [--rows 5]
[--place DIR]``
writes an estate per size, as `benchmarks/pipeline_scan.py` does, and builds the seven tables with
``local[2]`` in a process of its own, twice; and then, in another process, twice a copy of the same
rows from Parquet to Parquet, by Spark with its defaults. A line says how long the tables took
first, the processor time of the driver, Java and all workers, the peak of private resident memory
of the driver's Python, of Java, of the largest worker and of all workers together, and the bytes
that were shuffled. The next lines have the processor time of tables and copy, first and again.
Sizes are of valid bytes: what segments keep free counts for nothing. With more ``--transactions``
per coordinator the shuffle grows, with more records it does not. With ``--rows`` the records that
fill the journals up are committed by so many, else they are plain.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from estates import Estate
from pyarrow import dataset

from tallystick.pipeline.runner import OUTPUT, Run
from tallystick.pipeline.session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Peaks:
    """Peaks of resident memory in bytes: of this process, and of those below it."""

    driver: int = 0
    java: int = 0
    python_one: int = 0
    python_all: int = 0
    _seconds: dict[int, float] = field(default_factory=dict)
    _looking: float = 0

    @property
    def processor_seconds(self) -> float:
        """Of all these processes together, ended ones included, without looking at them."""
        return sum(self._seconds.values()) + time.process_time() - self._looking

    def sample(self) -> None:
        """Look at all processes once."""
        begin = time.thread_time()
        own, *there = _processes()
        self.driver = max(self.driver, own.resident)
        python = [one.resident for one in there if one.name == "python"]
        self.java = max([self.java, *(one.resident for one in there if one.name == "java")])
        self._seconds |= {one.number: one.seconds for one in there}
        self.python_one = max([self.python_one, *python])
        self.python_all = max(self.python_all, sum(python))
        self._looking += time.thread_time() - begin

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look again and again during the block."""
        stopped = threading.Event()

        def run() -> None:
            while not stopped.wait(SAMPLE_SECONDS):
                self.sample()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


class _Process(NamedTuple):
    number: int
    name: str
    resident: int
    """Private bytes: what a worker shares with the process it was forked from counts there."""
    seconds: float
    """Of processor time."""


def _processes() -> Iterator[_Process]:
    """This process, then every one below it."""
    parents, found = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            lines = (entry / "status").read_text().splitlines()
            times = (entry / "stat").read_text().rpartition(")")[2].split()[11:13]
        except OSError:
            continue  # it has ended
        status = dict(line.split(":\t", 1) for line in lines)
        name = "python" if status["Name"].startswith("python") else status["Name"].strip()
        resident = int(status.get("RssAnon", "0").split()[0]) << 10
        number = int(entry.name)
        parents[number] = int(status["PPid"])
        found[number] = _Process(number, name, resident, sum(map(int, times)) / _TICKS)
    below = {_own()}
    for _ in range(4):  # the shell that starts Java, Java, its daemon, its workers
        below |= {number for number, parent in parents.items() if parent in below}
    yield found[_own()]
    yield from (found[number] for number in below - {_own()})


def _own() -> int:
    return int(Path("/proc/self").resolve().name)


def shuffled(events: Path) -> int:
    """Bytes that tasks wrote for a shuffle, by Spark's event log."""
    total = 0
    for path in events.rglob("*"):
        if path.is_file() and not path.name.startswith((".", "appstatus")):
            with path.open() as lines:
                total += sum(map(_written, lines))
    return total


def _written(line: str) -> int:
    if '"SparkListenerTaskEnd"' not in line:
        return 0
    metrics = json.loads(line).get("Task Metrics") or {}
    return int(metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0))


def build(logs: Path, out: Path) -> None:
    """Build the tables twice and print what it took as JSON."""
    events = out / "events"
    events.mkdir(parents=True)
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    settings |= {"spark.eventLog.compress": "false", "spark.local.dir": str(out / "spill")}
    row = twice(settings, lambda spark, at: Run([str(logs)], str(out / at)).advance(spark))
    files = dataset.dataset(out / "first" / "files").to_table(["valid_bytes"])
    row |= {"size": sum(files.column(0).to_pylist()), "shuffled": shuffled(events) // 2}
    print(json.dumps(row))


def copy(tables: Path, out: Path) -> None:
    """Copy the rows of the tables twice and print what it took as JSON."""

    def once(spark: SparkSession, at: str) -> None:
        for table in OUTPUT:
            spark.read.parquet(str(tables / table)).write.parquet(str(out / at / table))

    print(json.dumps(twice({}, once)))


def twice(settings: dict[str, str], work: Callable[[SparkSession, str], object]) -> dict[str, Any]:
    """Do the work twice in a new session; return what the first took, and the second."""
    spark = start("local[2]", settings)
    spark.range(1).count()
    try:
        first = _taken(lambda: work(spark, "first"))
        return first | {"again": _taken(lambda: work(spark, "again"))["processor"]}
    finally:
        spark.stop()


def _taken(work: Callable[[], object]) -> dict[str, Any]:
    peaks = Peaks()
    peaks.sample()
    before = peaks.processor_seconds
    with peaks.watching():
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
        peaks.sample()
    return {
        "seconds": seconds, "processor": peaks.processor_seconds - before, "driver": peaks.driver,
        "java": peaks.java, "one": peaks.python_one, "all": peaks.python_all,
    }  # fmt: skip


def _reported(*options: str | Path) -> dict[str, Any]:
    command = [sys.executable, __file__, *map(str, options)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(estate: Estate, place: Path) -> None:
    """Write the estate, build its tables and copy them in other processes, and print the lines."""
    estate.write(place / "logs")
    row = _reported("--build", place / "logs", place / "out")
    copied = _reported("--copy", place / "out" / "first", place / "copy")
    transactions = estate.coordinators * estate.transactions
    print(
        f"{row['size'] / 1e9:6.2f} GB {row['seconds']:8.1f} s"
        f" {row['size'] / row['seconds'] / 1e6:6.0f} MB/s {row['processor']:8.1f} s of processor"
        f"   driver {row['driver'] / 1e6:5,.0f} MB   Java {row['java'] / 1e6:6,.0f} MB"
        f"   worker {row['one'] / 1e6:5,.0f} MB, all {row['all'] / 1e6:6,.0f} MB"
        f"   shuffled {row['shuffled'] / 1e6:8.2f} MB   for {transactions:,} global transactions"
    )
    both = ((name, row[name], copied[name]) for name in ("processor", "again"))
    for name, tables, copies in both:
        print(f"{name:>9}: tables {tables:6.1f} s, copy {copies:6.1f} s: {tables / copies:.2f} x")
    sys.stdout.flush()


def main() -> None:
    """Measure every size that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, nargs="+", default=[0.25, 0.5, 1, 2])
    parser.add_argument("--coordinators", type=int, default=4)
    parser.add_argument("--resources", type=int, default=3)
    parser.add_argument("--transactions", type=int, default=50)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--fault-every", type=int, default=10)
    parser.add_argument("--place", type=Path, help="a folder with space, for logs and tables")
    parser.add_argument("--build", type=Path, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--copy", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    for work, folders in ((build, given.build), (copy, given.copy)):
        if folders:
            work(*folders)
            return
    for gib in given.gib:
        estate = Estate(
            given.coordinators,
            given.resources,
            given.transactions,
            given.fault_every,
            int(gib * 1024),
            given.rows,
        )
        with tempfile.TemporaryDirectory(dir=given.place) as place:
            measure(estate, Path(place))


if __name__ == "__main__":
    main()
