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
    """Counts acknowledged waiters that have not woken yet; guarded by the writer's lock,
    except for `wait`."""

    __slots__ = ("_back", "_patience", "_returning")

    def __init__(self) -> None:
        self._returning = 0
        self._patience = 0.0
        self._back = threading.Lock()
        self._back.acquire()

    def flushed(self, seconds: float) -> None:
        """The last flush took so long."""
        self._patience = min(seconds * _PATIENCE, _PATIENCE_MAX)

    def expect(self, waiters: int) -> None:
        """So many more waiters were acknowledged."""
        if waiters:
            self._returning += waiters
            self._back.acquire(blocking=False)

    def returned(self) -> None:
        """One of them has woken."""
        self._returning -= 1
        if self._returning == 0:
            with contextlib.suppress(RuntimeError):
                self._back.release()

    def wait(self) -> None:
        """Return when all have woken, or patience has ended."""
        if self._returning:
            self._back.acquire(timeout=self._patience)
