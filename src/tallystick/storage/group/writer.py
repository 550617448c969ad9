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
    Exception: a `LogWriteError` from ``write`` refuses the items of that group alone, and
    `tallystick.storage.group.answers.Answers` some of them.
I5. While a group with waiters is unfinished, the flush lock is taken, or the group's gate is open,
    or the task flusher has a request: no wake-up is lost. The thread that releases the flush
    lock re-establishes this.
I6. The queue's lock (the interpreter lock, in the compiled core) guards the groups and is held for
    moments, never during ``write``, ``sync`` or a wait. A thread that needs both takes the flush
    lock first.

What costs per item, steps 1, 3 and the waking, is in the queue: `tallystick.storage.group.queue`,
or the compiled core that has the same interface. What costs per group is here, for both.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Generic

from tallystick.errors import (
    LogClosedError,
    LogPoisonedError,
    LogWriteError,
    TallystickError,
    copy_error,
)
from tallystick.refusals import advice_on, file_of, reason_of
from tallystick.storage.fork import Uncopied, forked_error, register_in_child
from tallystick.storage.group.answers import Answers
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.owned_lock import WaitRefusedError, ended_error
from tallystick.storage.group.queue import Limits, new_queue
from tallystick.storage.group.tasks import TaskFlusher, in_event_loop
from tallystick.storage.group.ticket import Group, GroupTicket, Item
from tallystick.storage.scheduling import time
from tallystick.storage.signals import uninterrupted

GROUP_BYTES = 1 << 20
"""Default limit of one group in bytes; a larger item is a group of its own."""
PENDING_BYTES = 8 << 20
"""Default limit of the dirty groups in bytes, above which `GroupWriter.submit` writes them."""


