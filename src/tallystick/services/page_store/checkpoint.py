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

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from tallystick.errors import LogWriteError
from tallystick.roles import UndoRedoLog
from tallystick.services.page_store.pages.cache import PageCache
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import nested_call_error
from tallystick.storage.scheduling import threading
from tallystick.storage.signals import Bell, uninterrupted

_ROW_OVERHEAD = 32
"""Bytes that a row takes in the log, in addition to its own, as an estimate."""


class CommitGate(Uncopied):
    """A shared/exclusive lock: many commits at once (``with gate``), or one checkpoint.

    A checkpoint that waits lets no further commit in, so commits cannot starve it. Both are used in
    uninterrupted blocks; a signal may interrupt the wait for the gate.
    """

    def __init__(self) -> None:
        self._changed = Bell()
        self._inside: set[int] = set()
        """The threads that commit: it grows and shrinks in one step."""
        self._closing = False
        self._closer = 0
        """The thread that has closed the gate, or waits for that."""
        self._one_closes = threading.Lock()

    def __enter__(self) -> None:
        # Whoever closes sets `_closing` first and looks inside then; a commit does it the other
        # way round. So at least one of the two sees the other.
        me = threading.get_ident()
        self._inside.add(me)
        while self._closing:
            self._inside.discard(me)
            self._changed.ring()
            self._changed.wait(lambda: not self._closing)
            self._inside.add(me)

    def __exit__(self, *_: object) -> None:
        self._inside.discard(threading.get_ident())
        if self._closing:
            self._changed.ring()

    def is_in_use(self, thread: int) -> bool:
        """Return whether a thread is inside, or has closed the gate."""
        return thread in self._inside or thread == self._closer

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait until no commit is inside, and keep others out for the block."""
        with self._one_closes:
            self._closer, self._closing = threading.get_ident(), True
            try:
                self._changed.wait(lambda: not self._inside)
                yield
            finally:
                self._closer, self._closing = 0, False
                self._changed.ring()


class Latches(Uncopied):
    """The locks of the store in ``path``: none of them is for a thread that is in a call already.

    Attributes:
        gate: of commits.
        latch: guards pages and trees in memory.
        running: held by the one checkpoint that runs.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.renew()

    def renew(self) -> None:
        """Make all of them anew in a forked child: a thread of the parent may have held them."""
        self.gate = CommitGate()
        self.latch, self.running = threading.RLock(), threading.RLock()
        self._latched, self._runs = owned_by_caller(self.latch), owned_by_caller(self.running)

    def refuse_nested(self) -> None:
        """Refuse the call of a finalizer that runs in the middle of another one of its thread.

        It would wait for itself, or see pages, and change them, in the middle of a change.

        Raises:
            LogWriteError: the thread holds one of the locks.
        """
        if self._latched() or self._runs() or self.gate.is_in_use(threading.get_ident()):
            raise nested_call_error(self._path)


def owned_by_caller(lock: Any) -> Callable[[], bool]:
    """Return a function that tells whether the thread that calls it holds an `RLock`."""
    owned: Callable[[], bool] = lock._is_owned  # as `threading.Condition` asks it
    return owned


class Checkpoints(Uncopied):
    """The checkpoints of an open store, one at a time.

    ``section`` is the section being logged. A checkpoint is due after ``due_bytes`` of committed
    rows, or of changed pages, which a recovery would hold in memory. ``needed()`` returns the older
    sections that prepared transactions need; ``required()`` guards what must not fail.
    """

    def __init__(
        self,
        log: UndoRedoLog,
        cache: PageCache,
        latches: Latches,
        section: int,
        due_bytes: int,
        needed: Callable[[], Iterable[int]],
        required: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.section = section
        self._log = log
        self._cache = cache
        self._latches = latches
        self._due_bytes = due_bytes
        self._due_pages = due_bytes // cache.codec.page_size
        self._needed = needed
        self._required = required
        self._row_bytes = 0

    def count(self, rows: int, size: int) -> None:
        """Count committed rows, of ``size`` bytes in all. Called under the latch."""
        self._row_bytes += _ROW_OVERHEAD * rows + size

    @property
    def due(self) -> bool:
        """True if a checkpoint is due."""
        return self._row_bytes > self._due_bytes or len(self._cache.logged) > self._due_pages

    def run_if_due(self) -> None:
        """Make a checkpoint, unless another caller has just made it, or there is no room for it."""
        with suppress(LogWriteError), self._alone():
            if self.due:
                self._run()

    def run(self) -> None:
        """Make a checkpoint."""
        with self._alone():
            self._run()

    def run_holding(self, work: Callable[[], None]) -> None:
        """Make a checkpoint, and keep the pages on disk as of it while ``work()`` runs."""
        with self._alone():
            try:
                self._run(hold=True)
                work()
            finally:
                with uninterrupted:
                    self._cache.hold(False)

    def _alone(self) -> AbstractContextManager[object]:
        self._latches.refuse_nested()
        return self._latches.running

    def _run(self, *, hold: bool = False) -> None:
        latch, required = self._latches.latch, self._required
        if self._cache.writing:  # by a checkpoint that was interrupted
            self._cache.write_back(latch, required)
        needed = self._start(hold)
        self._cache.write_back(latch, required)
        with uninterrupted, required():
            self._log.flush().wait()
            self._log.remove_until(needed)

    def _start(self, hold: bool) -> int:
        """Start a section; return the oldest one that is needed once all pages are in place."""
        latches = self._latches
        with uninterrupted, latches.gate.exclusive(), latches.latch, self._required():
            mark = self._cache.new_mark()
            # Images first: the section that needs them ends here.
            self._log.flush().wait()
            self.section = self._log.checkpoint(mark)
            self._cache.start_writing()
            # A transaction prepared now may commit later; its rows are in an older section.
            needed = min([self.section, *self._needed()])
            self._row_bytes = 0
            self._cache.hold(hold)
            return needed
