"""Committed row changes, in commit order: inserts, updates and deletes of table rows.

In: records as `ByteRange`s in log order. Out: `Change`s at the commit of their transaction, by the
name that the table has there; where a name lost its rows without a record, a change that empties
it. What a compensation record undoes is left out; entries of indexes, the rows with which tables
describe themselves and the physical moves of rows are not changes. Memory grows with the changes
of open transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace

from tallystick.errors import CorruptLogError, LogFormatError, LogUnreadableError
from tallystick.records import Change, Fate, Kind, Outcome, Xid
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import HEADER, HEADER_SIZE, SYSTEM_NAME, Group
from tallystick.systems.derby.format.page_rows import FIELD_NONEXISTENT, Images, Row, images_of
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.names import Emptied, Names
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange

CHANGING = (
    operations.INSERT,
    operations.DELETE,
    operations.UPDATE_FIELD,
    operations.UPDATE_ROW,
)
"""Operations that change a row of a table, or an entry of an index."""


def committed_between(
    scan: LogScan,
    log: str,
    names: Names,
    after: int | None,
    until: int,
    whole_after: int | None,
) -> Iterator[Change]:
    """Yield what is committed by records that end after one instant, and not after another.

    All log files that are there are read; `read.following` reads what is needed of them.
    ``whole_after`` as for `committed`.

    Raises:
        LogUnreadableError: records after ``after``, or of these transactions, are gone.
        CorruptLogError: records are damaged.
    """
    for change in committed(joined_ranges(scan, after, until), log, names, whole_after):
        if after is None or change.commit_sequence >= after:
            yield change


def joined_ranges(
    scan: LogScan, after: int | None, until: int, ranges: Iterable[ByteRange] | None = None
) -> Iterator[ByteRange]:
    """Yield the valid ranges up to an instant; raises as `committed_between` does.

    ``ranges`` are those of the scan; valid records that are not wanted may be left out.
    """
    if after is not None:
        require_joined(scan.log.files, scan.log, after, until)
    for one in scan.ranges() if ranges is None else ranges:
        if is_damaged(one) and one.place < until:
            raise damaged(one)
        if one.outcome is Outcome.VALID and one.place + one.length <= until:
            yield one


def is_damaged(one: ByteRange) -> bool:
    """Return whether what was written is damaged, or follows damage."""
    return one.outcome is Outcome.CORRUPT or one.salvaged


def damaged(one: ByteRange) -> CorruptLogError:
    """Make the error of a range that is damaged."""
    return CorruptLogError(
        "records are damaged", file=one.file.path, offset=one.offset,
        advice="Look at the log with `tallystick explain`",
    )  # fmt: skip


def require_joined(numbers: Collection[int], files: LogFiles, after: int, until: int) -> None:
    """Check that no log file between two instants is gone.

    Args:
        numbers: of all log files.
        files: at least the file that is after that of the first instant, where it is there.
        after: the first instant.
        until: the last one; whoever reads on asks for what is missing after it.

    Raises:
        LogUnreadableError: one is gone.
    """
    number = after >> 32
    missing = [one for one in range(number, (until >> 32) + 1) if one not in numbers]
    following = files.files.get(number + 1)
    header = following.data[:HEADER_SIZE] if following is not None else b""
    # A checkpoint deletes the files before the oldest open transaction, among them one that was
    # read to its end: the header of the next file names that end.
    if missing == [number] and len(header) == HEADER_SIZE and HEADER.unpack(header)[3] == after:
        return  # it was read to its end
    if missing:
        raise LogUnreadableError(
            "records were given up before they were read",
            expected=f"log file {missing[0]} after offset {after & 0xFFFFFFFF}",
            found=f"log files {min(numbers)} to {max(numbers)}",
            advice="Read the log more often, or let the database keep its log files (log archive)",
        )  # fmt: skip


Operations = list[tuple[ByteRange, Body]]
Pending = dict[int, dict[int, tuple[ByteRange, Body]]]
"""Operations of open transactions, by number and by instant."""


def committed(
    ranges: Iterable[ByteRange],
    log: str,
    names: Names,
    whole_after: int | None = None,
    pending: Pending | None = None,
) -> Iterator[Change]:
    """Yield the changes of committed transactions; ``ordinal`` counts within each.

    ``names`` are those where the ranges begin.

    Those that commit at the instant ``whole_after`` or later must have their first record.
    ``pending`` is what is open before the ranges; the transactions in it have theirs.

    Raises:
        LogUnreadableError: one of these has not.
    """
    for done in committed_operations(ranges, whole_after, pending=pending):
        yield from changes_of(done, log, names)


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction's operations on rows.

    Attributes:
        number: that of the transaction.
        operations: those that stand.
        undone: those that it took back.
        end: its last record; None if it has not ended.
        prepared: its prepare record.
        xid: the global transaction's id.
    """

    number: int
    operations: Operations
    undone: Operations
    end: ByteRange | None = None
    prepared: ByteRange | None = None
    xid: Xid | None = None

    @property
    def commits(self) -> bool:
        """Whether it ends in a commit."""
        return bool(self.end and self.end.body and self.end.body.group & Group.COMMIT)


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed transaction's operations on rows, and its last record."""

    operations: Operations
    end: ByteRange

    @property
    def commit(self) -> int:
        """The instant of the commit."""
        return self.end.place

    @property
    def gtrid(self) -> bytes | None:
        """The global transaction's id."""
        xid = self.end.body.xid if self.end.body else None
        return xid.gtrid if xid else None


