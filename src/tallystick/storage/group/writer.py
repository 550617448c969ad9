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

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from tallystick.errors import LogClosedError, LogPoisonedError
from tallystick.storage.fork import forked_error, tell_of_forks
from tallystick.storage.group.buffers import Buffers
from tallystick.storage.group.flushing import Flushing
from tallystick.storage.group.task_flusher import in_event_loop
from tallystick.storage.group.ticket import Group, GroupTicket, Item, fresh
from tallystick.storage.signals import InterruptsHeldBack

GROUP_BYTES = 1 << 20
"""Default limit of one group; a larger item is a group of its own."""
PENDING_BYTES = 8 << 20
"""Default limit of what may wait to be written before `submit` makes its caller help."""


class GroupWriter(Flushing[Item]):
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
        super().__init__(write, sync, name, delay, siblings)
        self._group_bytes = group_bytes
        self._pending_bytes = pending_bytes
        self._buffers = Buffers(self)
        tell_of_forks(self)

    # -- for callers ----------------------------------------------------------------------

    def submit(self, item: Item, size: int = 0, *, sync: bool = True) -> GroupTicket[Item]:
        """Put an item of ``size`` bytes into the current group; the order is kept.

        It becomes durable when somebody waits for it or for a later one. With ``sync=False``
        a full group of such items is written without a sync. Where more than
        ``pending_bytes`` wait, the caller helps to write first, except in an event loop,
        which never blocks. Hold no lock that ``write`` needs.
        """
        with self._lock:
            group = self._buffers.current
            if group.bytes + size > self._group_bytes:
                group = self._free_group()
            items = group.items
            ticket = GroupTicket(group, len(items))
            items.append(item)
            group.bytes += size
            if sync:
                group.sync = True
        if self._buffers.dirty_bytes > self._pending_bytes:
            self._help()
        return ticket

    def commit(self, item: Item, size: int = 0) -> int:
        """`submit` and wait: returns the item's log sequence number. Raises what
        `GroupTicket.wait` would.

        Where nobody else is about, the caller writes and syncs its item itself, and no group is
        made for it.
        """
        if self._buffers.idle():
            with InterruptsHeldBack():
                if self._turn.try_take():
                    # Asked again: now nobody but the caller can write what came in between.
                    if self._buffers.idle() and not self._company.out() and self._stop is None:
                        return self._commit_alone(item, size)
                    self._pass_on()
        return self.submit(item, size).wait()

    def flush(self) -> None:
        """Return when everything submitted so far is durable. Raises what `GroupTicket.wait`
        would, if anything of it is not."""
        with self._lock:
            self._check()
            groups = self._buffers.unfinished()
        if groups:
            self.wait_for(groups[-1])
        for group in groups:
            if group.error is not None:
                raise fresh(group.error)

    def close(self) -> None:
        """Flush, then refuse everything; does nothing if closed or poisoned before."""
        if self._stop is None:
            try:
                self.flush()
            finally:
                with self.exclusive(), self._lock:
                    self._end(LogClosedError("the log is closed", file=self.name))
        self.flusher.join()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold flushes off for the length of the block: ``write`` and ``sync`` do not run.

        Inside, items may be submitted but not waited for: that raises `LogWriteError`.
        """
        self._turn.take()
        try:
            yield
        finally:
            self._pass_on()

    @property
    def poisoned(self) -> bool:
        """True after a failed write or sync."""
        return isinstance(self._stop, LogPoisonedError)

    # -- for tickets ----------------------------------------------------------------------

    def wait_for(self, group: Group[Item], timeout: float | None = None) -> None:
        """Block until ``group`` is finished, leading a flush where nobody else does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not group.finished:
                if not group.gate.acquire(blocking=False):
                    self._queue(group, deadline)
                if not group.finished:
                    self._lead_for(group)
        finally:
            # For the next waiter, also if this one was interrupted with the gate in its hand.
            group.open_gate()

    # -- flushing -------------------------------------------------------------------------

    def _queue(self, group: Group[Item], deadline: float | None) -> None:
        """Block at the gate until it opens."""
        self._turn.check()
        group.waiting.append(None)
        try:
            rest = -1 if deadline is None else max(deadline - time.monotonic(), 0)
            if not group.gate.acquire(timeout=rest) and group.waits():
                raise TimeoutError(f"{self.name}: not durable in time; it may still become so")
        finally:
            group.waiting.pop()
            if group.finished:
                self._company.returned(group.waiting)

    def _lead_for(self, group: Group[Item]) -> None:
        with InterruptsHeldBack():
            if self._turn.try_take():
                if group.waits():
                    self._lead(sync=True)
                else:
                    self._pass_on()

    def _help(self) -> None:
        if self._turn.mine:
            return
        if in_event_loop():
            self.flusher.wake()
            return
        with InterruptsHeldBack():
            self._turn.take()
            self._lead(sync=False)
        self._check()

    # -- these run under the writer's lock -------------------------------------------------

    def _free_group(self) -> Group[Item]:
        self._check()
        self._buffers.switch()
        return self._buffers.current

    # -- forks ------------------------------------------------------------------------------

    def forked(self) -> None:
        """In the child: nothing more is written, and nobody waits for locks of lost threads."""
        self._make_locks()
        for group in self._buffers.unfinished():
            group.forget_waiters()
        self._end(forked_error(self.name))
