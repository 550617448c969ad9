"""Entries on their way into one block.

In: encoded entries, from any thread, until the batch is full or taken. Out: a `ReadyBlock`.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import Enum

from tallystick.systems.cloudtran.live.files import ReadyBlock


class EffectKind(Enum):
    """What an entry does to the state of the log."""

    BEGINS = 1
    MOVES = 2
    """Carried forward: the same transaction, now in this file."""
    MARKS = 3


@dataclass(frozen=True, slots=True)
class Effect:
    """What one entry means once it is written; ``targets`` None means every one."""

    kind: EffectKind
    number: int
    targets: frozenset[str] | None = None
    flags: int = 0


class Batch:
    """Entries of one block: at most ``size_max`` bytes, or a single larger one."""

    def __init__(self, size_max: int) -> None:
        self.effects: list[Effect] = []
        self.block: ReadyBlock | None = None
        self._entries: list[bytes] = []
        self._room = size_max
        self._open = True
        self._lock = threading.Lock()
        self._prepared: Future[ReadyBlock] | None = None

    def add(self, encoded: bytes, effect: Effect) -> bool:
        """Take an entry; False if the batch is taken already or has no room."""
        with self._lock:
            if not self._open or (self._entries and len(encoded) > self._room):
                return False
            self._room -= len(encoded)
            self._entries.append(encoded)
            self.effects.append(effect)
            return True

    def prepare_ahead(self, workers: Executor, *, compress: bool) -> None:
        """Close the batch and have a worker prepare its block."""
        self._close()
        self._prepared = workers.submit(self._prepare, compress)

    def ready(self, *, compress: bool) -> ReadyBlock:
        """Close the batch; its block, prepared by a worker or now."""
        if self.block is None:
            self._close()
            prepared = self._prepared
            self.block = self._prepare(compress) if prepared is None else prepared.result()
        return self.block

    def _close(self) -> None:
        with self._lock:
            self._open = False

    def _prepare(self, compress: bool) -> ReadyBlock:
        return ReadyBlock.of(b"".join(self._entries), len(self._entries), compress=compress)
