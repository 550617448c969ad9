"""The page store: tables of rows over pages, an undo/redo log, and checkpoints.

In: transactions. Out: rows that survive a crash at any moment, all of a transaction or
nothing. The order that makes it so:

    commit      rows and the commit record durable in the log, then the pages change
    page write  the page's image as of the last checkpoint durable first
    checkpoint  no commit between log and pages; a new section; changed pages written and
                synced; then the sections before it are freed
    recovery    pages back to the oldest kept section, then its committed rows again
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tallystick.errors import UnsupportedFormatError
from tallystick.roles import CATALOGUE, Defect, InDoubt, Role, UndoRedoLog
from tallystick.services.page_store.checkpoint import Turns
from tallystick.services.page_store.health import Health
from tallystick.services.page_store.open_paged import open_kept
from tallystick.services.page_store.pages.layout import PAGE_SIZE
from tallystick.services.page_store.pages.opened import Opened
from tallystick.services.page_store.recovery import OpenLog, open_pages
from tallystick.services.page_store.session import Session
from tallystick.services.page_store.transactions import Limits, Transactions
from tallystick.storage.files import FileSystem
from tallystick.storage.fork import register_in_child
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import (
    NATIVE,
    open_paged_log,
    open_undo_redo_log,
    paged_file,
    paged_system_in,
    systems_with,
)

CACHE_BYTES = 32 << 20
CHECKPOINT_BYTES = 32 << 20
LOCK_SECONDS = 10.0


class PageStore:
    """An embedded transactional store; a context manager.

    ``path`` is its folder. Its log is that of ``system``, ``tally`` or ``h2``, which also has its
    own pages; by default what the folder holds, ``tally`` in a new one; or what ``open_log`` opens
    in a folder. ``cache_bytes`` bounds pages in memory; a checkpoint is made
    whenever ``checkpoint_bytes`` of rows were committed since the last.

    Raises `LogLockedError` if it is open elsewhere and `CorruptLogError` if it cannot be
    recovered in full. While transactions are in doubt the store is read-only: `settle` them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        system: str | None = None,
        open_log: OpenLog | None = None,
        cache_bytes: int = CACHE_BYTES,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        lock_timeout: float = LOCK_SECONDS,
        fs: FileSystem = LOCAL,
    ) -> None:
        self.path = Path(path)
        self._fs = fs
        self._opener = _opener(self.path, fs, system, open_log)
        self._limits = Limits(cache_bytes, checkpoint_bytes, lock_timeout)
        self._making_tables = threading.Lock()
        self._health = Health(str(self.path))
        self._turns = Turns()
        fs.mkdir(str(self.path))
        self._open()
        register_in_child(self)

    def _open(self) -> None:
        opened = self._opener(self.path, self._fs, self._limits.cache_bytes)
        self._opened, self._log, self._cache = opened, opened.log, opened.cache
        self._health.doubtful = opened.doubtful
        try:
            self._work = Transactions(opened, self._turns, self._health, self._limits)
        except BaseException:
            self._close_files()
            raise

    # -- tables and transactions ----------------------------------------------------------------

    def begin(self) -> Session:
        """Begin a transaction: ``with store.begin() as tx``."""
        return self._work.begin()

    def create_table(self, name: str) -> None:
        """Make an empty table, durably; fine if it is there."""
        with self._making_tables:
            if name not in self.tables():
                with self.begin() as session:
                    session.put(CATALOGUE, self._work.tables.free_id(), name.encode())

    def tables(self) -> Sequence[str]:
        """Names of all tables, in order."""
        with self._reading():
            return self._work.tables.names()

    def table_id(self, name: str) -> int:
        """The number of a table in the log. Raises `KeyError`."""
        return self._work.table_id(name)

    # -- checkpoints and backups -----------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write changed pages in place and free what the log no longer needs. Commits wait only
        until the log has started a new section; reads hardly ever."""
        self._health.require_writable()
        with self._health.trusted():
            self._work.checkpoints.run()

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the store as of now to a new folder, while it goes on working. Meanwhile changed
        pages stay in memory; a commit that finds a checkpoint due waits for the copy's end.
        Raises what writing to ``target`` raises; the store is none the worse for that."""
        self._health.require_writable()
        with self._work.checkpoints.held():
            self._opened.copy(self._fs, Path(target))

    def check(self) -> Sequence[Defect]:
        """Everything that is wrong with pages and trees; empty is good."""
        with self._reading():
            return self._work.tables.check()

    # -- in doubt ---------------------------------------------------------------------------------

    def in_doubt(self) -> Sequence[InDoubt]:
        """Prepared transactions that nobody has ended: those of before the last crash, and
        those of sessions that are prepared now."""
        return [*self._health.doubtful, *self._work.living()]

    def settle(self, name: str, *, commit: bool) -> None:
        """Decide an in-doubt transaction. Once those of before the crash are all decided the
        store is writable again. Raises `KeyError` for an unknown name."""
        session, _ = self._work.prepared.get(name, (None, 0))
        if session is not None and session.prepared:
            (session.commit if commit else session.rollback)()
            return
        health = self._health
        with self._turns.latch:
            health.require_open()
            if all(one.name != name for one in health.doubtful):
                raise KeyError(name)
            with health.trusted():
                self._log.settle(name, commit=commit).wait()
                health.doubtful = [one for one in health.doubtful if one.name != name]
                if not health.doubtful:
                    self._close_files()
                    self._open()

    def as_resource(self, name: str) -> Any:
        """This store as a resource of a transaction manager."""
        from tallystick.services.page_store.resource import PageStoreResource

        return PageStoreResource(name, self)

    # -- life -------------------------------------------------------------------------------------

    @property
    def store_id(self) -> int:
        """A random number made with the store."""
        with self._reading():
            return self._work.tables.store_id

    def close(self) -> None:
        """Checkpoint and close; after a failure close without it. Twice is fine. In a forked
        child there is nothing to close."""
        if self._health.closed or self._health.forked:
            return
        written = False
        try:
            if self._health.failure is None and not self._health.doubtful:
                self.checkpoint()
                written = True
        finally:
            # A commit that is on its way ends first; one that comes later is refused.
            with self._turns.gate.exclusive(), self._turns.latch:
                self._health.closed = True
                self._close_files(written=written and not self._cache.logged)

    def _close_files(self, *, written: bool = False) -> None:
        try:
            if written:
                self._opened.finish()
        finally:
            try:
                self._log.close()
            finally:
                self._cache.file.close()

    def forked(self) -> None:
        """In a forked child: nothing can be used, and no lock of a lost thread is waited for."""
        self._health.fork()
        self._turns.renew()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._turns.latch:
            self._health.require_open()
            yield
            self._work.trim()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _opener(
    path: Path, fs: FileSystem, system: str | None, open_log: OpenLog | None
) -> Callable[[Path, FileSystem, int], Opened]:
    """What opens the store in a folder, with so many bytes of pages in memory."""
    found = paged_system_in(path, fs)
    if found is not None and (open_log is not None or system not in (None, found)):
        raise UnsupportedFormatError(
            "there is a page store of another system",
            file=paged_file(found, path),
            expected=system or "none",
            found=found,
        )
    system = system or found or NATIVE
    if open_log is None and system in systems_with(Role.PAGED_LOG):
        return partial(_open_kept, system)
    return partial(_open_own, open_log or partial(_open_log, system))


def _open_kept(system: str, path: Path, fs: FileSystem, cache_bytes: int) -> Opened:
    return open_kept(path, fs, partial(open_paged_log, system), cache_bytes)


def _open_own(open_log: OpenLog, path: Path, fs: FileSystem, cache_bytes: int) -> Opened:
    return open_pages(path, fs, open_log, cache_bytes)


def _open_log(system: str, folder: Path, fs: FileSystem) -> UndoRedoLog:
    return open_undo_redo_log(folder, system, fs, page_size=PAGE_SIZE)
