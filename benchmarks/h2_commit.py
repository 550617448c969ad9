"""H2's page log: commits per second, ours beside the page store of the real H2, in one run.

``python benchmarks/h2_commit.py [--seconds 2] [--rounds 3] [--callers 1 64] [--original]``. A
commit is one added row of 100 characters and the commit record. Ours is the log alone, by threads
and by asyncio tasks; H2 1.4.200 (``MV_STORE=FALSE``) is the whole database, each connection
inserting into a table of its own by JDBC. Two levels of durability, each beside its like:

* *durable*: a commit is on the disk when it returns. Ours always; H2 only where every write of
  its file is synced (``WRITE_DELAY=0;ACCESS_MODE_DATA=rwd``);
* *delayed*: H2's default. A commit returns at once, and is written, though not synced, within
  500 ms. Ours: no caller waits for the ticket, and a thread flushes, and syncs, every 500 ms.

``WRITE_DELAY=0`` alone writes every commit and syncs none: it is shown too. Rates are medians of
alternating rounds and vary with the machine; compare only what one run prints.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from callers import Submit, arguments, table, task_rate, thread_rate

from tallystick.roles import Ticket
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog

WRITE_DELAY_S = 0.5
TABLE = 20
MODES = {
    "H2 durable": ";WRITE_DELAY=0;ACCESS_MODE_DATA=rwd",
    "H2 delayed, its default": "",
    "H2 written, not synced": ";WRITE_DELAY=0",
}


class NotWaitedFor:
    """A ticket that is done at once: its commit becomes durable with a later flush."""

    def wait(self) -> int:
        return 0


def our_rate(file: str, callers: int, seconds: float, kind: str) -> float:
    """Commits per second of ``threads``, ``tasks``, or threads that do not wait (``delayed``)."""
    store = PageStoreFile.create(file, page_size=4096)
    log = PageLog(store)
    log.open_for_writing()

    def commit(caller: int, count: int) -> Ticket:
        row = encode_row([count, "x" * 100])
        log.log_add_or_remove_row(caller + 3, TABLE, callers * count + caller, row)
        return log.commit(caller + 3)

    if kind == "delayed":
        rate = _delayed_rate(log, commit, callers, seconds)
    else:
        rate = (task_rate if kind == "tasks" else thread_rate)(commit, callers, seconds)
    log.close()
    store.close()
    return rate


def _delayed_rate(log: PageLog, commit: Submit, callers: int, seconds: float) -> float:
    ended = threading.Event()

    def flush() -> None:
        while not ended.wait(WRITE_DELAY_S):
            log.flush().wait()

    flusher = threading.Thread(target=flush)
    flusher.start()

    def not_waited_for(caller: int, count: int) -> NotWaitedFor:
        commit(caller, count)
        return NotWaitedFor()

    try:
        return thread_rate(not_waited_for, callers, seconds)
    finally:
        ended.set()
        flusher.join()


def original_rate(place: str, callers: int, seconds: float, options: str) -> float:
    """Commits per second of H2 1.4.200 with these options in its URL."""
    root = Path(__file__).parents[1]
    sys.path.insert(0, str(root))
    from tests.interop.java import classpath, compile_java, run_java

    jars = classpath(["com.h2database:h2:1.4.200"])
    classes = compile_java(root / "tests" / "interop" / "h2", jars)
    printed = run_java(
        "Commits",
        f"{place}/h2",
        callers,
        seconds,
        options,
        classpath=f"{jars}:{classes}",
        timeout_s=2 * seconds + 120,
    )
    return float(printed.split()[-1])


def one_round(callers: int, seconds: float, *, original: bool) -> dict[str, float]:
    """One turn of everything, each in a folder of its own."""
    rates = {}
    for name, kind in (
        ("ours durable, threads", "threads"),
        ("ours durable, tasks", "tasks"),
        ("ours delayed, threads", "delayed"),
    ):
        with tempfile.TemporaryDirectory() as place:
            rates[name] = our_rate(f"{place}/log.h2.db", callers, seconds, kind)
    for name, options in MODES.items() if original else ():
        with tempfile.TemporaryDirectory() as place:
            rates[name] = original_rate(place, callers, seconds, options)
    return rates


def main() -> None:
    """Measure."""
    chosen = arguments(__doc__).parse_args()
    for callers in chosen.callers:
        rounds = [
            one_round(callers, chosen.seconds, original=chosen.original)
            for _ in range(chosen.rounds)
        ]
        table(callers, rounds, list(MODES))


if __name__ == "__main__":
    main()
