"""The H2 page log as an undo/redo log (`tallystick.roles.UndoRedoLog`).

In: the role's calls. Out: `H2UndoRedoLog`, for a store that keeps its pages elsewhere: a folder
with ``log.h2.db``, holding nothing but the log. `tallystick.systems.h2.database.paged_log` is for
one with its pages in the same file; both are a `SessionLog`. Every transaction gets a session
number of its own in the log, so that the engine's rule "everything before the last commit of a
session is committed" holds for sessions of the caller that roll back and go on. When a log is
opened again, all of its records are copied to a fresh log before anything is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.arguments import bytes_of, text
from tallystick.errors import RecordTooLargeError
from tallystick.roles import InDoubt, RecoveryHandler, Ticket, checked_rows
from tallystick.storage.files import SECTOR, FileSystem
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import closes, opens_log
from tallystick.storage.signals import uninterrupted
from tallystick.systems.h2.engine.recovery import REDO_STAGE, UNDO_STAGE
from tallystick.systems.h2.format.entries import encode_prepare
from tallystick.systems.h2.format.layout import DATA_START, PAGE_SIZE_DEFAULT
from tallystick.systems.h2.format.numbers import INT_MAX
from tallystick.systems.h2.format.values.encode import pack, unpack
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PagedInDoubt, PageLog, int_of
from tallystick.systems.h2.read.scan import whole_entries

FILE = "log.h2.db"
BATCH_PAGES = 255
"""Data pages per trunk: 1 MB of 4096-byte pages."""
FIRST_SESSION = 3
"""0 to 2 are the engine's own sessions."""
_ID_BYTES_MAX = 5


class SessionLog(Uncopied):
    """The calls of the role on a `PageLog`, rows and pages aside.

    Sessions that were active when the log was last open, and had not prepared, are rolled back.
    """

    sealed = False
    """The format has no encryption."""
    row_max = INT_MAX
    """Lengths are signed 32-bit integers."""

    def __init__(self, store: PageStoreFile, log: PageLog) -> None:
        self._store = store
        self._log = log
        self._mutex = OwnedLock(nested_call_error)
        self._sessions: dict[int, int] = {}
        self._next = FIRST_SESSION

    def _begin(self) -> None:
        """Copy the records to a fresh log."""
        found = self._sessions_in_log()
        self._next = 1 + max(found, default=FIRST_SESSION - 1)
        self._log.open_for_writing(carry=True)
        self._forget_open(found)

    def _sessions_in_log(self) -> set[int]:
        entries = whole_entries(self._log.open_for_reading())
        return {one.session for one in entries if one.session >= FIRST_SESSION}

    def _forget_open(self, sessions: set[int]) -> None:
        in_doubt = {one.session for one in self._log.get_in_doubt_transactions()}
        for session in sessions - in_doubt:
            self._log.forget(session)

    def _session(self, session: int) -> int:
        """Return the number that a session of the caller has in the log for its transaction."""
        session = int_of(session, "session")
        with uninterrupted, self._mutex:
            if session not in self._sessions:
                self._sessions[session] = self._next
                self._next += 1
            return self._sessions[session]

    def _end(self, session: int) -> int:
        """Return the number as `_session` does; the next transaction gets another one."""
        session = int_of(session, "session")
        number = self._session(session)
        with uninterrupted, self._mutex:
            del self._sessions[session]
        return number

    # -- logging --------------------------------------------------------------------------

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Log the page's image as of the last checkpoint, unless this section has it."""
        self._log.add_undo(page, image)

    def has_undo(self, page: int) -> bool:
        """Return True if this section has an image of the page."""
        return self._log.get_undo(page)

    def log_truncate(self, session: int, table: int) -> None:
        """Log that all rows of the table are removed."""
        self._log.log_truncate(self._session(session), table)

    def prepare_commit(self, session: int, name: str) -> Ticket:
        """Record durably that the session's transaction can commit, under this name.

        Raises:
            RecordTooLargeError: the name does not fit into a sector; its decision is written over
                the record and must not tear.
        """
        record = encode_prepare(FIRST_SESSION, text(name, "name"))
        if len(record) + _ID_BYTES_MAX > SECTOR - DATA_START:
            raise RecordTooLargeError(
                "transaction name (too long)",
                file=self._store.path,
                expected=f"at most {SECTOR - DATA_START - _ID_BYTES_MAX} bytes as a record",
                found=str(len(record)),
            )
        return self._log.prepare_commit(self._session(session), name)

    def commit(self, session: int) -> Ticket:
        """Commit what the session has logged since it last ended."""
        return self._log.commit(self._end(session))

    def rollback(self, session: int) -> Ticket:
        """Roll back what the session has logged since it last ended."""
        number = self._end(session)
        while (one := self._in_doubt(number)) is not None:
            self._log.set_in_doubt_transaction_state(number, one.page, commit=False)
        self._log.forget(number)
        return self._log.flush()

    def flush(self) -> Ticket:
        """Make everything logged so far durable; wait for it before a page is written in place."""
        return self._log.flush()

    # -- sections -------------------------------------------------------------------------

    def checkpoint(self, mark: int = 0) -> int:  # noqa: ARG002 - no place for it
        """Start a new section and return its id; every changed page must be written before."""
        with uninterrupted, self._mutex:
            ticket = self._log.checkpoint()
            section = self._log.log_section_id
        ticket.wait()
        return section

    def marks(self) -> Sequence[int]:
        """Return nothing: checkpoints of the format have no place for a mark."""
        return ()

    def remove_until(self, section: int) -> None:
        """Free what lies before that section; sections with open or prepared sessions stay."""
        self._log.remove_until(section)

    # -- in doubt -------------------------------------------------------------------------

    def in_doubt(self) -> Sequence[InDoubt]:
        """Return prepared transactions that are not decided."""
        return self._log.get_in_doubt_transactions()

    def settle(self, name: str, *, commit: bool) -> Ticket:
        """Decide an in-doubt transaction durably.

        Raises:
            KeyError: no transaction in doubt has this name.
        """
        found = {one.name: one.session for one in self._log.get_in_doubt_transactions()}[name]
        one = self._in_doubt(found)
        if one is None:  # another thread has decided it
            raise KeyError(name)
        self._log.set_in_doubt_transaction_state(one.session, one.page, commit=commit)
        # One of this run: its next commit must not be that of these rows.
        with uninterrupted, self._mutex:
            for session in [key for key, number in self._sessions.items() if number == found]:
                del self._sessions[session]
        return self._log.flush()

    def _in_doubt(self, number: int) -> PagedInDoubt | None:
        """Return the session of that number if it is in doubt, with the page of its prepare."""
        for one in self._log.get_in_doubt_transactions():
            if one.session == number:
                if one.page:
                    return one
                self._log.flush().wait()  # the page is known once the record is written
                return self._in_doubt(number)
        return None

    @closes
    def close(self) -> None:
        """Make everything durable and close; what was logged stays in the file."""
        try:
            self._log.close()
        finally:
            self._store.close()


