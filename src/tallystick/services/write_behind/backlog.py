"""What waits for its targets, within limits that hold.

In: transactions when they are committed, and targets as they come to hold them. Out: room, or
`BusyError` after a while; who is pending; who is done. What waits for an operator counts for the
limits of number and size, and not for that of age: else one transaction that no target takes
would keep all others out for ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isinf

from tallystick.errors import BusyError, TallystickError, copy_error
from tallystick.roles import Operation, PersistEntry
from tallystick.services.write_behind.metrics import BacklogSize
from tallystick.services.write_behind.settings import WriteBehindSettings

_OVERHEAD = 64
"""Bytes that an entry and each of its operations count for beside their content."""


@dataclass(slots=True)
class Pending:
    """A transaction, the targets that do not hold it, its size, and when it came."""

    entry: PersistEntry
    left: frozenset[str]
    size: int
    since: float


def size_of(reference: str, operations: Iterable[Operation]) -> int:
    """Bytes that a transaction counts for."""
    size = _OVERHEAD + len(reference)
    for _, collection, key, value, _ in operations:
        size += _OVERHEAD + len(collection) + len(key)
        if value is not None:
            size += len(value)
    return size


class Backlog:
    """Transactions by number, in ascending order; safe for threads.

    Whoever comes holds `entrance` while there `is_room`, the transaction gets its number, and it
    is added: a lock of its own, for who leaves takes many at a time along. So totals are kept
    apart of those that ever came and of those that left.
    """

    def __init__(self, settings: WriteBehindSettings) -> None:
        self._settings = settings
        self._ageless = isinf(settings.backlog_age_seconds_max)
        self.entrance = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._coming: deque[Pending] = deque()
        """Those that were added and stand nowhere else yet."""
        self._pending: dict[int, Pending] = {}
        self._moving = self._pending
        """What does not wait for an operator: the same dictionary, unless something does."""
        self._oldest: Pending | None = None
        self._stuck: dict[str, set[int]] = {}
        self.arrivals = 0
        """Transactions that were ever let in."""
        self._bytes_in = self._departures = self._bytes_out = 0
        self._refusal: TallystickError | None = None

    # -- room ------------------------------------------------------------------------------------

    def is_room(self, size: int) -> bool:
        """True if a transaction of that size may be added; for who holds `entrance`."""
        if self._refusal is not None or self._is_full(size):
            return False
        if self._ageless:
            return True
        with self._changed:
            return self._is_young()

    def add(self, entry: PersistEntry, left: frozenset[str], size: int) -> None:
        """A transaction for which there is room; ascending numbers. For who holds `entrance`."""
        self._enter(Pending(entry, left, size, time.monotonic()))

    def load(self, entry: PersistEntry, left: frozenset[str], size: int) -> None:
        """A transaction of an earlier run; it counts, with its age, but no limit refuses it."""
        age = max(0.0, time.time() - entry.time / 1_000_000)
        with self.entrance:
            self._enter(Pending(entry, left, size, time.monotonic() - age))

    def _enter(self, one: Pending) -> None:
        self._coming.append(one)
        self._bytes_in += one.size
        self.arrivals += 1

    def wait_for_room(self, size: int, deadline: float) -> None:
        """Return once there may be room, or raise `BusyError` at the deadline."""
        with self._changed:
            while self._refusal is None and (reason := self._why_full(size)) is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BusyError(
                        f"too much waits for its targets: {reason}",
                        advice="Retry in a second or two; see what is pending and why",
                    )
                self._changed.wait(left)
            if self._refusal is not None:
                raise copy_error(self._refusal)

    def refuse(self, reason: TallystickError) -> None:
        """Let nobody in any more; returns once all who were let in have been added."""
        with self.entrance:
            self._refusal = self._refusal or reason
        with self._changed:
            self._changed.notify_all()

    @property
    def relaxed(self) -> bool:
        """True while less than half of each limit is used."""
        chosen = self._settings
        with self._changed:
            return (
                2 * self._count < chosen.backlog_max
                and 2 * self._bytes < chosen.backlog_bytes_max
                and (self._ageless or 2 * self._moving_age() < chosen.backlog_age_seconds_max)
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
        return self._moving_age() <= self._settings.backlog_age_seconds_max

    def _why_full(self, size: int) -> str | None:
        if self._is_full(size):
            if self._count >= self._settings.backlog_max:
                return f"{self._count} transactions"
            return f"{self._bytes} bytes"
        return None if self._is_young() else f"the oldest for {self._moving_age():.0f} s"

    def _moving_age(self) -> float:
        self._look_who_came()
        oldest = self._oldest
        if oldest is None or self._moving.get(oldest.entry.number) is not oldest:
            # kept: a dictionary whose first ones have left takes long to find its first one
            oldest = self._oldest = next(iter(self._moving.values()), None)
        return _age(oldest)

    # -- transactions ----------------------------------------------------------------------------

    def _look_who_came(self) -> None:
        coming = self._coming
        for _ in range(len(coming)):
            one = coming.popleft()
            number = one.entry.number
            self._pending[number] = one
            if self._moving is not self._pending:
                self._moving[number] = one

    def held(self, numbers: Iterable[int], target: str) -> None:
        """The target holds these; what no target waits for any more is gone."""
        with self._changed:
            self._look_who_came()
            for number in numbers:
                one = self._pending.get(number)
                if one is None:
                    continue
                one.left = one.left.difference((target,))
                if not one.left:
                    self._forget(number)
                elif self._stuck and self._is_stuck(one):
                    self._moving.pop(number, None)
            self._changed.notify_all()

    def forget(self, number: int) -> None:
        """Nobody waits for it any more."""
        with self._changed:
            self._look_who_came()
            if number in self._pending:
                self._forget(number)
            self._changed.notify_all()

    def _forget(self, number: int) -> None:
        self._bytes_out += self._pending.pop(number).size
        self._departures += 1
        if self._moving is not self._pending:
            self._moving.pop(number, None)

    def stuck(self, target: str, numbers: Sequence[int]) -> None:
        """These too wait for an operator, as far as the target is concerned."""
        with self._changed:
            self._look_who_came()
            if self._moving is self._pending:
                self._moving = dict(self._pending)
            self._stuck.setdefault(target, set()).update(numbers)
            for number in numbers:
                one = self._pending.get(number)
                if one is not None and self._is_stuck(one):
                    self._moving.pop(number, None)
            self._changed.notify_all()

    def unstuck(self, target: str, still: Sequence[int]) -> None:
        """An operator has done something: only these still wait for one."""
        with self._changed:
            self._oldest = None
            self._stuck[target] = set(still)
            if any(self._stuck.values()):
                self._moving = {
                    number: one for number, one in self._pending.items() if not self._is_stuck(one)
                }
            else:
                self._stuck.clear()
                self._moving = self._pending

    def _is_stuck(self, one: Pending) -> bool:
        number = one.entry.number
        return all(number in self._stuck.get(target, ()) for target in one.left)

    # -- questions -------------------------------------------------------------------------------

    def waiting_for(self, target: str, entries: Iterable[PersistEntry]) -> list[PersistEntry]:
        """Those of the entries that the target does not hold, and nobody gave up."""
        with self._changed:
            self._look_who_came()
            pending = self._pending
            return [
                one
                for one in entries
                if (found := pending.get(one.number)) is not None and target in found.left
            ]

    def get(self, number: int) -> Pending | None:
        """One transaction, if it waits."""
        with self._changed:
            self._look_who_came()
            return self._pending.get(number)

    def all(self) -> list[Pending]:
        """Everything that waits, by ascending number."""
        with self._changed:
            self._look_who_came()
            return list(self._pending.values())

    def size(self) -> BacklogSize:
        """How much waits."""
        with self._changed:
            self._look_who_came()
            oldest = next(iter(self._pending.values()), None)
            return BacklogSize(self._count, self._bytes, _age(oldest))

    def wait_empty(self, timeout: float | None) -> bool:
        """True once nothing waits, False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)

    def wait_gone(self, number: int, timeout: float | None) -> bool:
        """True once the transaction has reached its targets."""
        with self._changed:
            self._look_who_came()
            return self._changed.wait_for(lambda: number not in self._pending, timeout)


def _age(oldest: Pending | None) -> float:
    return 0.0 if oldest is None else time.monotonic() - oldest.since
