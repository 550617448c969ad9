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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tallystick.errors import (
    IncompleteLogError,
    LogWriteError,
    TransactionUsageError,
)
from tallystick.services.page_store.backup import copy_pages
from tallystick.services.page_store.check import Defect, check_store
from tallystick.services.page_store.checkpoint import Checkpoints, Turns
from tallystick.services.page_store.gate import CommitGate
from tallystick.services.page_store.health import Health
from tallystick.services.page_store.layout import PAGE_SIZE
from tallystick.services.page_store.locks import Row, RowLocks
from tallystick.services.page_store.recovery import OpenLog, open_pages
from tallystick.services.page_store.session import Session
from tallystick.services.page_store.tables import CATALOGUE, Tables
from tallystick.services.roles import InDoubt, UndoRedoLog
from tallystick.storage.files import FileSystem
from tallystick.storage.forks import tell_of_forks
from tallystick.storage.local import LOCAL
from tallystick.systems.opening import open_undo_redo_log

CACHE_BYTES = 32 << 20
CHECKPOINT_BYTES = 32 << 20
LOCK_SECONDS = 10.0
FIRST_SESSION = 3
LAST_SESSION = (1 << 31) - 1
"""Session numbers go round: logs keep them as signed 32-bit numbers."""


class PageStore:
    """An embedded transactional store; a context manager.

    ``path`` is its folder. Its log is that of ``system``: ``tally`` or ``h2``, or what
    ``open_log`` opens in a folder. ``cache_bytes`` bounds pages in memory; a checkpoint is made
    whenever ``checkpoint_bytes`` of rows were committed since the last.

    Raises `LogLockedError` if it is open elsewhere and `CorruptLogError` if it cannot be
    recovered in full. While transactions are in doubt the store is read-only: `settle` them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        system: str = "tally",
        open_log: OpenLog | None = None,
        cache_bytes: int = CACHE_BYTES,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        lock_timeout: float = LOCK_SECONDS,
        fs: FileSystem = LOCAL,
    ) -> None:
        self.path = Path(path)
        self._fs = fs
        self._open_log = open_log or partial(_open_log, system)
        self._capacity = max(cache_bytes // PAGE_SIZE, 16)
        self._checkpoint_bytes = checkpoint_bytes
        self._lock_timeout = lock_timeout
        self._locks = RowLocks()
        self._making_tables = threading.Lock()
        self._session = FIRST_SESSION
        self._health = Health(str(self.path))
        self._make_turns()
        fs.mkdir(str(self.path))
        self._open()
        tell_of_forks(self)

    def _make_turns(self) -> None:
        self._latch = threading.RLock()
        self._gate = CommitGate()

    def _open(self) -> None:
        self._log, self._cache, self._doubtful, section = open_pages(
            self.path, self._fs, self._open_log, self._capacity
        )
        try:
            self._tables = Tables(self._cache)
        except BaseException:
            self._close_files()
            raise
        self._prepared: dict[str, tuple[Session, int]] = {}
        self._checkpoints = Checkpoints(
            self._log,
            self._cache,
            Turns(self._gate, self._latch),
            section,
            self._checkpoint_bytes,
            lambda: [section for _, section in list(self._prepared.values())],
        )

    # -- tables and transactions ----------------------------------------------------------------

    def begin(self) -> Session:
        """Begin a transaction: ``with store.begin() as tx``."""
        with self._latch:
            self._require_writable()
            number = self._session
            self._session = number + 1 if number < LAST_SESSION else FIRST_SESSION
        return Session(self, number)

    def create_table(self, name: str) -> None:
        """Make an empty table, durably; fine if it is there."""
        with self._making_tables:
            if name not in self.tables():
                with self.begin() as session:
                    session.put(CATALOGUE, self._tables.free_id(), name.encode())

    def tables(self) -> Sequence[str]:
        """Names of all tables, in order."""
        with self._reading():
            return self._tables.names()

    def table_id(self, name: str) -> int:
        """The number of a table in the log. Raises `KeyError`."""
        with self._latch:
            self._health.require_open()
            return self._tables.id_of(name)

    # -- for sessions ----------------------------------------------------------------------------

    def read(self, table: int, key: int) -> bytes | None:
        """A committed row."""
        with self._latch:
            self._health.require_open()
            row = self._tables.tree(table).get(key)
            self._trim()
            return row

    def batch(
        self, table: int, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Committed rows from ``start`` on, about ``size`` bytes of them, and where to go on."""
        with self._reading():
            return self._tables.tree(table).batch(start, count, size)

    def lock_row(self, session: int, row: Row) -> None:
        """Lock a row until the session ends."""
        self._locks.take(session, row, self._lock_timeout)

    def prepare(self, session: Session, name: str) -> None:
        """Log the session's rows and its prepare record, durably."""
        with self._gate.shared():
            self._require_writable()
            if self._prepared.setdefault(name, (session, self._checkpoints.section))[0] != session:
                raise TransactionUsageError(f"there is a prepared transaction {name} already")
            try:
                with self._logging(session):
                    self._log.log_rows(session.number, session.changes)
                    self._log.prepare_commit(session.number, name).wait()
            except BaseException:
                del self._prepared[name]
                raise

    def commit(self, session: Session) -> None:
        """Make the session's changes durable, then visible."""
        try:
            if session.changes or session.prepared:
                with self._gate.shared():
                    self._require_writable()
                    with self._logging(session):
                        if not session.prepared:
                            self._log.log_rows(session.number, session.changes)
                        self._log.commit(session.number).wait()
                    with self._health.trusted():
                        self._apply(session.changes)
                    self._prepared.pop(session.prepared_as, None)
        finally:
            self._locks.release(session.locked)
        if self._checkpoints.due:
            with self._health.trusted():
                self._checkpoints.run_if_due()

    def rollback(self, session: Session) -> None:
        """Forget the session; of a prepared one the log is told."""
        try:
            if session.prepared:
                with self._gate.shared():
                    self._require_writable()
                    with self._health.trusted():
                        self._log.rollback(session.number).wait()
                    self._prepared.pop(session.prepared_as, None)
        finally:
            self._locks.release(session.locked)

    @contextmanager
    def _logging(self, session: Session) -> Iterator[None]:
        """A record that the log refuses does it no harm: a session that is not prepared is
        given up, and the store goes on."""
        try:
            yield
        except LogWriteError as error:
            if session.prepared:
                self._health.failure = error
            else:
                with self._health.trusted():
                    self._log.rollback(session.number)
            raise
        except BaseException as error:
            self._health.failure = error
            raise

    def _apply(self, changes: dict[Row, bytes | None]) -> None:
        with self._latch:
            for (table, key), row in changes.items():
                self._tables.apply(table, key, row)
                self._cache.trim()
            self._checkpoints.count(changes.values())

    # -- checkpoints and backups -----------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write changed pages in place and free what the log no longer needs. Commits wait only
        until the log has started a new section; reads hardly ever."""
        self._require_writable()
        with self._health.trusted():
            self._checkpoints.run()

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the store as of now to a new folder, while it goes on working. Meanwhile changed
        pages stay in memory; a commit that finds a checkpoint due waits for the copy's end.
        Raises what writing to ``target`` raises; the store is none the worse for that."""
        self._require_writable()
        with self._checkpoints.held():
            copy_pages(self._fs, self._cache.file, Path(target))

    def check(self) -> Sequence[Defect]:
        """Everything that is wrong with pages and trees; empty is good."""
        with self._reading():
            return check_store(self._cache, self._tables)

    # -- in doubt ---------------------------------------------------------------------------------

    def in_doubt(self) -> Sequence[InDoubt]:
        """Prepared transactions that nobody has ended: those of before the last crash, and
        those of sessions that are prepared now."""
        alive = [InDoubt(one.number, name) for name, (one, _) in list(self._prepared.items())]
        return [*self._doubtful, *alive]

    def settle(self, name: str, *, commit: bool) -> None:
        """Decide an in-doubt transaction. Once those of before the crash are all decided the
        store is writable again. Raises `KeyError` for an unknown name."""
        if name in self._prepared:
            session, _ = self._prepared[name]
            (session.commit if commit else session.rollback)()
            return
        with self._latch:
            self._health.require_open()
            if all(one.name != name for one in self._doubtful):
                raise KeyError(name)
            with self._health.trusted():
                self._log.settle(name, commit=commit).wait()
                self._doubtful = [one for one in self._doubtful if one.name != name]
                if not self._doubtful:
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
            return self._cache.meta.store_id

    def close(self) -> None:
        """Checkpoint and close; after a failure close without it. Twice is fine. In a forked
        child there is nothing to close."""
        if self._health.closed or self._health.forked:
            return
        try:
            if self._health.failure is None and not self._doubtful:
                self.checkpoint()
        finally:
            with self._latch:
                self._health.closed = True
                self._close_files()

    def _close_files(self) -> None:
        try:
            self._log.close()
        finally:
            self._cache.file.close()

    def forked(self) -> None:
        """In a forked child: nothing can be used, and no lock of a lost thread is waited for."""
        self._health.fork()
        self._make_turns()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._latch:
            self._health.require_open()
            yield
            self._trim()

    def _trim(self) -> None:
        if self._cache.is_full:
            with self._health.trusted():
                self._cache.trim()

    def _require_writable(self) -> None:
        self._health.require_open()
        if self._doubtful:
            raise IncompleteLogError(
                f"transactions are in doubt: {[one.name for one in self._doubtful]}",
                file=str(self.path),
                advice="Settle each with settle(name, commit=...); until then it is read-only",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _open_log(system: str, folder: Path, fs: FileSystem) -> UndoRedoLog:
    return open_undo_redo_log(folder, system, fs, page_size=PAGE_SIZE)
