"""What each table of a log of transactions costs, by system: processor time per GB.

``python benchmarks/tables_scan.py [SYSTEM ...] [--mib 32]`` writes a log of committed transactions
for each system by its own writer, and makes the rows of every table as the pipeline does, in this
process and without Spark: each table by itself, and all of one opening after the other, which is
what a task does; then what a log in several tasks costs: the one that makes `ONE_TASK`, the parts,
which make records and, where the system can tell, close transactions and changes, and the fold of
what they leave, which makes `ONE_TASK` of it where the system can. Compiled code is loaded by a
small log first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bitronix_scan
import cloudtran_scan
import derby_scan
import h2_scan
import jboss_scan

from tallystick.reading.discovery import discover
from tallystick.reading.tables import TABLES, batches_of
from tallystick.services.journal import Journal
from tallystick.systems.protocol import (
    ClosesBySplit,
    JudgedBySplit,
    LogReading,
    LogSource,
    ReadOptions,
)
from tallystick.systems.registry import system

ONE_TASK = ["files", "findings", "logs"]
"""Tables of a log in several tasks that one of them makes."""

SPLIT_BYTES, BATCH_ROWS = 64 << 20, 65_536

ROWS = 5
"""Records of a transaction of the native log."""


def _native(folder: Path, mib: int) -> None:
    with Journal(str(folder)) as journal:
        for number in range((mib << 20) // (ROWS * 250)):
            with journal.transaction() as transaction:
                for row in range(ROWS):
                    transaction.add(number * ROWS + row, bytes(200))


def _h2(folder: Path, mib: int) -> None:
    folder.mkdir()
    h2_scan.make(folder / "test.h2.db", mib << 20, 200)


def _derby(folder: Path, mib: int) -> None:
    derby_scan.generate(folder, mib, 10, flush_each=False)


def _jboss(folder: Path, mib: int) -> None:
    jboss_scan.generate(folder, mib, 200)


def _bitronix(folder: Path, mib: int) -> None:
    folder.mkdir()
    bitronix_scan.generate(folder, mib)


def _cloudtran(folder: Path, mib: int) -> None:
    cloudtran_scan.generate(folder, mib, 200, compress=False)


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "tally": _native,
    "jboss": _jboss,
    "h2": _h2,
    "derby": _derby,
    "cloudtran": _cloudtran,
    "bitronix": _bitronix,
}


def rows_of(log: LogSource, tables: list[str]) -> Iterator[tuple[str, int, float]]:
    """Yield table, rows and processor seconds, for tables of one opening in turn."""
    begin = time.process_time()
    reading: LogReading = system(log.system).read(log, ReadOptions())
    for table in tables:
        count = sum(batch.num_rows for batch in batches_of(reading, table, attributes=False))
        now = time.process_time()
        yield table, count, now - begin
        begin = now


def closing(log: LogSource) -> tuple[float, float]:
    """Return the processor seconds of closing all splits, and of the fold of what they leave.

    Nothing, where a log does not close by splits.
    """
    reading = system(log.system).read(log, ReadOptions())
    if not isinstance(reading, ClosesBySplit):
        return 0.0, 0.0
    begin = time.process_time()
    rests = []
    for split in reading.splits(SPLIT_BYTES):
        closed = reading.close_split(split, BATCH_ROWS)
        list(closed.batches)
        rests.append(closed.rest() or b"")
    parts = time.process_time() - begin
    again = system(log.system).read(log, ReadOptions())
    assert isinstance(again, ClosesBySplit)
    list(again.close_rests(rests, BATCH_ROWS))
    if isinstance(again, JudgedBySplit):
        known = again.knowing(rests)
        for table in ONE_TASK:
            list(batches_of(known, table))
    return parts, time.process_time() - begin - parts


def measure(name: str, folder: Path, mib: int) -> None:
    """Write a log and print a line per table."""
    WRITERS[name](folder / "small", 1)
    WRITERS[name](folder / "large", mib)
    (small,) = discover(folder / "small").logs
    (log,) = discover(folder / "large").logs
    list(rows_of(small, list(TABLES)))
    size = sum(Path(file).stat().st_size for file in log.files)
    print(f"{name}: {size / 1e6:.0f} MB")
    for table in TABLES:
        _, count, seconds = next(rows_of(log, [table]))
        print(f"  {table:14}{count:>10,} rows{seconds:8.2f} s{seconds / size * 1e9:8.1f} s/GB")
    seconds = sum(each for _, _, each in rows_of(log, list(TABLES)))
    print(f"  {'all':14}{'':15}{seconds:8.2f} s{seconds / size * 1e9:8.1f} s/GB", flush=True)
    one = sum(each for _, _, each in rows_of(log, ONE_TASK))
    parts, fold = closing(log)
    parts += sum(each for _, _, each in rows_of(log, ["records"]))
    print(f"  {'one task':29}{one:8.2f} s{one / size * 1e9:8.1f} s/GB")
    print(f"  {'its parts':29}{parts:8.2f} s{parts / size * 1e9:8.1f} s/GB")
    print(f"  {'their fold':29}{fold:8.2f} s{fold / size * 1e9:8.1f} s/GB", flush=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("systems", nargs="*", help=", ".join(WRITERS))
    parser.add_argument("--mib", type=int, default=32)
    given = parser.parse_args()
    for name in given.systems or WRITERS:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, Path(folder), given.mib)


if __name__ == "__main__":
    main()
