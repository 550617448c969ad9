"""The rows of all fates of a log as Arrow batches, most of them without an object for each.

In: the pieces of a log, and what gives rows one by one. Out: batches of the `FATED` schema, the
rows of `fated_changes()` in the same order. Columns give those of plain transactions: they begin
and commit in one chunk, take nothing back, change no name of a table, and their rows are whole,
each on one page. The others, and all beside chunks, go one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import Bytes
from tallystick.arrow.columns import in_order
from tallystick.arrow.neighbours import among, starts_of
from tallystick.arrow.schemas import (
    BATCH_ROWS,
    batch_of_fated,
    batches_of_fated,
    fated,
    rebatched,
)
from tallystick.errors import TallystickError
from tallystick.records import Clock, Fate, Outcome, Row
from tallystick.systems.derby.columns.changes import batch_of_rows, parts_of
from tallystick.systems.derby.columns.row_texts import names_once, row_texts
from tallystick.systems.derby.format import layout, operations
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.read.changes import CHANGING
from tallystick.systems.derby.read.containers import CONTROL_ROW
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.tables import RowFeed, holds_parts
from tallystick.systems.derby.runs import images
from tallystick.systems.derby.runs.changes import (
    KEPT_CONTAINER,
    KEPT_OPERATION,
    KEPT_PAGE,
    KEPT_RECORD_ID,
    KEPT_TAIL,
    KEPT_TAIL_LENGTH,
    ChangeFeed,
    Committed,
)
from tallystick.systems.derby.runs.chunk import Chunk, Column, Runs
from tallystick.systems.derby.runs.pieces import file_pieces
from tallystick.systems.derby.runs.transactions import is_closed, names_tables
from tallystick.systems.derby.runs.walk import (
    CONTAINER,
    FLAG,
    GLOBAL_ID,
    GROUP,
    LOGICAL_UNDO,
    OPERATION,
    PAGE,
    SEGMENT,
    TAIL,
    TAIL_LENGTH,
    TRANSACTION,
    Columns,
)

Mask = NDArray[np.bool_]

_COMPENSATION, _LAST, _COMMIT = int(Group.COMPENSATION), int(Group.LAST), int(Group.COMMIT)
_CLOCK = Clock.NONE.value


def fated_batches(
    runs: Runs, scan: LogScan, name: str, feed: RowFeed, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a log, of the given name, in batches of at most ``rows`` rows."""
    return rebatched(_Fates(runs, scan, name, feed).batches(), rows)


