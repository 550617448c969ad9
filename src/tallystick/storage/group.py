"""Group commit: one write and one sync for everyone who waits; knows no format.

In: items from any number of threads and asyncio tasks. Out: a `GroupTicket` for each, done once
the item is durable. The log supplies two callables: ``write(items)`` and ``sync()``.

Derby's three buffers, with lists of items for buffers:

* `GroupWriter.submit` puts an item into the *current* group. A full group becomes *dirty* and
  a *free* one takes its place.
* Whoever waits first leads: it writes all dirty groups and the current one, syncs once, and
  wakes the others. A lone caller so does everything in its own thread.
* Meanwhile the next group forms. There is one flush at a time, and no timer.
* A flusher thread leads for tasks, so that no event loop blocks; it runs only when tasks wait.

A failed write or sync poisons the writer: whoever waits, and whoever comes later, gets
`LogPoisonedError` with the first cause. Nothing is retried, nothing is acknowledged after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic

from tallystick.errors import LogClosedError, LogWriteError
from tallystick.storage.company import Company
from tallystick.storage.counters import GroupCounters
from tallystick.storage.flusher import Flusher
from tallystick.storage.interrupts import InterruptsHeldBack
from tallystick.storage.tickets import Group, GroupTicket, Item, failure

GROUP_BYTES = 1 << 20
"""Default limit of one group; a larger item is a group of its own."""
PENDING_BYTES = 8 << 20
"""Default limit of what may wait to be written before `submit` makes its caller help."""
_TAKES_NOTHING = 1 << 62
"""Size of the current group of a writer that has ended, so that `submit` finds out."""


class GroupWriter(Generic[Item]):
    """Collects items into groups and makes them durable, one flush at a time.

    ``write(items)`` writes one group, in order, and returns the log sequence number of each
    item (``range(first, first + len(items))`` will do). It is never called by two threads at
    once, nor beside ``sync``, so it may roll and recycle files. A `LogWriteError` from it
    means that nothing of the group took effect: its items are refused, the log goes on. Any
    other exception poisons. ``sync()`` makes durable what was written before.

    ``delay`` in seconds makes a leader wait for more company, but only if ``siblings`` items
    are there already. ``name`` is the log's path, for errors.
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
        self._stop: BaseException | None = None
        self._current: Group[Item] = Group(self)
        self._dirty: deque[Group[Item]] = deque()
        self._dirty_bytes = 0
        self._unsynced: list[Group[Item]] = []
        self._make_locks()
        _writers.add(self)

    def _make_locks(self) -> None:
        self._lock = threading.Lock()  # guards the groups; held for moments only
        self._flushing = threading.Lock()  # held for the length of a flush
        self._company = Company()
        self._flusher = Flusher(self._flush_for_tasks, f"flusher of {self.name}")

    # -- for callers ----------------------------------------------------------------------

    def submit(self, item: Item, size: int = 0, *, sync: bool = True) -> GroupTicket[Item]:
        """Put an item of ``size`` bytes into the current group; the order is kept.

        It becomes durable when somebody waits for it or for a later one. With ``sync=False``
        a full group of such items is written without a sync. Where more than
        ``pending_bytes`` wait, the caller helps to write first, except in an event loop,
        which never blocks. Hold no lock that ``write`` needs.
        """
        with self._lock:
            group = self._current
            if group.bytes + size > self._group_bytes:
                group = self._free_group()
            items = group.items
            ticket = GroupTicket(group, len(items))
            items.append(item)
            group.bytes += size
            if sync:
                group.sync = True
        if self._dirty_bytes > self._pending_bytes:
            self._help()
        return ticket

    def flush(self) -> None:
        """Return when everything submitted so far is durable."""
        with self._lock:
            self._check()
            groups = self._unfinished()
        if groups:
            self.wait_for(groups[-1])
            if groups[-1].error is not None:
                raise failure(groups[-1].error, self.name)

    def close(self) -> None:
        """Flush, then refuse everything; does nothing if closed or poisoned before."""
        if self._stop is None:
            try:
                self.flush()
            finally:
                with self.exclusive(), self._lock:
                    self._end(LogClosedError("the log is closed", file=self.name))
        self._flusher.join()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold flushes off for the length of the block: ``write`` and ``sync`` do not run."""
        self._flushing.acquire()
        try:
            yield
        finally:
            self._pass_on()

    @property
    def poisoned(self) -> bool:
        """True after a failed write or sync."""
        return self._stop is not None and not isinstance(self._stop, LogClosedError)

    # -- for tickets ----------------------------------------------------------------------

    def wait_for(self, group: Group[Item], timeout: float | None = None) -> None:
        """Block until ``group`` is finished, leading a flush where nobody else does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not group.finished:
                if group.gate.acquire(blocking=False) or self._queue(group, deadline):
                    self._lead_for(group)
        finally:
            # For the next waiter, also if this one was interrupted with the gate in its hand.
            group.open_gate()

    def join(self, group: Group[Item]) -> asyncio.Future[None] | None:
        """A future of the running event loop that is done when ``group`` is; None if it is."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if group.finished:
                return None
            futures = group.futures_of(loop)
            if not futures:
                # In the loop's next round: by then every task that is ready now has submitted.
                loop.call_soon(self._flusher.wake)
            future = loop.create_future()
            futures.append(future)
        return future

    def start_flush(self) -> None:
        """Have the flusher thread lead a flush."""
        self._flusher.wake()

    # -- flushing -------------------------------------------------------------------------

    def _queue(self, group: Group[Item], deadline: float | None) -> bool:
        """Block at the gate; true if the group is not finished when it opens."""
        with self._lock:
            if group.finished:
                return False
            group.queued += 1
        try:
            rest = -1 if deadline is None else max(deadline - time.monotonic(), 0)
            if not group.gate.acquire(timeout=rest) and not group.finished:
                raise TimeoutError(f"{self.name}: not durable in time; it may still become so")
        finally:
            with self._lock:
                group.queued -= 1
                if group.finished:
                    self._company.returned()
        return not group.finished

    def _lead_for(self, group: Group[Item]) -> None:
        with InterruptsHeldBack():
            if self._flushing.acquire(blocking=False):
                self._lead(sync=not group.finished)

    def _flush_for_tasks(self) -> bool:
        if self._flushing.acquire(blocking=False):
            self._lead(sync=True)
        return self._stop is None

    def _help(self) -> None:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            self._flusher.wake()
            return
        with InterruptsHeldBack():
            self._flushing.acquire()
            self._lead(sync=False)
        self._check()

    def _lead(self, *, sync: bool) -> None:
        """Flush everything that waits; the caller has acquired ``_flushing``."""
        try:
            if sync:
                self._company.wait()
                if self._delay and len(self._current.items) >= self._siblings:
                    time.sleep(self._delay)
            self._flush(sync)
        except BaseException as error:
            with self._lock:
                self._end(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._pass_on()

    def _flush(self, sync: bool) -> None:
        groups = self._take()
        started = time.perf_counter()
        for group in groups:
            self._write_group(group)
        if self._unsynced and (sync or any(group.sync for group in groups)):
            self.counters.fsyncs += 1
            self._sync()
            with self._lock:
                self._acknowledge(time.perf_counter() - started)
        self.counters.add_time(time.perf_counter() - started)

    def _take(self) -> list[Group[Item]]:
        with self._lock:
            groups = [*self._dirty]
            self._dirty.clear()
            self._dirty_bytes = 0
            if self._current.items:
                groups.append(self._current)
                self._current = Group(self)
            self._unsynced += groups
        return groups

    def _write_group(self, group: Group[Item]) -> None:
        try:
            lsns = self._write(group.items)
        except LogWriteError as error:
            with self._lock:
                self._unsynced.remove(group)
                self._finish([group], error)
            return
        if len(lsns) != len(group.items):
            raise AssertionError(f"{len(lsns)} sequence numbers for {len(group.items)} items")
        group.lsns = lsns
        self.counters.groups += 1
        self.counters.records += len(lsns)
        self.counters.bytes += group.bytes

    def _pass_on(self) -> None:
        """End the flush and let somebody of the groups formed meanwhile lead the next one."""
        with self._lock:
            self._flushing.release()
            groups = self._unfinished()
            for group in groups:
                group.open_gate()
        if self._stop is not None or any(group.futures for group in groups):
            self._flusher.ring()

    # -- these run under the writer's lock -------------------------------------------------

    def _check(self) -> None:
        if self._stop is not None:
            raise failure(self._stop, self.name)

    def _unfinished(self) -> list[Group[Item]]:
        current = [self._current] if self._current.items else []
        return [*self._unsynced, *self._dirty, *current]

    def _free_group(self) -> Group[Item]:
        self._check()
        full = self._current
        if full.items:
            self._dirty.append(full)
            self._dirty_bytes += full.bytes
            self._current = Group(self)
        return self._current

    def _acknowledge(self, flush_seconds: float) -> None:
        groups, self._unsynced = self._unsynced, []
        self._company.flushed(flush_seconds)
        self._finish(groups)

    def _finish(self, groups: list[Group[Item]], error: BaseException | None = None) -> None:
        for group in groups:
            group.error = error
            self._company.expect(group.queued)
            group.finish()

    def _end(self, cause: BaseException) -> None:
        """Fail every group that is not finished, and every later submit, with ``cause``."""
        if self._stop is None:
            self._stop = cause
        groups = self._unfinished()
        self._unsynced = []
        self._dirty.clear()
        self._dirty_bytes = 0
        self._current = Group(self)
        self._current.bytes = _TAKES_NOTHING
        self._finish(groups, self._stop)

    def _end_in_child(self) -> None:
        """A forked child owns neither the log nor the threads that may have held the locks."""
        self._make_locks()
        for group in self._unfinished():
            group.gate = threading.Lock()
            group.futures = None
        self._end(
            LogClosedError(
                "the log belongs to the process that forked this one",
                file=self.name,
                advice="Open it anew in the child, once its parent has closed it",
            )
        )


_writers: weakref.WeakSet[GroupWriter[Any]] = weakref.WeakSet()


def _end_all_in_child() -> None:
    for writer in list(_writers):
        writer._end_in_child()


os.register_at_fork(after_in_child=_end_all_in_child)
