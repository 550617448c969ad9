"""Signal handlers that raise inside a running event loop, while tasks wait for a journal.

The loop itself may lose the wake-ups of tasks then, as asyncio has it. The journal loses nothing,
and goes on: in the same loop and in another one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from asyncio.events import _set_running_loop
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tallystick.services.journal import AsyncJournal
from tallystick.storage.group import queue
from tallystick.systems.tally.live import appender
from tests.interrupts import Tally
from tests.need import need
from tests.sweeps import Sweep

LOST_S = 1.0
"""Seconds after which a loop is stopped whose tasks sleep for ever."""
WAIT_S = 60.0


class Tasks:
    """Several tasks of one journal at a time, and what was acknowledged to them."""

    def __init__(self, folder: Path, *, shared: bool) -> None:
        self._path, self._shared = folder / "log", shared
        self._numbers = count(1)
        self._acknowledged: set[bytes] = set()
        self._pairs: list[tuple[bytes, bytes]] = []
        self._loop = asyncio.new_event_loop()
        self._open()

    def _open(self) -> None:
        self._journal = AsyncJournal(self._path, shared=self._shared)

    def use(self) -> None:
        """Let tasks append, add, and commit transactions."""
        self._run(self._all(), LOST_S)

    def check(self, _: BaseException | None) -> None:
        """Raise unless the journal goes on in this loop and another, and has what it took."""
        _set_running_loop(None)  # an interrupt at the end of a run may have left it
        if not self._loop.is_running():
            before = len(self._acknowledged)
            for _try in range(3):  # what is left of an interrupted run may stop the next one
                self._run(self._flush_and_add(), WAIT_S)
            assert len(self._acknowledged) > before, "nothing goes on in the loop"
            for task in asyncio.all_tasks(self._loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            self._loop.close()
        self._loop = asyncio.new_event_loop()
        asyncio.run(asyncio.wait_for(self._add(), WAIT_S))

        async def bodies() -> set[bytes | None]:
            return {one.body async for one in self._journal.replay() if one.type != "delete"}

        there = asyncio.run(bodies())
        assert self._acknowledged <= there, "lost"

        async def live() -> set[bytes]:
            return {one.body async for one in self._journal.live_records()}

        alive = asyncio.run(live())
        assert all((one in alive) == (two in alive) for one, two in self._pairs), "torn"

    def close(self) -> None:
        """Open it again, and check that."""
        asyncio.run(self._journal.close())
        self._open()
        self.check(None)
        asyncio.run(self._journal.close())
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, object], seconds: float) -> None:
        # Several: one of these calls may be what the loop loses.
        stops = [self._loop.call_later(seconds + more / 10, self._loop.stop) for more in range(3)]
        try:
            self._loop.run_until_complete(work)
        except RuntimeError as error:
            if "stopped" not in str(error):
                raise
        finally:
            for stop in stops:
                stop.cancel()

    async def _all(self) -> None:
        works = [self._append(), self._add(), self._pair(), self._append(), self._pair()]
        await asyncio.gather(*works, return_exceptions=True)

    def _body(self) -> tuple[int, bytes]:
        number = next(self._numbers)
        return number, b"%d" % number

    async def _flush_and_add(self) -> None:
        await self._journal.flush()  # the loop may have lost the request for it
        await self._add()

    async def _append(self) -> None:
        _, body = self._body()
        await self._journal.append(body)
        self._acknowledged.add(body)

    async def _add(self) -> None:
        number, body = self._body()
        await self._journal.add(number, body)
        self._acknowledged.add(body)

    async def _pair(self) -> None:
        (one, first), (two, second) = self._body(), self._body()
        self._pairs.append((first, second))
        async with self._journal.transaction() as tx:
            tx.add(one, first)
            tx.add(two, second)
        self._acknowledged.update((first, second))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("kind", ["core", "twin", "shared"])
def test_a_handler_that_raises_in_a_loop_harms_no_journal(
    tmp_path: Path,
    kind: str,
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # What the loop logs has the frames of its tasks, which the captured log would keep alive.
    caplog.set_level(logging.CRITICAL + 1, logger="asyncio")
    if kind == "twin":
        monkeypatch.setattr(queue, "CORE", None)
        monkeypatch.setattr(appender, "CORE", None)
    else:
        need("core")
    tasks = Tasks(tmp_path, shared=kind == "shared")
    tally = Tally(f"tasks of a journal, {kind}")
    tally.enumerate(tasks.use, tasks.check, sweep, sample=6, pairs=2, runs=100)
    tasks.close()
    del tasks
    gc.collect()  # coroutines that were never awaited are told of here, and in no other test
