"""Fields of valid records as columns: compiled kernels, no Python object per record.

In: the bytes of one file and the rows of its scan. Out: arrays with one number or view per record,
and bitmaps of the rows that have one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.byte_kernels import be_int32
from tallystick.arrow.columns import new_bitmap, new_views, put_bit, put_view, viewed
from tallystick.arrow.columns import numbers as filled
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.jboss.format import layout
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE, XID_PART_MAX
from tallystick.systems.jboss.read.scan import OFFSET, SIZE, numbers
from tallystick.systems.jboss.runs import walk
from tallystick.systems.jboss.runs.chunk import Chunk

# Above every type byte, and the sum still fits into the byte of ``kinds``.
HEURISTIC = 64
"""Added to the type byte of a heuristic outcome."""


def record_types(shape: layout.Shape) -> list[layout.RecordType | None]:
    """Return the record type of each byte on disk from 0 on."""
    return [
        shape.record_type(byte) if byte >= layout.EVENT else None for byte in range(walk.TYPE_BYTES)
    ]


@kernel
def xid_at(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """Return (bqual length, gtrid length, place after it) of the Xid at ``at``.

    The first is -1 if there is no Xid.
    """
    gtrid_at = at + 2 * layout.COUNT_SIZE
    if gtrid_at > end:
        return -1, 0, at
    bqual = be_int32(data, at + layout.COUNT_SIZE)
    if bqual < 0 or bqual > XID_PART_MAX or gtrid_at + bqual + layout.COUNT_SIZE > end:
        return -1, 0, at
    gtrid_at += bqual
    gtrid = be_int32(data, gtrid_at)
    following = gtrid_at + layout.COUNT_SIZE + gtrid
    if gtrid < 0 or gtrid > XID_PART_MAX or following > end:
        return -1, 0, at
    return bqual, gtrid, following


@kernel
def put_xid(data: Any, at: int, end: int, row: int, extra: int, out: Any) -> int:
    """Store format id, bqual and gtrid of the Xid at ``at``; return 1 if there is one.

    ``extra`` bytes, 0 or 1, follow it before ``end``; such a byte is 0 or 1.
    """
    format_ids, gtrids, bquals = out
    bqual, gtrid, following = xid_at(data, at, end)
    if bqual < 0 or following + extra != end:
        return 0
    if extra and data[following] > 1:
        return 0
    format_ids[row] = be_int32(data, at)
    put_view(data, at + 2 * layout.COUNT_SIZE, bqual, bquals, row)
    put_view(data, following - gtrid, gtrid, gtrids, row)
    return 1


@kernel
def fill_columns(
    data: Any, rows: Any, shape: Any, table: Any, kinds: Any, ids: Any, present: Any, bodies: Any
) -> int:
    """Fill the columns of every record; return how many may hold an Xid.

    ``rows`` are those of the scan, ``table`` is that of `features`. ``ids`` has a row for
    transactions and one for record ids, ``present`` a bitmap for either and one for bodies;
    ``kinds`` gets the type byte, ``bodies`` a view.
    """
    xids = 0
    transactions, records, with_body = present[0], present[1], present[2]
    for row in range(len(kinds)):
        at = int(rows[row, OFFSET])
        kind = int(data[at])
        bits = table[kind]
        kinds[row] = kind
        ids[0, row], ids[1, row], field = walk.ids_at(data, at, bits, shape.compact)
        if bits & walk.HAS_TRANSACTION:
            put_bit(transactions, row)
        if bits & walk.HAS_RECORD_ID:
            put_bit(records, row)
        if bits & walk.HAS_BODY:
            if bits & walk.HAS_TYPE:
                field += layout.COUNT_SIZE + layout.USER_TYPE_SIZE
            elif shape.delete_body:
                field += layout.COUNT_SIZE
            put_view(
                data, field, at + int(rows[row, SIZE]) - layout.CHECK_SIZE - field, bodies, row
            )
            put_bit(with_body, row)
            xids += 1 if bits & walk.MAY_BE_HEURISTIC and data[field - 1] == HEURISTIC_TYPE else 0
        xids += 1 if bits & walk.HAS_XID else 0
    return xids


@kernel
def fill_xids(
    data: Any, rows: Any, shape: Any, table: Any, kinds: Any, present: Any, out: Any
) -> None:
    """Fill format id, gtrid and bqual of prepares and heuristic outcomes.

    `HEURISTIC` is added to the kind of a heuristic outcome.
    """
    for row in range(len(kinds)):
        at = int(rows[row, OFFSET])
        end = at + int(rows[row, SIZE]) - layout.CHECK_SIZE
        bits = table[kinds[row]]
        field = at + layout.STAMP_SIZE + layout.ID_SIZE + shape.compact
        if bits & walk.HAS_XID:
            # The length of the extra data stands before the number of files in g1b and g1c, and
            # after the count from g1d on (format, Records).
            extra = be_int32(data, field if shape.pairs else field + layout.COUNT_SIZE)
            field += 2 * layout.COUNT_SIZE
            if put_xid(data, field, field + extra, row, 0, out):
                put_bit(present, row)
        elif bits & walk.MAY_BE_HEURISTIC:
            body = field + layout.COUNT_SIZE + layout.USER_TYPE_SIZE
            if data[body - 1] == HEURISTIC_TYPE and put_xid(data, body, end, row, 1, out):
                put_bit(present, row)
                kinds[row] += HEURISTIC


def xids_of(
    shape: layout.Shape, data: memoryview, records: Chunk
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return format id, gtrid and bqual of those records that are prepares with an Xid."""
    count = len(records.rows)
    if not (records.kinds == layout.PREPARE).any():
        return pa.nulls(count, pa.int32()), *(pa.nulls(count, pa.binary()) for _ in range(2))
    raw, table = np.frombuffer(data, np.uint8), np.array(walk.features(shape), np.int64)
    format_ids, present = np.zeros(count, np.int32), new_bitmap(count)
    views = new_views(count), new_views(count)
    out = (format_ids, *views)
    fill_xids(raw, records.rows, numbers(shape), table, records.kinds, present, out)
    buffer = pa.py_buffer(data)
    gtrids, bquals = (viewed(one, present, buffer).cast(pa.binary()) for one in views)
    return filled(format_ids, present), gtrids, bquals