class GroupWriter(Uncopied, Generic[Item]):
    """Collects items into groups and makes them durable, one flush at a time.

    ``write(items)`` writes one group, in order, and returns the log sequence number of each
    item (``range(first, first + len(items))`` will do). It is never called by two threads at
    once, nor beside ``sync``, so it may roll and recycle files. If it raises `LogWriteError`,
    nothing of the group may have taken effect: its items are refused, the log goes on. It returns
    `Answers` if some were. Any other exception poisons the writer. ``sync()`` makes durable what
    was written before.

    Attributes:
        append: Submits a body of known overhead, without a frame of Python for it; see
            `tallystick.storage.group.queue.PureQueue.append`.
        append_durably: The same, and waits.
        commit: Submits an item of so many bytes and waits for it, at less cost than `submit` and
            `GroupTicket.wait`; see `tallystick.storage.group.queue.PureQueue.commit`.

    Args:
        write: Writes one group.
        sync: Makes written groups durable.
        name: The log's path, for errors.
        group_bytes: Limit of one group.
        pending_bytes: Limit of the groups that wait to be written.
        delay: Seconds that a leader waits for more items, if ``siblings`` are there already.
        siblings: See ``delay``.
        overhead: Bytes that a record takes more than its body, for `append`.
        body_max: Bytes of such a body at most.
        too_large: Returns the error for a body of so many bytes.
        write_synced: As ``write``, for a group that ``sync`` follows at once: it may do both in
            one step.
        log_end: An object of the compiled core to which it may write by itself, in place of
            ``write_synced``, the item of a lone caller of `commit`; None if there is none.
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
        overhead: int = 0,
        body_max: int = sys.maxsize,
        too_large: Callable[[int], TallystickError] | None = None,
        write_synced: Callable[[list[Item]], Sequence[int]] | None = None,
        log_end: object = None,
    ) -> None:
        self.name = name
        self.counted = GroupCounters()
        self._write = write
        self._write_synced = write_synced or write
        self._sync = sync
        self._delay = delay
        self._siblings = siblings
        self._make_flusher()
        self._too_large = too_large
        limits = Limits(group_bytes, pending_bytes, overhead, body_max)
        self._queue = new_queue(self, limits, log_end)
        self.append = self._queue.append
        self.append_durably = self._queue.append_durably
        self.commit = self._queue.commit
        register_in_child(self)

    def _make_flusher(self) -> None:
        self._task_flusher = TaskFlusher(self._flush_for_tasks, f"flusher of {self.name}")
        self._flush_due = False
        """A flush was requested, and no thread could be started for it."""

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
        return self._queue.submit(item, size, sync)

    def flush(self) -> None:
        """Return when everything submitted so far is durable.

        Raises:
            TallystickError: As `GroupTicket.wait` does, if any of it is not.
        """
        queue = self._queue
        queue.refuse_if_stopped()
        groups = queue.unfinished()
        if groups:
            queue.wait_for(groups[-1])
        for group in groups:
            if group.error is not None:
                raise copy_error(group.error)
            if isinstance(group.lsns, Answers) and group.lsns.refused:
                raise copy_error(group.lsns.refused[0])

    def close(self) -> None:
        """Flush, then refuse everything; does nothing if closed or poisoned before.

        Raises:
            TallystickError: As `flush` does; the writer is closed all the same.
        """
        if self._queue.stopped is None:
            try:
                self.flush()
            finally:
                with self.exclusive():
                    self._queue.stop(LogClosedError("the log is closed", file=self.name))
        self._task_flusher.join()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold flushes off for the length of the block: ``write`` and ``sync`` do not run.

        Inside, items may be submitted but not waited for. The block is not interrupted.

        Raises:
            LogWriteError: Inside the block, by whatever would wait for a flush.
        """
        with uninterrupted:
            self._queue.acquire()
            try:
                yield
            finally:
                self.release()

    def poison(self, error: Exception) -> TallystickError:
        """Stop the writer by what failed in an `exclusive` block (I4); return what callers get."""
        return copy_error(self._poison(error))

    @property
    def counters(self) -> GroupCounters:
        """Return what was counted so far."""
        return self.counted.and_alone(self._queue.counted_alone())

    @property
    def poisoned(self) -> bool:
        """True after a failed write or sync."""
        return isinstance(self._queue.stopped, LogPoisonedError)

    # -- for the queue ---------------------------------------------------------------------

    def request_flush(self) -> None:
        """Have the task flusher flush soon; where it cannot run, threads of callers do."""
        if not self._task_flusher.request():
            self._flush_due = True  # first: whoever flushes now looks once the lock is free
            self._flush_if_due()

    def own_flush_error(self) -> WaitRefusedError:
        """Return the error for a thread that flushes and would wait for itself for ever."""
        return WaitRefusedError(
            "a flush cannot wait for itself",
            file=self.name,
            advice="Wait outside of write, sync and exclusive blocks",
        )

    def ended_error(self) -> WaitRefusedError:
        """Return the error for a caller that would wait as the interpreter ends."""
        return ended_error(self.name)

    def late_error(self) -> TimeoutError:
        """Return the error for a caller whose time is over."""
        return TimeoutError(f"{self.name}: not durable in time; it may still become so")

    def too_large(self, size: int) -> TallystickError:
        """Return the error for a body of ``size`` bytes."""
        assert self._too_large is not None, "a limit comes with its error"
        return self._too_large(size)

    def write_dirty(self) -> None:
        """Have the caller of `submit` write what waits, before it may submit more."""
        if self._queue.owned:
            return
        if in_event_loop():
            self.request_flush()
            return
        with uninterrupted:
            self._queue.acquire()
            self.lead(sync=False)
        self._queue.refuse_if_stopped()

    def _flush_for_tasks(self) -> bool:
        """Flush in the task flusher's thread; returns False once it may end."""
        if self._queue.try_acquire():
            self.lead(sync=True)
        return self._queue.stopped is None

    # -- flushing: the caller owns the flush lock (I1), and these release it ------------------

    def lead(self, sync: bool) -> None:
        """Flush everything that waits."""
        with uninterrupted:
            self._lead(sync)
            self._flush_if_due()

    def _lead(self, sync: bool) -> None:
        try:
            if sync:
                self._queue.wait_for_woken()
                if self._delay and self._has_siblings():
                    time.sleep(self._delay)
            self._flush(sync)
        except BaseException as error:
            self._poison(error)
        finally:
            self._release()

    def _flush_if_due(self) -> None:
        """Flush for tasks in the caller's thread if they have no other; not if one does so now."""
        while self._flush_due:
            with uninterrupted:
                if not self._queue.try_acquire():
                    return
                self._flush_due = False
                self._lead(sync=True)

    def commit_alone(self, item: Item, size: int) -> int:
        """Write and sync one item, without a group; returns its log sequence number."""
        with uninterrupted:
            counters = self.counted
            started = time.perf_counter()
            written = False
            try:
                lsns = self._write_items([item], self._write_synced)
                written = True
                counters.groups += 1
                counters.records += 1
                counters.bytes += size
                counters.fsyncs += 1
                self._sync()
                return lsns[0]
            except BaseException as error:
                if isinstance(error, LogWriteError) and not written:
                    counters.refused += 1
                    raise
                raise copy_error(self._poison(error)) from error
            finally:
                counters.add_time(time.perf_counter() - started)
                self.release()

    def _has_siblings(self) -> bool:
        waiting = self._queue.unfinished()
        return bool(waiting) and len(waiting[-1].items) >= self._siblings

    def release(self) -> None:
        """End a flush, and have the groups formed meanwhile flushed next (I5)."""
        self._release()
        self._flush_if_due()

    def _release(self) -> None:
        if self._queue.release():
            self._task_flusher.request_if_running()

    # -- flushing: the caller owns the flush lock (I1) -----------------------------------------

    def _flush(self, sync: bool) -> None:
        queue = self._queue
        assert queue.owned, "I1"
        groups = queue.take()
        if not queue.unsynced:
            return
        started = time.perf_counter()
        sync = sync or any(group.sync for group in groups)
        last = groups[-1] if sync and groups else None
        for group in groups:
            self._write_group(group, self._write_synced if group is last else self._write)
        if queue.unsynced and sync:
            self.counted.fsyncs += 1
            self._sync()
            queue.finish(time.perf_counter() - started)
        self.counted.add_time(time.perf_counter() - started)

    def _write_group(
        self, group: Group[Item], write: Callable[[list[Item]], Sequence[int]]
    ) -> None:
        try:
            lsns = self._write_items(group.items, write)
        except LogWriteError as error:
            self.counted.refused += len(group.items)  # first, for those whom it wakes
            self._queue.refuse(group, error)
            return
        group.lsns = lsns
        if isinstance(lsns, Answers):
            self.counted.refused += len(lsns.refused)
        self.counted.add_group(len(lsns), group.bytes)

    def _write_items(
        self, items: list[Item], write: Callable[[list[Item]], Sequence[int]]
    ) -> Sequence[int]:
        lsns = write(items)
        if len(lsns) != len(items):
            raise AssertionError(f"{len(lsns)} sequence numbers for {len(items)} items")
        return lsns

    def _poison(self, error: BaseException) -> TallystickError:
        """Stop the writer (I4) and return the error that callers get.

        An ``error`` that is no `Exception`, such as `SystemExit`, is raised again.
        """
        cause = self._cause(error)
        reported = self._queue.stop(cause)
        if not isinstance(error, Exception):
            raise error
        return reported

    def _cause(self, error: BaseException) -> LogPoisonedError:
        if isinstance(error, LogPoisonedError):  # of the leader of a shared log
            return error
        file, reason, advice = self.name, repr(error), None
        if isinstance(error, OSError):
            file, reason, advice = file_of(error, file), reason_of(error), advice_on(error)
        reopen = "Close the log and open it again: recovery reads what is on the disk"
        cause = LogPoisonedError(
            f"a write or sync failed: {reason}; nothing after it is acknowledged",
            file=file,
            advice=f"{advice}. {reopen}" if advice else reopen,
        )
        cause.__cause__ = error
        return cause

    # -- forks ------------------------------------------------------------------------------

    def forked(self) -> None:
        """Stop the writer of a forked child: its parent writes, and its lock owners are gone."""
        self._make_flusher()
        self._queue.forget_waiters()
        self._queue.stop(forked_error(self.name))
