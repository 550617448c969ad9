"""Compiled reading of committed changes: which rows a transaction commits, and their images.

In: columns of plain records, and the bytes of their file. Out: for each record the record that
commits it; for each change the ranges of its images, and its values as JSON.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.byte_kernels import Bytes, Number, be_uint16, int64, uint64
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.number_kernels import (
    compressed_int,
    int_size,
    long_size,
)
from tallystick.systems.derby.format.page_rows import (
    FIELD_FIXED_LENGTH,
    FIELD_NONEXISTENT,
    FIELD_NULL,
    FIELD_OVERFLOW,
    ROW_FIRST_FIELD,
    ROW_OVERFLOW,
)
from tallystick.systems.derby.runs.walk import COMPENSATION, Columns

TRANSACTION, GROUP, OPERATION, PLACE, UNDO, CHANGES = range(6)
"""Rows of the array that `settle` takes; a change is a record that changes a row of a table."""

PENDING, DROPPED = -1, -2
"""In place of the row that commits a record."""

BEFORE, BEFORE_SIZE, AFTER, AFTER_SIZE, JSON_SIZE = range(5)
"""Rows of the array that `find_images` fills: ranges, and the size of the values; -1 for none."""
IMAGE_COLUMNS = 5

NULL, ABSENT, ODD = -1, -2, -3
"""In place of the size of a field, or of the last column of a row; see `find_fields`."""

_LAST, _COMMIT = int(Group.LAST), int(Group.COMMIT)
_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE = b'":,{}'
_NULL = tuple(b"null")
_ZERO, _A = ord("0"), ord("a")
_FIXED_SIZE = 2
"""Bytes of the length of a field that has a fixed one, on all pages that Derby makes."""


@kernel
def settle(records: Columns, commits: Any, undoing: Any) -> None:
    """Tell what becomes of records that are sorted by transaction and place.

    Args:
        records: array of six rows.
        commits: takes for each record the index of the one that commits it, `PENDING` where its
            transaction is still open, `DROPPED` where it is no change that counts.
        undoing: takes for each record 1 if it compensates a record that is not among these: its
            transaction began in an earlier chunk.
    """
    floor = 0
    begun = False
    for row in range(records.shape[1]):
        if row and records[TRANSACTION, row] != records[TRANSACTION, row - 1]:
            floor, begun = row, False
        commits[row] = PENDING if records[CHANGES, row] else DROPPED
        undoing[row] = 0
        if records[OPERATION, row] == operations.BEGIN:
            # A begin record where no end came before: a boot was between, and has undone these.
            for dropped in range(floor, row):
                commits[dropped] = DROPPED
            floor, begun = row, True
        if records[GROUP, row] & COMPENSATION:
            found = _find(records, floor, row, records[UNDO, row])
            if found >= 0:
                commits[found] = DROPPED
            else:
                # What began in this chunk has nothing in an earlier one that could be undone.
                undoing[row] = 0 if begun else 1
        if records[GROUP, row] & _LAST:
            end = row if records[GROUP, row] & _COMMIT else DROPPED
            for settled in range(floor, row + 1):
                if commits[settled] == PENDING:
                    commits[settled] = end
            floor, begun = row + 1, True


@kernel
def _find(records: Columns, low: Number, high: Number, place: Number) -> Number:
    """Return which of the records is at ``place``, -1 if none is."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if records[PLACE, middle] < place:
            low = middle + 1
        else:
            high = middle
    return low if low < end and records[PLACE, low] == place else -1


@kernel
def find_images(
    data: Bytes, operation: Any, tail: Any, size: Any, images: Columns, none: Bytes
) -> None:
    """Find the images of changes; ``tail`` and ``size`` are the ranges of their optional data.

    Nothing is written to ``none``.
    """
    for row in range(len(operation)):
        begin = int64(tail[row])
        end = begin + int64(size[row])
        for column in range(IMAGE_COLUMNS):
            images[column, row] = -1
        cut = end
        at = begin
        json = int64(-1)
        if operation[row] == operations.UPDATE_FIELD:
            cut = _after_field(data, begin, end)
            at = _after_field(data, cut, end) if cut >= 0 else -1
        elif operation[row] != operations.DELETE or begin < end:
            at, json = _put_row(data, begin, end, none, 0, 0)
            if operation[row] == operations.UPDATE_ROW and at >= 0:
                cut = at
                at, _ = _put_row(data, cut, end, none, 0, 0)
        _set_images(images, row, operation[row], begin, cut, end, at)
        # Kernels make no arrays (see `numba_kernel`): the caller makes one of the sum of these
        # sizes, and `put_values` reads the row once more to fill it.
        images[JSON_SIZE, row] = json if at >= 0 else -1


