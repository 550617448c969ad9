"""The gate between commits and checkpoints: many commits at once, or one checkpoint.

In: threads that commit (`shared`) or start a checkpoint (`exclusive`). Out: never both. A
checkpoint that waits lets no further commit in, so it comes to its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CommitGate:
    """Shared for commits, exclusive for the short part of a checkpoint."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._inside = 0
        self._closing = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._turn:
            while self._closing:
                self._turn.wait()
            self._inside += 1
        try:
            yield
        finally:
            with self._turn:
                self._inside -= 1
                if not self._inside:
                    self._turn.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._turn:
            while self._closing:
                self._turn.wait()
            self._closing = True
            while self._inside:
                self._turn.wait()
        try:
            yield
        finally:
            with self._turn:
                self._closing = False
                self._turn.notify_all()
