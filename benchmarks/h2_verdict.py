"""How fast an H2 log is judged: a database made by our own page store and left as a kill does.

    python benchmarks/h2_verdict.py [--rows 50000]

Prints records and MB per second of processor time, and their ratio to reading the log alone.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tallystick import PageStore
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LogSource, ReadOptions

ROWS_PER_COMMIT = 100
ROUNDS = 3
UPDATED = 0.2
"""Share of rows that replace one of the first 10,000."""


def make(folder: Path, rows: int) -> Path:
    """Return a copy of a database whose log holds so many rows, none of them checkpointed."""
    rng = random.Random(3)
    with PageStore(folder / "made", system="h2", checkpoint_bytes=1 << 40) as store:
        store.create_table("t")
        for first in range(0, rows, ROWS_PER_COMMIT):
            with store.begin() as tx:
                table = tx.table("t")
                for number in range(first, first + ROWS_PER_COMMIT):
                    key = rng.randrange(10_000) if rng.random() < UPDATED else number
                    table[key] = b"x" * rng.randrange(40, 160)
        (file,) = (folder / "made").glob("*.h2.db")
        return Path(shutil.copy(file, folder / "killed.h2.db"))


def seconds(work: Callable[[H2Reading], object], path: Path) -> float:
    """Processor time of the fastest of some rounds."""
    source, spent = LogSource("h2", str(path.parent), (str(path),)), []
    for _ in range(ROUNDS):
        start = time.process_time()
        work(H2Reading(source, ReadOptions()))
        spent.append(time.process_time() - start)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=50_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder), options.rows)
        reading = seconds(lambda one: sum(1 for _ in one.records()), path)
        judging = seconds(lambda one: one.verdict(), path)
        size = path.stat().st_size
        print(f"{size} bytes, {options.rows} rows: judged in {judging:.2f} s of processor time")
        print(f"{size / judging / 1e6:.1f} MB/s, {judging / options.rows * 1e6:.1f} us a row")
        print(f"reading its records one by one takes {reading / judging:.1f} times as long")


if __name__ == "__main__":
    main()
