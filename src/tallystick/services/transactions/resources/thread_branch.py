"""Branches whose drivers block, for an event loop: their calls run in worker threads.

In: a `Branch` and workers for its end. Out: the same branch as an `AsyncBranch`. Every prepare and
commit can be asked for now and waited for later: a thread begins with it meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from tallystick.records import Xid
from tallystick.services.transactions.resource import Branch, Vote

_Result = TypeVar("_Result")


def in_thread(workers: Executor, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """The result of ``work`` in a worker thread, with the context variables of the caller."""
    context = contextvars.copy_context()
    return asyncio.get_running_loop().run_in_executor(workers, lambda: context.run(work))


class ThreadedBranch:
    """A branch whose calls do not block the event loop."""

    __slots__ = ("_asked", "_branch", "_workers", "xid")

    def __init__(self, branch: Branch, workers: Executor) -> None:
        self.xid: Xid = branch.xid
        self._branch = branch
        self._workers = workers
        self._asked: asyncio.Future[Any] | None = None

    @property
    def handle(self) -> Any:
        return self._branch.handle

    def send_prepare(self) -> bool:
        return self._send(self._branch.prepare)

    def send_commit(self) -> bool:
        return self._send(self._branch.commit)

    def prepare(self) -> asyncio.Future[Vote]:
        return self._answer(self._branch.prepare)

    def commit(self) -> asyncio.Future[None]:
        return self._answer(self._branch.commit)

    def commit_one_phase(self) -> asyncio.Future[None]:
        return in_thread(self._workers, self._branch.commit_one_phase)

    async def rollback(self) -> None:
        if self._asked is not None:  # the thread has the connection; what it says is no matter
            await asyncio.wait([self._asked])
            self._asked.exception()
        await in_thread(self._workers, self._branch.rollback)

    def close(self) -> asyncio.Future[None]:
        return in_thread(self._workers, self._branch.close)

    def _send(self, call: Callable[[], object]) -> bool:
        self._asked = in_thread(self._workers, call)
        return True

    def _answer(self, call: Callable[[], _Result]) -> asyncio.Future[_Result]:
        asked, self._asked = self._asked, None
        return in_thread(self._workers, call) if asked is None else asked
