"""The transaction manager's figures: decisions per second, and overhead over bare two-phase commit.

``python -m benchmarks.transactions [decisions | slow | overhead | lag]``. All are ratios in one
run, in short turns:

* decisions: 64 concurrent transactions over resources that answer at once, of threads, of tasks
  and of 1,000 tasks, beside as many threads that write and fdatasync one decision each;
  durability: every decision synced before it counts, on all sides
* slow: the same where each sync takes 1, 2 or 5 ms longer. That is simulated: the same pause
  after every sync of the log and of the bare file
* overhead: 8 and 32 callers over PostgreSQL and MariaDB beside the same statements without it,
  over the same drivers: one after the other, and with PREPARE and COMMIT of both databases under
  way at the same time, as the manager has them; every decision is synced, on all sides
* lag: how late an event loop is with 1,000 tasks over both servers, beside an idle one
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tallystick.records import Xid
from tallystick.services.transactions import Problem, TransactionManager, Vote
from tallystick.services.transactions.aio import AsyncTransactionManager
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import open_decision_log
from tallystick.systems.tally.live.log import TallyLog

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # for what stands beside it, run as script or module

from bare_two_phase import UPDATE, Bare, make_tables  # noqa: E402
from tests.servers import make_mariadb, make_postgres  # noqa: E402
from turns import SECONDS, Crew, in_turns  # noqa: E402

RECORD = bytes(128)


class InstantBranch:
    """A branch that does nothing, at once."""

    __slots__ = ("xid",)
    handle = None

    def __init__(self, xid: Xid) -> None:
        self.xid = xid

    def prepare(self) -> Vote:
        return Vote.PREPARED

    def nothing(self) -> None:
        """Every end."""

    commit = commit_one_phase = rollback = close = nothing


class InstantResource:
    """A resource that costs nothing, so that only the manager is measured."""

    instant = True

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self, xid: Xid) -> InstantBranch:
        return InstantBranch(xid)

    def in_doubt(self) -> Sequence[Xid]:
        return []

    def commit(self, xid: Xid) -> None:
        """Nothing is ever in doubt."""

    def rollback(self, xid: Xid) -> None:
        """Nothing is ever in doubt."""

    def preflight(self) -> Sequence[Problem]:
        return []

    def close(self) -> None:
        """Nothing is held."""


class SlowFile:
    """A file whose syncs take longer."""

    def __init__(self, inner: Any, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def datasync(self) -> None:
        self._inner.datasync()
        if self._seconds:
            time.sleep(self._seconds)


class SlowDisk:
    """The local file system with such files."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(LOCAL, name)

    def open(self, path: str, *, write: bool = True) -> SlowFile:
        return SlowFile(LOCAL.open(path, write=write), self._seconds)

    def create(self, path: str) -> SlowFile:
        return SlowFile(LOCAL.create(path), self._seconds)


def decisions(folder: Path, callers: int = 64, delay: float = 0.0) -> None:
    """Decisions of concurrent transactions beside one fsync per decision."""
    disk: Any = SlowDisk(delay)
    crew, lock = Crew(callers), threading.Lock()
    bare = disk.create(str(folder / "bare"))
    bare.allocate(1 << 20)
    resources = {name: InstantResource(name) for name in ("a", "b")}
    log = open_decision_log(folder / "log", fs=disk)
    with TransactionManager(folder / "tm", resources, log=log, recovery_interval=None) as tm:
        tm._context.writes_notes = False  # as without ``log``

        def one_fsync() -> None:
            with lock:
                bare.pwrite(RECORD, 0)
                bare.datasync()

        def transaction() -> None:
            with tm.begin() as tx:
                tx["a"]
                tx["b"]

        def of_tasks(tasks: int) -> Callable[[], float]:
            return lambda: asyncio.run(_tasks(AsyncTransactionManager(tm), tasks))

        print(
            f"{callers} transactions over instant resources, {delay * 1000:.0f} ms added to a sync"
        )
        syncs = Syncs(log.log, tm)  # type: ignore[attr-defined]  # the native log's
        in_turns(
            {
                "of threads": syncs.counted("threads", lambda: crew.rate(transaction)),
                "one fsync each": lambda: crew.rate(one_fsync),
            }
        )
        for tasks in (callers, 1000):
            name = f"of {tasks:,} tasks"
            in_turns(
                {
                    name: syncs.counted(name, of_tasks(tasks)),
                    "one fsync each": lambda: crew.rate(one_fsync),
                }
            )
        print(f"  fsyncs per decision: {syncs}")
    crew.dismiss()
    bare.close()


