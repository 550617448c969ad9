"""The one walk over the records of a log file that are plain: whole, and vouched for.

In: a file that is not encrypted, as a NumPy array of bytes. Out: columns of integers. Which fields
an operation has is in a table made from their types: `BODIES` to decode them all, up to the end of
the record; `HEADS` for what a row of records has, where a checksum vouches for what follows. A few
operations have fields of another form; their rows are marked `ODD`, and the caller decodes these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import (
    Bytes,
    Number,
    be_int32,
    be_int64,
    be_uint16,
    be_uint32,
    int64,
    uint64,
)
from tallystick.arrow.crc_kernel import crc32_of
from tallystick.arrow.numba_kernel import kernel, small_kernel
from tallystick.systems.derby.format import field_types, layout
from tallystick.systems.derby.format.field_types import FieldType
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.number_kernels import (
    compressed_int,
    compressed_long,
    int_size,
    long_size,
)
from tallystick.systems.derby.format.operations import OPERATIONS, Operation
from tallystick.systems.derby.format.record_body import BODY_SIZE_MIN

Columns = NDArray[np.int64]
Programs = NDArray[np.int8]

ENDED, FULL, STUCK = range(3)
"""Why a walk stopped: at zeros or the end of the file, with full columns, at anything else."""

OFFSET, LENGTH, GROUP, TRANSACTION, OPERATION, RECORD_ID, GLOBAL_ID, ODD, _SCRATCH = range(9)
"""Columns of records. GLOBAL_ID is the offset of the XA format id; -1 where there is none.

The last one takes fields that nobody asks for, and, as the heads alone have no COUNT, how many
bytes a checksum record covers.
"""
HEAD_COLUMNS = 9
SEGMENT, CONTAINER, PAGE, VERSION, COUNT, FLAG, LOGICAL_UNDO, UNDO, TAIL, TAIL_LENGTH = range(
    HEAD_COLUMNS, HEAD_COLUMNS + 10
)
"""Columns of whole bodies; -1 where an operation has no such field.

COUNT is the number of rows, or the length that a checksum record covers; FLAG the last byte of an
insert or delete, or the status of a begin or end record; LOGICAL_UNDO the format id of that field;
UNDO the undone instant. TAIL is the offset of the optional data.
"""
BODY_COLUMNS = HEAD_COLUMNS + 10

LARGE_BEGIN, LARGE_END, LARGE_CRC, LARGE_ROW = range(4)
"""Columns of large groups: the range, its stored CRC, and the row of the checksum record."""
LARGE_COLUMNS = 4
LARGE_GROUP = 2048
"""Groups of so many bytes are left to the caller, who has the CRC of the machine."""

_TAIL, _STOP, _LONG, _INT, _BYTE, _INT32, _INT64, _UNDO_ID, _XID, _ROWS, _OTHER, _UNKNOWN = range(
    12
)
"""Forms of a field; `_ROWS` is followed by the number of ints of a row. The first two end a
program: what follows the fields is to be decoded, or is left to the checksum."""
_STEPS = 24
"""Most bytes of an operation's program: two for each number in its fields."""
_FIXED = {1: _BYTE, 4: _INT32, 8: _INT64}
_COLUMN_OF = {
    "pageVersion": VERSION,
    "recordId": RECORD_ID,
    "undo": LOGICAL_UNDO,
    "insertFlag": FLAG,
    "delete": FLAG,
    "transactionStatus": FLAG,
    "xactId": GLOBAL_ID,
    "num_rows": COUNT,
    "dataLength": COUNT,
}

_LENGTH_SIZE = layout.LENGTH.size
_PREFIX_SIZE = layout.PREFIX.size
_INSTANT_AT = _LENGTH_SIZE
_POSITION_AT = _INSTANT_AT + 4
_ID_SIZE = layout.FORMAT_ID_SIZE
_UNDO_SIZE = 8
GTRID_AT = 4
"""Offset of the gtrid's length in a global id: after the XA format id."""
_CHECKSUM_SIZE = layout.CHECKSUM.size
_COVERED_AT = 1
_CRC_AT = 5
_CHECKSUM = int(Group.CHECKSUM)
COMPENSATION = int(Group.COMPENSATION)
_OF_CHECKSUMS = int(Group.CHECKSUM | Group.RAWSTORE)
"""Bits that the group of a plain checksum record has."""