class H2UndoRedoLog(SessionLog):
    """An undo/redo log in a folder, for a store that keeps its pages elsewhere.

    Args:
        path: the folder, created if it does not exist.
        page_size: exact size of undo images in bytes, for a new log.
        batch: data pages that are allocated at a time.
        fs: the file system.
    """

    @opens_log
    def __init__(
        self,
        path: str,
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        batch: int = BATCH_PAGES,
        fs: FileSystem = LOCAL,
    ) -> None:
        fs.mkdir(path)
        file = f"{path}/{FILE}"
        if fs.exists(file):
            store = PageStoreFile(file, fs=fs)
        else:
            store = PageStoreFile.create(file, page_size=page_size, fs=fs)
        super().__init__(store, PageLog(store, batch=batch, own_pages=False))
        try:
            self._begin()
        except BaseException:
            store.close()
            raise

    def log_row(self, session: int, table: int, key: int, row: bytes | None) -> None:
        """Log an added row, or with None a removed one."""
        packed = None if row is None else pack(bytes_of(row, "row"))
        self._log.log_add_or_remove_row(self._session(session), table, key, packed)

    def log_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log changed rows by table and key, in order."""
        rows = checked_rows(rows)
        number = self._session(session)
        for (table, key), row in rows.items():
            packed = None if row is None else pack(row)
            self._log.log_add_or_remove_row(number, table, key, packed)

    def commit_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log rows and commit their session; return when both are durable."""
        self.log_rows(session, rows)
        self.commit(session).wait()

    def recover(self, handler: RecoveryHandler) -> None:
        """Run all stages, in order; idempotent, and may be interrupted at any step."""
        self._log.flush().wait()
        self._log.open_for_reading()
        unpacking = _Unpacking(handler)
        for stage in (UNDO_STAGE, REDO_STAGE):
            self._log.recover(stage, unpacking)
        self._log.recover_end()


class _Unpacking:
    """Handler that passes rows on as the caller logged them."""

    def __init__(self, handler: RecoveryHandler) -> None:
        self.undo_page = handler.undo_page
        self.redo_remove = handler.redo_remove
        self.redo_truncate = handler.redo_truncate
        self._add = handler.redo_add

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        self._add(table, key, unpack(row))
