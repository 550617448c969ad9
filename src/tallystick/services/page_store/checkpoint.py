"""Checkpoints of a page store, and the latches that keep commits out meanwhile.

In: the log and the cache of an open store. Out: changed pages in place, and a log that begins with
the oldest section that is still needed:

    1  no commit is between log and pages (the gate), no thread reads or changes them (the latch)
    2  every undo image is durable, and the log starts a new section
    3  gate and latch are free again; the pages as of 2 are written in place, and synced
    4  sections that neither pages nor transactions prepared at 2 need are freed

A crash before 4 finds the old sections, whose images and rows lead to the same state. A backup
starts with a checkpoint and delays the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tallystick.roles import UndoRedoLog
from tallystick.services.page_store.pages.cache import PageCache
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading

_ROW_OVERHEAD = 32
"""Bytes that a row takes in the log, in addition to its own, as an estimate."""


class CommitGate(Uncopied):
    """A shared/exclusive lock: many commits at once (``with gate``), or one checkpoint.

    A checkpoint that waits lets no further commit in, so commits cannot starve it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: deque[None] = deque()
        """An entry for each commit: it grows and shrinks in one step, without the lock."""
        self._closing = False

    def __enter__(self) -> None:
        # Whoever closes sets `_closing` first and looks inside then; a commit does it the other
        # way round. So at least one of the two sees the other.
        self._inside.append(None)
        while self._closing:
            self._inside.pop()
            self._wait()
            self._inside.append(None)

    def __exit__(self, *_: object) -> None:
        self._inside.pop()
        if self._closing:
            with self._changed:
                self._changed.notify_all()

    def _wait(self) -> None:
        with self._changed:
            self._changed.notify_all()
            while self._closing:
                self._changed.wait()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait until no commit is inside, and keep others out for the block."""
        with self._changed:
            while self._closing:
                self._changed.wait()
            self._closing = True
            while self._inside:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._closing = False
                self._changed.notify_all()


@dataclass(slots=True)
class Latches(Uncopied):
    """The gate of commits, and the ``latch`` that guards pages and trees in memory."""

    gate: CommitGate = field(default_factory=CommitGate)
    latch: threading.RLock = field(default_factory=lambda: threading.RLock())

    def renew(self) -> None:
        """Replace both in a forked child: a thread of the parent may have held them."""
        self.gate, self.latch = CommitGate(), threading.RLock()


class Checkpoints(Uncopied):
    """The checkpoints of an open store, one at a time.

    ``section`` is the section being logged. A checkpoint is due after ``due_bytes`` of committed
    rows, or of changed pages, which a recovery would hold in memory. ``needed()`` returns the older
    sections that prepared transactions need.
    """

    def __init__(
        self,
        log: UndoRedoLog,
        cache: PageCache,
        latches: Latches,
        section: int,
        due_bytes: int,
        needed: Callable[[], Iterable[int]],
    ) -> None:
        self.section = section
        self._log = log
        self._cache = cache
        self._latches = latches
        self._due_bytes = due_bytes
        self._due_pages = due_bytes // cache.codec.page_size
        self._needed = needed
        self._row_bytes = 0
        self._running = threading.Lock()

    def count(self, rows: int, size: int) -> None:
        """Count committed rows, of ``size`` bytes in all. Called under the latch."""
        self._row_bytes += _ROW_OVERHEAD * rows + size

    @property
    def due(self) -> bool:
        """True if a checkpoint is due."""
        return self._row_bytes > self._due_bytes or len(self._cache.logged) > self._due_pages

    def run_if_due(self) -> None:
        """Make a checkpoint, unless another caller has just made it."""
        with self._running:
            if self.due:
                self._run()

    def run(self) -> None:
        """Make a checkpoint."""
        with self._running:
            self._run()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make a checkpoint, and keep the pages on disk as of it for the block."""
        with self._running:
            try:
                self._run(hold=True)
                yield
            finally:
                self._cache.hold(False)

    def _run(self, *, hold: bool = False) -> None:
        with self._latches.gate.exclusive(), self._latches.latch:
            # Images first: the section that needs them ends here.
            self._log.flush().wait()
            self._cache.start_writing()
            self.section = self._log.checkpoint()
            # A transaction prepared now may commit later; its rows are in an older section.
            needed = min([self.section, *self._needed()])
            self._row_bytes = 0
            self._cache.hold(hold)
        self._cache.write_back(self._latches.latch)
        self._log.flush().wait()
        self._log.remove_until(needed)