class _Fates:
    def __init__(self, runs: Runs, scan: LogScan, name: str, feed: RowFeed) -> None:
        self._runs, self._scan, self._name, self._feed = runs, scan, name, feed
        self._lost = feed.lost
        self._freed = {one: place for one, place in feed.freed.items() if one in feed.tables}
        self._plain = {
            one: table.layout(one)
            for one, table in feed.tables.items()
            if names_once(table.layout(one))
        }
        """The columns of each container of a table whose rows may come from columns."""
        self._typed = np.array([*feed.tables], np.int64)

    def batches(self) -> Iterator[pa.RecordBatch]:
        waiting: list[Row] = []
        for number in self._scan.log.files:
            for piece in file_pieces(self._scan.file(number), self._runs):
                if isinstance(piece, ByteRange):
                    waiting += self._feed.take(piece) if piece.outcome is Outcome.VALID else ()
                    if len(waiting) < BATCH_ROWS:
                        continue
                yield from batches_of_fated(waiting, _CLOCK)
                waiting = []
                if isinstance(piece, Chunk):
                    yield from self._of_chunk(piece)
        yield from batches_of_fated(chain(waiting, self._feed.rest()), _CLOCK)

    def _of_chunk(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        made = {
            row: chunk.range(row, self._scan)
            for row in np.flatnonzero(chunk.columns[OPERATION] == operations.INIT_PAGE).tolist()
        }
        plain = self._in_columns(chunk, made.values())
        wanted = ~plain & (chunk.columns[TRANSACTION] >= 0)
        rows: list[Row] = []
        places: list[int] = []
        for row in sorted({*np.flatnonzero(wanted).tolist(), *made}):
            one = made.get(row) or chunk.range(row, self._scan)
            if not wanted[row]:
                self._feed.note(one)
                continue
            ended = self._feed.take(one)
            rows += ended
            places += [one.place] * len(ended)
        found: list[tuple[Any, pa.RecordBatch]] = []
        for begin in range(0, len(rows), BATCH_ROWS):
            part = slice(begin, begin + BATCH_ROWS)
            found.append((places[part], batch_of_fated(rows[part], _CLOCK)))
        if plain.any():
            self._feed.names.take((), 0)
            done = self._by_table(ChangeFeed().take(chunk.where(plain)))
            found += self._from_columns(chunk, done)
        yield from in_order(found)

    def _in_columns(self, chunk: Chunk, made: Iterable[ByteRange]) -> Mask:
        """Return which records are of transactions that come from columns."""
        if chunk.dropped or not self._feed.names.settled or names_tables(chunk):
            return np.zeros(chunk.size, np.bool_)
        columns, closed = chunk.columns, is_closed(chunk)
        numbers, group, operation = columns[TRANSACTION], columns[GROUP], columns[OPERATION]
        ends, named = group & _LAST != 0, columns[GLOBAL_ID] >= 0
        odd = group & _COMPENSATION != 0
        odd |= ends & ((group & _COMMIT == 0) | among(chunk.instants, self._lost))
        # The last id that a record has is that of the transaction: it has to be its end.
        odd |= ends & ~named & np.isin(numbers, numbers[named & ~ends])
        # -1 is no such field, and null is that of a table's row.
        changes = np.isin(operation, CHANGING) & (columns[LOGICAL_UNDO] <= layout.NULL) & closed
        odd |= changes & (columns[SEGMENT] != 0)
        for container, place in self._freed.items():
            odd |= changes & (columns[CONTAINER] == container) & (chunk.instants < place)
        changes &= np.isin(columns[CONTAINER], self._typed)
        if changes.any():
            odd[changes] |= self._are_odd(chunk.where(changes), _parts_made(made))
        out = np.union1d(numbers[odd], np.array([*self._feed.open], np.int64))
        plain: Mask = closed & ~np.isin(numbers, out)
        return plain

    def _are_odd(self, changes: Chunk, made: Set[tuple[int, int]]) -> Mask:
        """Return which changes of rows of tables are to be looked at one by one.

        ``made`` are pages that get continuations of rows meanwhile.
        """
        columns = changes.columns
        operation, containers = columns[OPERATION], columns[CONTAINER]
        odd = operation == operations.UPDATE_FIELD
        odd |= (operation == operations.DELETE) & (columns[FLAG] == 0)
        odd |= ~np.isin(containers, [*self._plain])
        pages = columns[[CONTAINER, PAGE]]
        # Changes of one page mostly follow each other.
        begins = starts_of(*pages)
        runs = map(tuple, pages[:, begins].T.tolist())
        of_pages = [one in made or self._holds_parts(*one) for one in runs]
        odd |= np.repeat(of_pages, np.diff(np.append(begins, operation.size)))
        _, last = _fields(changes.data, operation, columns[TAIL], columns[TAIL_LENGTH], 0)
        odd |= last == images.ODD
        found: Mask = odd
        return found

    def _holds_parts(self, container: int, page: int) -> bool:
        try:
            return self._feed.tables[container].holds_parts(container, page)
        except TallystickError:  # it is raised again where the page is asked for one by one
            return True

    def _by_table(self, done: Committed) -> Committed:
        """Return those that are rows, of each commit those of one table together."""
        containers = done.columns[KEPT_CONTAINER]
        page, record = CONTROL_ROW
        tables = {table: number for number, table in enumerate({*self._feed.tables.values()}, 1)}
        of_containers = {one: tables[table] for one, table in self._feed.tables.items()}
        distinct, place = np.unique(containers, return_inverse=True)
        known = distinct.tolist()
        table = np.array([of_containers.get(one, 0) for one in known], np.int64)[place]
        others = np.array([self._feed.is_other(one) for one in known], np.bool_)[place]
        # The first row of a table describes the table itself, and no SELECT shows it.
        describes = (done.columns[KEPT_PAGE] == page) & (done.columns[KEPT_RECORD_ID] == record)
        counted = np.flatnonzero((table > 0) | ~(describes | others))
        if len({*table[counted].tolist()}) > 1:
            # Commits rise, so the first row of a table in one is after those of earlier commits.
            groups = done.group[counted] * (len(tables) + 1) + table[counted]
            _, first, rank = np.unique(groups, return_index=True, return_inverse=True)
            counted = counted[np.argsort(first[rank], kind="stable")]
        return done.of(counted[~describes[counted]]).numbered()

    def _from_columns(self, chunk: Chunk, done: Committed) -> Iterator[tuple[Any, pa.RecordBatch]]:
        for part in parts_of(done, BATCH_ROWS):
            batch = batch_of_rows(self._name, chunk.file, part, self._feed.names)
            containers = part.columns[KEPT_CONTAINER]
            batch = _with(batch, "collection", self._collections(containers))
            for container in np.intersect1d(containers, self._typed).tolist():
                mine = containers == container
                texts = self._texts(chunk.data, part.columns[:, mine], container)
                values = pc.replace_with_mask(batch.column("values"), pa.array(mine), texts)
                batch = _with(batch, "values", values)
            yield part.commits[part.group], fated(batch, Fate.COMMITTED)

    def _collections(self, containers: Column) -> pa.Array:
        distinct, place = np.unique(containers, return_inverse=True)
        names = [
            self._feed.tables[one].name
            if one in self._feed.tables
            else self._feed.names.name(0, one)
            for one in distinct.tolist()
        ]
        return pa.array(names, pa.string()).take(pa.array(place))

    def _texts(self, data: Bytes, columns: Columns, container: int) -> pa.Array:
        """Return the values of rows of one container."""
        shown, operation = self._plain[container], columns[KEPT_OPERATION]
        tails = columns[KEPT_TAIL], columns[KEPT_TAIL_LENGTH]
        fields, last = _fields(data, operation, *tails, len(shown))
        # Of a row that is updated, columns that are not there are not known.
        last[operation != operations.INSERT] = len(shown)
        texts = row_texts(data, fields, last, shown)
        deleted = pa.array(operation == operations.DELETE)
        return pc.if_else(deleted, pa.scalar(None, pa.string()), texts)


def _parts_made(made: Iterable[ByteRange]) -> set[tuple[int, int]]:
    """Return containers and numbers of pages that get continuations of rows."""
    bodies = [one.body for one in made if one.body is not None]
    pages = [body.fields["pageId"] for body in bodies if holds_parts(body)]
    return {(page.container, page.number) for page in pages}


def _fields(
    data: Bytes, operation: Column, tail: Column, size: Column, columns: int
) -> tuple[Any, Column]:
    """Return what `images.find_fields` finds of so many columns."""
    fields = np.empty((2, columns, operation.size), np.int64)
    last = np.empty(operation.size, np.int64)
    images.find_fields(data, operation, tail, size, fields, last, np.empty(0, np.uint8))
    return fields, last


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, column)
