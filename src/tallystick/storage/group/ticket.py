"""A group of items, and the ticket that each caller holds for its item.

In: items, by `tallystick.storage.group.queue.PureQueue`. Out: waiting threads and tasks, woken
once per group.

A group's *gate* is a lock that its waiting threads queue at. An open gate means: the group is
finished, or no thread is flushing and the next one through should lead. A waiter that finds the
group finished opens the gate again for the next in the queue: one wake-up after the other, which
is how the interpreter lock would let them run anyway, and without a herd. To open a gate once too
often does no harm: a thread that passes checks the group's state itself.
"""

from __future__ import annotations

import contextlib
from asyncio import get_running_loop
from collections.abc import Generator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from tallystick.errors import TallystickError, copy_error
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.tasks import Loop, TaskWaiter, TaskWaiters
from tallystick.storage.scheduling import threading
from tallystick.storage.signals import starts_unchecked

Item = TypeVar("Item")


class Flushing(Protocol):
    """What a group and its tickets need of their writer."""

    def request_flush(self) -> None:
        """Have the thread flush that does so for tasks, and for callers that do not wait."""
        ...

    def wait_for(self, group: Group[Any], timeout: float | None = None) -> None:
        """Block until ``group`` is finished."""
        ...


class Group(Uncopied, Generic[Item]):
    """Items that one call of ``write`` writes.

    ``waiting`` has an entry for each thread that blocks at the gate, ``tasks`` the waiting tasks
    by their loop; ``requested`` is True if a caller wants a flush without waiting for it. The
    writer's lock guards all but these and the gate: a list grows and shrinks atomically, and a
    loop that has added a task looks at ``finished`` once more.
    """

    __slots__ = (
        "bytes",
        "error",
        "finished",
        "gate",
        "items",
        "lsns",
        "passed",
        "requested",
        "sync",
        "tasks",
        "waiting",
        "writer",
    )

    def __init__(self, writer: Flushing) -> None:
        self.writer = writer
        self.items: list[Item] = []
        self.bytes = 0
        self.sync = False
        self.requested = False
        self.finished = False
        self.error: TallystickError | None = None
        self.lsns: Sequence[int] = ()
        self.gate = threading.Lock()
        self.passed = 0
        self.waiting: list[None] = []
        self.tasks: dict[Loop, TaskWaiters] = {}

    def unfinished(self) -> bool:
        """Return True if the group is not finished; read anew, as another thread may end it."""
        return not self.finished

    def needs_flusher(self) -> bool:
        """Return True if callers want the group flushed that cannot lead a flush."""
        return self.requested or bool(self.tasks)

    @starts_unchecked
    def open_gate(self) -> None:
        """Let one waiter through."""
        # The first thing that it does: after any call a second signal may end an interrupted wait.
        try:  # noqa: SIM105 - once per waiter: a context manager costs as much as the rest
            self.gate.release()
        except RuntimeError:  # the gate is open
            pass

    def forget_waiters(self) -> None:
        """Drop the waiters, which a forked child has not inherited."""
        self.gate = threading.Lock()
        self.waiting = []
        self.tasks = {}

    def request_flush(self) -> None:
        """Have the task flusher flush this group."""
        # The flag first: a running flush reads it after it has released the flush lock.
        self.requested = True
        self.writer.request_flush()

    def add_loop(self, loop: Loop) -> TaskWaiters:
        """Create the list of waiting tasks of this loop, and have the task flusher run."""
        # In the loop's next round: by then every task that is ready now has submitted.
        loop.call_soon(self.writer.request_flush)
        waiters = self.tasks[loop] = TaskWaiters()
        return waiters

    def finish(self) -> None:
        """Wake everyone who waits; ``lsns`` or ``error`` is set."""
        self.finished = True
        self.open_gate()
        for loop, waiters in list(self.tasks.items()):
            # A closed loop has no tasks left that could wait.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(waiters.wake)


class GroupTicket(Uncopied, Generic[Item]):
    """The promise that one item is durable: for a thread to `wait`, for a task to await."""

    __slots__ = ("_group", "_index")

    def __init__(self, group: Group[Item], index: int) -> None:
        self._group = group
        self._index = index

    def wait(self, timeout: float | None = None) -> int:
        """Block until the item is durable; the caller may have to flush for it.

        Args:
            timeout: Seconds; None waits without limit.

        Returns:
            The item's log sequence number.

        Raises:
            LogPoisonedError: A write or sync failed; the item may or may not be on the disk.
            LogClosedError: The log was closed, or belongs to the parent of this process.
            LogWriteError: The log refused the item's group; nothing of it is on the disk.
            TimeoutError: It is not durable in time. A thread of the log goes on with it, as after
                `start_flush`.
        """
        group = self._group
        if not group.finished:
            group.writer.wait_for(group, timeout)
        if group.error is None:
            return group.lsns[self._index]
        raise copy_error(group.error)

    def done(self) -> bool:
        """Return True once the item is durable or has failed: `wait` would not block.

        The call itself has no effect. An item becomes durable when a caller waits for it or for
        a later one, when the log is closed, or after `start_flush`.
        """
        return self._group.finished

    def start_flush(self) -> None:
        """Have a thread of the log make the item durable; returns at once.

        One call is enough, for all items submitted before, and for a caller that polls `done`.
        """
        group = self._group
        if not group.finished:
            group.request_flush()

    def __await__(self) -> Generator[object, None, int]:
        """Wait like `wait` does, without blocking the event loop.

        The item of a cancelled task is written all the same.
        """
        group = self._group
        if not group.finished:
            loop = get_running_loop()
            waiters = group.tasks.get(loop)
            if waiters is None:
                waiters = group.add_loop(loop)
            waiter = TaskWaiter(loop)
            waiters.append(waiter)
            if group.unfinished():
                yield waiter
            else:  # finished by another thread, which may not have seen this task
                waiters.pop()
        if group.error is None:
            return group.lsns[self._index]
        raise copy_error(group.error)