class Syncs:
    """Syncs of the log for each decision, by who was at work."""

    def __init__(self, log: TallyLog, tm: TransactionManager) -> None:
        self._log = log
        self._tm = tm
        self._found: dict[str, tuple[int, int]] = {}

    def counted(self, name: str, rate: Callable[[], float]) -> Callable[[], float]:
        """The same measurement, counted."""

        def measure() -> float:
            syncs, decisions = self._log.counters.fsyncs, self._tm.statistics.decisions
            found = rate()
            before = self._found.get(name, (0, 0))
            self._found[name] = (
                before[0] + self._log.counters.fsyncs - syncs,
                before[1] + self._tm.statistics.decisions - decisions,
            )
            return found

        return measure

    def __str__(self) -> str:
        return ", ".join(f"{name} {s / max(d, 1):.4f}" for name, (s, d) in self._found.items())


async def _tasks(tm: AsyncTransactionManager, tasks: int) -> float:
    began = time.perf_counter()
    end = began + SECONDS

    async def one() -> int:
        count = 0
        while time.perf_counter() < end:
            async with tm.begin() as tx:
                tx["a"]
                tx["b"]
            count += 1
        return count

    counts = await asyncio.gather(*(one() for _ in range(tasks)))
    return sum(counts) / (time.perf_counter() - began)


def slow(folder: Path) -> None:
    """The same where a sync takes longer, as it does on most disks and volumes."""
    for milliseconds in (1, 2, 5):
        place = folder / f"slow-{milliseconds}"
        place.mkdir()
        decisions(place, delay=milliseconds / 1000)


def overhead(folder: Path) -> None:
    """Transactions over two servers beside the bare statements, of few callers and of many."""
    for callers in (8, 32):
        _overhead(folder / str(callers), callers)


def _overhead(folder: Path, callers: int) -> None:
    with ExitStack() as stack:
        postgres, mariadb = make_postgres(), make_mariadb()
        for server in (postgres, mariadb):
            stack.callback(server.kill)
            server.start()
        make_tables(postgres.url, mariadb.port, callers)
        urls = {"pg": postgres.url, "maria": mariadb.url.replace("/mysql", "/bench")}
        folder.mkdir()
        bare = Bare(postgres.url, mariadb.port, folder)
        tm = stack.enter_context(TransactionManager(folder / "tm", urls, recovery_interval=None))
        assert not tm.preflight()

        def managed() -> None:
            row = bare.row()
            with tm.begin() as tx:
                tx["pg"].execute(UPDATE, (row,))
                tx["maria"].execute(UPDATE, (row,))

        crew = Crew(callers)
        print(f"{callers} callers over PostgreSQL and MariaDB")
        in_turns(
            {
                "with the manager": lambda: crew.rate(managed),
                "bare, one statement after the other": lambda: crew.rate(bare.sequential),
                "bare, both databases at the same time": lambda: crew.rate(bare.overlapped),
            }
        )
        crew.dismiss()


def lag(folder: Path) -> None:
    """How late the event loop is while 1,000 tasks wait for 20 connections to each database."""
    with ExitStack() as stack:
        postgres, mariadb = make_postgres(), make_mariadb()
        for server in (postgres, mariadb):
            stack.callback(server.kill)
            server.start()
        make_tables(postgres.url, mariadb.port, 1000)
        urls = {"pg": postgres.url, "maria": mariadb.url.replace("/mysql", "/bench")}
        manager = TransactionManager(folder / "lag", urls, recovery_interval=None)
        print("1,000 tasks over PostgreSQL and MariaDB, 20 connections to each; lag of the loop")
        asyncio.run(_lag(AsyncTransactionManager(manager)))


async def _lag(manager: AsyncTransactionManager) -> None:
    async def transfer(row: int) -> None:
        async with tm.begin(timeout=300) as tx:
            await tx.execute("pg", UPDATE, (row,))
            await tx.execute("maria", UPDATE, (row,))

    async with manager as tm:
        await asyncio.gather(*(transfer(row) for row in range(100)))  # connections

        async def tasks() -> None:
            await asyncio.gather(*(transfer(row) for row in range(1000)))

        for name, work in (("an idle loop", partial(asyncio.sleep, 3)), ("with the tasks", tasks)):
            found = sorted(await _ticks(asyncio.create_task(work())))
            p99 = found[len(found) * 99 // 100]
            print(f"  {name}: p50 {found[len(found) // 2]:.1f} ms, p99 {p99:.1f} ms")


async def _ticks(work: asyncio.Future[Any]) -> list[float]:
    """Return by how many milliseconds each of many short sleeps took too long."""
    found = []
    while not work.done():
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        found.append((time.perf_counter() - began - 0.005) * 1000)
    await work
    return found


PARTS: dict[str, Callable[[Path], None]] = {
    "decisions": decisions,
    "slow": slow,
    "overhead": overhead,
    "lag": lag,
}


def main() -> None:
    """All figures, or the ones named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; all without one")
    parts = parser.parse_args().part or [*PARTS]
    if not PARTS.keys() >= set(parts):
        parser.error(f"there is {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in parts:
            PARTS[name](Path(folder))


if __name__ == "__main__":
    main()
