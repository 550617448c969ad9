"""Tasks that wait for a group, without a future for each of them.

In: tasks of one event loop that await a ticket. Out: all of them run on in one callback of the
loop, once the group is finished.

A future costs its task a callback of the loop of its own when it is done. `TaskWaiter` is what a
task asks of a future and no more (`asyncio.isfuture` tells them by the same attribute): it keeps
the task's wake-up, and `TaskWaiters.wake` calls one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

Loop = asyncio.AbstractEventLoop


class TaskWaiter:
    """What one task waits for. Belongs to the loop's thread."""

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_loop", "_message", "context", "wake")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._asyncio_future_blocking = True
        self._cancelled = False
        self.wake: Callable[[TaskWaiter], object] | None = None

    def add_done_callback(self, wake: Callable[[TaskWaiter], object], *, context: Context) -> None:
        """Called by the task as it goes to sleep."""
        self.wake = wake
        self.context = context

    def cancel(self, msg: Any = None) -> bool:
        """The task was cancelled: it wakes soon, whatever becomes of the group."""
        wake, self.wake = self.wake, None
        if wake is None:
            return False
        self._cancelled = True
        self._message = msg
        self._loop.call_soon(wake, self, context=self.context)
        return True

    def result(self) -> None:
        """Called by the task as it wakes; what the group came to is the ticket's to say."""
        if self._cancelled:
            raise asyncio.CancelledError(*() if self._message is None else (self._message,))


class TaskWaiters(list[TaskWaiter]):
    """The waiting tasks of one loop."""

    __slots__ = ()

    def wake(self) -> None:
        """Run every task on, in the order in which they came to wait."""
        self.reverse()
        try:
            while self:
                waiter = self.pop()
                wake, waiter.wake = waiter.wake, None
                if wake is not None:
                    waiter.context.run(wake, waiter)
        finally:
            if self:  # a task has stopped the loop, by SystemExit or an interrupt
                self.reverse()
                self[0]._loop.call_soon(self.wake)
