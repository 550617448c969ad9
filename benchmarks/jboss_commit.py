"""The circular journal: durable adds per second, ours beside the real Artemis journal, in one run.

``python benchmarks/jboss_commit.py [--seconds 2] [--rounds 3] [--callers 1 64] [--body 200]
[--original]``. Every add is on the disk when it counts. Artemis has its NIO defaults: timed
buffer of 490 KiB and 3.33 ms; so do we but for the timer, which our group writer does not need.
Callers are threads, and separately asyncio tasks, which only ours knows. Rates are medians of
alternating rounds and vary with the machine; compare only what one run prints.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from callers import arguments, table, task_rate, thread_rate

from tallystick.roles import Ticket
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings

ORIGINAL = "Artemis NIO, threads"


def our_rate(
    folder: Path, callers: int, seconds: float, body: int, *, tasks: bool
) -> tuple[float, float]:
    """Adds per second, and adds per sync."""
    payload = bytes(body)
    with CircularJournal(str(folder), JournalSettings()) as journal:

        def add(caller: int, count: int) -> Ticket:
            return journal.append_add_record(caller + callers * count, 1, payload)

        rate = (task_rate if tasks else thread_rate)(add, callers, seconds)
        return rate, journal.counters.records / max(journal.counters.fsyncs, 1)


def original_rate(folder: Path, threads: int, seconds: float, body: int) -> float:
    """Adds per second of the real journal, after a warm-up of a second."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.interop.jboss.original import real_journal

    folder.mkdir()
    with real_journal("artemis", folder, buffered=True) as journal:
        journal.load()
        journal.tell(f"bench {threads} 1 {body}")
        (line,) = journal.tell(f"bench {threads} {seconds} {body}")
        return float(line.split()[1])


def one_round(place: Path, callers: int, chosen: argparse.Namespace) -> dict[str, float]:
    """One turn of everything, each in a folder of its own."""
    seconds, body = chosen.seconds, chosen.body
    threads, per_sync = our_rate(place / "threads", callers, seconds, body, tasks=False)
    rates = {"ours, threads": threads, "ours, threads: adds per sync": per_sync}
    rates["ours, tasks"], _ = our_rate(place / "tasks", callers, seconds, body, tasks=True)
    if chosen.original:
        rates[ORIGINAL] = original_rate(place / "original", callers, seconds, body)
    return rates


def main() -> None:
    """Measure."""
    parser = arguments(__doc__)
    parser.add_argument("--body", type=int, default=200)
    chosen = parser.parse_args()
    for callers in chosen.callers:
        rounds = []
        for _ in range(chosen.rounds):
            with tempfile.TemporaryDirectory() as place:
                rounds.append(one_round(Path(place), callers, chosen))
        table(callers, rounds, [ORIGINAL])


if __name__ == "__main__":
    main()
