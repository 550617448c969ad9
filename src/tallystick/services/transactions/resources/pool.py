"""Connections waiting for their next branch.

In: a function that connects. Out: connections, the most recently used first; what failed
is closed and not used again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


_Connection = TypeVar("_Connection", bound=Closable)

IDLE_MAX = 64


class Pool(Generic[_Connection]):
    """Idle connections, at most `IDLE_MAX`; safe for threads."""

    def __init__(self, connect: Callable[[], _Connection]) -> None:
        self._connect = connect
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    def take(self) -> _Connection:
        """An idle connection or a new one; errors of the driver go up."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def give(self, connection: _Connection, *, broken: bool = False) -> None:
        """Take a connection back; a broken one is closed."""
        with self._lock:
            if not (broken or self._closed) and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        discard(connection)

    def drop_idle(self) -> None:
        """Close the idle ones: after one failure the others are stale too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            discard(connection)

    def close(self) -> None:
        """Close the idle ones now and the others when they come back."""
        self._closed = True
        self.drop_idle()


def discard(connection: Closable) -> None:
    """Close a connection that may be beyond closing."""
    with contextlib.suppress(Exception):  # a driver may raise anything from a dead connection
        connection.close()
