"""How long a leader waits for the callers that the last flush has just acknowledged.

They are on their way back with their next item, one wake-up after the other; a flush that starts
at once would sync for the first few of them and leave the rest to the next. So a leader gives
them time, but never more than two flushes take, and none where nobody is on the way: a lone
caller never waits.
"""

from __future__ import annotations

import contextlib
import threading

_PATIENCE = 2.0
"""Longest wait, in durations of the last flush."""
_PATIENCE_MAX = 0.005
"""Longest wait in seconds: a slow disk does not make it longer."""


class Company:
    """Watches the waiters that were acknowledged last until they have woken: of each group the
    list ``waiting``, which has an entry for every one that has not.

    The writer's lock guards it, except for `returned`, which any waiter calls, and `wait`.
    """

    __slots__ = ("_back", "_patience", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[list[None]] = []
        self._patience = 0.0
        self._back = threading.Lock()
        self._back.acquire()

    def flushed(self, seconds: float) -> None:
        """The last flush took so long."""
        self._patience = min(seconds * _PATIENCE, _PATIENCE_MAX)

    def expect(self, waiting: list[list[None]]) -> None:
        """These will be acknowledged now."""
        self._waiting = waiting
        if waiting:
            self._back.acquire(blocking=False)

    def returned(self, waiting: list[None]) -> None:
        """One of them has woken, and is not in ``waiting`` any more."""
        if not waiting and not self.out():
            with contextlib.suppress(RuntimeError):
                self._back.release()

    def wait(self) -> None:
        """Return when all have woken, or patience has ended."""
        if self.out():
            self._back.acquire(timeout=self._patience)

    def out(self) -> int:
        """How many have not woken yet."""
        return sum(map(len, self._waiting))
