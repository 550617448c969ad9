"""The page store: tables of rows over pages, an undo/redo log, and checkpoints.

In: transactions. Out: rows that survive a crash at any moment, all of a transaction or nothing. The
order of writes guarantees it:

    commit      rows and the commit record durable in the log, then the pages change
    page write  the page's image as of the last checkpoint durable first
    checkpoint  no commit between log and pages; a new section; changed pages written and
                synced; then the sections before it are freed
    recovery    pages back to the oldest kept section, then its committed rows again
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tallystick.arguments import flag, integer, seconds, text
from tallystick.callables import checked
from tallystick.errors import LogWriteError, UnsupportedFormatError
from tallystick.roles import (
    CATALOGUE,
    Defect,
    InDoubt,
    Role,
    TableSpace,
    UndoRedoLog,
    recovery_result,
)
from tallystick.roles.page_store_files import PAGES
from tallystick.services.page_store.checkpoint import Latches, owned_by_caller
from tallystick.services.page_store.health import Health
from tallystick.services.page_store.pages.layout import PAGE_SIZE
from tallystick.services.page_store.recovery import (
    FRESH,
    LOG_FOLDER,
    OpenLog,
    OpenStore,
    open_own_pages,
    open_paged,
    owner_of,
)
from tallystick.services.page_store.transactions import Limits, Session, Transactions
from tallystick.storage.files import FileSystem, absolute, file_system
from tallystick.storage.fork import register_in_child
from tallystick.storage.group.owned_lock import nested_call_error
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import (
    Closing,
    claim_target,
    closes,
    closing_log,
    opens_log,
    require_apart,
    writing_backup,
)
from tallystick.storage.scheduling import threading
from tallystick.storage.signals import uninterrupted
from tallystick.systems.registry import (
    NATIVE,
    open_paged_log,
    open_undo_redo_log,
    paged_file,
    paged_system_in,
    role_class,
    systems_with,
)

if TYPE_CHECKING:
    from tallystick.services.page_store.resource import PageStoreResource

_Result = TypeVar("_Result")

CACHE_BYTES = 32 << 20
CHECKPOINT_BYTES = 32 << 20
LOCK_SECONDS = 10.0


class PageStore(Closing):
    """An embedded transactional store; a context manager.

    While transactions are in doubt the store is read-only: `settle` them.

    Args:
        path: Its folder; created if missing.
        system: Whose log it uses: ``tally``, or ``h2``, which also keeps the pages. Default: the
            system of the log in the folder, ``tally`` in a new one.
        open_log: Opens the log in a folder, instead of ``system``.
        cache_bytes: Bytes of pages in memory.
        checkpoint_bytes: Bytes of committed rows, or of changed pages, between two checkpoints.
        lock_timeout: Seconds that a transaction waits for a row.
        fs: The file system.

    Raises:
        LogLockedError: It is open elsewhere.
        CorruptLogError: It cannot be recovered in full.
        UnsupportedFormatError: The folder holds a store of another system.
    """

    @opens_log
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
        self.path, fs = Path(absolute(path)), file_system(fs)
        self._opener = _opener(self.path, fs, system, checked(open_log, "open_log of a page store"))
        self._limits = Limits(
            integer(cache_bytes, "cache_bytes", 0, sys.maxsize),
            integer(checkpoint_bytes, "checkpoint_bytes", 0, sys.maxsize),
            seconds(lock_timeout, "lock_timeout"),
        )
        self._making_tables = threading.RLock()
        self._closing = threading.RLock()
        self._health = Health(str(self.path))
        self._latches = Latches(str(self.path))
        fs.mkdir(str(self.path))
        fs.sync_dir(str(self.path))  # a killed owner may not have
        self._fs = fs.hold(str(self.path))
        try:
            self._open()
        except BaseException:
            self._fs.close()
            raise
        register_in_child(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self.path)!r}{self.recovered.suffix}>"

    def _open(self) -> None:
        opened = self._opener(self.path, self._fs, self._limits.cache_bytes)
        self._opened, self._log, self._cache = opened, opened.log, opened.cache
        self._health.in_doubt = opened.in_doubt
        self.recovered = recovery_result(str(self.path), opened.log, in_doubt=len(opened.in_doubt))
        try:
            self._transactions = Transactions(opened, self._latches, self._health, self._limits)
        except BaseException:
            self._close_files()
            raise

    # -- tables and transactions ----------------------------------------------------------------

    def begin(self, *, read_only: bool = False) -> Session:
        """Begin a transaction: ``with store.begin() as tx``.

        Args:
            read_only: Only read, which is possible while transactions are in doubt too; what these
                have changed is not seen. The session ends when the last of them is settled.

        Raises:
            LogClosedError: The store is closed or has failed.
            IncompleteLogError: Transactions are in doubt, and ``read_only`` is not given.
        """
        return self._transactions.begin(read_only=read_only)

    def create_table(self, name: str) -> None:
        """Create an empty table, durably, unless it exists."""
        name = text(name, "name")
        if owned_by_caller(self._making_tables)():  # a finalizer makes one meanwhile
            raise nested_call_error(str(self.path))
        with self._making_tables:
            if name not in self.tables():
                with self.begin() as session:
                    row = (CATALOGUE, self._transactions.tables.free_id())
                    session.changes[row] = name.encode()  # `put` takes tables of callers only

    def tables(self) -> Sequence[str]:
        """Return the names of all tables, sorted."""
        return self._read(lambda tables: tables.names())

    def table_id(self, name: str) -> int:
        """Return the number of a table in the log. Raises `KeyError`."""
        return self._transactions.table_id(name)

    # -- checkpoints and backups -----------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write changed pages in place and free what the log no longer needs.

        Commits and reads wait only while the log starts a new section, and for moments while pages
        are encoded.
        """
        self._health.require_writable()
        self._transactions.checkpoints.run()

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the store as of now to a new folder, while it goes on working.

        Meanwhile changed pages stay in memory; a commit that finds a checkpoint due waits for the
        end of the copy.

        Raises:
            LogFullError: there is no space for it; the store is unharmed, here as below.
            LogWriteError: the target is not empty, is inside this store, or cannot be written.
        """
        self._health.require_writable()
        place = absolute(target)
        require_apart(place, str(self.path))

        def copy() -> None:
            folder = Path(place)
            claim_target(self._fs, place)
            with writing_backup(place):
                self._opened.copy(self._fs, folder)

        self._transactions.checkpoints.run_holding(copy)

    def check(self) -> Sequence[Defect]:
        """Return everything that is wrong with pages and trees; empty if nothing is."""
        return self._read(lambda tables: tables.check())

    # -- in doubt ---------------------------------------------------------------------------------

    def in_doubt(self) -> Sequence[InDoubt]:
        """Return prepared transactions: those of before the last crash, and those of now."""
        return [*self._health.in_doubt, *self._transactions.prepared_now()]

    def settle(self, name: str, *, commit: bool) -> None:
        """Decide a prepared transaction, durably.

        Once all transactions of before the crash are decided, the store is writable again.

        Args:
            name: As given to `Session.prepare`.
            commit: True to commit, False to roll back.

        Raises:
            KeyError: No transaction of this name is prepared.
        """
        name, commit = text(name, "name"), flag(commit, "commit")
        session, _ = self._transactions.prepared.get(name, (None, 0))
        if session is not None and session.prepared:
            session.in_branch = False
            (session.commit if commit else session.rollback)()
            return
        health = self._health
        self._latches.refuse_nested()
        with uninterrupted, self._latches.latch:
            health.require_open()
            if all(one.name != name for one in health.in_doubt):
                raise KeyError(name)
            with health.required():
                self._log.settle(name, commit=commit).wait()
                health.in_doubt = [one for one in health.in_doubt if one.name != name]
                if not health.in_doubt:
                    self._reopen()

    def _reopen(self) -> None:
        """Recover the store once nothing is in doubt any more. Called under the latch."""
        self._transactions.replaced = True
        try:
            self._close_files()
            self._open()
        except LogWriteError as error:  # elsewhere it leaves what is open as it was
            self._health.fail(error)
            raise

    def as_resource(self, name: str) -> PageStoreResource:
        """Return this store as a resource of a transaction manager, under a unique name."""
        # The manager's package is loaded only by programs that use one.
        from tallystick.services.page_store.resource import PageStoreResource

        return PageStoreResource(name, self)

    # -- life -------------------------------------------------------------------------------------

    @property
    def store_id(self) -> int:
        """A random number made with the store."""
        return self._read(lambda tables: tables.store_id)

    @closes
    def close(self) -> None:
        """Make a checkpoint and close; after a failure close without it.

        A second call does nothing, nor does one in a forked child.
        """
        if self._health.forked:
            return
        self._latches.refuse_nested()
        with self._closing:  # another thread may be at it
            if not self._health.closed:
                self._close_now()

    def _close_now(self) -> None:
        written = False
        try:
            if self._health.failure is None and not self._health.in_doubt:
                self.checkpoint()
                written = True
        finally:
            # A commit that is running ends first; one that comes later is refused.
            with uninterrupted, self._latches.gate.exclusive(), self._latches.latch:
                self._health.close()
                try:
                    self._close_files(written=written and not self._cache.logged)
                finally:
                    self._fs.close()

    def _close_files(self, *, written: bool = False) -> None:
        with closing_log(str(self.path)):
            try:
                if written:
                    self._opened.finish()
            finally:
                try:
                    self._log.close()
                finally:
                    self._cache.file.close()

    def forked(self) -> None:
        """Refuse every call in a forked child, and wait for no lock of the parent's threads."""
        self._health.fork()
        self._latches.renew()
        self._transactions.ending = threading.Lock()
        self._making_tables = threading.RLock()

    def _read(self, what: Callable[[TableSpace], _Result]) -> _Result:
        self._latches.refuse_nested()
        with self._latches.latch:
            self._health.require_open()
            result = what(self._transactions.tables)
            self._transactions.trim()
            return result


