"""A group of items, and the ticket that each caller holds for its item.

In: items, by `tallystick.storage.group.GroupWriter`. Out: waiting threads and tasks, woken once
per group.

A group's *gate* is a lock that its waiting threads queue at. An open gate means: the group is
finished, or nobody is flushing and whoever comes next should lead. A waiter that finds the group
finished opens the gate again for the one behind it: one wake-up after the other, which is how
the interpreter lock would let them run anyway, and without a herd. Opening a gate once too often
does no harm: who comes through looks for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from tallystick.errors import LogPoisonedError, TallystickError

if TYPE_CHECKING:
    from tallystick.storage.group import GroupWriter

Item = TypeVar("Item")
Loop = asyncio.AbstractEventLoop
Futures = list[tuple[asyncio.Future[int], int]]
"""Futures of one loop's tasks, each with the index of its item in the group."""


class Group(Generic[Item]):
    """Items that are written by one call.

    ``queued`` counts the threads that block at the gate, ``futures`` holds those of the waiting
    tasks by their loop. The writer's lock guards all but the gate and the futures: a loop adds
    futures without it, and looks at ``finished`` once more behind that.
    """

    __slots__ = (
        "bytes",
        "error",
        "finished",
        "futures",
        "gate",
        "items",
        "lsns",
        "queued",
        "sync",
        "writer",
    )

    def __init__(self, writer: GroupWriter[Item]) -> None:
        self.writer = writer
        self.items: list[Item] = []
        self.bytes = 0
        self.sync = False
        self.finished = False
        self.queued = 0
        self.error: TallystickError | None = None
        self.lsns: Sequence[int] = ()
        self.gate = threading.Lock()
        self.futures: dict[Loop, Futures] = {}

    def waits(self) -> bool:
        """True if it is not finished: asked anew, as another thread may change it."""
        return not self.finished

    def open_gate(self) -> None:
        """Let one waiter through."""
        if self.gate.locked():
            with contextlib.suppress(RuntimeError):
                self.gate.release()

    def forget_waiters(self) -> None:
        """In a forked child there are none."""
        self.gate = threading.Lock()
        self.futures = {}

    def finish(self) -> None:
        """Wake everyone who waits; ``lsns`` or ``error`` is set."""
        self.finished = True
        self.open_gate()
        for loop, futures in list(self.futures.items()):
            # A closed loop has no tasks left that could wait.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake_tasks, futures)

    def _wake_tasks(self, futures: Futures) -> None:
        lsns, error = self.lsns, self.error
        for future, index in futures:
            if future.done():  # cancelled
                continue
            if error is None:
                future.set_result(lsns[index])
            else:
                future.set_exception(fresh(error))


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
        return self._result()

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
        future = None if group.finished else group.writer.join(group, self._index)
        return self._finished() if future is None else future.__await__()

    def _finished(self) -> Generator[object, None, int]:
        yield from ()
        return self._result()

    def _result(self) -> int:
        group = self._group
        if group.error is not None:
            raise fresh(group.error)
        return group.lsns[self._index]


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
