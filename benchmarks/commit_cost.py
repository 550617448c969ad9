"""Processor time of a durable commit, by log and service: what each costs above the group commit.

``python benchmarks/commit_cost.py [--seconds 1] [--turns 3] [--threads 64] [--dir /dev/shm]
[--beside PATH ...] [NAME ...]``. Each kind of commit is made by so many threads, in a process of
its own, in turns. The main thread is one of them, and alone pays for keeping signal handlers off.
The table shows medians of the processor time of the whole process (`getrusage`), the kernel's share
of it, and how much it is above ``tally``, a plain record of the native log: the cost of the format
or service itself. The default folder is in memory, so that no disk costs anything. ``--beside``
takes another PYTHONPATH, such as another checkout's, in the same turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

Commit = Callable[[int, int], object]
"""Makes the commit of a caller of this number, its count-th, and waits until it is durable."""


@contextlib.contextmanager
def tally(folder: str, _: int) -> Iterator[Commit]:
    """A plain record of 256 bytes."""
    from tallystick.services.journal import Journal

    body = bytes(256)
    with Journal(folder) as journal:
        yield lambda _caller, _count: journal.append(body)


@contextlib.contextmanager
def add(folder: str, callers: int) -> Iterator[Commit]:
    """A record with an id and 256 bytes."""
    from tallystick.services.journal import Journal

    body = bytes(256)
    with Journal(folder) as journal:
        yield lambda caller, count: journal.add(caller + callers * count, body)


@contextlib.contextmanager
def append_many(folder: str, _: int) -> Iterator[Commit]:
    """Ten plain records of 256 bytes."""
    from tallystick.services.journal import Journal

    bodies = [bytes(256)] * 10
    with Journal(folder) as journal:
        yield lambda _caller, _count: journal.append_many(bodies)


@contextlib.contextmanager
def shared(folder: str, _: int) -> Iterator[Commit]:
    """A plain record of 256 bytes of a log that other processes may have open, too."""
    from tallystick.services.journal import Journal

    body = bytes(256)
    with Journal(folder, shared=True) as journal:
        yield lambda _caller, _count: journal.append(body)


@contextlib.contextmanager
def jboss(folder: str, callers: int) -> Iterator[Commit]:
    """A record with 256 bytes added."""
    from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings

    body = bytes(256)
    with CircularJournal(folder, JournalSettings()) as journal:
        add = journal.append_add_record
        yield lambda caller, count: add(caller + callers * count, 1, body).wait()


@contextlib.contextmanager
def derby(folder: str, _: int) -> Iterator[Commit]:
    """A transaction of one insert with a row of 96 bytes."""
    from derby_commit import IMAGE, INSERT

    from tallystick.systems.derby.live.log import LogToFile

    with LogToFile(folder) as log:

        def commit(_caller: int, _count: int) -> object:
            number = log.begin()
            log.log(number, INSERT, IMAGE)
            return log.submit_commit(number).wait()

        yield commit


@contextlib.contextmanager
def bitronix(folder: str, _: int) -> Iterator[Commit]:
    """A decision of two resources: COMMITTING, forced, and COMMITTED, which is not."""
    from tallystick.systems.bitronix.format.layout import COMMITTED, COMMITTING
    from tallystick.systems.bitronix.live.log import DiskJournal

    names = ("jdbc/orders", "jms/queue")
    with DiskJournal(folder) as journal:

        def commit(caller: int, count: int) -> None:
            gtrid = b"node%11d%11d" % (caller, count)
            journal.log_forced(COMMITTING, gtrid, names).wait()
            journal.log(COMMITTED, gtrid, names)

        yield commit


@contextlib.contextmanager
def h2(folder: str, callers: int) -> Iterator[Commit]:
    """A transaction of one row of 100 characters."""
    from tallystick.systems.h2.format.values.encode import encode_row
    from tallystick.systems.h2.live.files import PageStoreFile
    from tallystick.systems.h2.live.log import PageLog

    store = PageStoreFile.create(f"{folder}.h2.db", page_size=4096)
    log = PageLog(store)
    log.open_for_writing()
    row = encode_row([1, "x" * 100])

    def commit(caller: int, count: int) -> object:
        log.log_add_or_remove_row(caller + 3, 20, callers * count + caller, row)
        return log.commit(caller + 3).wait()

    yield commit
    log.close()
    store.close()


@contextlib.contextmanager
def cloudtran(folder: str, _: int) -> Iterator[Commit]:
    """A transaction of one insert for one target."""
    from tallystick.roles import Operation, OperationCode
    from tallystick.systems.cloudtran.live.role import CloudtranPersistLog

    log = CloudtranPersistLog(folder)
    one = Operation(OperationCode.INSERT, "orders", b"key", bytes(100))

    def commit(_caller: int, _count: int) -> None:
        number, ticket = log.persisting(["shop"], [one])
        ticket.wait()
        log.persisted(number, ["shop"])

    yield commit
    log.close()


@contextlib.contextmanager
def page_store(folder: str, callers: int) -> Iterator[Commit]:
    """A transaction that changes one row of 100 bytes, of rows that no other caller changes."""
    from tallystick.services.page_store import PageStore

    with PageStore(folder) as store:
        store.create_table("rows")
        row = bytes(100)

        def commit(caller: int, count: int) -> None:
            with store.begin() as tx:
                tx.table("rows")[caller + callers * (count % 64)] = row

        yield commit


@contextlib.contextmanager
def write_behind(folder: str, _: int) -> Iterator[Commit]:
    """An insert, acknowledged; the target does nothing."""
    from tallystick.services.write_behind import WriteBehind, WriteBehindSettings

    settings = WriteBehindSettings(backlog_max=10_000_000, backlog_bytes_max=1 << 34)
    with WriteBehind(folder, {"shop": lambda _entry: None}, settings=settings) as behind:

        def commit(caller: int, count: int) -> None:
            with behind.begin() as tx:
                tx.insert("orders", {"id": caller}, {"state": count})

        yield commit


@contextlib.contextmanager
def transactions(folder: str, _: int) -> Iterator[Commit]:
    """A decision of the transaction manager over two resources that do nothing."""
    from transactions import InstantResource

    from tallystick.services.transactions import TransactionManager

    resources = {name: InstantResource(name) for name in ("a", "b")}
    with TransactionManager(folder, resources, recovery_interval=None) as manager:

        def commit(_caller: int, _count: int) -> None:
            with manager.begin() as tx:
                tx["a"]
                tx["b"]

        yield commit


@contextlib.contextmanager
def decisions(folder: str, _: int) -> Iterator[Commit]:
    """A decision of the manager's log alone: decided, forced, and finished, which is not."""
    from tallystick.roles import DecisionOutcome
    from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog

    log, names = TallyDecisionLog(folder), ("a", "b")

    def commit(caller: int, count: int) -> None:
        gtrid = b"node%11d%11d" % (caller, count)
        log.decide(gtrid, names).wait()
        log.finish(gtrid, names, DecisionOutcome.COMMITTED)

    yield commit
    log.close()


