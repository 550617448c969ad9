"""Whose turn it is to flush: one thread at a time, which cannot wait for itself.

In: threads that want to flush, or to keep others from it. Out: one of them has the turn.
"""

from __future__ import annotations

import threading

from tallystick.errors import LogWriteError


class Turn:
    """A lock that knows its owner."""

    __slots__ = ("_lock", "_name", "_owner")

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._owner = 0

    @property
    def mine(self) -> bool:
        """True if the calling thread has the turn."""
        return self._owner == threading.get_ident()

    def take(self) -> None:
        """Wait for the turn. Raises `LogWriteError` if the caller has it already."""
        self.check()
        self._lock.acquire()
        self._owner = threading.get_ident()

    def try_take(self) -> bool:
        """Take the turn if nobody has it."""
        if not self._lock.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        return True

    def give_back(self) -> None:
        """Let the next one have it."""
        self._owner = 0
        self._lock.release()

    def check(self) -> None:
        """Raise `LogWriteError` if the caller has the turn: it would wait for ever."""
        if self._owner == threading.get_ident():
            raise LogWriteError(
                "a flush cannot wait for itself",
                file=self._name,
                advice="Wait outside of write, sync and exclusive blocks",
            )
