"""How long it takes from the log to the row: an appended record until a reader can see it.

``python benchmarks/pipeline_latency.py [--seconds 60] [--rate 20]`` appends records to a native
log, each with the time of its append as body, while a stream of ``local[2]`` writes them to
Parquet. A record is visible once the sink's log names the file that holds it. The first records,
while Spark and its workers start, are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pyarrow import parquet
from pyspark.sql.streaming.query import StreamingQuery

from tallystick.pipeline.session import start
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings

WARM_UP_SECONDS = 15.0
LOOK_SECONDS = 0.005


def append(path: Path, rate: float, stopped: threading.Event) -> None:
    """Append a record ``rate`` times a second, and sync it."""
    with TallyLog(str(path), settings=Settings(segment_size=1 << 20, spares=0)) as log:
        while not stopped.wait(1 / rate):
            log.append(str(time.time_ns()).encode()).wait()


def latencies(rows: Path, query: StreamingQuery, seconds: float) -> Iterator[float]:
    """Seconds from append to sight of every record that is seen after the warm-up."""
    entries: set[Path] = set()
    files: set[str] = set()
    begun = time.monotonic()
    while time.monotonic() < begun + WARM_UP_SECONDS + seconds:
        if not query.isActive:
            raise SystemExit(str(query.exception()))
        for entry in set((rows / "_spark_metadata").glob("[0-9]*")) - entries:
            now = time.time_ns()
            fresh = set(_files(entry)) - files  # every tenth entry lists all there were
            entries.add(entry)
            files |= fresh
            if time.monotonic() > begun + WARM_UP_SECONDS:
                yield from ((now - one) / 1e9 for path in fresh for one in _appended(path))
        time.sleep(LOOK_SECONDS)


def _files(entry: Path) -> Iterator[str]:
    """The files that a step of the sink vouches for."""
    for line in entry.read_text().splitlines()[1:]:
        yield json.loads(line)["path"].removeprefix("file://")


def _appended(path: str) -> Iterator[int]:
    """The times in the records of one file."""
    table = parquet.read_table(path)
    kinds, bodies = (table.column(name).to_pylist() for name in ("type", "body"))
    yield from (int(body) for kind, body in zip(kinds, bodies, strict=True) if kind == "append")


def main() -> None:
    """Measure, and print median, 99 % and maximum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20, help="records per second")
    given = parser.parse_args()
    stopped = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        writer = threading.Thread(target=append, args=(home / "log", given.rate, stopped))
        writer.start()
        spark = start("local[2]", {"spark.sql.warehouse.dir": f"{home}/warehouse"})
        try:
            frame = spark.readStream.format("tallystick").load(str(home / "log"))
            sink = frame.writeStream.format("parquet")
            query = sink.option("checkpointLocation", f"{home}/checkpoint").start(f"{home}/rows")
            found = sorted(latencies(home / "rows", query, given.seconds))
            query.stop()
        finally:
            stopped.set()
            writer.join()
            spark.stop()
    last = statistics.quantiles(found, n=100)[98]
    print(f"{len(found):,} records at {given.rate:g}/s: log to row median", end=" ")
    print(f"{statistics.median(found):.2f} s, 99 % {last:.2f} s, most {found[-1]:.2f} s")


if __name__ == "__main__":
    main()