WORK: dict[str, Callable[[str, int], contextlib.AbstractContextManager[Commit]]] = {
    one.__name__: one
    for one in (
        tally, add, append_many, shared, jboss, derby, bitronix, h2, cloudtran, decisions,
        page_store, write_behind, transactions,
    )
}  # fmt: skip


def measure(commit: Commit, callers: int, seconds: float) -> tuple[float, float, float]:
    """Return user and system time per commit in us, and commits per second."""
    counts = [0] * callers
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()

    def work(caller: int) -> None:
        now, end, count = time.perf_counter, begin + seconds, 0
        while now() < end:
            commit(caller, count)
            count += 1
        counts[caller] = count

    threads = [threading.Thread(target=work, args=[one]) for one in range(1, callers)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()
    used, done = resource.getrusage(resource.RUSAGE_SELF), sum(counts)
    user, system = used.ru_utime - before.ru_utime, used.ru_stime - before.ru_stime
    return user / done * 1e6, system / done * 1e6, done / (time.perf_counter() - begin)


def _child(given: argparse.Namespace) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    with (
        tempfile.TemporaryDirectory(dir=given.dir) as folder,
        WORK[given.work](f"{folder}/log", given.threads) as commit,
    ):
        print(json.dumps(measure(commit, given.threads, given.seconds)))


def _turn(given: argparse.Namespace, name: str, path: str) -> list[float]:
    command = [sys.executable, __file__, "--work", name, "--dir", given.dir]
    command += ["--seconds", str(given.seconds), "--threads", str(given.threads)]
    environment = {**os.environ, **({"PYTHONPATH": path} if path else {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    row: list[float] = json.loads(done.stdout)
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*WORK, []], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--dir", default="/dev/shm", help="where the logs are made")
    parser.add_argument("--beside", action="append", default=[], metavar="PATH")
    parser.add_argument("--work", choices=list(WORK), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        _child(given)
        return
    names = list(dict.fromkeys(["tally", *(given.names or WORK)]))
    runs = [(name, path) for name in names for path in ("", *given.beside)]
    found: dict[tuple[str, str], list[list[float]]] = {run: [] for run in runs}
    for _ in range(given.turns):
        for run in random.sample(runs, len(runs)):
            found[run].append(_turn(given, *run))
    for name in names:
        for path in ("", *given.beside):
            user, system, rate = (
                statistics.median(row[part] for row in found[name, path]) for part in range(3)
            )
            least = statistics.median(sum(row[:2]) for row in found["tally", path])
            line = f"{name:14}{user + system:6.1f} us ({system:4.1f} of the kernel)"
            print(f"{line}{user + system - least:7.1f} above tally{rate:>10,.0f}/s  {path}")


if __name__ == "__main__":
    main()
