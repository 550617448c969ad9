"""The lock under which a thread flushes: one at a time, and never by itself twice.

In: threads that want to flush, or to keep others from it. Out: one of them owns the lock.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.errors import LogWriteError
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading


class FlushLock(Uncopied):
    """A lock that knows its owner; ``refusal`` returns the error for it."""

    __slots__ = ("_lock", "_owner", "_refusal")

    def __init__(self, refusal: Callable[[], LogWriteError]) -> None:
        self._refusal = refusal
        self._lock = threading.Lock()
        self._owner = 0

    @property
    def owned(self) -> bool:
        """True if the calling thread owns the lock."""
        return self._owner == threading.get_ident()

    def acquire(self) -> None:
        """Block until the lock is free and take it. Raises as `refuse_owner` does."""
        self.refuse_owner()
        self._lock.acquire()
        self._owner = threading.get_ident()

    def try_acquire(self) -> bool:
        """Take the lock if it is free; False if it is not."""
        if not self._lock.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        return True

    def release(self) -> None:
        """Let another thread have the lock."""
        self._owner = 0
        self._lock.release()

    def refuse_owner(self) -> None:
        """Raise `LogWriteError` if the caller owns the lock: it would wait for ever."""
        if self._owner == threading.get_ident():
            raise self._refusal()
