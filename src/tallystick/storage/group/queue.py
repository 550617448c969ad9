"""Who waits for which group, and who leads: in Python, the twin of the compiled core.

In: items of threads and tasks. Out: tickets; calls of ``lead`` in the thread that has to flush.
The algorithm and its invariants stand in `tallystick.storage.group.writer`. What is done once per
item is here, what is done once per group is there.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence, Sized
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from tallystick.arguments import bytes_of
from tallystick.core import CORE
from tallystick.errors import LogWriteError, TallystickError, copy_error
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.counters import NOTHING_ALONE
from tallystick.storage.group.leader_wait import LeaderWait
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.group.ticket import Group, GroupTicket, Item
from tallystick.storage.scheduling import simulated, threading, time
from tallystick.storage.signals import uninterrupted

AnyItem = TypeVar("AnyItem", contravariant=True)
_NOTHING_FITS = 1 << 62
"""Size of the current group of a queue that has stopped, so that `PureQueue.submit` finds it
full."""


class Limits(NamedTuple):
    """Numbers of bytes: of a group and of all dirty groups at most, and of the records of `append`.

    A record takes ``overhead`` more than its body, and a body ``body_max`` at most.
    """

    group_bytes: int
    pending_bytes: int
    overhead: int = 0
    body_max: int = sys.maxsize


class Policy(Protocol[AnyItem]):
    """What a queue needs of its writer."""

    def lead(self, sync: bool) -> None:
        """Flush and release the flush lock, which the caller owns."""
        ...

    def commit_alone(self, item: AnyItem, size: int) -> int:
        """Write and sync one item, and release the flush lock, which the caller owns."""
        ...

    def own_flush_error(self) -> LogWriteError:
        """Return the error for a thread that flushes and would wait for itself for ever."""
        ...

    def late_error(self) -> TimeoutError:
        """Return the error for a caller whose time is over."""
        ...

    def release(self) -> None:
        """Release the flush lock, and have the task flusher run if it has to."""
        ...

    def request_flush(self) -> None:
        """Have the task flusher flush soon."""
        ...

    def write_dirty(self) -> None:
        """Write what waits: too much of it does."""
        ...

    def too_large(self, size: int) -> TallystickError:
        """Return the error for a record whose body has ``size`` bytes."""
        ...


class PureQueue(Uncopied, Generic[Item]):
    """The groups that are not finished, their waiters, and the flush lock.

    A group is filled as the current one, then dirty, then unsynced once it was taken for writing.

    Args:
        policy: The writer.
        limits: What is measured in bytes.

    Attributes:
        stopped: The cause for which the queue takes no more items, if there is one.
    """

    def __init__(self, policy: Policy[Item], limits: Limits) -> None:
        self._policy = policy
        self._limits = limits
        self._current: Group[Item] = Group(self)
        self._dirty: deque[Group[Item]] = deque()
        self._dirty_bytes = 0
        self._unsynced: list[Group[Item]] = []
        self.stopped: TallystickError | None = None
        self._make_locks()

    def _make_locks(self) -> None:
        self._lock = OwnedLock(nested_call_error)
        self._flush_lock = OwnedLock(self._policy.own_flush_error)
        self._leader_wait = LeaderWait()

    # -- for callers ----------------------------------------------------------------------

    def submit(self, item: Item, size: int, sync: bool) -> GroupTicket[Item]:
        """Append an item to the current group; see `GroupWriter.submit`."""
        with uninterrupted, self._lock:
            group = self._current
            if group.bytes + size > self._limits.group_bytes:
                self.refuse_if_stopped()
                self._rotate()
                group = self._current
            items = group.items
            ticket = GroupTicket(group, len(items))
            if sync:
                group.sync = True
            group.bytes += size
            items.append(item)  # last: what fails before it leaves no item without a ticket
        if self._dirty_bytes > self._limits.pending_bytes:
            self._policy.write_dirty()
        return ticket

    def commit(self, item: Item, size: int) -> int:
        """Submit an item and wait for it, without a group if no other is under way."""
        if self._idle():
            with uninterrupted:
                if self._flush_lock.try_acquire():
                    # Again: from now on only the caller can write what came in between.
                    if self._idle() and not self._leader_wait.pending_count() and not self.stopped:
                        return self._policy.commit_alone(item, size)
                    self._policy.release()
        return self.submit(item, size, True).wait()

    def append(self, body: Item) -> GroupTicket[Item]:
        """Submit a body, whose size is its length and the overhead of a record."""
        body = self._body_of(body)
        return self.submit(body, self._size_of(body), True)

    def append_durably(self, body: Item) -> int:
        """Submit a body as `append` does, and wait for it."""
        body = self._body_of(body)
        return self.commit(body, self._size_of(body))

    def counted_alone(self) -> bytes:
        """Return what the queue committed without its writer: only the compiled core does so.

        See `GroupCounters.and_alone`.
        """
        return NOTHING_ALONE

    def _body_of(self, given: Item) -> Item:
        """Return the bytes of a body: its own, or a copy of a buffer's."""
        return given if type(given) is bytes else cast(Item, bytes_of(given))

    def _size_of(self, body: Item) -> int:
        size = len(cast(Sized, body))
        if size > self._limits.body_max:
            raise self._policy.too_large(size)
        return size + self._limits.overhead

    def _idle(self) -> bool:
        """Return True if no item is unfinished; without the lock this is a hint."""
        return not (self._current.items or self._unsynced or self._dirty or self._current.bytes)

    # -- waiting ---------------------------------------------------------------------------

    def wait_for(self, group: Group[Item], timeout: float | None = None) -> None:
        """Block until ``group`` is finished, leading a flush if no other thread does.

        Raises `TimeoutError` after ``timeout`` seconds; the task flusher then takes over.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not group.finished:
                if not group.gate.acquire(blocking=False):
                    self._wait_at_gate(group, deadline)
                if not group.finished:
                    self._lead_for(group)
        finally:
            # For the next waiter, also if this one was interrupted after it passed the gate.
            group.open_gate()

    def _wait_at_gate(self, group: Group[Item], deadline: float | None) -> None:
        self._flush_lock.refuse_wait()
        if group.passed == threading.get_ident():  # a finalizer runs in the thread that leads
            raise self._policy.own_flush_error()
        group.waiting.append(None)
        try:
            rest = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
            longest = min(rest, threading.TIMEOUT_MAX)
            if not group.gate.acquire(timeout=longest) and group.unfinished():
                group.request_flush()
                raise self._policy.late_error()
        finally:
            group.waiting.pop()
            if group.finished:
                self._leader_wait.woken(group.waiting)

    def _lead_for(self, group: Group[Item]) -> None:
        """Flush, unless another thread does or has just finished ``group``."""
        group.passed = threading.get_ident()
        try:
            with uninterrupted:
                if self._flush_lock.try_acquire():
                    if group.unfinished():
                        self._policy.lead(True)
                    else:
                        self._policy.release()
        finally:
            group.passed = 0

    def request_flush(self) -> None:
        """Have the task flusher flush soon."""
        self._policy.request_flush()

    # -- the flush lock --------------------------------------------------------------------

    @property
    def owned(self) -> bool:
        """True if the calling thread owns the flush lock."""
        return self._flush_lock.owned

    def acquire(self) -> None:
        """Take the flush lock once it is free; raises `LogWriteError` in its owner."""
        self._flush_lock.acquire()

    def try_acquire(self) -> bool:
        """Take the flush lock if it is free."""
        return self._flush_lock.try_acquire()

    def release(self) -> bool:
        """Release the flush lock, and have the groups formed meanwhile flushed next (I5).

        Returns True if the task flusher has to run.
        """
        with uninterrupted, self._lock:
            self._flush_lock.release()
            groups = self._unfinished()
            for group in groups:
                group.open_gate()
        return self.stopped is not None or any(group.needs_flusher() for group in groups)

    # -- for the owner of the flush lock -----------------------------------------------------

    @property
    def unsynced(self) -> int:
        """Number of groups that were taken and are not durable."""
        return len(self._unsynced)

    def wait_for_woken(self) -> None:
        """Wait a moment for the callers that were acknowledged last; see `LeaderWait`."""
        self._leader_wait.wait()

    @property
    def pending(self) -> int:
        """Number of callers that were acknowledged last and have not woken."""
        return self._leader_wait.pending_count()

    def take(self) -> list[Group[Item]]:
        """Return every group that waits to be written, oldest first; they are unsynced now."""
        with uninterrupted, self._lock:
            self._rotate()
            groups = [*self._dirty]
            self._dirty.clear()
            self._dirty_bytes = 0
            self._unsynced += groups
        return groups

    def finish(self, seconds: float) -> None:
        """Finish every unsynced group: a flush of so many seconds has made them durable."""
        with uninterrupted, self._lock:
            self._leader_wait.flushed(seconds)
            groups, self._unsynced = self._unsynced, []
            self._finish(groups)

    def refuse(self, group: Group[Item], error: TallystickError) -> None:
        """Finish a group that the log could not take with an error."""
        with uninterrupted, self._lock:
            self._unsynced.remove(group)
            self._finish([group], error)

    # -- the end ---------------------------------------------------------------------------

    def unfinished(self) -> list[Group[Item]]:
        """Return all groups that hold items, oldest first."""
        with uninterrupted, self._lock:
            return self._unfinished()

    def refuse_if_stopped(self) -> None:
        """Raise the cause for which the queue has stopped, if it has."""
        if self.stopped is not None:
            raise copy_error(self.stopped)

    def stop(self, cause: TallystickError) -> TallystickError:
        """Fail every unfinished group and every later submit; returns the first cause."""
        with uninterrupted, self._lock:
            if self.stopped is None:
                self.stopped = cause
            groups = self._unfinished()
            self._unsynced = []
            self._dirty.clear()
            self._dirty_bytes = 0
            self._current = Group(self)
            self._current.bytes = _NOTHING_FITS
            self._finish(groups, self.stopped)
            return self.stopped

    def forget_waiters(self) -> None:
        """Drop locks and waiters in a forked child, which has not inherited their threads."""
        self._make_locks()
        for group in self._unfinished():
            group.forget_waiters()

    # -- the caller holds the queue's lock (I6) -------------------------------------------------

    def _rotate(self) -> None:
        """Make the current group dirty, unless it is empty, and start an empty one."""
        full = self._current
        if full.items:
            self._dirty.append(full)
            self._dirty_bytes += full.bytes
            self._current = Group(self)

    def _unfinished(self) -> list[Group[Item]]:
        current = [self._current] if self._current.items else []
        return [*self._unsynced, *self._dirty, *current]

    def _finish(self, groups: Sequence[Group[Item]], error: TallystickError | None = None) -> None:
        self._leader_wait.expect([group.waiting for group in groups if group.waiting])
        for group in groups:
            assert not group.finished, "I3"
            group.error = error
            group.finish()


def new_queue(policy: Policy[Item], limits: Limits, log_end: object) -> PureQueue[Item]:
    """Return a queue of the compiled core where that is installed, else of this module.

    To ``log_end``, if it is not None, the compiled core writes items of lone callers by itself.
    """
    if CORE is None or simulated():
        return PureQueue(policy, limits)
    compiled: PureQueue[Item] = CORE.Queue(policy, *limits, log_end)
    return compiled
