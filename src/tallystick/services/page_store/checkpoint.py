"""Checkpoints of a page store, and backups, which start with one.

In: the log and the cache of one opening. Out: changed pages in place, and a log that begins
with the oldest section that is still needed:

    1  no commit is between log and pages (the gate), nobody reads or changes them (the latch)
    2  every image of a page is durable, and the log starts a new section
    3  gate and latch are free again; the pages as of 2 are written in place, and synced
    4  sections that neither pages nor transactions prepared at 2 need are freed

A crash before 4 finds the old sections, whose images and rows lead to the same state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tallystick.roles import UndoRedoLog
from tallystick.services.page_store.checkpoint_gate import CommitGate
from tallystick.services.page_store.pages.cache import PageCache

_ROW_BYTES = 32
"""What a row takes in the log beside its own bytes, about."""


@dataclass(slots=True)
class Turns:
    """Who may when, for one store: ``latch`` guards pages and trees in memory."""

    gate: CommitGate = field(default_factory=CommitGate)
    latch: threading.RLock = field(default_factory=threading.RLock)

    def renew(self) -> None:
        """In a forked child: no turn of a thread that is not there is waited for."""
        self.gate, self.latch = CommitGate(), threading.RLock()


class Checkpoints:
    """The checkpoints of one opening, one at a time.

    ``section`` is the one that is being logged. A checkpoint is due after ``due_bytes`` of
    committed rows, or of changed pages, which a recovery would hold in memory. ``needed``
    tells which older sections have to stay.
    """

    def __init__(
        self,
        log: UndoRedoLog,
        cache: PageCache,
        turns: Turns,
        section: int,
        due_bytes: int,
        needed: Callable[[], Iterable[int]],
    ) -> None:
        self.section = section
        self._log = log
        self._cache = cache
        self._turns = turns
        self._due_bytes = due_bytes
        self._needed = needed
        self._rows_bytes = 0
        self._one = threading.Lock()

    def count(self, rows: Iterable[bytes | None]) -> None:
        """Note rows that were committed. Called under the latch."""
        self._rows_bytes += sum([_ROW_BYTES + len(row or b"") for row in rows])

    @property
    def due(self) -> bool:
        """True if it is time for one."""
        pages = len(self._cache.logged) * self._cache.codec.page_size
        return max(self._rows_bytes, pages) > self._due_bytes

    def run_if_due(self) -> None:
        """One checkpoint, unless another caller has just made it."""
        with self._one:
            if self.due:
                self._run()

    def run(self) -> None:
        """One checkpoint."""
        with self._one:
            self._run()

    @contextmanager
    def held(self) -> Iterator[None]:
        """One checkpoint; for the length of the block the pages in place stay as of it."""
        with self._one:
            try:
                self._run(hold=True)
                yield
            finally:
                self._cache.hold(False)

    def _run(self, *, hold: bool = False) -> None:
        with self._turns.gate.exclusive(), self._turns.latch:
            # Images first: the section that needs them ends here.
            self._log.flush().wait()
            self._cache.start_writing()
            self.section = self._log.checkpoint()
            # What is prepared now may commit behind this, and its rows stand before.
            needed = min([self.section, *self._needed()])
            self._rows_bytes = 0
            self._cache.hold(hold)
        self._cache.write_back(self._turns.latch)
        self._log.flush().wait()
        self._log.remove_until(needed)
