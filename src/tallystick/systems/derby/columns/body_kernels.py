"""Compiled scan of a plain log file with every body decoded to its end.

In: the file as a NumPy array of bytes. Out: columns of numbers: what the judges of a log need of
each record. Which fields an operation has is in a table, `PROGRAMS`, made from their types. A few
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
    int64,
    uint64,
)
from tallystick.arrow.numba_kernel import kernel, small_kernel
from tallystick.systems.derby.columns.kernels import (
    ENDED,
    FULL,
    GLOBAL_ID,
    GROUP,
    LARGE_OFFSET,
    LARGE_ROW,
    LENGTH,
    OFFSET,
    OPERATION,
    RECORD_ID,
    STUCK,
    TRANSACTION,
    Columns,
    body_length,
    check_group,
    put_head,
)
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

Programs = NDArray[np.int8]

SEGMENT, CONTAINER, PAGE, VERSION, COUNT, FLAG, LOGICAL_UNDO, UNDO, TAIL, TAIL_LENGTH, ODD = range(
    GLOBAL_ID + 1, GLOBAL_ID + 12
)
"""Further columns; -1 where an operation has no such field.

COUNT is the number of rows, or the length that a checksum record covers; FLAG the last byte of an
insert or delete, or the status of a begin or end record; LOGICAL_UNDO the format id of that field;
UNDO the undone instant. TAIL is the offset of the optional data.
"""
_UNUSED = ODD + 1
BODY_COLUMNS = _UNUSED + 1

_STOP, _LONG, _INT, _BYTE, _INT32, _INT64, _UNDO_ID, _XID, _ROWS, _OTHER = range(10)
"""Forms of a field; `_ROWS` is followed by the number of ints of a row."""
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
_ID_SIZE = layout.FORMAT_ID_SIZE
_UNDO_SIZE = 8
_GTRID_AT = 4
_CHECKSUM = int(Group.CHECKSUM)
_COMPENSATION = int(Group.COMPENSATION)
_OF_CHECKSUMS = int(Group.CHECKSUM | Group.RAWSTORE)
"""Bits that the group of a plain checksum record has."""


def _programs() -> Programs:
    table = np.zeros((max(OPERATIONS) + 1, _STEPS), np.int8)
    table[:, 0] = _OTHER
    for number, operation in OPERATIONS.items():
        steps = [one for step in _steps(operation) for one in step]
        table[number, : len(steps) + 1] = [*steps, _STOP]
    return table


def _steps(operation: Operation) -> list[tuple[int, int]]:
    """Return form and column of each number in the fields of an operation."""
    steps = [step for name, kind in operation.fields for step in _numbers(name, kind)]
    if operation.tail is not None:
        names = getattr(operation.tail, "names", ())
        steps.append((_ROWS, len(names)) if names else (_OTHER, _UNUSED))
    return [(_OTHER, _UNUSED)] if (_OTHER, _UNUSED) in steps else steps


def _numbers(name: str, kind: FieldType) -> list[tuple[int, int]]:
    column = _COLUMN_OF.get(name, _UNUSED)
    if kind is field_types.PAGE:
        return [(_LONG, SEGMENT), (_LONG, CONTAINER), (_LONG, PAGE)]
    if kind is field_types.LOGICAL_UNDO:
        return [(_UNDO_ID, column)]
    if kind is field_types.XID:
        return [(_XID, column)]
    if kind.fixed:
        return [(_FIXED[kind.fixed], column)]
    return [(_LONG, column)] * kind.longs + [(_INT, column)] * kind.ints or [(_OTHER, _UNUSED)]


PROGRAMS = _programs()
"""By format id, the form and the column of each number in the operation's fields."""


@kernel
def scan_bodies(
    data: Bytes,
    number: Number,
    position: Number,
    limit: Number,
    columns: Columns,
    programs: Programs,
    large: Columns,
) -> tuple[Number, Number, Number, Number]:
    """Decode the records from ``position`` that begin before ``limit`` into ``columns``.

    Args:
        data: the bytes of the file.
        number: the file's number.
        position: offset of a record.
        limit: an offset.
        columns: array of `BODY_COLUMNS` rows; it limits the number of records.
        programs: `PROGRAMS`.
        large: array of `LARGE_COLUMNS` rows; takes the groups that the caller has to check.

    Returns:
        Number of records, number of large groups, offset of the next record, and `ENDED`, `FULL`
        or `STUCK`: whatever cannot be decoded plainly to its end stops the scan. Rows that are
        `ODD` are decoded up to their operation.
    """
    count = checks = 0
    while position < limit:
        length = body_length(data, number, position)
        if length == 0:
            return count, checks, position, ENDED
        if length > 0 and (count == columns.shape[1] or checks == large.shape[1]):
            return count, checks, position, FULL
        left = _decode(data, position, length, columns, count, programs, large, checks)
        if left < 0:
            return count, checks, position, STUCK
        checks += left
        count += 1
        position += length + layout.LOG_RECORD_FIXED_OVERHEAD_SIZE
    return count, checks, position, FULL


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
        large[LARGE_OFFSET, check] = position
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
    return check_group(data, place, body_end, large, check)


@kernel
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
    for column in range(RECORD_ID, _UNUSED):
        columns[column, row] = -1
    columns[ODD, row] = 0
    if programs[operation, 0] == _OTHER:
        columns[ODD, row] = 1
        return True
    step = 0
    while place >= 0 and programs[operation, step] != _STOP:
        form = programs[operation, step]
        column = programs[operation, step + 1]
        place = _put_field(data, place, body_end, columns, row, form, column)
        step += 2
    return place >= 0 and _put_tail(data, place, body_end, columns, row)


@kernel
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
    if form == _UNDO_ID and value != layout.NULL and value != layout.LOGICAL_UNDO_BTREE:
        return -1
    columns[column, row] = value
    return place + size


@kernel
def _field_size(data: Bytes, place: Number, form: Number) -> Number:
    if form == _LONG:
        return long_size(data, place)
    if form == _INT:
        return int_size(data, place)
    if form == _BYTE:
        return 1
    return 2 if form == _UNDO_ID else 4 if form == _INT32 else 8


@kernel
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
    place = begin + _GTRID_AT
    for _ in range(2):
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
    if group & _COMPENSATION:
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
