"""Which changes of plain records are committed, and in which order.

In: chunks of records in log order. Out: columns of the changes that they commit. What open
transactions have changed is kept, in columns too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.neighbours import among, ordinals, starts_of
from tallystick.systems.derby.format import layout, operations
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    PREFIX,
    Group,
    make_instant,
    read_envelope,
    split_instant,
)
from tallystick.systems.derby.format.record_body import Body, decode_body
from tallystick.systems.derby.read import changes as objects
from tallystick.systems.derby.read.catalogue import NAMING
from tallystick.systems.derby.read.changes import CHANGING, Pending
from tallystick.systems.derby.read.containers import CONTROL_ROW
from tallystick.systems.derby.read.files import LogBytes, LogFiles, previous_end
from tallystick.systems.derby.read.names import Names
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.runs import images, walk
from tallystick.systems.derby.runs.chunk import ROWS, Chunk, Column, Runs, plain_range, xid_at
from tallystick.systems.derby.runs.pieces import Piece, file_pieces, pieces_to_odd

_KEPT = (
    walk.OFFSET,
    walk.LENGTH,
    walk.TRANSACTION,
    walk.OPERATION,
    walk.SEGMENT,
    walk.CONTAINER,
    walk.PAGE,
    walk.RECORD_ID,
    walk.FLAG,
    walk.TAIL,
    walk.TAIL_LENGTH,
)
"""Columns that are kept of a change until its transaction ends; of its offset, the instant."""
(
    KEPT_PLACE,
    KEPT_LENGTH,
    KEPT_TRANSACTION,
    KEPT_OPERATION,
    KEPT_SEGMENT,
    KEPT_CONTAINER,
    KEPT_PAGE,
    KEPT_RECORD_ID,
    KEPT_FLAG,
    KEPT_TAIL,
    KEPT_TAIL_LENGTH,
) = range(len(_KEPT))
_OF_RANGES = [
    walk.OFFSET,
    walk.LENGTH,
    walk.GROUP,
    walk.TRANSACTION,
    walk.OPERATION,
    walk.LOGICAL_UNDO,
    walk.UNDO,
]
_UNDONE = -1
"""In place of the operation of a kept change."""
_COMPENSATION, _LAST, _COMMIT = int(Group.COMPENSATION), int(Group.LAST), int(Group.COMMIT)


def rows_of_commits(scan: LogScan, runs: Runs, places: Collection[int]) -> int:
    """Return how many changes of rows the records at these instants commit."""
    feed = ChangeFeed()
    every = (piece for number in scan.log.files for piece in file_pieces(scan.file(number), runs))
    count = 0
    for chunk in _all_in_chunks(every):
        done = feed.take(chunk)
        count += int(among(done.commits, places)[done.group].sum())
    return count


def _all_in_chunks(pieces: Iterable[Piece]) -> Iterator[Chunk]:
    for plain, group in groupby(pieces, lambda one: isinstance(one, Chunk)):
        if plain:
            yield from (one for one in group if isinstance(one, Chunk))
            continue
        ranges = (one for one in group if isinstance(one, ByteRange))
        for _, of_file in groupby(ranges, lambda one: one.file.number):
            while some := list(islice(of_file, ROWS)):
                yield _of_ranges(some)


def _of_ranges(ranges: list[ByteRange]) -> Chunk:
    """Return the records of a file that the walk does not take, with what a `ChangeFeed` needs."""
    rows = []
    for one in ranges:
        body = one.body
        if body is not None and body.transaction is not None and one.envelope is not None:
            place = one.offset, one.envelope.length, int(body.group), body.transaction
            entry = layout.NULL if body.fields.get("undo") is None else layout.LOGICAL_UNDO_BTREE
            undo = -1 if body.undo is None else body.undo
            rows.append((*place, body.operation, entry, undo))
    columns = np.full((walk.BODY_COLUMNS, len(rows)), -1, np.int64)
    # Reshaped, because the array of no rows has one dimension.
    columns[_OF_RANGES, :] = np.array(rows, np.int64).reshape(-1, len(_OF_RANGES)).T
    return Chunk(ranges[0].file, np.empty(0, np.uint8), columns, {})


def ranges_on(
    runs: Runs, scan: LogScan, containers: Collection[int], commits: Collection[int]
) -> Iterator[ByteRange]:
    """Yield what tells of changes of containers in runs, and all ranges after a run.

    Args:
        runs: of the log.
        scan: of the log.
        containers: numbers of containers of the first segment.
        commits: instants of records that are wanted whatever they commit.
    """
    chosen = _Chosen(containers, commits)
    for piece in pieces_to_odd(scan, runs):
        if isinstance(piece, ByteRange):
            yield piece
        elif isinstance(piece, Chunk):
            for row in chosen.rows(piece).tolist():
                yield piece.range(row, scan)
        else:
            yield from piece


class _Chosen:
    """Chooses records that change containers, and those that begin, end or undo such a change."""

    def __init__(self, containers: Collection[int], commits: Collection[int]) -> None:
        self._containers = np.array([*containers], np.int64)
        self._commits = np.array([*commits], np.int64)
        self._open = np.empty(0, np.int64)
        """The transactions that have changed them and are open."""

    def rows(self, chunk: Chunk) -> Column:
        """Return the rows of the next chunk that are chosen."""
        transaction, group = chunk.columns[walk.TRANSACTION], chunk.columns[walk.GROUP]
        on = np.isin(chunk.columns[walk.CONTAINER], self._containers) & (
            chunk.columns[walk.SEGMENT] == 0
        )
        turns = chunk.columns[walk.OPERATION] == operations.BEGIN
        turns |= group & (_LAST | _COMPENSATION) != 0
        numbers = np.union1d(self._open, transaction[on])
        chosen = on | (turns & np.isin(transaction, numbers))
        self._open = np.setdiff1d(numbers, _ended(transaction, group, np.flatnonzero(chosen)))
        found: Column = np.flatnonzero(chosen | np.isin(chunk.instants, self._commits))
        return found


def _ended(transaction: Column, group: Column, rows: Column) -> Column:
    """Return the transactions of which the last of these rows is their end."""
    # `unique` returns the place of the first occurrence: reversed, that of the last row.
    rows = rows[::-1]
    numbers, last = np.unique(transaction[rows], return_index=True)
    ended: Column = numbers[group[rows[last]] & _LAST != 0]
    return ended


def open_at(runs: Runs, begin: int, end: int, numbers: Collection[int]) -> tuple[Pending, int]:
    """Return what transactions have changed between two instants, as far as plain records go.

    Args:
        runs: of a log whose files are one chain from the one instant to the other.
        begin: the instant of a record.
        end: the instant at which a later record ends.
        numbers: the transactions that are wanted.

    Returns:
        The changes, and the instant after the last record that was taken.
    """
    feed, place = ChangeFeed(), begin
    for file, position, stop in _parts(runs.log, begin, end):
        for chunk in runs.chunks(file, position, stop):
            feed.take(chunk)
            position = chunk.end
        place = make_instant(file.number, position)
        if position != stop:
            break
    return feed.pending(runs.log, numbers), place


def _parts(log: LogFiles, begin: int, end: int) -> Iterator[tuple[LogBytes, int, int]]:
    """Yield the files between two instants, each with the offsets of its stretch between them."""
    (first, position), (last, stop) = split_instant(begin), split_instant(end)
    for number in range(first, last):
        yield log.files[number], position, split_instant(previous_end(log.files[number + 1]))[1]
        position = HEADER_SIZE
    yield log.files[last], position, stop


@dataclass(frozen=True, slots=True)
class Committed:
    """Changes in commit order.

    Attributes:
        columns: one for each of `_KEPT`.
        group: which commit each belongs to; ``commits`` and ``gtrids`` have an item for each.
        ordinal: its number within the commit.
    """

    columns: walk.Columns
    group: Column
    ordinal: Column
    commits: Column
    gtrids: list[bytes | None]

    def of_files(self) -> Iterator[tuple[int, int, int]]:
        """Yield file number, begin and end of each range of rows that lie in one file."""
        files = self.columns[KEPT_PLACE] >> 32
        for begin, end in pairwise([*starts_of(files).tolist(), files.size]):
            yield int(files[begin]), begin, end

    def by_names(self) -> Iterator[tuple[Committed, bool]]:
        """Yield the commits in parts, and whether a part is one that changes names of tables."""
        naming = np.isin(self.columns[KEPT_CONTAINER], NAMING) & (self.columns[KEPT_SEGMENT] == 0)
        begin = 0
        for group in np.unique(self.group[naming]).tolist():
            # The groups rise, so the rows of one lie between it and the next number.
            first, last = np.searchsorted(self.group, (group, group + 1)).tolist()
            yield self.of(slice(begin, first)), False
            yield self.of(slice(first, last)), True
            begin = last
        yield self.of(slice(begin, self.group.size)), False

    def of(self, part: slice | Column) -> Committed:
        """Return some of the changes, with the numbers that they have."""
        return replace(
            self, columns=self.columns[:, part], group=self.group[part], ordinal=self.ordinal[part]
        )

    def numbered(self) -> Committed:
        """Return the changes with numbers in the order in which they are."""
        return replace(self, ordinal=ordinals(self.group))

    def of_rows(self, names: Names) -> Committed:
        """Return those of them that are rows, as `Names.is_row` says."""
        page, record = CONTROL_ROW
        container = self.columns[KEPT_CONTAINER]
        # The first row of a table describes the table itself, and no SELECT shows it.
        others = (self.columns[KEPT_PAGE] == page) & (self.columns[KEPT_RECORD_ID] == record)
        others &= np.isin(container, [*names.tables])
        others |= np.isin(container, [*names.indexes]) & ~np.isin(container, [*names.tables])
        others &= self.columns[KEPT_SEGMENT] == 0
        if not others.any():
            return self
        return self.of(np.flatnonzero(~others)).numbered()

    def as_object(self, log: LogFiles) -> objects.Committed:
        """Return the changes of one commit as objects."""
        kept = self.columns[[KEPT_PLACE, KEPT_LENGTH]].T.tolist()
        commit = int(self.commits[self.group[0]])
        number, offset = split_instant(commit)
        end = read_envelope(log.files[number].data, offset)
        assert end is not None  # a run has it
        found = [_object(log, *one) for one in kept]
        return objects.Committed(found, _object(log, commit, end.length)[0])


class ChangeFeed:
    """Takes records in log order, and gives the changes that they commit."""

    def __init__(self) -> None:
        self._open: dict[int, list[walk.Columns]] = {}
        """Changes of open transactions, in parts."""

    def take(self, chunk: Chunk) -> Committed:
        """Take the next records; return the changes that they commit."""
        records, rows = _records(chunk)
        commits, undoing = np.empty(rows.size, np.int64), np.empty(rows.size, np.bool_)
        images.settle(records, commits, undoing)
        # What was kept of earlier chunks comes first: `_in_order` sorts stably, and so leaves it in
        # front of what the same commit has changed here.
        pieces, ends = self._settled(records, rows, undoing)
        ended = commits >= 0
        pieces.append(_kept(chunk, rows[ended]))
        ends.append(rows[commits[ended]])
        # Last: `_settled` looks at what was open before this chunk.
        self._keep(chunk, rows[commits == images.PENDING])
        return _in_order(chunk, np.concatenate(pieces, axis=1), np.concatenate(ends))

    def pending(self, log: LogFiles, numbers: Collection[int] | None = None) -> Pending:
        """Return the changes of open transactions, all or those of the numbers, as objects."""
        found: Pending = {}
        for number, parts in self._open.items():
            if numbers is not None and number not in numbers:
                continue
            kept = [
                one for part in parts for one in part.T.tolist() if one[KEPT_OPERATION] != _UNDONE
            ]
            found[number] = {
                one[KEPT_PLACE]: _object(log, one[KEPT_PLACE], one[KEPT_LENGTH]) for one in kept
            }
        return found

    def _settled(
        self, records: walk.Columns, rows: Column, undoing: NDArray[np.bool_]
    ) -> tuple[list[walk.Columns], list[Column]]:
        """Settle what was open before; return what is committed, and the rows that commit it."""
        pieces: list[walk.Columns] = []
        ends: list[Column] = []
        known = np.array(list(self._open), np.int64)
        numbers = records[images.TRANSACTION]
        # `_records` sorts by transaction, so those of one number are neighbours.
        begins = np.searchsorted(numbers, known)
        after = np.searchsorted(numbers, known, "right")
        for number, begin, end in zip(known.tolist(), begins.tolist(), after.tolist(), strict=True):
            mine = records[:, begin:end]
            self._undo(number, mine[images.UNDO, undoing[begin:end]])
            stop = _first_end(mine)
            if stop is None:
                continue
            # A begin record of its number ends it, too: a boot was between, which has undone it.
            kept = self._open.pop(number)
            if _commits(mine[:, stop]):
                pieces += kept
                ends += [np.full(part.shape[1], rows[begin + stop]) for part in kept]
        return pieces, ends

    def _undo(self, number: int, places: Column) -> None:
        """Mark the changes at these instants as undone."""
        places = np.sort(places)
        for part in self._open[number] if places.size else ():
            # Parts are in log order, so only places between its first and its last can be in one.
            begin, end = np.searchsorted(places, part[KEPT_PLACE, [0, -1]])
            wanted = places[begin : end + 1]
            at = np.minimum(np.searchsorted(part[KEPT_PLACE], wanted), part.shape[1] - 1)
            part[KEPT_OPERATION, at[part[KEPT_PLACE, at] == wanted]] = _UNDONE

    def _keep(self, chunk: Chunk, rows: Column) -> None:
        if not rows.size:
            return
        kept = _kept(chunk, rows)
        numbers = kept[KEPT_TRANSACTION]
        for begin, end in pairwise([*starts_of(numbers).tolist(), numbers.size]):
            # Copied: a view would keep the columns of the whole chunk for one open transaction.
            self._open.setdefault(int(numbers[begin]), []).append(kept[:, begin:end].copy())


def _records(chunk: Chunk) -> tuple[walk.Columns, Column]:
    """Return the columns that `images.settle` takes, and the row of the chunk for each of them."""
    rows = chunk.by_transaction()
    columns = chunk.columns[:, rows]
    operation, group = columns[walk.OPERATION], columns[walk.GROUP]
    changes = np.isin(operation, CHANGING) & (group & _COMPENSATION == 0)
    # -1 is no such field, and null is that of a table's row: with a logical undo it is an index
    # row.
    changes &= columns[walk.LOGICAL_UNDO] <= layout.NULL
    found = (columns[walk.TRANSACTION], group, operation, chunk.instants[rows], columns[walk.UNDO])
    return np.stack([*found, changes.astype(np.int64)]), rows


def _first_end(records: walk.Columns) -> int | None:
    """Return which record of a transaction ends it, or begins it anew, if one does."""
    ends = records[images.OPERATION] == operations.BEGIN
    ends |= records[images.GROUP] & _LAST != 0
    found = np.flatnonzero(ends)
    return int(found[0]) if found.size else None


def _commits(record: Column) -> bool:
    begins = record[images.OPERATION] == operations.BEGIN
    return bool(not begins and record[images.GROUP] & _COMMIT)


def _kept(chunk: Chunk, rows: Column) -> walk.Columns:
    # Both at once: to choose the columns first would copy each of them whole.
    columns: walk.Columns = chunk.columns[np.array(_KEPT)[:, None], rows]
    # An offset has fewer than 32 bits, so this makes an instant of it.
    columns[KEPT_PLACE] |= make_instant(chunk.file.number, 0)
    return columns


def _in_order(chunk: Chunk, columns: walk.Columns, ends: Column) -> Committed:
    """Sort changes by the rows of the chunk that commit them."""
    alive = np.flatnonzero(columns[KEPT_OPERATION] != _UNDONE)
    # Stable: the changes of a commit stay in log order.
    order = alive[np.argsort(ends[alive], kind="stable")]
    rows, group = np.unique(ends[order], return_inverse=True)
    places = chunk.columns[walk.GLOBAL_ID, rows].tolist()
    gtrids = [_gtrid(chunk, place) if place >= 0 else None for place in places]
    return Committed(columns[:, order], group, ordinals(group), chunk.instants[rows], gtrids)


def _gtrid(chunk: Chunk, place: int) -> bytes | None:
    xid = xid_at(chunk.file.data, place)
    return xid.gtrid if xid is not None else None


def _object(log: LogFiles, place: int, length: int) -> tuple[ByteRange, Body]:
    number, offset = split_instant(place)
    file = log.files[number]
    begin = offset + PREFIX.size
    body = decode_body(bytes(file.data[begin : begin + length]))
    return plain_range(file, offset, length, body, in_scan=False), body