def _programs(*, heads: bool) -> Programs:
    table = np.zeros((max(OPERATIONS) + 1, _STEPS), np.int8)
    table[:, 0] = _UNKNOWN
    for number, operation in OPERATIONS.items():
        steps = _steps(operation)
        steps = [*_of_head(steps), (_STOP, 0)] if heads else [*steps, (_TAIL, 0)]
        table[number, : 2 * len(steps)] = [one for step in steps for one in step]
    return table


def _of_head(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the steps up to the last number that a row of records has."""
    wanted = [at for at, step in enumerate(steps) if step[1] in (RECORD_ID, GLOBAL_ID)]
    return [
        (form, column if column < HEAD_COLUMNS else _SCRATCH)
        for form, column in steps[: max(wanted, default=-1) + 1]
    ]


def _steps(operation: Operation) -> list[tuple[int, int]]:
    """Return form and column of each number in the fields of an operation."""
    steps = [step for name, kind in operation.fields for step in _numbers(name, kind)]
    if operation.tail is not None:
        names = getattr(operation.tail, "names", ())
        steps.append((_ROWS, len(names)) if names else (_OTHER, _SCRATCH))
    return [(_OTHER, _SCRATCH)] if (_OTHER, _SCRATCH) in steps else steps


def _numbers(name: str, kind: FieldType) -> list[tuple[int, int]]:
    column = _COLUMN_OF.get(name, _SCRATCH)
    if kind is field_types.PAGE:
        return [(_LONG, SEGMENT), (_LONG, CONTAINER), (_LONG, PAGE)]
    if kind is field_types.LOGICAL_UNDO:
        return [(_UNDO_ID, column)]
    if kind is field_types.XID:
        return [(_XID, column)]
    if kind.fixed:
        return [(_FIXED[kind.fixed], column)]
    return [(_LONG, column)] * kind.longs + [(_INT, column)] * kind.ints or [(_OTHER, _SCRATCH)]


BODIES, HEADS = _programs(heads=False), _programs(heads=True)
"""By format id, the form and the column of each number in the operation's fields."""


@kernel
def walk(
    data: Bytes,
    number: Number,
    position: Number,
    covered: Number,
    limit: Number,
    columns: Columns,
    programs: Programs,
    large: Columns,
) -> tuple[Number, Number, Number, Number, Number]:
    """Decode the records from ``position`` that begin before ``limit`` into ``columns``.

    Args:
        data: the bytes of the file.
        number: the file's number.
        position: offset of a record.
        covered: offset up to which no further checksum has to vouch for a record: with `HEADS` the
            end of the group that ``position`` is in, with `BODIES` that of the file.
        limit: an offset.
        columns: array of `HEAD_COLUMNS` or `BODY_COLUMNS` rows; it limits the number of records.
        programs: `HEADS` or `BODIES`.
        large: array of `LARGE_COLUMNS` rows; takes the groups that the caller has to check.

    Returns:
        Numbers of records and large groups, the next offset, ``covered`` there, and why it stops.
    """
    count = checks = 0
    while position < limit:
        length = body_length(data, number, position)
        full = count == columns.shape[1] or checks == large.shape[1]
        # The end is told even where the columns are full: the caller would ask in vain once more.
        if length == 0 or (length > 0 and full):
            return count, checks, position, covered, FULL if length else ENDED
        left = _decode(data, position, length, columns, count, programs, large, checks)
        end = position + length + layout.LOG_RECORD_FIXED_OVERHEAD_SIZE
        if left < 0 or (end > covered and columns[GROUP, count] & _CHECKSUM == 0):
            return count, checks, position, covered, STUCK
        # A checksum record stands before the group that it vouches for.
        if columns[GROUP, count] & _CHECKSUM:
            # The larger one: a checksum record within a group may cover less than that group.
            covered = max(covered, end + columns[_SCRATCH, count])
        checks += left
        count += 1
        position = end
    return count, checks, position, covered, FULL


@small_kernel
def _decode(
    data: Bytes,
    position: Number,
    length: Number,
    columns: Columns,
    row: Number,
    programs: Programs,
    large: Columns,
    check: Number,
) -> Number:
    """Decode a record; return 1 if its group is left to the caller, else 0, -1 if it is odd."""
    if length < 0:
        return -1
    begin = position + _PREFIX_SIZE
    body_end = begin + length
    columns[OFFSET, row] = position
    columns[LENGTH, row] = length
    place = put_head(data, begin, body_end, columns, row)
    if place < 0 or not _put_body(data, place, body_end, columns, row, programs):
        return -1
    if columns[GROUP, row] & _CHECKSUM == 0:
        return -1 if columns[OPERATION, row] == layout.CHECKSUM_OPERATION else 0
    left = _check_plain_group(data, place, body_end, columns, row, large, check)
    if left > 0:
        large[LARGE_ROW, check] = row
    return left


@kernel
def _check_plain_group(
    data: Bytes,
    place: Number,
    body_end: Number,
    columns: Columns,
    row: Number,
    large: Columns,
    check: Number,
) -> Number:
    """Check what follows a checksum record as `check_group` does; -1 too if it is an odd one."""
    if columns[GROUP, row] & ~_OF_CHECKSUMS or columns[TRANSACTION, row] != -1:
        return -1
    if columns[OPERATION, row] != layout.CHECKSUM_OPERATION:
        return -1
    left = check_group(data, place, body_end, large, check)
    if left >= 0:
        columns[_SCRATCH, row] = be_int32(data, place + _COVERED_AT)
    return left


@small_kernel
def _put_body(
    data: Bytes,
    place: Number,
    body_end: Number,
    columns: Columns,
    row: Number,
    programs: Programs,
) -> bool:
    """Decode fields and tail; return False unless all of them are there."""
    operation = columns[OPERATION, row]
    if operation >= programs.shape[0]:
        return False
    # The caller's columns are not cleared: that would touch all of them for each chunk.
    for column in range(RECORD_ID, len(columns)):
        columns[column, row] = -1
    columns[ODD, row] = 0
    if programs[operation, 0] == _OTHER:
        columns[ODD, row] = 1
        return True
    if programs[operation, 0] == _UNKNOWN:
        return False
    step = 0
    while place >= 0 and programs[operation, step] > _STOP:
        form = programs[operation, step]
        column = programs[operation, step + 1]
        place = _put_field(data, place, body_end, columns, row, form, column)
        step += 2
    if place < 0 or programs[operation, step] == _STOP:
        return bool(place >= 0)
    return _put_tail(data, place, body_end, columns, row)


@small_kernel
def _put_field(
    data: Bytes,
    place: Number,
    body_end: Number,
    columns: Columns,
    row: Number,
    form: Number,
    column: Number,
) -> Number:
    """Decode one field into its column; return the offset after it, or -1."""
    if form == _ROWS:
        return _after_ints(data, place, body_end, columns[COUNT, row] * column)
    if form == _XID:
        return _put_global_id(data, place, body_end, columns, row)
    if place >= body_end:
        return -1
    size = _field_size(data, place, form)
    if place + size > body_end:
        return -1
    value = _field_value(data, place, form)
    # Another object has fields of its own, whose length is not known here.
    if form == _UNDO_ID and value != layout.NULL and value != layout.LOGICAL_UNDO_BTREE:
        return -1
    columns[column, row] = value
    return place + size


@small_kernel
def _field_size(data: Bytes, place: Number, form: Number) -> Number:
    if form == _LONG:
        return long_size(data, place)
    if form == _INT:
        return int_size(data, place)
    if form == _BYTE:
        return 1
    return 2 if form == _UNDO_ID else 4 if form == _INT32 else 8


@small_kernel
def _field_value(data: Bytes, place: Number, form: Number) -> Number:
    if form == _LONG:
        return compressed_long(data, place)
    if form == _INT:
        return compressed_int(data, place)
    if form == _BYTE:
        return int64(data[uint64(place)])
    if form == _UNDO_ID:
        return be_uint16(data, place)
    return be_int32(data, place) if form == _INT32 else be_int64(data, place)


@kernel
def _after_ints(data: Bytes, place: Number, body_end: Number, count: Number) -> Number:
    """Return the offset after so many compressed ints; -1 if they are cut."""
    for _ in range(count):
        if place >= body_end:
            return -1
        place += int_size(data, place)
    return place if place <= body_end else -1


@kernel
def _put_global_id(
    data: Bytes, place: Number, body_end: Number, columns: Columns, row: Number
) -> Number:
    """Note where a global id begins; return the offset after it, -1 unless it is whole or null."""
    if place + _ID_SIZE > body_end:
        return -1
    object_id = be_uint16(data, place)
    if object_id == layout.NULL:
        return place + _ID_SIZE
    begin = place + _ID_SIZE
    place = begin + GTRID_AT
    for _ in range(2):
        # Twice: the two parts of the id, each after a byte with its length.
        if object_id != layout.GLOBAL_ID or place >= body_end:
            return -1
        place += 1 + int64(data[uint64(place)])
    columns[GLOBAL_ID, row] = begin
    return place if place <= body_end else -1


@kernel
def _put_tail(data: Bytes, place: Number, body_end: Number, columns: Columns, row: Number) -> bool:
    """Decode what follows the fields; return False unless it is there."""
    group = columns[GROUP, row]
    if group & _CHECKSUM:
        return True
    # What undoes has no optional data, and names the undone record in its place.
    if group & COMPENSATION:
        if place + _UNDO_SIZE > body_end:
            return False
        columns[UNDO, row] = be_int64(data, place)
        return True
    if place + _LENGTH_SIZE > body_end:
        return False
    length = be_int32(data, place)
    columns[TAIL, row] = place + _LENGTH_SIZE
    columns[TAIL_LENGTH, row] = length
    return bool(length >= 0 and place + _LENGTH_SIZE + length <= body_end)


@kernel
def body_length(data: Bytes, number: Number, position: Number) -> Number:
    """Return the length of the body at ``position``; 0 at the end, -1 unless plainly whole."""
    size = len(data)
    if position + _LENGTH_SIZE > size:
        return 0 if position == size else -1
    length = be_int32(data, position)
    # Derby fills files with zeros ahead, and ends a scan at a length of 0.
    if length == 0:
        return 0
    body_end = position + _PREFIX_SIZE + length
    if length < BODY_SIZE_MIN or body_end + _LENGTH_SIZE > size:
        return -1
    # The length stands at both ends, so that Derby can read backwards.
    if be_int32(data, body_end) != length:
        return -1
    if be_uint32(data, position + _INSTANT_AT) != number:
        return -1
    return length if be_uint32(data, position + _POSITION_AT) == position else -1


@small_kernel
def put_head(data: Bytes, begin: Number, body_end: Number, columns: Columns, row: Number) -> Number:
    """Decode group, transaction and operation; return the offset of the fields, or -1.

    The first `BODY_SIZE_MIN` bytes are known to be there.
    """
    if be_uint16(data, begin) != layout.LOG_RECORD:
        return -1
    place = begin + _ID_SIZE
    columns[GROUP, row] = compressed_int(data, place)
    place += int_size(data, place)
    object_id = be_uint16(data, place)
    place += _ID_SIZE
    columns[TRANSACTION, row] = -1
    if object_id == layout.TRANSACTION_ID:
        size = long_size(data, place)
        if place + size + _ID_SIZE > body_end:
            return -1
        columns[TRANSACTION, row] = compressed_long(data, place)
        place += size
    elif object_id != layout.NULL:
        return -1
    columns[OPERATION, row] = be_uint16(data, place)
    return place + _ID_SIZE


@kernel
def check_group(
    data: Bytes, place: Number, body_end: Number, large: Columns, row: Number
) -> Number:
    """Check the group after a checksum record; return 0, 1 if it is in ``large``, -1 if bad."""
    if place + _CHECKSUM_SIZE > body_end or data[uint64(place)] != layout.CHECKSUM_CRC32:
        return -1
    covered = be_int32(data, place + _COVERED_AT)
    crc = be_int64(data, place + _CRC_AT)
    begin = body_end + _LENGTH_SIZE
    if covered < 0 or begin + covered > len(data):
        return -1
    if covered < LARGE_GROUP:
        # All 64 bits are compared, as Derby does: a CRC whose upper half is not zero fits nothing.
        return 0 if crc32_of(data, begin, begin + covered) == crc else -1
    large[LARGE_BEGIN, row] = begin
    large[LARGE_END, row] = begin + covered
    large[LARGE_CRC, row] = crc
    return 1
