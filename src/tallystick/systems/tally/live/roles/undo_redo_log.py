"""The native log as an undo/redo log: page images once per section, rows, in-doubt work.

In: the calls of `tallystick.roles.UndoRedoLog`. Out: records submitted to the log; at recovery,
calls of a `RecoveryHandler`. A section lies between two checkpoint records; its id is the LSN of
the record that begins it, 0 for the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tallystick.arguments import integer, text
from tallystick.errors import LogWriteError, TransactionUsageError
from tallystick.roles import InDoubt, RecoveryHandler, Role, Ticket, branch_of, checked_rows
from tallystick.systems.tally.format.bodies import TABLE_MAX, TABLE_MIN, decode_row, encode_row
from tallystick.systems.tally.format.columns import Row, UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import (
    ROW_BYTES,
    Bundle,
    CommittedRows,
    UnplacedEnding,
    cuts,
    row_record,
    size_of,
    size_of_rows,
    transaction_number,
)
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.read_back import rows_from
from tallystick.systems.tally.live.roles.base import TallyRole

_ROWS = (Code.REDO_ADD, Code.REDO_REMOVE, Code.TRUNCATE)
_ENDED_MIN = 64
"""Sessions that have ended, from which on those are looked for that need not be noted."""


class TallyUndoRedoLog(TallyRole[TallyLog]):
    """Undo images, redo rows and in-doubt transactions in one native log.

    Sessions that were open when the log was last closed, and had not prepared, are rolled back. The
    number of one that is in doubt is refused (`TransactionUsageError`) until it is decided.
    """

    role = Role.UNDO_REDO_LOG

    def _load(self) -> None:
        self.roll_back_open()
        self._left = {one.session for one in self.in_doubt()}
        """Sessions in doubt that an earlier owner of the log has left."""
        self._unprepared: dict[int, int] = {}
        """Sessions that have logged rows, and not prepared, with the section of their first row."""
        self._ended: dict[int, tuple[int, Ticket]] = {}
        """Those whose prepare or commit was submitted since, with the section, and its ticket: the
        log may have refused it."""
        self._ended_max = _ENDED_MIN
        self._section = self.log.checkpoint_lsn
        self._pages: set[int] = set()
        """The pages of which the last section has an image."""
        self._marks: list[int] = []
        for row in self._kept_rows():
            if row.record.code == Code.CHECKPOINT:
                self._pages.clear()
                self._section = row.lsn
                self._marks.append(row.record.key or 0)
            elif _is_undo(row):
                self._pages.add(row.record.key or 0)

    @property
    def sealed(self) -> bool:
        """Whether the log is encrypted."""
        return self.log.key is not None

    @property
    def row_max(self) -> int:
        """The size in bytes of the longest row that fits in a segment."""
        return self.log.capacity - ROW_BYTES

    def _session(self, session: int) -> int:
        """Return the number of a session.

        Raises:
            TransactionUsageError: it is that of one in doubt, whose rows would be decided with it.
        """
        number = transaction_number(session)
        if number in self._left and any(one.session == number for one in self.in_doubt()):
            raise TransactionUsageError(
                f"session {number} is in doubt since before the log was opened",
                file=self.log.path,
                advice="Decide it by its name with settle, or take another number",
            )
        return number

    def _kept_rows(self) -> Iterator[Row]:
        self.log.flush()
        return rows_from(self.log, lsn=self.log.checkpoint_lsn)

    # -- logging ------------------------------------------------------------------------

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Log the page's image as of the last checkpoint, unless this section has it."""
        if page in self._pages:
            return
        code, body = (Code.UNDO_EMPTY, b"") if image is None else (Code.UNDO, image)
        self.log.submit(UnplacedRecord(code, body, None, page), sync=False)
        self._pages.add(page)

    def has_undo(self, page: int) -> bool:
        """Return True if this section holds an image of the page already."""
        return page in self._pages

    def log_row(self, session: int, table: int, key: int, row: bytes | None) -> None:
        """Log an added row, or with None a removed one."""
        self.log_rows(session, {(table, key): row})

    def log_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log changed rows by table and key, in order, in as few groups as possible."""
        own = self._session(session)
        self.log.refusals.require_room()
        self._unprepared.setdefault(own, self._section)
        records = [row_record(own, *place, row) for place, row in checked_rows(rows).items()]
        for start, stop in cuts(list(map(size_of, records)), self.log.group_bytes):
            self.log.submit(Bundle(tuple(records[start:stop])), sync=False)

    def commit_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log rows and commit their session, durably: in one group, if they fit."""
        rows = checked_rows(rows)
        size = size_of_rows(rows)
        if size <= self.log.group_bytes:
            self.log.commit(CommittedRows(self._session(session), rows, size), size)
            return
        self.log_rows(session, rows)
        since = self._unprepared[session]
        try:
            self.commit(session).wait()
        except LogWriteError:
            self._unprepared[session] = since  # its rows may be in the log
            raise

    def log_truncate(self, session: int, table: int) -> None:
        """Log that all rows of the table are removed."""
        body = encode_row(integer(table, "table", TABLE_MIN, TABLE_MAX))
        self._unprepared.setdefault(self._session(session), self._section)
        self.log.submit(UnplacedRecord(Code.TRUNCATE, body, session), sync=False)

    def prepare_commit(self, session: int, name: str) -> Ticket:
        """Record durably that the session's transaction can commit, under this name."""
        name = text(name, "name")
        number = self._session(session)
        ending = UnplacedEnding(Code.PREPARE, number, branch_of(name), name.encode())
        return self._end(number, self.log.submit(ending))

    def commit(self, session: int) -> Ticket:
        """Commit what the session has logged since it last ended."""
        return self._commit(self._session(session))

    def _commit(self, session: int) -> Ticket:
        return self._end(session, self.log.submit(UnplacedEnding(Code.COMMIT, session)))

    def _end(self, session: int, ticket: Ticket) -> Ticket:
        """Note the prepare or commit of a session; return its ticket."""
        before, since = self._ended.get(session), self._unprepared.pop(session, None)
        if before is not None and not _is_written(before[1]):
            since = before[0] if since is None else min(before[0], since)
        if since is not None:
            self._ended[session] = since, ticket
            if len(self._ended) > self._ended_max:
                self._forget_written()
        return ticket

    def _forget_written(self) -> None:
        """Forget the ends that are durable, each of which keeps its group in memory."""
        for session, noted in list(self._ended.items()):
            if _is_written(noted[1]) and self._ended.get(session) is noted:
                self._ended.pop(session, None)
        self._ended_max = max(_ENDED_MIN, 2 * len(self._ended))

    def rollback(self, session: int) -> Ticket:
        """Give up what the session has logged since it last ended."""
        return self._rollback(self._session(session))

    def _rollback(self, session: int) -> Ticket:
        record = UnplacedRecord(Code.ROLLBACK, b"", session)
        if session not in self._unprepared:
            return self.log.submit(record)
        self._unprepared.pop(session, None)
        return self.log.submit(Bundle((record,)))  # owed where it is refused

    def flush(self) -> Ticket:
        """Return a ticket for everything logged so far."""
        return self.log.barrier()

    # -- sections -----------------------------------------------------------------------

    def checkpoint(self, mark: int = 0) -> int:
        """Start a new section; return its id. Every changed page must be written before."""
        section = self.log.submit(UnplacedRecord(Code.CHECKPOINT, key=mark or None)).wait()
        self._pages.clear()
        self._section = section
        return section

    def marks(self) -> Sequence[int]:
        """Return the marks of the kept sections of earlier runs, in order; 0 for one without."""
        return self._marks

    def remove_until(self, section: int) -> None:
        """Free what lies before that section; nothing while a transaction is in doubt.

        Sections with rows of open sessions stay.
        """
        with self.log.state() as state:
            if any(one.ending is not None for one in state.open.values()):
                return
            opened = set(state.open)
        self._forget_written()
        for session in list(self._ended):
            if session not in opened:
                self._ended.pop(session, None)
        refused = [since for since, _ in self._ended.copy().values()]
        self.log.reclaim(min([section, *self._unprepared.copy().values(), *refused]))

    # -- recovery -----------------------------------------------------------------------

    def recover(self, handler: RecoveryHandler) -> None:
        """Restore the first image of each page, then redo what committed, in commit order.

        The rows of a transaction are kept in memory until its end.
        """
        seen: set[int] = set()
        for row in self._kept_rows():
            page = row.record.key or 0
            if _is_undo(row) and page not in seen:
                seen.add(page)
                empty = row.record.code == Code.UNDO_EMPTY
                handler.undo_page(page, None if empty else row.record.body)
        waiting: dict[int, list[UnplacedRecord]] = {}
        for row in self._kept_rows():
            record = row.record
            if record.transaction is None:
                continue
            if record.code in _ROWS:
                waiting.setdefault(record.transaction, []).append(record)
            elif record.code in (Code.COMMIT, Code.ROLLBACK):
                rows = waiting.pop(record.transaction, [])
                for one in rows if record.code == Code.COMMIT else ():
                    _redo(handler, one)

    def in_doubt(self) -> Sequence[InDoubt]:
        """Return prepared transactions that are not decided."""
        with self.log.state() as state:
            return [
                InDoubt(session, one.ending.extra.decode("utf-8", "replace"))
                for session, one in state.open.items()
                if one.ending is not None
            ]

    def settle(self, name: str, *, commit: bool) -> Ticket:
        """Decide an in-doubt transaction durably.

        Raises:
            KeyError: no transaction of that name is in doubt.
        """
        session = {one.name: one.session for one in self.in_doubt()}[name]
        return self._commit(session) if commit else self._rollback(session)


def _is_written(ticket: Ticket) -> bool:
    """Return True once an item is durable, False if it is not yet, or was refused."""
    try:
        return ticket.done() and ticket.wait() > 0
    except LogWriteError:
        return False


def _is_undo(row: Row) -> bool:
    return row.record.code in (Code.UNDO, Code.UNDO_EMPTY)


def _redo(handler: RecoveryHandler, record: UnplacedRecord) -> None:
    table, row = decode_row(record.body)
    if record.code == Code.TRUNCATE:
        handler.redo_truncate(table)
    elif record.code == Code.REDO_ADD:
        handler.redo_add(table, record.key or 0, row)
    else:
        handler.redo_remove(table, record.key or 0)
