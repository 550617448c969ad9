"""What asyncio tasks need of group commit: a thread that flushes for them, and a wake-up for many.

In: tasks that await tickets. Out: their event loop never blocks, and all tasks that wait for one
group run on in one callback of their loop.

A future for each ticket would cost each task a callback of the loop of its own. `TaskWaiter` is
what a task asks of a future and no more (`asyncio.isfuture` recognises both by the same
attribute): it keeps the task's wake-up, and `TaskWaiters.wake` calls one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import Context
from typing import Any

from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading

Loop = asyncio.AbstractEventLoop


class TaskFlusher(Uncopied):
    """Runs ``flush`` in a daemon thread, once for any number of requests, while it returns True.

    The thread starts with the first request.
    """

    def __init__(self, flush: Callable[[], bool], name: str) -> None:
        self._flush = flush
        self._name = name
        self._starting = threading.Lock()
        self._requested = threading.Lock()  # free while a request waits for the thread
        self._requested.acquire()
        self._thread: threading.Thread | None = None

    def request(self) -> bool:
        """Have ``flush`` called soon; return False where no thread can be started for it."""
        try:
            self._require_thread()
        except OSError:
            return False
        self.request_if_running()
        return True

    def _require_thread(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    start_thread(thread)
                    self._thread = thread

    def request_if_running(self) -> None:
        """Have ``flush`` called soon if the thread was ever started."""
        with contextlib.suppress(RuntimeError):
            self._requested.release()

    def join(self) -> None:
        """Return when the thread has ended, which it does once ``flush`` returns False."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self.request_if_running()
            self._thread.join()

    def _run(self) -> None:
        self._requested.acquire()
        while self._flush():
            self._requested.acquire()


class TaskWaiter:
    """Stands for one waiting task, in place of a future; belongs to the loop's thread."""

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_loop", "_message", "context", "wake")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._asyncio_future_blocking = True
        self._cancelled = False
        self.wake: Callable[[TaskWaiter], object] | None = None

    def add_done_callback(self, wake: Callable[[TaskWaiter], object], *, context: Context) -> None:
        """Keep the wake-up of the task, which calls this as it goes to sleep."""
        self.wake = wake
        self.context = context

    def cancel(self, msg: Any = None) -> bool:
        """Wake the task soon, whatever becomes of the group: it was cancelled."""
        wake, self.wake = self.wake, None
        if wake is None:
            return False
        self._cancelled = True
        self._message = msg
        self._loop.call_soon(wake, self, context=self.context)
        return True

    def result(self) -> None:
        """Raise `CancelledError` in a cancelled task; the outcome of the group is the ticket's."""
        if self._cancelled:
            raise asyncio.CancelledError(*() if self._message is None else (self._message,))


class TaskWaiters(list[TaskWaiter]):
    """The tasks of one loop that wait for one group."""

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


def in_event_loop() -> bool:
    """Return True if the caller runs in an event loop, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