@kernel
def _set_images(
    images: Columns,
    row: Number,
    operation: Number,
    begin: Number,
    cut: Number,
    end: Number,
    at: Number,
) -> None:
    """Set the ranges; ``cut`` is between two images, ``at`` after both, -1 if undecodable."""
    if at < 0 or operation == operations.INSERT:
        images[AFTER, row] = begin
        images[AFTER_SIZE, row] = end - begin
    elif operation == operations.DELETE:
        images[BEFORE, row] = begin
        images[BEFORE_SIZE, row] = end - begin if end > begin else -1
    else:
        images[AFTER, row] = begin
        images[AFTER_SIZE, row] = cut - begin
        images[BEFORE, row] = cut
        images[BEFORE_SIZE, row] = (at if operation == operations.UPDATE_FIELD else end) - cut


@kernel
def put_values(
    data: Bytes, tail: Any, size: Any, images: Columns, offsets: Any, out: Bytes
) -> None:
    """Write the values of each row that has some at its offset in ``out``."""
    for row in range(images.shape[1]):
        if images[JSON_SIZE, row] > 0:
            begin = int64(tail[row])
            _put_row(data, begin, begin + int64(size[row]), out, int64(offsets[row]), 1)


@kernel
def find_fields(
    data: Bytes, operation: Any, tail: Any, size: Any, fields: Any, last: Any, none: Bytes
) -> None:
    """Find the fields of rows that are inserted, or as an update leaves them.

    Args:
        data: the bytes of the file.
        operation: of each row.
        tail: begins of the optional data.
        size: sizes of these.
        fields: array of two parts with a row for each column of the table: takes begin and size;
            a size of `ABSENT`, or `NULL`.
        last: takes the number of the last column of each row; `ODD` for a row that goes on
            elsewhere, or of which nothing or too little is there.
        none: nothing is written to it.
    """
    for row in range(len(operation)):
        begin = int64(tail[row])
        end = begin + int64(size[row])
        for column in range(fields.shape[1]):
            fields[0, column, row] = 0
            fields[1, column, row] = ABSENT
        last[row] = ODD
        if operation[row] == operations.DELETE:
            if begin == end or _put_row(data, begin, end, none, 0, 0)[0] >= 0:
                last[row] = ABSENT
            continue
        after, json = _put_row(data, begin, end, none, 0, 0)
        if after < 0 or json <= 0 or data[uint64(begin)] & ROW_OVERFLOW:
            continue
        before = operation[row] == operations.UPDATE_ROW
        if before and _put_row(data, after, end, none, 0, 0)[0] < 0:
            continue
        last[row] = _find_row(data, begin, end, fields, row)


@kernel
def _find_row(data: Bytes, begin: Number, end: Number, fields: Any, row: Number) -> Number:
    """Find the fields of a row that is whole; return its last column, or `ODD`."""
    place = _after_int(data, begin + 1, end)
    column = int64(0)
    if data[uint64(begin)] & ROW_FIRST_FIELD:
        column = int64(compressed_int(data, place))
        place += int_size(data, place)
    count = int64(compressed_int(data, place))
    place += int_size(data, place)
    last = int64(ODD)
    for number in range(column, column + count):
        status = data[uint64(place)]
        after = _after_field(data, place, end)
        if status & FIELD_OVERFLOW:
            return ODD
        if status & FIELD_NONEXISTENT != FIELD_NONEXISTENT:
            last = int64(number)
            if number < fields.shape[1]:
                value = int64(_value_begin(data, place))
                fields[0, number, row] = value
                fields[1, number, row] = NULL if status & FIELD_NULL else after - value
        place = after
    return last


@kernel
def _put_row(
    data: Bytes, place: Number, end: Number, out: Bytes, at: Number, write: Number
) -> tuple[Number, Number]:
    """Read a row; return the offset after it, -1 if undecodable, and the size of its JSON.

    The JSON is written to ``out`` at ``at`` if ``write`` is not 0. Its size is 0 without columns.
    """
    if place >= end:
        return -1, 0
    status = data[uint64(place)]
    place = _after_int(data, place + 1, end)
    if status & ROW_OVERFLOW:
        place = _after_int(data, _after_long(data, place, end), end)
    column = int64(0)
    if status & ROW_FIRST_FIELD:
        if place < 0 or _after_int(data, place, end) < 0:
            return -1, 0
        column = int64(compressed_int(data, place))
        place += int_size(data, place)
    elif status & ROW_OVERFLOW:
        return place, 0
    if place < 0 or _after_int(data, place, end) < 0:
        return -1, 0
    count = int64(compressed_int(data, place))
    place += int_size(data, place)
    # Every field has at least one byte: a larger count is damage, and would keep the loop busy for
    # long.
    if count > end - place:
        return -1, 0
    return _put_fields(data, place, end, out, at, write, column, count)


