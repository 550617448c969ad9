"""The gate between commits and checkpoints: many commits at once, or one checkpoint.

In: threads that commit (``with gate``) or start a checkpoint (``with gate.exclusive()``). Out:
never both. A checkpoint that waits lets no further commit in, so it comes to its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class CommitGate:
    """A context manager for commits, which share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._inside = 0
        self._closing = False

    def __enter__(self) -> None:
        with self._lock:
            while self._closing:
                self._turn.wait()
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._closing and not self._inside:
                self._turn.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else inside."""
        with self._lock:
            while self._closing:
                self._turn.wait()
            self._closing = True
            while self._inside:
                self._turn.wait()
        try:
            yield
        finally:
            with self._lock:
                self._closing = False
                self._turn.notify_all()
