"""Bitronix journals: durable commits per second, ours beside the original's, in one run.

``python benchmarks/bitronix_commit.py [--seconds 2] [--rounds 3] [--callers 1 64] [--original]``.
A commit is a forced COMMITTING record with two names and an unforced COMMITTED one. Both journals
have their defaults: forced writes on, group commit on, files of 2 MB. Callers are threads, and
separately asyncio tasks, which only ours knows. Rates are medians of alternating rounds and vary
with the machine; compare only what one run prints.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from callers import arguments, table, task_rate, thread_rate

from tallystick.roles import Ticket
from tallystick.systems.bitronix.format.layout import COMMITTED, COMMITTING, make_gtrid
from tallystick.systems.bitronix.live.log import DiskJournal

NAMES = ("jdbc/orders", "jms/queue")
ORIGINAL = "original 2.1.4, threads"


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


def our_rate(folder: Path, callers: int, seconds: float, *, tasks: bool) -> tuple[float, float]:
    """Commits per second, and commits per sync."""
    with DiskJournal(str(folder)) as journal:

        def commit(caller: int, count: int) -> Ticket:
            if count:
                journal.log(COMMITTED, make_gtrid("node", caller, count - 1), NAMES)
            return journal.log_forced(COMMITTING, make_gtrid("node", caller, count), NAMES)

        rate = (task_rate if tasks else thread_rate)(commit, callers, seconds)
        return rate, journal.counters.records / 2 / max(journal.counters.fsyncs, 1)


def original_rate(folder: Path, threads: int, seconds: float) -> float:
    """The real journal in its own process, after a warm-up."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.interop.bitronix.original import commit_rate

    folder.mkdir()
    return commit_rate(folder, threads, seconds)


def one_round(place: Path, callers: int, seconds: float, *, original: bool) -> dict[str, float]:
    """One turn of everything, in a folder of its own."""
    threads, per_sync = our_rate(place / "threads", callers, seconds, tasks=False)
    rates = {"ours, threads": threads, "ours, threads: commits per sync": per_sync}
    rates["ours, tasks"], _ = our_rate(place / "tasks", callers, seconds, tasks=True)
    if original:
        rates[ORIGINAL] = original_rate(place / "original", callers, seconds)
    return rates


def main() -> None:
    """Measure."""
    chosen = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(f"bare pwrite + fdatasync {bare_rate(Path(place), 1):,.0f} /s")
    for callers in chosen.callers:
        rounds = []
        for _ in range(chosen.rounds):
            with tempfile.TemporaryDirectory() as place:
                rounds.append(
                    one_round(Path(place), callers, chosen.seconds, original=chosen.original)
                )
        table(callers, rounds, [ORIGINAL])


if __name__ == "__main__":
    main()
