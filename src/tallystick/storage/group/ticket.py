"""A group of items, and the ticket that each caller holds for its item.

In: items, by `tallystick.storage.group.writer.GroupWriter`. Out: waiting threads and tasks, woken
once per group.

A group's *gate* is a lock that its waiting threads queue at. An open gate means: the group is
finished, or nobody is flushing and whoever comes next should lead. A waiter that finds the group
finished opens the gate again for the one behind it: one wake-up after the other, which is how
the interpreter lock would let them run anyway, and without a herd. Opening a gate once too often
does no harm: who comes through looks for itself.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from asyncio import get_running_loop
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from tallystick.errors import LogPoisonedError, TallystickError
from tallystick.storage.group.task_waiters import Loop, TaskWaiter, TaskWaiters

if TYPE_CHECKING:
    from tallystick.storage.group.writer import GroupWriter

Item = TypeVar("Item")


class Group(Generic[Item]):
    """Items that are written by one call.

    ``waiting`` has an entry for each thread that blocks at the gate, ``tasks`` the waiting tasks
    by their loop. The writer's lock guards all but these and the gate: a list grows and shrinks
    by itself at one go, and a loop that has added a task looks at ``finished`` once more.
    """

    __slots__ = (
        "bytes",
        "error",
        "finished",
        "gate",
        "items",
        "lsns",
        "sync",
        "tasks",
        "waiting",
        "writer",
    )

    def __init__(self, writer: GroupWriter[Item]) -> None:
        self.writer = writer
        self.items: list[Item] = []
        self.bytes = 0
        self.sync = False
        self.finished = False
        self.error: TallystickError | None = None
        self.lsns: Sequence[int] = ()
        self.gate = threading.Lock()
        self.waiting: list[None] = []
        self.tasks: dict[Loop, TaskWaiters] = {}

    def waits(self) -> bool:
        """True if it is not finished: asked anew, as another thread may change it."""
        return not self.finished

    def open_gate(self) -> None:
        """Let one waiter through."""
        if self.gate.locked():
            try:  # noqa: SIM105 - once per waiter: a context manager costs as much as the rest
                self.gate.release()
            except RuntimeError:
                pass

    def forget_waiters(self) -> None:
        """In a forked child there are none."""
        self.gate = threading.Lock()
        self.waiting = []
        self.tasks = {}

    def tasks_of(self, loop: Loop) -> TaskWaiters:
        """Those of a loop whose first one comes now: it has the flusher begin."""
        # In the loop's next round: by then every task that is ready now has submitted.
        loop.call_soon(self.writer.flusher.wake)
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


class GroupTicket(Generic[Item]):
    """The promise that one item is durable: for a thread to `wait`, for a task to await."""

    __slots__ = ("_group", "_index")

    def __init__(self, group: Group[Item], index: int) -> None:
        self._group = group
        self._index = index

    def wait(self, timeout: float | None = None) -> int:
        """Block until durable; returns the item's log sequence number.

        Raises `LogPoisonedError`, `LogWriteError` if the log refused the item's group, or
        `TimeoutError` after ``timeout`` seconds (the item is written all the same).
        """
        group = self._group
        if not group.finished:
            group.writer.wait_for(group, timeout)
        if group.error is None:
            return group.lsns[self._index]
        raise fresh(group.error)

    def done(self) -> bool:
        """True once `wait` would return or raise at once; starts a flush if there is none."""
        group = self._group
        if not group.finished:
            group.writer.flusher.wake()
        return group.finished

    @property
    def finished(self) -> bool:
        """`done`, for somebody who does not want to start a flush by asking."""
        return self._group.finished

    def __await__(self) -> Generator[object, None, int]:
        """Like `wait`, without blocking the event loop; a cancelled task's item is written
        all the same."""
        group = self._group
        if not group.finished:
            loop = get_running_loop()
            waiters = group.tasks.get(loop)
            if waiters is None:
                waiters = group.tasks_of(loop)
            waiter = TaskWaiter(loop)
            waiters.append(waiter)
            if group.waits():
                yield waiter
            else:  # finished by another thread, which may not have seen this task
                waiters.pop()
        if group.error is None:
            return group.lsns[self._index]
        raise fresh(group.error)


def poisoned_by(cause: BaseException, name: str) -> LogPoisonedError:
    """What everyone is told of the log ``name`` once a write or sync failed by ``cause``."""
    error = LogPoisonedError(
        f"a write or sync failed: {cause!r}; nothing after it is acknowledged",
        file=name,
        advice="Close the log and open it again: recovery reads what is on the disk",
    )
    error.__cause__ = cause
    return error


def fresh(error: TallystickError) -> TallystickError:
    """A copy for one caller: what it adds to the traceback concerns nobody else."""
    mine = copy.copy(error)
    mine.__cause__ = error.__cause__
    return mine
