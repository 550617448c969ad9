"""The backlog: transactions that wait for their targets, within limits.

In: transactions as they are committed, and targets as they apply them. Out: admission, or
`BusyError` after a timeout; the transactions that are pending. One that waits for an operator
counts for the limits of number and size, but not for that of age: otherwise a single transaction
that no target accepts would refuse all others for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tallystick.arguments import SECONDS_MAX
from tallystick.errors import BusyError, TallystickError, copy_error
from tallystick.printable import counted
from tallystick.roles import Operation, PersistEntry
from tallystick.services.write_behind.metrics import BacklogSize
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import Bell, uninterrupted

_OVERHEAD = 64
"""Bytes counted for an entry and for each of its operations, in addition to their content."""


@dataclass(slots=True)
class Pending:
    """A transaction, the targets that have not applied it, its size, and when it arrived."""

    entry: PersistEntry
    left: frozenset[str]
    size: int
    since: float


def size_of(reference: str, operations: Iterable[Operation]) -> int:
    """Return the bytes that a transaction counts for."""
    size = _OVERHEAD + len(reference)
    for _, collection, key, value, _ in operations:
        size += _OVERHEAD + len(collection) + len(key)
        if value is not None:
            size += len(value)
    return size


class Backlog(Uncopied):
    """Transactions by number, in ascending order; safe for threads.

    A caller holds the lock `entrance` from `has_space` until `add`, while the transaction gets its
    number. Transactions leave under another lock, many at a time; so the totals of those that
    arrived and of those that left are kept apart.
    """

    def __init__(self, settings: WriteBehindSettings) -> None:
        self._settings = settings
        self._ageless = settings.backlog_age_seconds_max == SECONDS_MAX
        self.entrance = OwnedLock(nested_call_error)
        self._lock = OwnedLock(nested_call_error)
        self._steps: set[int] = set()
        """Threads in a step that a finalizer must not wait in, as it may hold locks of the log."""
        self._changed = Bell()
        self._arrived: deque[Pending] = deque()
        """Transactions that were added and are not in `_pending` yet."""
        self._pending: dict[int, Pending] = {}
        self._active = self._pending
        """Transactions that do not wait for an operator: the same dictionary if none does."""
        self._oldest: Pending | None = None
        self._stuck: dict[str, set[int]] = {}
        self.arrivals = 0
        """Transactions that were ever admitted."""
        self._bytes_in = self._departures = self._bytes_out = 0
        self._refusal: TallystickError | None = None

    # -- limits ----------------------------------------------------------------------------------

    @contextmanager
    def own_step(self) -> Iterator[None]:
        """Have `refuse_nested` refuse this thread, one of the service's own, in the block."""
        me = threading.get_ident()
        self._steps.add(me)
        try:
            yield
        finally:
            self._steps.discard(me)

    def refuse_nested(self) -> None:
        """Refuse a commit of a finalizer that holds up who is to let it in.

        Raises:
            LogWriteError: its thread is in an `own_step`, or in a call of the backlog.
        """
        if self._lock.owned or threading.get_ident() in self._steps:
            raise nested_call_error()

    def has_space(self, size: int) -> bool:
        """Return True if a transaction of ``size`` bytes may be added. Called with `entrance`."""
        if self._refusal is not None or self._is_full(size):
            return False
        if self._ageless:
            return True
        with uninterrupted, self._lock:
            return self._is_young()

    def add(self, one: Pending) -> None:
        """Add a transaction, in ascending order of numbers. Called with `entrance`."""
        self._arrived.append(one)
        self._bytes_in += one.size
        self.arrivals += 1

    def load(self, entry: PersistEntry, left: frozenset[str], size: int) -> None:
        """Add a transaction of an earlier run, with its age, whatever the limits say."""
        age = max(0.0, time.time() - entry.time / 1_000_000)
        with uninterrupted, self.entrance:
            self.add(Pending(entry, left, size, time.monotonic() - age))

    def wait_for_space(self, size: int, deadline: float) -> None:
        """Return once there may be space, or raise `BusyError` at the deadline."""
        with uninterrupted:
            found = self._changed.wait(
                lambda: self._refusal is not None or self._why(size) is None, deadline
            )
        if self._refusal is not None:
            raise copy_error(self._refusal)
        if not found and (reason := self._why(size)) is not None:
            raise BusyError(
                f"too much waits for its targets: {reason}",
                advice="Retry in a second or two; see what is pending and why",
            )

    def _why(self, size: int) -> str | None:
        with uninterrupted, self._lock:
            return self._why_full(size)

    def refuse(self, reason: TallystickError) -> None:
        """Admit no more transactions; return once all admitted ones have been added."""
        with uninterrupted, self.entrance:
            self._refusal = self._refusal or reason
        self._changed.ring()

    @property
    def below_half(self) -> bool:
        """True while less than half of each limit is used."""
        chosen = self._settings
        with uninterrupted, self._lock:
            return (
                2 * self._count < chosen.backlog_max
                and 2 * self._bytes < chosen.backlog_bytes_max
                and (self._ageless or 2 * self._active_age() < chosen.backlog_age_seconds_max)
            )

    @property
    def _count(self) -> int:
        return self.arrivals - self._departures

    @property
    def _bytes(self) -> int:
        return self._bytes_in - self._bytes_out

    def _is_full(self, size: int) -> bool:
        chosen, count = self._settings, self.arrivals - self._departures
        # an empty backlog takes any size: else a large transaction would wait for ever
        return count >= chosen.backlog_max or (
            count > 0 and self._bytes_in - self._bytes_out + size > chosen.backlog_bytes_max
        )

    def _is_young(self) -> bool:
        return self._active_age() <= self._settings.backlog_age_seconds_max

    def _why_full(self, size: int) -> str | None:
        if self._is_full(size):
            if self._count >= self._settings.backlog_max:
                return counted(self._count, "transaction")
            return counted(self._bytes, "byte")
        return None if self._is_young() else f"the oldest for {self._active_age():.0f} s"

    def _active_age(self) -> float:
        self._take_arrived()
        oldest = self._oldest
        if oldest is None or self._active.get(oldest.entry.number) is not oldest:
            # cached: finding the first item of a dictionary whose first ones were removed is slow
            oldest = self._oldest = next(iter(self._active.values()), None)
        return _age(oldest)

    # -- transactions ----------------------------------------------------------------------------

    def _take_arrived(self) -> None:
        arrived = self._arrived
        for _ in range(len(arrived)):
            one = arrived.popleft()
            number = one.entry.number
            self._pending[number] = one
            if self._active is not self._pending:
                self._active[number] = one

    def applied(self, numbers: Iterable[int], target: str) -> None:
        """Note that the target has applied these; remove those that every target has applied."""
        applied = {target}
        with uninterrupted, self._lock:
            self._take_arrived()
            for number in numbers:
                one = self._pending.get(number)
                if one is None:
                    continue
                one.left -= applied
                if not one.left:
                    self._forget(one)
                elif self._stuck and self._is_stuck(one):
                    self._active.pop(number, None)
            self._changed.ring()

    def forget(self, number: int) -> None:
        """Remove a transaction that was discarded or refused by the log."""
        with uninterrupted, self._lock:
            self._take_arrived()
            one = self._pending.get(number)
            if one is not None:
                self._forget(one)
            self._changed.ring()

    def _forget(self, one: Pending) -> None:
        self._bytes_out += one.size
        self._departures += 1
        del self._pending[one.entry.number]
        if self._active is not self._pending:
            self._active.pop(one.entry.number, None)

    def stuck(self, target: str, numbers: Sequence[int]) -> None:
        """Add to the transactions that wait for an operator in the queues of the target."""
        with uninterrupted, self._lock:
            self._take_arrived()
            if self._active is self._pending:
                self._active = dict(self._pending)
            self._stuck.setdefault(target, set()).update(numbers)
            for number in numbers:
                one = self._pending.get(number)
                if one is not None and self._is_stuck(one):
                    self._active.pop(number, None)
            self._changed.ring()

    def unstuck(self, target: str, still: Sequence[int]) -> None:
        """Set the transactions that wait for an operator, after one retried or discarded some."""
        with uninterrupted, self._lock:
            self._oldest = None
            self._stuck[target] = set(still)
            if any(self._stuck.values()):
                self._active = {
                    number: one for number, one in self._pending.items() if not self._is_stuck(one)
                }
            else:
                self._stuck.clear()
                self._active = self._pending

    def _is_stuck(self, one: Pending) -> bool:
        number = one.entry.number
        return all(number in self._stuck.get(target, ()) for target in one.left)

    # -- queries ---------------------------------------------------------------------------------

    def waiting_for(self, target: str, entries: Iterable[PersistEntry]) -> list[PersistEntry]:
        """Return those entries that the target has not applied and that were not discarded."""
        with uninterrupted, self._lock:
            self._take_arrived()
            pending = self._pending
            return [
                one
                for one in entries
                if (found := pending.get(one.number)) is not None and target in found.left
            ]

    def waits(self, target: str, number: int) -> bool:
        """Return whether the target has a transaction still to apply."""
        found = self.get(number)
        return found is not None and target in found.left

    def get(self, number: int) -> Pending | None:
        """Return a pending transaction, or None."""
        with uninterrupted, self._lock:
            self._take_arrived()
            return self._pending.get(number)

    def all(self) -> list[Pending]:
        """Return every pending transaction, by ascending number."""
        with uninterrupted, self._lock:
            self._take_arrived()
            return list(self._pending.values())

    def size(self) -> BacklogSize:
        """Return count, bytes and age of the pending transactions."""
        with uninterrupted, self._lock:
            self._take_arrived()
            oldest = next(iter(self._pending.values()), None)
            return BacklogSize(self._count, self._bytes, _age(oldest))

    def wait_empty(self, timeout: float | None) -> bool:
        """Return True once nothing is pending, False after ``timeout`` seconds."""
        return self._wait(lambda: self._count == 0, timeout)

    def wait_gone(self, number: int, timeout: float | None) -> bool:
        """Return True once every target has applied it, False after ``timeout`` seconds."""
        return self._wait(lambda: self.get(number) is None, timeout)

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        with uninterrupted:
            return self._changed.wait(
                ready, None if timeout is None else time.monotonic() + timeout
            )


def _age(oldest: Pending | None) -> float:
    return 0.0 if oldest is None else time.monotonic() - oldest.since
