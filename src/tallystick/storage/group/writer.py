"""Group commit: one write and one sync for everyone who waits; knows no format.

In: items from any number of threads and asyncio tasks. Out: a `GroupTicket` for each, done once
the item is durable. The log supplies two callables: ``write(items)`` and ``sync()``.

The algorithm is Derby's, with three buffers that are lists of groups:

1. `GroupWriter.submit` appends an item to the *current* group. A full group becomes *dirty*, and
   an empty one takes its place.
2. A thread that waits for a group takes the *flush lock* if it is free, and so becomes the
   leader. It takes the dirty groups and the current one, which are *unsynced* from then on,
   writes each of them, syncs once, finishes them all, and releases the lock.
3. A thread that finds the lock taken queues at its group's gate (see
   `tallystick.storage.group.ticket`). The next group forms while the flush runs. There is no
   timer: the first waiter that passes the gate of an unfinished group leads the next flush.
4. Before a flush, the leader waits for the callers that were just acknowledged to submit their
   next item, but only for a moment (`tallystick.storage.group.leader_wait`).
5. A task must not block its event loop: the *task flusher*, a thread that starts with the first
   request, leads for tasks and for callers of `GroupTicket.start_flush`.
6. A lone caller of `GroupWriter.commit` writes and syncs its item itself, without a group.

Invariants:

I1. ``write`` and ``sync`` run only in the thread that owns the flush lock: one call at a time.
I2. Groups are written in the order of their submits, each of them once.
I3. A group is finished once: by a sync that began after its write had ended, or by an error.
I4. A failed write or sync poisons the writer: every unfinished and every later item gets
    `LogPoisonedError` with the first cause, and neither ``write`` nor ``sync`` is called again.
    Exception: a `LogWriteError` from ``write`` refuses the items of that group alone.
I5. While a group with waiters is unfinished, the flush lock is taken, or the group's gate is open,
    or the task flusher has a request: no wake-up is lost. The thread that releases the flush
    lock re-establishes this.
I6. The writer's lock guards the buffers and is held for moments, never during ``write``, ``sync``
    or a wait. A thread that needs both takes the flush lock first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic

from tallystick.errors import (
    LogClosedError,
    LogPoisonedError,
    LogWriteError,
    TallystickError,
    copy_error,
)
from tallystick.storage.fork import forked_error, register_in_child
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.flush_lock import FlushLock
from tallystick.storage.group.leader_wait import LeaderWait
from tallystick.storage.group.tasks import TaskFlusher, in_event_loop
from tallystick.storage.group.ticket import Flushing, Group, GroupTicket, Item
from tallystick.storage.signals import defer_sigint

GROUP_BYTES = 1 << 20
"""Default limit of one group in bytes; a larger item is a group of its own."""
PENDING_BYTES = 8 << 20
"""Default limit of the dirty groups in bytes, above which `GroupWriter.submit` writes them."""
_NOTHING_FITS = 1 << 62
"""Size of the current group of a writer that has stopped, so that `submit` finds it full."""


class GroupWriter(Generic[Item]):
    """Collects items into groups and makes them durable, one flush at a time.

    ``write(items)`` writes one group, in order, and returns the log sequence number of each
    item (``range(first, first + len(items))`` will do). It is never called by two threads at
    once, nor beside ``sync``, so it may roll and recycle files. If it raises `LogWriteError`,
    nothing of the group may have taken effect: its items are refused, the log goes on. Any other
    exception poisons the writer. ``sync()`` makes durable what was written before.

    Args:
        write: Writes one group.
        sync: Makes written groups durable.
        name: The log's path, for errors.
        group_bytes: Limit of one group.
        pending_bytes: Limit of the groups that wait to be written.
        delay: Seconds that a leader waits for more items, if ``siblings`` are there already.
        siblings: See ``delay``.
    """

    def __init__(
        self,
        write: Callable[[list[Item]], Sequence[int]],
        sync: Callable[[], None],
        *,
        name: str = "log",
        group_bytes: int = GROUP_BYTES,
        pending_bytes: int = PENDING_BYTES,
        delay: float = 0.0,
        siblings: int = 5,
    ) -> None:
        self.name = name
        self.counters = GroupCounters()
        self._write = write
        self._sync = sync
        self._group_bytes = group_bytes
        self._pending_bytes = pending_bytes
        self._delay = delay
        self._siblings = siblings
        self._stop: TallystickError | None = None
        self._make_locks()
        self._buffers: Buffers[Item] = Buffers(self)
        register_in_child(self)

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        self._flush_lock = FlushLock(self.name)
        self._leader_wait = LeaderWait()
        self.task_flusher = TaskFlusher(self._flush_for_tasks, f"flusher of {self.name}")

    # -- for callers ----------------------------------------------------------------------

    def submit(self, item: Item, size: int = 0, *, sync: bool = True) -> GroupTicket[Item]:
        """Append an item to the current group; the order of submits is kept.

        The item becomes durable when a caller waits for it or for a later one, at the latest by
        `close`; see `GroupTicket.done`. Hold no lock that ``write`` needs: where more than
        ``pending_bytes`` wait, the caller writes them first, except in an event loop, which
        never blocks.

        Args:
            item: Something that ``write`` takes.
            size: Its size in bytes, for the limits.
            sync: False if no caller will wait for it: a full group of such items is written
                without a sync.

        Returns:
            The promise that the item is durable.

        Raises:
            LogClosedError: The writer is closed, or belongs to the parent of this process.
            LogPoisonedError: A write or sync has failed before.
        """
        with self._lock:
            group = self._buffers.current
            if group.bytes + size > self._group_bytes:
                group = self._rotate()
            items = group.items
            ticket = GroupTicket(group, len(items))
            items.append(item)
            group.bytes += size
            if sync:
                group.sync = True
        if self._buffers.dirty_bytes > self._pending_bytes:
            self._write_dirty()
        return ticket

    def commit(self, item: Item, size: int = 0) -> int:
        """Submit an item and wait for it, at less cost than the two calls.

        Args:
            item: Something that ``write`` takes.
            size: Its size in bytes.

        Returns:
            The item's log sequence number.

        Raises:
            TallystickError: As `submit` and `GroupTicket.wait` do.
        """
        if self._buffers.idle():
            with defer_sigint():
                if self._flush_lock.try_acquire():
                    # Again: from now on only the caller can write what came in between.
                    if (
                        self._buffers.idle()
                        and not self._leader_wait.pending_count()
                        and self._stop is None
                    ):
                        return self._commit_alone(item, size)
                    self._release_flush_lock()
        return self.submit(item, size).wait()

    def flush(self) -> None:
        """Return when everything submitted so far is durable.

        Raises:
            TallystickError: As `GroupTicket.wait` does, if any of it is not.
        """
        with self._lock:
            self._refuse_if_stopped()
            groups = self._buffers.unfinished()
        if groups:
            self.wait_for(groups[-1])
        for group in groups:
            if group.error is not None:
                raise copy_error(group.error)

    def close(self) -> None:
        """Flush, then refuse everything; does nothing if closed or poisoned before.

        Raises:
            TallystickError: As `flush` does; the writer is closed all the same.
        """
        if self._stop is None:
            try:
                self.flush()
            finally:
                with self.exclusive(), self._lock:
                    self._stop_with(LogClosedError("the log is closed", file=self.name))
        self.task_flusher.join()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold flushes off for the length of the block: ``write`` and ``sync`` do not run.

        Inside, items may be submitted but not waited for.

        Raises:
            LogWriteError: Inside the block, by whatever would wait for a flush.
        """
        self._flush_lock.acquire()
        try:
            yield
        finally:
            self._release_flush_lock()

    @property
    def poisoned(self) -> bool:
        """True after a failed write or sync."""
        return isinstance(self._stop, LogPoisonedError)

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
        self._flush_lock.refuse_owner()
        group.waiting.append(None)
        try:
            rest = -1 if deadline is None else max(deadline - time.monotonic(), 0)
            if not group.gate.acquire(timeout=rest) and group.unfinished():
                group.request_flush()
                raise TimeoutError(f"{self.name}: not durable in time; it may still become so")
        finally:
            group.waiting.pop()
            if group.finished:
                self._leader_wait.woken(group.waiting)

    # -- leading ----------------------------------------------------------------------------

    def _lead_for(self, group: Group[Item]) -> None:
        """Flush, unless another thread does or has just finished ``group``."""
        with defer_sigint():
            if self._flush_lock.try_acquire():
                if group.unfinished():
                    self._lead(sync=True)
                else:
                    self._release_flush_lock()

    def _flush_for_tasks(self) -> bool:
        """Flush in the task flusher's thread; returns False once it may end."""
        if self._flush_lock.try_acquire():
            self._lead(sync=True)
        return self._stop is None

    def _write_dirty(self) -> None:
        """Have the caller of `submit` write what waits, before it may submit more."""
        if self._flush_lock.owned:
            return
        if in_event_loop():
            self.task_flusher.request()
            return
        with defer_sigint():
            self._flush_lock.acquire()
            self._lead(sync=False)
        self._refuse_if_stopped()

    def _refuse_if_stopped(self) -> None:
        if self._stop is not None:
            raise copy_error(self._stop)

    # -- flushing: the caller owns the flush lock (I1), and these release it ------------------

    def _lead(self, *, sync: bool) -> None:
        """Flush everything that waits."""
        try:
            if sync:
                self._leader_wait.wait()
                if self._delay and len(self._buffers.current.items) >= self._siblings:
                    time.sleep(self._delay)
            self._flush(sync)
        except BaseException as error:
            self._poison(error)
        finally:
            self._release_flush_lock()

    def _commit_alone(self, item: Item, size: int) -> int:
        """Write and sync one item, without a group; returns its log sequence number."""
        started = time.perf_counter()
        written = False
        try:
            lsns = self._write_items([item])
            written = True
            self.counters.add_group(1, size)
            self.counters.fsyncs += 1
            self._sync()
            return lsns[0]
        except BaseException as error:
            if isinstance(error, LogWriteError) and not written:
                self.counters.refused += 1
                raise
            raise copy_error(self._poison(error)) from error
        finally:
            self.counters.add_time(time.perf_counter() - started)
            self._release_flush_lock()

    def _release_flush_lock(self) -> None:
        """End a flush, and have the groups formed meanwhile flushed next (I5)."""
        with self._lock:
            self._flush_lock.release()
            groups = self._buffers.unfinished()
            for group in groups:
                group.open_gate()
        if self._stop is not None or any(group.needs_flusher() for group in groups):
            self.task_flusher.request_if_running()

    # -- flushing: the caller owns the flush lock (I1) -----------------------------------------

    def _flush(self, sync: bool) -> None:
        assert self._flush_lock.owned, "I1"
        with self._lock:
            groups = self._buffers.take()
        if not self._buffers.unsynced:
            return
        started = time.perf_counter()
        for group in groups:
            self._write_group(group)
        if self._buffers.unsynced and (sync or any(group.sync for group in groups)):
            self.counters.fsyncs += 1
            self._sync()
            with self._lock:
                self._leader_wait.flushed(time.perf_counter() - started)
                self._finish(self._buffers.take_synced())
        self.counters.add_time(time.perf_counter() - started)

    def _write_group(self, group: Group[Item]) -> None:
        try:
            lsns = self._write_items(group.items)
        except LogWriteError as error:
            with self._lock:
                self._buffers.unsynced.remove(group)
                self._finish([group], error)
            self.counters.refused += len(group.items)
            return
        group.lsns = lsns
        self.counters.add_group(len(lsns), group.bytes)

    def _write_items(self, items: list[Item]) -> Sequence[int]:
        lsns = self._write(items)
        if len(lsns) != len(items):
            raise AssertionError(f"{len(lsns)} sequence numbers for {len(items)} items")
        return lsns

    def _poison(self, error: BaseException) -> TallystickError:
        """Stop the writer (I4) and return the error that callers get.

        An ``error`` that is no `Exception`, such as `SystemExit`, is raised again.
        """
        cause = LogPoisonedError(
            f"a write or sync failed: {error!r}; nothing after it is acknowledged",
            file=self.name,
            advice="Close the log and open it again: recovery reads what is on the disk",
        )
        cause.__cause__ = error
        with self._lock:
            reported = self._stop_with(cause)
        if not isinstance(error, Exception):
            raise error
        return reported

    # -- the caller holds the writer's lock (I6) -------------------------------------------------

    def _rotate(self) -> Group[Item]:
        """Make the current group dirty and return the new one."""
        self._refuse_if_stopped()
        self._buffers.rotate()
        return self._buffers.current

    def _finish(self, groups: list[Group[Item]], error: TallystickError | None = None) -> None:
        self._leader_wait.expect([group.waiting for group in groups if group.waiting])
        for group in groups:
            assert not group.finished, "I3"
            group.error = error
            group.finish()

    def _stop_with(self, cause: TallystickError) -> TallystickError:
        """Fail every unfinished group and every later submit; returns the first cause."""
        if self._stop is None:
            self._stop = cause
        self._finish(self._buffers.end(), self._stop)
        return self._stop

    # -- forks ------------------------------------------------------------------------------

    def forked(self) -> None:
        """Stop the writer of a forked child: its parent writes, and its lock owners are gone."""
        self._make_locks()
        for group in self._buffers.unfinished():
            group.forget_waiters()
        self._stop_with(forked_error(self.name))


