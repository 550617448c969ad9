"""What waits for its targets, within limits that hold.

In: transactions when they are committed, and targets as they come to hold them. Out: room, or
`BusyError` after a while; who is pending; who is done.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from tallystick.errors import BusyError
from tallystick.services.roles import PersistEntry
from tallystick.services.write_behind.metrics import BacklogSize
from tallystick.services.write_behind.settings import WriteBehindSettings

_OVERHEAD = 64
"""Bytes that an entry and each of its operations count for beside their content."""


@dataclass(slots=True)
class Pending:
    """A transaction, the targets that do not hold it, its size, and when it came."""

    entry: PersistEntry
    left: set[str]
    size: int
    since: float


def size_of(entry: PersistEntry) -> int:
    """Bytes that an entry counts for."""
    content = sum(
        len(one.key) + len(one.value or b"") + len(one.collection) + _OVERHEAD
        for one in entry.operations
    )
    return _OVERHEAD + len(entry.reference) + content


class Backlog:
    """Transactions by number, in ascending order; safe for threads."""

    def __init__(self, settings: WriteBehindSettings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._pending: dict[int, Pending] = {}
        self._count = 0
        self._bytes = 0

    def reserve(self, size: int, timeout: float) -> None:
        """Make room for one transaction, or raise `BusyError` after ``timeout`` seconds. What is
        reserved becomes a transaction by `add`, or is given back by `release`."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while (reason := self._full(size)) is not None:
                if not self._changed.wait(deadline - time.monotonic()) and self._full(size):
                    raise BusyError(
                        f"too much waits for its targets: {reason}",
                        advice="Retry in a second or two; see what is pending and why",
                    )
            self._count += 1
            self._bytes += size

    def release(self, size: int) -> None:
        """Give back what was reserved for a transaction that never was."""
        with self._changed:
            self._count -= 1
            self._bytes -= size
            self._changed.notify_all()

    def _full(self, size: int) -> str | None:
        settings = self._settings
        if self._count >= settings.backlog_max:
            return f"{self._count} transactions"
        # an empty backlog takes any size: else a large transaction would wait for ever
        if self._count and self._bytes + size > settings.backlog_bytes_max:
            return f"{self._bytes} bytes"
        if self._age() > settings.backlog_age_seconds_max:
            return f"the oldest for {self._age():.0f} s"
        return None

    def _age(self) -> float:
        oldest = next(iter(self._pending.values()), None)
        return 0.0 if oldest is None else time.monotonic() - oldest.since

    def add(self, entry: PersistEntry, left: set[str], size: int) -> None:
        """A transaction for which room was reserved; ascending numbers."""
        with self._changed:
            self._pending[entry.number] = Pending(entry, left, size, time.monotonic())

    def load(self, entry: PersistEntry, left: set[str], size: int) -> None:
        """A transaction of an earlier run; it counts, but no limit refuses it."""
        with self._changed:
            self._count += 1
            self._bytes += size
            self._pending[entry.number] = Pending(entry, left, size, time.monotonic())

    def held(self, number: int, target: str) -> bool:
        """The target holds it; True if every one does now."""
        with self._changed:
            one = self._pending.get(number)
            if one is None:
                return False
            one.left.discard(target)
            if one.left:
                return False
            self._forget(number)
        return True

    def forget(self, number: int) -> None:
        """Nobody waits for it any more."""
        with self._changed:
            if number in self._pending:
                self._forget(number)

    def _forget(self, number: int) -> None:
        self._bytes -= self._pending.pop(number).size
        self._count -= 1
        self._changed.notify_all()

    def get(self, number: int) -> Pending | None:
        """One transaction, if it waits."""
        with self._changed:
            return self._pending.get(number)

    def all(self) -> list[Pending]:
        """Everything that waits, by ascending number."""
        with self._changed:
            return list(self._pending.values())

    def lowest(self) -> int | None:
        """The smallest number that waits."""
        with self._changed:
            return next(iter(self._pending), None)

    def size(self) -> BacklogSize:
        """How much waits."""
        with self._changed:
            return BacklogSize(self._count, self._bytes, self._age())

    def wait_empty(self, timeout: float | None) -> bool:
        """True once nothing waits, False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)

    def wait_gone(self, number: int, timeout: float | None) -> bool:
        """True once the transaction has reached its targets."""
        with self._changed:
            return self._changed.wait_for(lambda: number not in self._pending, timeout)
