"""Adaptive delay of a group commit: how long a leader waits before it flushes.

The callers that the last flush has acknowledged wake one after the other, and most of them are
about to commit again. A flush that starts at once would sync for the first few of them and leave
the rest to the next one. So the leader waits until all of them have woken, at most twice as long
as the last flush took and at most 5 ms. It does not wait where no caller is about to wake: a lone
caller never waits.
"""

from __future__ import annotations

import contextlib

from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading

_FLUSHES_MAX = 2.0
"""Longest wait, in durations of the last flush."""
_SECONDS_MAX = 0.005
"""Longest wait in seconds: a slow disk does not make it longer."""


class LeaderWait(Uncopied):
    """Counts the waiters that were acknowledged last and have not woken yet.

    Each group keeps a list ``waiting`` with one entry for every thread that has not woken; this
    object holds those of the groups acknowledged last. The writer's lock guards it, except for
    `woken`, which any waiter calls, and `wait`.
    """

    __slots__ = ("_all_awake", "_seconds", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[list[None]] = []
        self._seconds = 0.0
        self._all_awake = threading.Lock()  # released by the last waiter that wakes
        self._all_awake.acquire()

    def flushed(self, seconds: float) -> None:
        """Set the longest wait from the duration of the last flush."""
        self._seconds = min(seconds * _FLUSHES_MAX, _SECONDS_MAX)

    def expect(self, waiting: list[list[None]]) -> None:
        """Watch these waiters, which are acknowledged now, instead of the ones before."""
        self._waiting = waiting
        if waiting:
            self._all_awake.acquire(blocking=False)

    def woken(self, waiting: list[None]) -> None:
        """Note that one waiter has woken; it is no longer in ``waiting``."""
        if not waiting and not self.pending_count():
            with contextlib.suppress(RuntimeError):
                self._all_awake.release()

    def wait(self) -> None:
        """Return when every watched waiter has woken, or the longest wait is over."""
        if self.pending_count():
            self._all_awake.acquire(timeout=self._seconds)

    def pending_count(self) -> int:
        """Return how many of the watched waiters have not woken."""
        return sum(map(len, self._waiting))