def committed_operations(
    ranges: Iterable[ByteRange],
    whole_after: int | None = None,
    wanted: Callable[[Body], bool] | None = None,
    pending: Pending | None = None,
) -> Iterator[Committed]:
    """Yield committed transactions with those of their operations on rows that are wanted.

    Raises:
        LogUnreadableError: as `committed` says.
    """
    pending = {} if pending is None else pending
    begun = set(pending)
    for one in ranges:
        body = one.body
        if body is None or body.transaction is None:
            continue
        mine = pending.setdefault(body.transaction, {})
        if body.group & Group.FIRST:
            begun.add(body.transaction)
        # What has the number without an end is of an earlier boot, which a restart has undone.
        if body.operation == operations.BEGIN:
            mine.clear()
        # A savepoint, or all, was rolled back: just the change that is named does not count.
        if body.undo is not None:
            mine.pop(body.undo, None)
        elif changes_row(body) and (wanted is None or wanted(body)):
            mine[one.place] = one, body
        if body.group & Group.LAST:
            done = pending.pop(body.transaction)
            if body.group & Group.COMMIT:
                if whole_after is not None and one.place >= whole_after:
                    _require_begun(begun, one, body.transaction)
                yield Committed([*done.values()], one)
            # Numbers are used again after a restart.
            begun.discard(body.transaction)


def changes_of(done: Committed, log: str, names: Names) -> Iterator[Change]:
    """Yield the changes of one commit; what it empties comes before the rows after that."""
    for ordinal, change in enumerate(_changes_of(done, log, names)):
        yield replace(change, commit_sequence=done.commit, ordinal=ordinal, gtrid=done.gtrid)


def _changes_of(done: Committed, log: str, names: Names) -> Iterator[Change]:
    emptied = [*names.take((body for _, body in done.operations), done.commit)]
    for one, body in done.operations:
        page: Page = body.fields["pageId"]
        if not names.is_row(page, body.fields["recordId"]):
            continue
        for what in [what for what in emptied if what.container == page.container]:
            emptied.remove(what)
            yield from emptied_by(what, done.end, log, names)
        yield raw_change(one, body, log, names)
    for what in emptied:
        yield from emptied_by(what, done.end, log, names)


def emptied_by(what: Emptied, end: ByteRange, log: str, names: Names) -> Iterator[Change]:
    """Yield what it means that a name has no rows any more from a commit on, or others."""
    gone = Change(
        SYSTEM_NAME, log, 0, 0, Kind.TRUNCATE, what.name, "", end.file.path, end.offset,
        transaction=str(end.body.transaction if end.body else ""),
    )  # fmt: skip
    yield gone
    if what.container is not None:
        for (page, record), columns in names.rows_of(what.container, end.place):
            values = {str(column): columns[column] for column in sorted(columns)}
            yield replace(gone, kind=Kind.ADD, key=f"{page}:{record}", values=values)


