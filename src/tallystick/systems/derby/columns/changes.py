"""Committed changes of plain records as Arrow batches, without an object for each.

In: the runs of a log's files. Out: batches of the `CHANGES` schema in commit order, which agree
with ``changes()``. Where other records follow a run, they and all after them are taken one by one.
Memory grows with the changes of open transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import Bytes
from tallystick.arrow.columns import (
    bitmap,
    byte_ranges,
    coded,
    constant,
    joined_bytes,
    numbers,
    offsets_of,
    table_batch,
    texts_of,
)
from tallystick.arrow.schemas import CHANGES, batches_of_changes, plain
from tallystick.records import Clock, Kind
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import (
    POSITION_MASK,
    SYSTEM_NAME,
)
from tallystick.systems.derby.read.changes import changes_of, committed
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.names import Names
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.runs import images as kernels
from tallystick.systems.derby.runs.changes import (
    KEPT_CONTAINER,
    KEPT_FLAG,
    KEPT_OPERATION,
    KEPT_PAGE,
    KEPT_PLACE,
    KEPT_RECORD_ID,
    KEPT_SEGMENT,
    KEPT_TAIL,
    KEPT_TAIL_LENGTH,
    KEPT_TRANSACTION,
    ChangeFeed,
    Committed,
)
from tallystick.systems.derby.runs.chunk import Chunk, Column, Runs
from tallystick.systems.derby.runs.pieces import pieces_to_odd
from tallystick.systems.derby.runs.walk import Columns

_BYTES_MAX = 1 << 26
"""Most bytes of optional data in one batch, but for one row that has more."""
_KINDS = pa.array([Kind.ADD.value, Kind.DELETE.value, Kind.UPDATE.value])
_ADD, _DELETE, _UPDATE = range(3)
_NOTHING = np.empty(0, np.uint8)


def change_batches(
    runs: Runs, scan: LogScan, name: str, names: Names, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a log, of the given name, in batches of at most ``rows`` rows.

    ``names`` are those of tables where the log begins.
    """
    feed = ChangeFeed()
    for piece in pieces_to_odd(scan, runs):
        if isinstance(piece, Chunk):
            yield from batches_of_committed(scan.log, name, feed.take(piece), names, rows)
        elif not isinstance(piece, ByteRange):
            left = (one for one in piece if one.is_believed)
            changes = committed(left, name, names, pending=feed.pending(scan.log))
            yield from batches_of_changes(changes, Clock.NONE.value, rows)


# -- rows ----------------------------------------------------------------------------------------


def batches_of_committed(
    log: LogFiles, name: str, done: Committed, names: Names, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield committed changes in batches of at most ``rows`` rows.

    Commits that change the names of tables are taken one by one.
    """
    for some, naming in done.by_names():
        if naming:
            changes = changes_of(some.as_object(log), name, names)
            yield from batches_of_changes(changes, Clock.NONE.value, rows)
            continue
        names.take((), 0)
        rows_of = some.of_rows(names)
        for number, first, last in rows_of.of_files():
            for part in parts_of(rows_of.of(slice(first, last)), rows):
                yield batch_of_rows(name, log.files[number], part, names)


def parts_of(done: Committed, rows: int) -> Iterator[Committed]:
    """Yield changes in parts of at most ``rows`` rows that are not too large for a batch."""
    for begin, end in _cuts(done.columns[KEPT_TAIL_LENGTH], rows):
        yield done.of(slice(begin, end))


def _cuts(sizes: Column, rows: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of parts that are not too large."""
    totals = np.cumsum(sizes)
    begin, before = 0, 0
    while begin < sizes.size:
        fits = int(np.searchsorted(totals, before + _BYTES_MAX, "right"))
        # At least one row, however many bytes it has.
        end = min(begin + rows, max(fits, begin + 1))
        yield begin, end
        begin, before = end, int(totals[end - 1])


def batch_of_rows(name: str, file: LogBytes, done: Committed, names: Names) -> pa.RecordBatch:
    """Return changes by one file of the log of a name; ``names`` are those at their commits."""
    columns, group = done.columns, done.group
    data, count = np.frombuffer(file.data, np.uint8), group.size
    images = np.empty((kernels.IMAGE_COLUMNS, count), np.int64)
    operation, tail, size = columns[KEPT_OPERATION], columns[KEPT_TAIL], columns[KEPT_TAIL_LENGTH]
    kernels.find_images(data, operation, tail, size, images, _NOTHING)
    found = {
        "system": constant(SYSTEM_NAME, count),
        "log": constant(name, count),
        "commit_sequence": numbers(done.commits[group], None),
        "ordinal": numbers(np.ascontiguousarray(done.ordinal), None),
        "kind": coded(_kinds(operation, columns[KEPT_FLAG]), _KINDS),
        "collection": _collections(columns[KEPT_SEGMENT], columns[KEPT_CONTAINER], names),
        "key": _joined(columns[KEPT_PAGE], columns[KEPT_RECORD_ID]),
        "transaction": pa.array(columns[KEPT_TRANSACTION]).cast(pa.string()),
        "gtrid": pa.array(done.gtrids, pa.binary()).take(pa.array(group)),
        "clock": constant(Clock.NONE.value, count),
        "before": byte_ranges(data, images[kernels.BEFORE], images[kernels.BEFORE_SIZE]),
        "after": byte_ranges(data, images[kernels.AFTER], images[kernels.AFTER_SIZE]),
        "values": _values(data, tail, size, images),
        "file": constant(file.path, count),
        "offset": numbers(columns[KEPT_PLACE] & POSITION_MASK, None),
    }
    return plain(table_batch(CHANGES, found, count), CHANGES)


def _kinds(operation: Column, flag: Column) -> NDArray[np.int8]:
    codes = np.full(operation.size, _UPDATE, np.int8)
    codes[operation == operations.INSERT] = _ADD
    deletes = operation == operations.DELETE
    codes[deletes] = _DELETE
    codes[deletes & (flag == 0)] = _ADD  # a deleted row is made visible again
    return codes


def _collections(segment: Column, container: Column, names: Names) -> pa.Array:
    """Make the names of the tables; the segment too where that is not 0."""
    if segment.any():
        texts = map(names.name, segment.tolist(), container.tolist())
        return pa.array(texts, pa.string())
    return texts_of(container, partial(names.name, 0))


def _joined(one: Column, other: Column) -> pa.Array:
    texts = (pa.array(column).cast(pa.string()) for column in (one, other))
    return pc.binary_join_element_wise(*texts, ":")


def _values(data: Bytes, tail: Column, size: Column, images: Columns) -> pa.Array:
    """Make the values of rows as JSON; null where there are none."""
    lengths = images[kernels.JSON_SIZE]
    # 32 bits are enough: `_BYTES_MAX` of data, or one record, less than twice as long in hex.
    offsets = offsets_of(lengths)
    out = np.empty(int(offsets[-1]), np.uint8)
    kernels.put_values(data, tail, size, images, offsets, out)
    return joined_bytes(pa.string(), offsets, out, bitmap(lengths > 0))
