"""Branches whose drivers block, for an event loop: their calls run in worker threads.

In: a `Branch` and workers for its end. Out: the same branch as an `AsyncBranch`. Every prepare and
commit can be sent ahead and awaited later: a thread begins with it meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from tallystick.callables import require_value
from tallystick.errors import LogClosedError
from tallystick.records import Xid
from tallystick.services.transactions.resource import Branch, Vote, abort, discard

_Result = TypeVar("_Result")

_WHAT = "work that a thread does"


def in_thread(workers: Executor, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Run ``work`` in a worker thread, with the context variables of the caller.

    Raises:
        LogClosedError: the workers have ended with their transaction manager.
    """
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(workers, lambda: require_value(context.run(work), _WHAT))
    except RuntimeError as error:
        raise LogClosedError("the transaction manager is closed") from error


class ThreadedBranch:
    """A branch whose calls do not block the event loop."""

    __slots__ = ("_branch", "_sent", "_workers", "xid")

    def __init__(self, branch: Branch, workers: Executor) -> None:
        self.xid: Xid = branch.xid
        self._branch = branch
        self._workers = workers
        self._sent: asyncio.Future[Any] | None = None

    @property
    def handle(self) -> Any:
        """The handle that a thread gets."""
        return self._branch.handle

    def abort(self) -> None:
        """End the session, so that a call that waits for it fails."""
        abort(self._branch)

    def discard(self, *, prepared: bool) -> None:
        """Release the branch of the thread."""
        discard(self._branch, prepared=prepared)

    def send_prepare(self) -> bool:
        """Begin to prepare in a worker thread."""
        return self._send(self._branch.prepare)

    def send_commit(self) -> bool:
        """Begin to commit in a worker thread."""
        return self._send(self._branch.commit)

    def prepare(self) -> asyncio.Future[Vote]:
        """Prepare, or await what `send_prepare` began."""
        return self._answer(self._branch.prepare)

    def commit(self) -> asyncio.Future[None]:
        """Commit, or await what `send_commit` began."""
        return self._answer(self._branch.commit)

    def commit_one_phase(self) -> asyncio.Future[None]:
        """Commit without prepare."""
        return in_thread(self._workers, self._branch.commit_one_phase)

    async def rollback(self) -> None:
        """Roll back, after a prepare that is under way."""
        if self._sent is not None:  # its thread uses the connection; its result does not matter
            await asyncio.wait([self._sent])
            self._sent.exception()
        await in_thread(self._workers, self._branch.rollback)

    def close(self) -> asyncio.Future[None]:
        """Release what the branch holds."""
        return in_thread(self._workers, self._branch.close)

    def _send(self, call: Callable[[], object]) -> bool:
        try:
            self._sent = in_thread(self._workers, call)
        except LogClosedError:  # the call that waits meets it again
            return False
        self._sent.add_done_callback(_take_note)
        return True

    def _answer(self, call: Callable[[], _Result]) -> asyncio.Future[_Result]:
        sent, self._sent = self._sent, None
        return in_thread(self._workers, call) if sent is None else sent


def _take_note(sent: asyncio.Future[Any]) -> None:
    """Let asyncio know that an error was seen: a commit that is cut short awaits no answer."""
    if not sent.cancelled():
        sent.exception()