class EndedFeed:
    """Takes ranges, and gives transactions as they end, with their operations on rows.

    Memory grows with the changes of open transactions, those that they took back included.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}

    @property
    def open(self) -> Set[int]:
        """The numbers of the transactions that have not ended."""
        return self._open.keys()

    def take(self, one: ByteRange) -> Ended | None:
        """Take the next range; return the transaction that it ends."""
        body = one.body
        if body is None or body.transaction is None:
            return None
        if body.operation == operations.BEGIN:
            self._open.pop(body.transaction, None)
        mine = self._open.setdefault(body.transaction, _Open())
        mine.xid = body.xid or mine.xid
        if body.undo is not None:
            if (undone := mine.standing.pop(body.undo, None)) is not None:
                mine.undone.append(undone)
        elif changes_row(body):
            mine.standing[one.place] = one, body
        if body.group & Group.PREPARE:
            mine.prepared = one
        if body.group & Group.LAST:
            return self._open.pop(body.transaction).ended(body.transaction, one)
        return None

    def rest(self) -> Iterator[Ended]:
        """Yield the transactions that have not ended."""
        return (mine.ended(number, None) for number, mine in self._open.items())


def fate_of(one: Ended, lost: Container[int]) -> Fate:
    """Return what becomes of what a transaction changes.

    Args:
        one: the transaction.
        lost: the instants of the commits that a restart drops.
    """
    if one.end is None and one.prepared is not None:
        return Fate.IN_DOUBT if one.prepared.is_believed else Fate.LOST
    if one.end is None or not one.commits:
        return Fate.UNDONE
    if one.end.place in lost:
        return Fate.LOST
    return Fate.COMMITTED if one.end.is_believed else Fate.UNDONE


@dataclass(slots=True)
class _Open:
    """What is known of a transaction that has not ended."""

    standing: dict[int, tuple[ByteRange, Body]] = field(default_factory=dict)
    undone: Operations = field(default_factory=list)
    prepared: ByteRange | None = None
    xid: Xid | None = None

    def ended(self, number: int, end: ByteRange | None) -> Ended:
        """Return the transaction with its last record, if it has one."""
        # Undone is the last first.
        return Ended(
            number, [*self.standing.values()], self.undone[::-1], end, self.prepared, self.xid
        )


def _require_begun(begun: Collection[int], one: ByteRange, number: int) -> None:
    if number not in begun:
        raise LogUnreadableError(
            "the beginning of a transaction is gone", file=one.file.path, offset=one.offset,
            expected=f"the first record of transaction {number}",
        )  # fmt: skip


def changes_row(body: Body) -> bool:
    """Return whether an operation changes a row of a table; entries of indexes are none."""
    return body.operation in CHANGING and body.fields.get("undo") is None


def raw_change(one: ByteRange, body: Body, log: str, names: Names) -> Change:
    """Return what an operation on a row changes, as the log has it."""
    try:
        images = images_of(body)
    except LogFormatError:
        images = Images(after=body.optional)
    page: Page = body.fields["pageId"]
    return Change(
        SYSTEM_NAME,
        log,
        commit_sequence=0,
        ordinal=0,
        kind=_kind(body),
        collection=names.name(page.segment, page.container),
        key=f"{page.number}:{body.fields['recordId']}",
        file=one.file.path,
        offset=one.offset,
        transaction=str(body.transaction),
        before=images.before,
        after=images.after,
        values=_values(images.row_after or images.row_before),
    )


def _kind(body: Body) -> Kind:
    if body.operation == operations.DELETE and not body.fields["delete"]:
        return Kind.ADD  # a deleted row is made visible again
    return body.kind


def _values(row: Row | None) -> dict[str, bytes | None] | None:
    """Raw fields by column number from 0; columns that were not changed are left out."""
    if row is None:
        return None
    return {
        str(column): field.data
        for column, field in enumerate(row.fields, row.first_field)
        if field.status & FIELD_NONEXISTENT != FIELD_NONEXISTENT
    }
