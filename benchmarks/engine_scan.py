"""``append_many``, verified scan to Arrow against memcpy, and recovery per gigabyte.

``python benchmarks/engine_scan.py [--megabytes 256] [--size 100] [--rounds 5] [--json]``. The scan
verifies every checksum and reads files from the page cache; rates are medians, in payload bytes.
``append_many`` is timed into new segments, whose zeros are written besides, and once more into
those that a checkpoint has freed, which are used again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tallystick.services.journal import Journal
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.tally import SYSTEM
from tallystick.systems.tally.live.settings import Settings

SEGMENT = 128 << 20
WRITE = 1 << 20


def timed(action: Callable[[], object]) -> float:
    """Seconds."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def bare_writes(folder: Path, size: int) -> float:
    """Bytes per second of 1 MiB writes and one sync at the end."""
    descriptor = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    data = os.urandom(WRITE)

    def run() -> None:
        for place in range(0, size, WRITE):
            os.pwrite(descriptor, data, place)
        os.fdatasync(descriptor)

    seconds = timed(run)
    os.close(descriptor)
    (folder / "bare").unlink()
    return size / seconds


def memcpy(size: int) -> float:
    """Bytes per second from one warm buffer to another."""
    source = np.frombuffer(os.urandom(64 << 20), np.uint8)
    target = np.empty_like(source)
    target[:] = source
    times = max(size >> 26, 1)

    def run() -> None:
        for _ in range(times):
            target[:] = source

    return times * source.size / timed(run)


def scan(log: str) -> int:
    """Rows of the log, read as Arrow batches."""
    paths = tuple(sorted(str(path) for path in Path(log).glob("*.tally")))
    reading = SYSTEM.read(LogSource("tally", log, paths), ReadOptions())
    return sum(batch.num_rows for batch in reading.batches(rows=65_536))


def into_used(folder: Path, bodies: list[bytes]) -> float:
    """Seconds of ``append_many`` into segments that are used again."""
    log = folder / "used"
    settings = Settings(segment_size=SEGMENT, spares=sum(map(len, bodies)) // SEGMENT + 3)
    with Journal(log, settings=settings) as journal:
        for _ in range(2):  # the first round leaves some new ones beside those that it used
            journal.append_many(bodies)
            journal.checkpoint()
        seconds = timed(lambda: journal.append_many(bodies))
    shutil.rmtree(log)
    return seconds


def one_round(folder: Path, bodies: list[bytes]) -> dict[str, float]:
    """All figures once."""
    size = sum(map(len, bodies))
    log = str(folder / "log")
    figures = {"bare 1 MiB writes, GB/s": bare_writes(folder, size) / 1e9}
    with Journal(log, settings=Settings(segment_size=SEGMENT)) as journal:
        seconds = timed(lambda: journal.append_many(bodies))
    figures["append_many, M records/s"] = len(bodies) / seconds / 1e6
    figures["the same, used segments"] = len(bodies) / into_used(folder, bodies) / 1e6
    scan(log)
    seconds = timed(lambda: scan(log))
    figures["verified scan, GB/s"] = size / seconds / 1e9
    figures["memcpy, GB/s"] = memcpy(size) / 1e9
    figures["scan / memcpy"] = figures["verified scan, GB/s"] / figures["memcpy, GB/s"]
    figures["recovery, s/GB"] = timed(lambda: Journal(log).close()) / (size / 1e9)
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    count = (given.megabytes << 20) // given.size
    bodies = [(b"%d" % number).ljust(given.size, b".") for number in range(count)]
    rounds = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(one_round(Path(folder), bodies))
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    if given.json:
        print(json.dumps(medians))
        return
    print(f"{count:,} records of {given.size} bytes, medians of {given.rounds} rounds")
    for name, value in medians.items():
        print(f"  {name:28}{value:8.2f}")


if __name__ == "__main__":
    main()