def is_store(path: Path, fs: FileSystem = LOCAL) -> bool:
    """Tell whether opening a store in a folder finds something there; nothing is written."""
    own = any(fs.exists(str(path / name)) for name in (PAGES, FRESH))
    return own or bool(fs.list(str(path / LOG_FOLDER))) or paged_system_in(path, fs) is not None


def _opener(
    path: Path, fs: FileSystem, system: str | None, open_log: OpenLog | None
) -> Callable[[Path, FileSystem, int], OpenStore]:
    """Return what opens the store in a folder, given the bytes of pages in memory."""
    found = paged_system_in(path, fs)
    if found is not None and (open_log is not None or system not in (None, found)):
        raise UnsupportedFormatError(
            "there is a page store of another system",
            file=paged_file(found, path),
            expected=system or "none",
            found=found,
        )
    chosen = system or found or NATIVE
    if open_log is None and chosen in systems_with(Role.PAGED_LOG):
        return partial(_open_paged, chosen)
    if open_log is None:
        role_class(Role.UNDO_REDO_LOG, chosen)  # there is one, before a folder is made
    return partial(_open_own_pages, open_log or partial(_open_log, chosen))


def _open_paged(system: str, path: Path, fs: FileSystem, cache_bytes: int) -> OpenStore:
    return open_paged(path, fs, partial(open_paged_log, system), cache_bytes)


def _open_own_pages(open_log: OpenLog, path: Path, fs: FileSystem, cache_bytes: int) -> OpenStore:
    return open_own_pages(path, fs, open_log, cache_bytes)


def _open_log(system: str, folder: Path, fs: FileSystem) -> UndoRedoLog:
    owner = owner_of(folder.parent, fs)
    return open_undo_redo_log(folder, system, fs, page_size=PAGE_SIZE, owner=owner)
