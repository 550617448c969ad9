"""Handlers of an event loop that cancel a task: what asyncio has in place of an interrupt."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Coroutine, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

from tallystick.errors import LogLockedError
from tallystick.services.journal import AsyncJournal, Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import AsyncTransactionManager, TransactionManager
from tests.interrupts import bytecodes_of, interrupted
from tests.sweeps import SEED, Sweep


class Used(Protocol):
    """Something that tasks use."""

    async def use(self) -> None:
        """Commit a number."""

    async def check(self) -> None:
        """Raise unless it is whole, and what was committed is there."""

    async def close(self) -> None:
        """Close it."""


class Mail:
    """A journal whose adds may be cancelled."""

    def __init__(self, folder: Path) -> None:
        self._journal = AsyncJournal(folder / "mail")
        self._numbers = count(1)
        self._number = 0
        self._returned = False

    async def use(self) -> None:
        self._returned, self._number = False, next(self._numbers)
        async with self._journal.transaction() as tx:
            tx.add(self._number, b"body")
        self._returned = True

    async def check(self) -> None:
        assert await asyncio.wait_for(self._journal.append(b"another"), 60)
        there = [one.record_id async for one in self._journal.live_records()]
        assert self._number in there or not self._returned, "lost"
        for one in there:
            await self._journal.delete(one)
        self._returned = False

    async def close(self) -> None:
        await self._journal.close()


class Rows:
    """A page store and a SQLite database, which have the same numbers."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "rows.db"
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("CREATE TABLE t (number INTEGER)")
        self._store = PageStore(folder / "store", lock_timeout=0.05)
        self._store.create_table("t")
        resources: dict[str, Any] = {"store": self._store, "rows": f"sqlite:///{self._path}"}
        self._manager = AsyncTransactionManager(
            TransactionManager(
                folder / "tm", resources, recovery_interval=None, orphan_interval=0.0
            )
        )
        self._numbers = count(1)
        self._number = 0
        self._returned = False

    async def use(self) -> None:
        self._returned, self._number = False, next(self._numbers)
        async with self._manager.begin() as tx:
            await tx.execute("rows", "INSERT INTO t VALUES (?)", (self._number,))
            (await tx.enlist("store")).table("t")[self._number] = b"row"
        self._returned = True

    async def check(self) -> None:
        assert (await self._manager.recover()).clean
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            found = {number for (number,) in connection.execute("SELECT number FROM t")}
        with self._store.begin() as tx:
            assert set(tx.table("t")) == found, "torn"
        assert self._number in found or not self._returned, "lost"
        self._returned = False

    async def close(self) -> None:
        await self._manager.close()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    try:
        yield made
    finally:
        made.run_until_complete(made.shutdown_default_executor())
        made.close()


class Cancelling:
    """Runs coroutines, each in a task that SIGALRM cancels."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        loop.add_signal_handler(signal.SIGALRM, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._loop.create_task(work)
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._task = None


@pytest.mark.parametrize("kind", [Mail, Rows])
def test_a_loop_handler_that_cancels_the_task_leaves_it_whole(
    tmp_path: Path, kind: type[Any], loop: asyncio.AbstractEventLoop, sweep: Sweep
) -> None:
    used: Used = kind(tmp_path)
    tasks = Cancelling(loop)
    points = bytecodes_of(lambda: tasks.run(used.use()))
    loop.run_until_complete(used.check())
    for point in sweep.of(range(SEED % 20, points, 20), 30):
        interrupted(lambda: tasks.run(used.use()), point, signal.SIGALRM)
        loop.run_until_complete(used.check())
    loop.run_until_complete(used.close())


async def test_an_opening_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    for turns in range(4):
        opening = asyncio.create_task(AsyncJournal.open(tmp_path / "log"))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await opening).close()
        async with asyncio.timeout(60):
            while not _opens(tmp_path / "log"):
                await asyncio.sleep(0.01)


def _opens(path: Path) -> bool:
    try:
        Journal(path).close()
    except LogLockedError:
        return False
    return True
