"""Committed changes of plain records as Arrow batches, without an object for each.

In: the runs of a log's files. Out: batches of the `CHANGES` schema in commit order, which agree
with ``changes()``. Where other records follow a run, they and all after them are taken one by one.
Memory grows with the changes of open transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import Bytes
from tallystick.arrow.columns import bitmap, byte_ranges, coded, constant, nulls, numbers
from tallystick.arrow.schemas import CHANGES, batch_of, change_rows, plain
from tallystick.records import Change, Clock, Kind
from tallystick.systems.derby.columns import change_kernels, kernels
from tallystick.systems.derby.columns.body_kernels import (
    CONTAINER,
    FLAG,
    LOGICAL_UNDO,
    PAGE,
    SEGMENT,
    TAIL,
    TAIL_LENGTH,
    UNDO,
)
from tallystick.systems.derby.columns.kernels import Columns
from tallystick.systems.derby.columns.plain import Chunk, Column, RunReader, plain_range, xid_at
from tallystick.systems.derby.format import layout, operations
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    PREFIX,
    SYSTEM_NAME,
    Group,
    make_instant,
)
from tallystick.systems.derby.format.record_body import Body, decode_body
from tallystick.systems.derby.read.changes import CHANGING, Pending, committed
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange

_KEPT = (
    kernels.OFFSET,
    kernels.LENGTH,
    kernels.TRANSACTION,
    kernels.OPERATION,
    SEGMENT,
    CONTAINER,
    PAGE,
    kernels.RECORD_ID,
    FLAG,
    TAIL,
    TAIL_LENGTH,
)
"""Columns that are kept of a change until its transaction ends; of its offset, the instant."""
(
    _PLACE,
    _LENGTH,
    _TRANSACTION,
    _OPERATION,
    _SEGMENT,
    _CONTAINER,
    _PAGE,
    _RECORD_ID,
    _FLAG,
    _TAIL,
    _TAIL_LENGTH,
) = range(len(_KEPT))
_UNDONE = -1
"""In place of the operation of a kept change."""
_BYTES_MAX = 1 << 26
"""Most bytes of optional data in one batch, but for one row that has more."""
_OFFSET_MASK = 0xFFFFFFFF
_COMPENSATION, _LAST, _COMMIT = int(Group.COMPENSATION), int(Group.LAST), int(Group.COMMIT)
_KINDS = pa.array([Kind.ADD.value, Kind.DELETE.value, Kind.UPDATE.value])
_ADD, _DELETE, _UPDATE = range(3)
_NOTHING = np.empty(0, np.uint8)


def change_batches(
    reader: RunReader, scan: LogScan, name: str, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a log, of the given name, in batches of at most ``rows`` rows."""
    feed = _Feed()
    for number in scan.log.files:
        file = scan.file(number)
        end = HEADER_SIZE
        for chunk in reader.chunks(file.file, HEADER_SIZE, file.believed_until()):
            yield from _batches(scan.log, name, feed.take(chunk), rows)
            end = int(chunk.columns[kernels.OFFSET, -1] + chunk.lengths[-1])
        rest = filter(_is_believed_record, file.rest(end))
        if (first := next(rest, None)) is not None:
            later = filter(_is_believed_record, scan.ranges(number + 1))
            left = chain([first], rest, later)
            yield from object_batches(committed(left, name, pending=feed.pending(scan.log)), rows)
            return


