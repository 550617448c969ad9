"""What waits for its targets, within limits that hold.

In: transactions when they are committed, and targets as they come to hold them. Out: room, or
`BusyError` after a while; who is pending; who is done. What waits for an operator counts for the
limits of number and size, and not for that of age: else one transaction that no target takes
would keep all others out for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isinf

from tallystick.errors import BusyError, TallystickError
from tallystick.services.roles import Operation, PersistEntry
from tallystick.services.write_behind.metrics import BacklogSize
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.storage.tickets import fresh

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
    for one in operations:
        size += len(one.key) + len(one.value or b"") + len(one.collection) + _OVERHEAD
    return size


class Backlog:
    """Transactions by number, in ascending order; safe for threads."""

    def __init__(self, settings: WriteBehindSettings) -> None:
        self._settings = settings
        self._ageless = isinf(settings.backlog_age_seconds_max)
        self._changed = threading.Condition(threading.Lock())
        self._pending: dict[int, Pending] = {}
        self._moving = self._pending
        """What does not wait for an operator: the same dictionary, unless something does."""
        self._stuck: dict[str, set[int]] = {}
        self._count = 0
        self._bytes = 0
        self._entering = 0
        self._refusal: TallystickError | None = None
        self.arrivals = 0
        """Transactions that were ever let in."""

    # -- room ------------------------------------------------------------------------------------

    def reserve(self, size: int) -> bool:
        """Make room for one transaction, if there is any. What is reserved becomes a transaction
        by `add`, or is given back by `release`."""
        with self._changed:
            if self._refusal is not None or self._full(size) is not None:
                return False
            self._count += 1
            self._bytes += size
            self._entering += 1
            self.arrivals += 1
            return True

    def wait_for_room(self, size: int, deadline: float) -> None:
        """Return once there may be room, or raise `BusyError` at the deadline."""
        with self._changed:
            while self._refusal is None and (reason := self._full(size)) is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BusyError(
                        f"too much waits for its targets: {reason}",
                        advice="Retry in a second or two; see what is pending and why",
                    )
                self._changed.wait(left)
            if self._refusal is not None:
                raise fresh(self._refusal)

    def release(self, size: int) -> None:
        """Give back what was reserved for a transaction that never was."""
        with self._changed:
            self._count -= 1
            self._bytes -= size
            self._entering -= 1
            self._changed.notify_all()

    def refuse(self, reason: TallystickError) -> None:
        """Let nobody in any more; returns once all who were let in have been added."""
        with self._changed:
            self._refusal = self._refusal or reason
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._entering == 0)

    @property
    def relaxed(self) -> bool:
        """True while less than half of each limit is used."""
        chosen = self._settings
        with self._changed:
            return (
                2 * self._count < chosen.backlog_max
                and 2 * self._bytes < chosen.backlog_bytes_max
                and 2 * self._age(self._moving) < chosen.backlog_age_seconds_max
            )

    def _full(self, size: int) -> str | None:
        chosen = self._settings
        if self._count >= chosen.backlog_max:
            return f"{self._count} transactions"
        # an empty backlog takes any size: else a large transaction would wait for ever
        if self._count and self._bytes + size > chosen.backlog_bytes_max:
            return f"{self._bytes} bytes"
        if self._ageless:
            return None
        age = self._age(self._moving)
        return f"the oldest for {age:.0f} s" if age > chosen.backlog_age_seconds_max else None

    @staticmethod
    def _age(transactions: dict[int, Pending]) -> float:
        oldest = next(iter(transactions.values()), None)
        return 0.0 if oldest is None else time.monotonic() - oldest.since

    # -- transactions ----------------------------------------------------------------------------

    def add(self, entry: PersistEntry, left: frozenset[str], size: int) -> None:
        """A transaction for which room was reserved; ascending numbers."""
        one = Pending(entry, left, size, time.monotonic())
        with self._changed:
            self._insert(one)
            self._entering -= 1
            if self._refusal is not None:
                self._changed.notify_all()

    def load(self, entry: PersistEntry, left: frozenset[str], size: int) -> None:
        """A transaction of an earlier run; it counts, with its age, but no limit refuses it."""
        age = max(0.0, time.time() - entry.time / 1_000_000)
        with self._changed:
            self._count += 1
            self._bytes += size
            self._insert(Pending(entry, left, size, time.monotonic() - age))

    def _insert(self, one: Pending) -> None:
        number = one.entry.number
        self._pending[number] = one
        if self._moving is not self._pending:
            self._moving[number] = one

    def held(self, numbers: Iterable[int], target: str) -> None:
        """The target holds these; what no target waits for any more is gone."""
        with self._changed:
            for number in numbers:
                one = self._pending.get(number)
                if one is None:
                    continue
                one.left -= {target}
                if not one.left:
                    self._forget(number)
                elif self._stuck and self._is_stuck(one):
                    self._moving.pop(number, None)
            self._changed.notify_all()

    def forget(self, number: int) -> None:
        """Nobody waits for it any more."""
        with self._changed:
            if number in self._pending:
                self._forget(number)
            self._changed.notify_all()

    def _forget(self, number: int) -> None:
        self._bytes -= self._pending.pop(number).size
        self._count -= 1
        self._moving.pop(number, None)

    def stuck(self, target: str, numbers: Sequence[int]) -> None:
        """These too wait for an operator, as far as the target is concerned."""
        with self._changed:
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

    def waits(self, number: int, target: str) -> bool:
        """True if the target does not hold the transaction, and nobody gave it up."""
        one = self._pending.get(number)
        return one is not None and target in one.left

    def get(self, number: int) -> Pending | None:
        """One transaction, if it waits."""
        return self._pending.get(number)

    def all(self) -> list[Pending]:
        """Everything that waits, by ascending number."""
        with self._changed:
            return list(self._pending.values())

    def size(self) -> BacklogSize:
        """How much waits."""
        with self._changed:
            return BacklogSize(self._count, self._bytes, self._age(self._pending))

    def wait_empty(self, timeout: float | None) -> bool:
        """True once nothing waits, False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)

    def wait_gone(self, number: int, timeout: float | None) -> bool:
        """True once the transaction has reached its targets."""
        with self._changed:
            return self._changed.wait_for(lambda: number not in self._pending, timeout)