@kernel
def _put_fields(
    data: Bytes,
    place: Number,
    end: Number,
    out: Bytes,
    at: Number,
    write: Number,
    column: Number,
    count: Number,
) -> tuple[Number, Number]:
    """Read the fields of a row, as `_put_row` does."""
    begin = at
    for number in range(column, column + count):
        after = _after_field(data, place, end)
        if after < 0:
            return -1, 0
        # Nonexistent has two bits, and one of them alone is null.
        if data[uint64(place)] & FIELD_NONEXISTENT != FIELD_NONEXISTENT:
            if write:
                out[uint64(at)] = _OPEN if at == begin else _COMMA
            at = _put_column(data, place, after, out, at + 1, write, number)
        place = after
    if at > begin:
        if write:
            out[uint64(at)] = _CLOSE
        at += 1
    return place, at - begin


@kernel
def _put_column(
    data: Bytes,
    place: Number,
    after: Number,
    out: Bytes,
    at: Number,
    write: Number,
    number: Number,
) -> Number:
    """Write name and value of a column; return the offset in ``out`` after them."""
    digits = 1
    left = number
    while left >= 10:
        digits += 1
        left //= 10
    if write:
        out[uint64(at)] = _QUOTE
        left = number
        for digit in range(digits):
            out[uint64(at + digits - digit)] = _ZERO + left % 10
            left //= 10
        out[uint64(at + digits + 1)] = _QUOTE
        out[uint64(at + digits + 2)] = _COLON
    return _put_value(data, place, after, out, at + digits + 3, write)


@kernel
def _put_value(
    data: Bytes, place: Number, after: Number, out: Bytes, at: Number, write: Number
) -> Number:
    """Write the value of a field in hex, or null; return the offset in ``out`` after it."""
    if data[uint64(place)] & FIELD_NULL:
        if write:
            for index in range(len(_NULL)):
                out[uint64(at + index)] = _NULL[index]
        return at + len(_NULL)
    begin = _value_begin(data, place)
    if write:
        out[uint64(at)] = _QUOTE
        for index in range(begin, after):
            byte = data[uint64(index)]
            target = at + 1 + 2 * (index - begin)
            out[uint64(target)] = _hex(byte >> 4)
            out[uint64(target + 1)] = _hex(byte & 15)
        out[uint64(at + 1 + 2 * (after - begin))] = _QUOTE
    return at + 2 + 2 * (after - begin)


@kernel
def _hex(digit: Number) -> Number:
    return digit + (_ZERO if digit < 10 else _A - 10)


@kernel
def _value_begin(data: Bytes, place: Number) -> Number:
    """Return where the bytes of a field begin, after its status and its length."""
    if data[uint64(place)] & FIELD_FIXED_LENGTH:
        return place + 1 + _FIXED_SIZE
    return place + 1 + int_size(data, place + 1)


@kernel
def _after_field(data: Bytes, place: Number, end: Number) -> Number:
    """Return the offset after a field, -1 if it is cut."""
    if place >= end:
        return -1
    status = data[uint64(place)]
    if status & FIELD_NULL:
        return place + 1
    if status & FIELD_FIXED_LENGTH:
        if place + 1 + _FIXED_SIZE > end:
            return -1
        after = place + 1 + _FIXED_SIZE + be_uint16(data, place + 1)
        return after if after <= end else -1
    begin = _after_int(data, place + 1, end)
    if begin < 0:
        return -1
    after = begin + int64(compressed_int(data, place + 1))
    return after if after <= end else -1


@kernel
def _after_int(data: Bytes, place: Number, end: Number) -> Number:
    """Return the offset after a compressed int, -1 if it is cut or follows what is."""
    if place < 0 or place >= end:
        return -1
    after = place + int_size(data, place)
    return after if after <= end else -1


@kernel
def _after_long(data: Bytes, place: Number, end: Number) -> Number:
    """Return the offset after a compressed long, -1 if it is cut or follows what is."""
    if place < 0 or place >= end:
        return -1
    after = place + long_size(data, place)
    return after if after <= end else -1