def object_batches(changes: Iterable[Change], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield changes as batches of at most ``rows`` rows."""
    source = iter(changes)
    while part := list(islice(source, rows)):
        yield batch_of(list(change_rows(part, Clock.NONE.value)), CHANGES)


def _is_believed_record(one: ByteRange) -> bool:
    return one.envelope is not None and one.is_believed


# -- which changes are committed -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Committed:
    """Changes in commit order.

    Attributes:
        columns: one for each of `_KEPT`.
        group: which commit each belongs to; ``commits`` and ``gtrids`` have an item for each.
        ordinal: its number within the commit.
    """

    columns: Columns
    group: Column
    ordinal: Column
    commits: Column
    gtrids: list[bytes | None]

    def of_files(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number of a file, and begin and end of rows of it that are neighbours."""
        files = self.columns[_PLACE] >> 32
        cuts = (np.flatnonzero(files[1:] != files[:-1]) + 1).tolist()
        for begin, end in pairwise([0, *cuts, files.size]):
            if end > begin:
                yield int(files[begin]), begin, end


class _Feed:
    """Takes records in log order, and gives the changes that they commit."""

    def __init__(self) -> None:
        self._open: dict[int, list[Columns]] = {}
        """Changes of open transactions, in parts."""

    def take(self, chunk: Chunk) -> _Committed:
        """Take the next records; return the changes that they commit."""
        records, rows = _records(chunk)
        commits, undoing = np.empty(rows.size, np.int64), np.empty(rows.size, np.bool_)
        change_kernels.settle(records, commits, undoing)
        pieces, ends = self._settled(records, rows, undoing)
        ended = commits >= 0
        pieces.append(_kept(chunk, rows[ended]))
        ends.append(rows[commits[ended]])
        self._keep(chunk, rows[commits == change_kernels.PENDING])
        return _in_order(chunk, np.concatenate(pieces, axis=1), np.concatenate(ends))

    def pending(self, log: LogFiles) -> Pending:
        """Return the changes of open transactions as objects."""
        found: Pending = {}
        for number, parts in self._open.items():
            kept = [one for part in parts for one in part.T.tolist() if one[_OPERATION] != _UNDONE]
            found[number] = {one[_PLACE]: _object(log, one[_PLACE], one[_LENGTH]) for one in kept}
        return found

    def _settled(
        self, records: Columns, rows: Column, undoing: NDArray[np.bool_]
    ) -> tuple[list[Columns], list[Column]]:
        """Settle what was open before; return what is committed, and the rows that commit it."""
        pieces: list[Columns] = []
        ends: list[Column] = []
        known = np.array(list(self._open), np.int64)
        numbers = records[change_kernels.TRANSACTION]
        begins = np.searchsorted(numbers, known)
        after = np.searchsorted(numbers, known, "right")
        for number, begin, end in zip(known.tolist(), begins.tolist(), after.tolist(), strict=True):
            mine = records[:, begin:end]
            self._undo(number, mine[change_kernels.UNDO, undoing[begin:end]])
            stop = _first_end(mine)
            if stop is None:
                continue
            kept = self._open.pop(number)
            if _commits(mine[:, stop]):
                pieces += kept
                ends += [np.full(part.shape[1], rows[begin + stop]) for part in kept]
        return pieces, ends

    def _undo(self, number: int, places: Column) -> None:
        """Mark the changes at these instants as undone."""
        places = np.sort(places)
        for part in self._open[number] if places.size else ():
            begin, end = np.searchsorted(places, part[_PLACE, [0, -1]])
            wanted = places[begin : end + 1]
            at = np.minimum(np.searchsorted(part[_PLACE], wanted), part.shape[1] - 1)
            part[_OPERATION, at[part[_PLACE, at] == wanted]] = _UNDONE

    def _keep(self, chunk: Chunk, rows: Column) -> None:
        if not rows.size:
            return
        kept = _kept(chunk, rows)
        numbers = kept[_TRANSACTION]
        cuts = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
        for begin, end in pairwise([0, *cuts, numbers.size]):
            self._open.setdefault(int(numbers[begin]), []).append(kept[:, begin:end].copy())


def _records(chunk: Chunk) -> tuple[Columns, Column]:
    """Return what `change_kernels.settle` takes, and the rows of the chunk that it is of."""
    rows = chunk.by_transaction()
    columns = chunk.columns[:, rows]
    operation, group = columns[kernels.OPERATION], columns[kernels.GROUP]
    changes = np.isin(operation, CHANGING) & (group & _COMPENSATION == 0)
    changes &= columns[LOGICAL_UNDO] <= layout.NULL
    found = (columns[kernels.TRANSACTION], group, operation, chunk.instants[rows], columns[UNDO])
    return np.stack([*found, changes.astype(np.int64)]), rows


def _first_end(records: Columns) -> int | None:
    """Return which record of a transaction ends it, or begins it anew, if one does."""
    ends = records[change_kernels.OPERATION] == operations.BEGIN
    ends |= records[change_kernels.GROUP] & _LAST != 0
    found = np.flatnonzero(ends)
    return int(found[0]) if found.size else None


def _commits(record: Column) -> bool:
    begins = record[change_kernels.OPERATION] == operations.BEGIN
    return bool(not begins and record[change_kernels.GROUP] & _COMMIT)


def _kept(chunk: Chunk, rows: Column) -> Columns:
    columns: Columns = chunk.columns[np.array(_KEPT)[:, None], rows]
    columns[_PLACE] |= make_instant(chunk.file.number, 0)
    return columns


def _in_order(chunk: Chunk, columns: Columns, ends: Column) -> _Committed:
    """Sort changes by the rows of the chunk that commit them."""
    alive = np.flatnonzero(columns[_OPERATION] != _UNDONE)
    order = alive[np.argsort(ends[alive], kind="stable")]
    rows, first, group = np.unique(ends[order], return_index=True, return_inverse=True)
    places = chunk.columns[kernels.GLOBAL_ID, rows].tolist()
    gtrids = [_gtrid(chunk, place) if place >= 0 else None for place in places]
    ordinal = np.arange(order.size) - first[group]
    return _Committed(columns[:, order], group, ordinal, chunk.instants[rows], gtrids)


def _gtrid(chunk: Chunk, place: int) -> bytes | None:
    xid = xid_at(chunk.file.data, place)
    return xid.gtrid if xid is not None else None


def _object(log: LogFiles, place: int, length: int) -> tuple[ByteRange, Body]:
    file, offset = log.files[place >> 32], place & _OFFSET_MASK
    begin = offset + PREFIX.size
    body = decode_body(bytes(file.data[begin : begin + length]))
    return plain_range(file, offset, length, body, in_scan=False), body


# -- rows ----------------------------------------------------------------------------------------


def _batches(log: LogFiles, name: str, done: _Committed, rows: int) -> Iterator[pa.RecordBatch]:
    for number, first, last in done.of_files():
        for begin, end in _cuts(done.columns[_TAIL_LENGTH, first:last], rows):
            part = slice(first + begin, first + end)
            yield _batch(name, log.files[number], done, part)


def _cuts(sizes: Column, rows: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of parts that are not too large."""
    totals = np.cumsum(sizes)
    begin, before = 0, 0
    while begin < sizes.size:
        fits = int(np.searchsorted(totals, before + _BYTES_MAX, "right"))
        end = min(begin + rows, max(fits, begin + 1))
        yield begin, end
        begin, before = end, int(totals[end - 1])


def _batch(name: str, file: LogBytes, done: _Committed, part: slice) -> pa.RecordBatch:
    columns, group = done.columns[:, part], done.group[part]
    data, count = np.frombuffer(file.data, np.uint8), group.size
    images = np.empty((change_kernels.IMAGE_COLUMNS, count), np.int64)
    operation, tail, size = columns[_OPERATION], columns[_TAIL], columns[_TAIL_LENGTH]
    change_kernels.find_images(data, operation, tail, size, images, _NOTHING)
    found = {
        "system": constant(SYSTEM_NAME, count),
        "log": constant(name, count),
        "commit_sequence": numbers(done.commits[group], None),
        "ordinal": numbers(np.ascontiguousarray(done.ordinal[part]), None),
        "kind": coded(_kinds(operation, columns[_FLAG]), _KINDS),
        "collection": _collections(columns[_SEGMENT], columns[_CONTAINER]),
        "key": _joined(columns[_PAGE], columns[_RECORD_ID]),
        "transaction": pa.array(columns[_TRANSACTION]).cast(pa.string()),
        "gtrid": pa.array(done.gtrids, pa.binary()).take(pa.array(group)),
        "clock": constant(Clock.NONE.value, count),
        "before": byte_ranges(
            data, images[change_kernels.BEFORE], images[change_kernels.BEFORE_SIZE]
        ),
        "after": byte_ranges(data, images[change_kernels.AFTER], images[change_kernels.AFTER_SIZE]),
        "values": _values(data, tail, size, images),
        "file": constant(file.path, count),
        "offset": numbers(columns[_PLACE] & _OFFSET_MASK, None),
    }
    arrays = [found.get(field.name, nulls(field.type, count)) for field in CHANGES]
    return plain(pa.RecordBatch.from_arrays(arrays, CHANGES.names), CHANGES)


def _kinds(operation: Column, flag: Column) -> NDArray[np.int8]:
    codes = np.full(operation.size, _UPDATE, np.int8)
    codes[operation == operations.INSERT] = _ADD
    deletes = operation == operations.DELETE
    codes[deletes] = _DELETE
    codes[deletes & (flag == 0)] = _ADD  # a deleted row is made visible again
    return codes


def _collections(segment: Column, container: Column) -> pa.Array:
    """Make the names of the tables: the container, after the segment where that is not 0."""
    if segment.any():
        texts = pa.array(container).cast(pa.string())
        return pc.if_else(pa.array(segment != 0), _joined(segment, container), texts)
    distinct, codes = np.unique(container, return_inverse=True)
    return coded(codes.astype(np.int32), pa.array(distinct).cast(pa.string()))


def _joined(one: Column, other: Column) -> pa.Array:
    texts = (pa.array(column).cast(pa.string()) for column in (one, other))
    return pc.binary_join_element_wise(*texts, ":")


def _values(data: Bytes, tail: Column, size: Column, images: Columns) -> pa.Array:
    """Make the values of rows as JSON; null where there are none."""
    lengths = images[change_kernels.JSON_SIZE]
    offsets = np.zeros(lengths.size + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    change_kernels.put_values(data, tail, size, images, offsets, out)
    valid = bitmap(lengths > 0)
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.string(), lengths.size, [*buffers, pa.py_buffer(out)])