class Buffers(Generic[Item]):
    """The groups that are not finished. Every method runs under the writer's lock.

    ``current`` is being filled, ``dirty`` groups are full, ``unsynced`` ones were taken for
    writing. ``dirty_bytes`` is the size of the dirty ones.
    """

    __slots__ = ("_writer", "current", "dirty", "dirty_bytes", "unsynced")

    def __init__(self, writer: Flushing) -> None:
        self._writer = writer
        self.current: Group[Item] = Group(writer)
        self.dirty: deque[Group[Item]] = deque()
        self.dirty_bytes = 0
        self.unsynced: list[Group[Item]] = []

    def idle(self) -> bool:
        """Return True if no item is unfinished; may be called without the lock, as a hint."""
        return not (self.current.items or self.unsynced or self.dirty or self.current.bytes)

    def rotate(self) -> None:
        """Make the current group dirty, unless it is empty, and start an empty one."""
        full = self.current
        if full.items:
            self.dirty.append(full)
            self.dirty_bytes += full.bytes
            self.current = Group(self._writer)

    def take(self) -> list[Group[Item]]:
        """Return every group that waits to be written, oldest first; they are unsynced now."""
        self.rotate()
        groups = [*self.dirty]
        self.dirty.clear()
        self.dirty_bytes = 0
        self.unsynced += groups
        return groups

    def take_synced(self) -> list[Group[Item]]:
        """Return every unsynced group: a sync has made them durable."""
        groups, self.unsynced = self.unsynced, []
        return groups

    def unfinished(self) -> list[Group[Item]]:
        """Return all groups that hold items, oldest first."""
        current = [self.current] if self.current.items else []
        return [*self.unsynced, *self.dirty, *current]

    def end(self) -> list[Group[Item]]:
        """Return all groups that hold items, keep none, and take no item any more."""
        groups = self.unfinished()
        self.unsynced = []
        self.dirty.clear()
        self.dirty_bytes = 0
        self.current = Group(self._writer)
        self.current.bytes = _NOTHING_FITS
        return groups
