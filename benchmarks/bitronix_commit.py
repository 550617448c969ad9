"""Bitronix journals: durable commits per second, ours beside the original's, in one run.

``python benchmarks/bitronix_commit.py [--seconds 3] [--threads 1 64] [--original]``. A commit is a
forced COMMITTING record with two names and an unforced COMMITTED one. Both journals have their
defaults: forced writes on, group commit on, files of 2 MB. Rates vary with the machine; compare
only what one run prints.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from tallystick.systems.bitronix.layout import COMMITTED, COMMITTING, make_gtrid
from tallystick.systems.bitronix.log import DiskJournal

NAMES = ("jdbc/orders", "jms/queue")


def bare_rate(folder: Path, seconds: float) -> float:
    """``pwrite`` and ``fdatasync`` of one record's size, alone: what the disk gives."""
    descriptor = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes(1 << 20), 0)
    os.fsync(descriptor)
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        os.pwrite(descriptor, b"x" * 90, 90 * (count % 1000))
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count / seconds


def our_rate(folder: Path, threads: int, seconds: float) -> tuple[float, float]:
    """Commits per second, and commits per sync."""
    journal = DiskJournal(str(folder))
    end = time.perf_counter() + seconds
    counts = [0] * threads

    def commit(number: int) -> None:
        while time.perf_counter() < end:
            gtrid = make_gtrid("node", number, counts[number])
            journal.log_forced(COMMITTING, gtrid, NAMES).wait()
            journal.log(COMMITTED, gtrid, NAMES)
            counts[number] += 1

    workers = [threading.Thread(target=commit, args=(number,)) for number in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rate = sum(counts) / (time.perf_counter() - begin)
    per_sync = sum(counts) / max(journal.counters.fsyncs, 1)
    journal.close()
    return rate, per_sync


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=3)
    arguments.add_argument("--threads", type=int, nargs="+", default=[1, 64])
    arguments.add_argument("--original", action="store_true")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(f"bare pwrite + fdatasync       {bare_rate(Path(place), 1):9.0f} /s")
        for threads in chosen.threads:
            ours, per_sync = our_rate(Path(place, f"ours-{threads}"), threads, chosen.seconds)
            print(f"{threads:3} threads, ours             {ours:9.0f} /s, {per_sync:5.1f} per sync")
            if chosen.original:
                rate = original_rate(Path(place, f"real-{threads}"), threads, chosen.seconds)
                print(f"{threads:3} threads, original 2.1.4   {rate:9.0f} /s")


def original_rate(folder: Path, threads: int, seconds: float) -> float:
    """The real journal in its own process."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.interop.bitronix.original import commit_rate

    folder.mkdir()
    return commit_rate(folder, threads, seconds)


if __name__ == "__main__":
    main()
