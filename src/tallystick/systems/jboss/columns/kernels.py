"""Fields of healthy records as columns: compiled kernels, no Python object per record.

In: the bytes of one file and the rows of its scan. Out: arrays, one number or view a record, with
the bits that say which rows have one.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.columns import put_bit, put_view
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.jboss.engine.original_scan import signed8
from tallystick.systems.jboss.format.layout import IN_TRANSACTION, OF_RECORD, WITH_BODY, Name, Shape
from tallystick.systems.jboss.format.narayana import HEURISTIC_TYPE, XID_PART_MAX
from tallystick.systems.jboss.read.scan import signed4

# Bits of what a record type has, by name; `features` puts them in the order of bytes on disk.
HAS_TRANSACTION, HAS_RECORD_ID, HAS_BODY, HAS_TYPE, HAS_XID, MAY_BE_HEURISTIC = (
    1 << bit for bit in range(6)
)


def features(shape: Shape) -> list[int]:
    """What each record type has, indexed by its byte on disk (0 to 19)."""
    table = [0] * 20
    for name in Name:
        bits = HAS_TRANSACTION if name in IN_TRANSACTION else 0
        bits |= HAS_RECORD_ID if name in OF_RECORD else 0
        bits |= HAS_BODY | HAS_TYPE if name in WITH_BODY else 0
        bits |= HAS_BODY if name is Name.DELETE_TX else 0
        bits |= HAS_XID if name is Name.PREPARE and shape.extra else 0
        bits |= MAY_BE_HEURISTIC if name is Name.ADD else 0
        table[shape.type_byte(name)] = bits
    return table


def names(shape: Shape) -> list[int]:
    """The name of each byte on disk (0 to 19), 0 where it is none."""
    return [int(shape.type_name(byte)) if byte >= Name.EVENT else 0 for byte in range(20)]


@kernel
def xid_at(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """(bqual length, gtrid length, place behind) of an Xid at ``at``, -1 first if there is none."""
    if at + 8 > end:
        return -1, 0, at
    bqual = signed4(data, at + 4)
    if bqual < 0 or bqual > XID_PART_MAX or at + 12 + bqual > end:
        return -1, 0, at
    gtrid = signed4(data, at + 8 + bqual)
    if gtrid < 0 or gtrid > XID_PART_MAX or at + 12 + bqual + gtrid > end:
        return -1, 0, at
    return bqual, gtrid, at + 12 + bqual + gtrid


@kernel
def put_xid(data: Any, at: int, end: int, row: int, extra: int, out: Any) -> int:
    """Put format id, bqual and gtrid of the Xid at ``at`` if ``extra`` bytes follow it: 1 if so."""
    format_ids, gtrids, bquals = out
    bqual, gtrid, behind = xid_at(data, at, end)
    if bqual < 0 or behind + extra != end:
        return 0
    if extra and data[behind] > 1:
        return 0
    format_ids[row] = signed4(data, at)
    put_view(data, at + 8, bqual, bquals, row)
    put_view(data, at + 12 + bqual, gtrid, gtrids, row)
    return 1


@kernel
def fill_columns(
    data: Any,
    rows: Any,
    shape: Any,
    table: Any,
    kinds: Any,
    numbers: Any,
    present: Any,
    bodies: Any,
) -> int:
    """Fill the columns of every record from rows of four; returns how many may hold an Xid.

    ``numbers`` has a row for transactions and one for record ids, ``present`` a bitmap for either
    and one for bodies; ``kinds`` gets the type byte, ``bodies`` a view.
    """
    xids = 0
    transactions, records, with_body = present[0], present[1], present[2]
    for row in range(len(kinds)):
        at = int(rows[row, 0])
        kind = int(data[at])
        bits = table[kind]
        field = at + 5 + shape[0]
        kinds[row] = kind
        if bits & 1:
            numbers[0, row] = signed8(data, field)
            put_bit(transactions, row)
            field += 8
        if bits & 2:
            numbers[1, row] = signed8(data, field)
            put_bit(records, row)
            field += 8
        if bits & 4:
            begin = field + (4 if bits & 8 or shape[4] else 0) + (1 if bits & 8 else 0)
            put_view(data, begin, at + int(rows[row, 1]) - 4 - begin, bodies, row)
            put_bit(with_body, row)
            xids += 1 if bits & 32 and data[begin - 1] == HEURISTIC_TYPE else 0
        xids += 1 if bits & 16 else 0
    return xids


@kernel
def fill_xids(
    data: Any, rows: Any, shape: Any, table: Any, kinds: Any, present: Any, out: Any
) -> None:
    """Fill format id, gtrid and bqual of prepares and heuristic outcomes.

    A heuristic outcome gets 64 added to its kind.
    """
    for row in range(len(kinds)):
        at = int(rows[row, 0])
        end = at + int(rows[row, 1]) - 4
        bits = table[kinds[row]]
        if bits & 16:
            field = at + 13 + shape[0]
            extra = signed4(data, field if shape[5] else field + 4)
            if put_xid(data, field + 8, field + 8 + extra, row, 0, out):
                put_bit(present, row)
        elif bits & 32:
            body = at + 18 + shape[0]
            if data[body - 1] == HEURISTIC_TYPE and put_xid(data, body, end, row, 1, out):
                put_bit(present, row)
                kinds[row] += 64
