"""The walk over the log stream, as compiled kernels.

In: stream bytes as a NumPy array. Out: a table of numbers with a column for each record; no-ops in
a row are one. The walk decodes everything that is in order; at the first record that is not (cut,
damaged, unknown, arrays in arrays) it stops, and the caller reads that one with `scan.Scan`.
Import this module only where a log is long: it loads the compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.arrow.numba_kernel import kernel, small_kernel
from tallystick.systems.h2.format.entries import UNDO_EMPTY, UNDO_RAW, Type
from tallystick.systems.h2.format.lzf import LENGTH_CONTINUED, LITERALS_MAX
from tallystick.systems.h2.format.numbers import VAR_INT_MAX, VAR_LONG_MAX
from tallystick.systems.h2.format.values import types
from tallystick.systems.h2.format.values.java_text import INTERVALS

# Rows of the table that `walk` fills, by number. In a row lie the same numbers of all records, side
# by side in memory, so that it can become a column of an Arrow batch.
START, LENGTH, CODE, COUNT, SESSION, NUMBER, BODY_START, BODY_LENGTH, TABLE = range(9)
COLUMNS = 9
"""``START``: an offset in the bytes that were given; ``COUNT``: how many no-ops it is, else 1;
``NUMBER``: the row key, or the page of an undo image; ``BODY_START``, ``BODY_LENGTH``: the added
row or the image, a length of -1 for none; ``TABLE``: the number of the table that is changed.
Numbers of 32 bits are as they were read, without a sign: see `chunk.signed32`."""

FULL, MORE, IRREGULAR = range(3)
"""Why the walk stopped: no rows left, bytes missing, a record that is not in order."""

(
    _NOOP,
    _UNDO,
    _COMMIT,
    _PREPARE,
    _ROLLBACK,
    _ADD,
    _REMOVE,
    _TRUNCATE,
    _CHECKPOINT,
    _FREE,
) = map(int, Type)
_FIXED, _NUMBERS, _COUNTED_BYTES, _COUNTED_TEXT, _SHORT_TEXT, _OTHER = map(int, types.Layout)
# By every byte there is, so that a kernel needs no test whether a type is known.
_LAYOUTS = np.full(256, _OTHER, np.uint8)
_SIZES = np.zeros(256, np.int64)
for _code, _type in types.TYPES.items():
    _LAYOUTS[_code], _SIZES[_code] = _type.layout, _type.size
_LARGE_OBJECTS = (types.BLOB, types.CLOB)
_INT_INT, _LONG_LONG = types.INT_NUMBER * 5, types.LONG_NUMBER * 5
_INT_LONG_LONG = types.INT_NUMBER | _LONG_LONG << 2
_INTERVALS, _SECOND = len(INTERVALS), INTERVALS.index("SECOND")
MASK_32 = (1 << 32) - 1
NEGATIVE_FROM = 1 << 31
"""A vI from here on is a negative number."""
_BAD = -1
_SHORT = -2
"""In place of an offset: what stands there is not in order, or needs its decoder; its bytes go on
after those that were given."""


def _var(data: Any, at: int, end: int, limit: int) -> tuple[int, int]:
    """Return a number of at most ``limit`` bytes and the offset after it, `_SHORT` or `_BAD`."""
    if at < end and data[at] < 0x80:
        return int(data[at]), at + 1
    value = 0
    for index in range(limit):
        if at + index >= end:
            return 0, _SHORT
        byte = int(data[at + index])
        # H2 writes five bytes of a negative int: the last one has the upper four bits.
        if index == 4 and limit == VAR_INT_MAX:
            value |= byte << 28
            return value, at + 5
        # The tenth byte of a long has its sign only; `-1 << 63` is it in a signed number.
        if index == 9:
            return value + byte * (-1 << 63), at + 10 if byte < 2 else _BAD
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    return 0, _BAD


var_number = small_kernel(_var)
number_at = kernel(_var)
"""The same as a function that is called. It is for callers that are not in the way of every record:
to copy the code into each of them takes long to compile."""


@small_kernel
def _units(data: Any, at: int, end: int, count: int) -> int:
    """Return the offset after ``count`` UTF-16 units, or `_SHORT`."""
    if count > end - at:
        return _SHORT
    # Most texts are ASCII: one look at all bytes is cheaper than a step for each.
    high = np.uint8(0)
    place, stop = np.uint64(at), np.uint64(at + count)
    while place < stop:  # compiled to wide steps
        high |= data[place]
        place += np.uint64(1)
    if high < 0x80:
        return at + count
    for _ in range(count):
        if at >= end:
            return _SHORT
        byte = int(data[at])
        at += 3 if byte >= 0xE0 else 2 if byte >= 0x80 else 1
    return at if at <= end else _SHORT


@small_kernel
def _counted(data: Any, at: int, end: int, text: bool) -> int:
    """Return the offset after a count and so many bytes, or UTF-16 units of a text."""
    count, at = var_number(data, at, end, VAR_INT_MAX)
    if at < 0:
        return at
    if count >= NEGATIVE_FROM:
        return _BAD
    if text:
        return _units(data, at, end, count)
    return at + count if count <= end - at else _SHORT


def _all_numbers(data: Any, at: int, end: int, kinds: int) -> int:
    """Return the offset after the numbers; ``kinds`` as in `Layout.NUMBERS`."""
    while kinds > 0:
        _, at = var_number(
            data, at, end, VAR_LONG_MAX if kinds & 3 == types.LONG_NUMBER else VAR_INT_MAX
        )
        if at < 0:
            return at
        kinds >>= 2
    return at


_numbers = small_kernel(_all_numbers)
_few_numbers = kernel(_all_numbers)  # for values that are rare: as `number_at`


@kernel
def after_value(data: Any, at: int, end: int) -> int:
    """Return the offset after the value at ``at``; less than 0 where the value is not in order.

    It is less than 0 also for a value that only its decoder can read. The offset may lie after
    ``end``: callers test it.
    """
    code = int(data[at])
    layout, size = int(_LAYOUTS[code]), int(_SIZES[code])
    at += 1
    if layout == _FIXED:
        return at + size
    if layout == _SHORT_TEXT:
        return _units(data, at, end, size)
    if layout == _NUMBERS:
        return _numbers(data, at, end, size)
    if layout == _COUNTED_TEXT:
        return _counted(data, at, end, True)
    if layout == _COUNTED_BYTES:
        after = _counted(data, at, end, False)
        return _stored_apart(data, at, end) if after == _BAD and code in _LARGE_OBJECTS else after
    return _special(data, code, at, end)


@kernel
def _stored_apart(data: Any, at: int, end: int) -> int:
    """Return the offset after the place of a large object that is in tables of the database."""
    count, at = number_at(data, at, end, VAR_INT_MAX)
    if at < 0 or count & MASK_32 != types.LOB_IN_DATABASE & MASK_32:
        return _BAD
    return _few_numbers(data, at, end, _INT_LONG_LONG)


@kernel
def _special(data: Any, code: int, at: int, end: int) -> int:
    """Return the offset after a value of a type whose layout only its decoder has."""
    if code == types.DECIMAL:
        at = _few_numbers(data, at, end, types.INT_NUMBER)
        count, at = number_at(data, at, end, VAR_INT_MAX) if at >= 0 else (0, at)
        return at + count if at >= 0 and 0 < count <= end - at else _BAD
    if code == types.INTERVAL:
        return _interval(data, at, end)
    if code not in (types.TIMESTAMP_TZ_SECONDS, types.TIME_TZ):
        return _BAD
    at = _few_numbers(data, at, end, _LONG_LONG if code == types.TIMESTAMP_TZ_SECONDS else _INT_INT)
    if at < 0 or at >= end:
        return _BAD
    seconds = data[at] in (types.ZONE_SECONDS, types.ZONE_MINUS_SECONDS & 0xFF)
    return _few_numbers(data, at + 1, end, types.INT_NUMBER) if seconds else at + 1


@kernel
def _interval(data: Any, at: int, end: int) -> int:
    """Return the offset after an interval, whose kind is at ``at``."""
    if at >= end:
        return _BAD
    kind = int(data[at])
    if kind >= 0x80:  # negative: its complement
        kind = 0xFF - kind
    if kind >= _INTERVALS:
        return _BAD
    return _few_numbers(data, at + 1, end, _LONG_LONG if kind >= _SECOND else types.LONG_NUMBER)


@small_kernel
def _row(data: Any, at: int, end: int) -> int:
    """Return the offset after the values of a row, or `_BAD`: the bytes of a row are all there."""
    count, at = var_number(data, at, end, VAR_INT_MAX)
    if at < 0 or count >= NEGATIVE_FROM:
        return _BAD
    inner = False
    while count > 0:
        if at >= end:
            return _BAD
        count -= 1
        # The values of an array follow as if they were columns. Only one level deep: an array in an
        # array needs the decoder.
        if data[at] == types.ARRAY and not inner:
            items, at = var_number(data, at + 1, end, VAR_INT_MAX)
            if at < 0 or items >= NEGATIVE_FROM:
                return _BAD
            count += items
            inner = True
            continue
        at = after_value(data, at, end)
        if at < 0 or at > end:
            return _BAD
    return at


@kernel
def _lzf(data: Any, at: int, end: int, size: int) -> bool:
    """Return True if the image expands to exactly ``size`` bytes, with a literal at its end."""
    done = 0
    while done < size:
        if at >= end:
            return False
        control = int(data[at])
        at += 1
        if control < LITERALS_MAX:
            at += control + 1
            done += control + 1
            if at > end:
                return False
            continue
        length = control >> 5
        if length == LENGTH_CONTINUED:
            if at >= end:
                return False
            length += int(data[at])
            at += 1
        if at >= end:
            return False
        distance = ((control & 31) << 8 | int(data[at])) + 1
        at += 1
        done += length + 2
        # LZF of H2 always ends with a literal, so a copy to the very end is no image of it.
        if distance > done - length - 2 or done >= size:
            return False
    return done == size


@kernel
def _undo(data: Any, at: int, end: int, page_size: int, table: Any, row: int) -> int:
    """Read UNDO after its type; return the offset after it."""
    page, at = var_number(data, at, end, VAR_INT_MAX)
    if at < 0:
        return at
    size, at = var_number(data, at, end, VAR_INT_MAX)
    if at < 0:
        return at
    # 0 and 1 are no sizes: the page follows as it is, or nothing, as it was empty.
    count = page_size if size == UNDO_RAW else 0 if size == UNDO_EMPTY else size
    # The engine takes a longer image for the end of the log.
    if count > 2 * page_size:
        return _BAD
    if count > end - at:
        return _SHORT
    if size > UNDO_EMPTY and not _lzf(data, at, at + count, page_size):
        return _BAD
    table[NUMBER, row] = page
    table[BODY_START, row], table[BODY_LENGTH, row] = at, count
    return at + count


@small_kernel
def _change(data: Any, at: int, end: int, code: int, table: Any, row: int) -> int:
    """Read ADD, REMOVE or TRUNCATE after the session; return the offset after it."""
    table[TABLE, row], at = var_number(data, at, end, VAR_INT_MAX)
    if at < 0 or code == _TRUNCATE:
        return at
    table[NUMBER, row], at = var_number(data, at, end, VAR_LONG_MAX)
    if at < 0 or code == _REMOVE:
        return at
    count, at = var_number(data, at, end, VAR_INT_MAX)
    if at < 0:
        return at
    if count >= NEGATIVE_FROM:
        return _BAD
    if count > end - at:
        return _SHORT
    table[BODY_START, row], table[BODY_LENGTH, row] = at, count
    # A row that does not fill its length, or needs more, makes the engine read what earlier rows
    # left in its buffer.
    return at + count if _row(data, at, at + count) == at + count else _BAD


@kernel
def _free(data: Any, at: int, end: int) -> int:
    """Return the offset after the page numbers of FREE_LOG."""
    count, at = var_number(data, at, end, VAR_INT_MAX)
    if at >= 0 and count < NEGATIVE_FROM:
        for _ in range(count):
            _, at = var_number(data, at, end, VAR_INT_MAX)
            if at < 0:
                break
    return at


@small_kernel
def _record(  # noqa: PLR0911 - a kernel reports by numbers, not by exceptions
    data: Any, at: int, end: int, page_size: int, table: Any, row: int
) -> int:
    """Return the offset after the record at ``at``; its fields go to column ``row`` of ``table``.

    `_BAD` or `_SHORT` in place of the offset leave part of the fields written.
    """
    code = int(data[at])
    table[CODE, row], table[COUNT, row] = code, 1
    table[NUMBER, row], table[BODY_LENGTH, row] = 0, -1
    at += 1
    # A page's rest is filled with no-ops: thousands of them are one row with a count.
    if code == _NOOP:
        first = at
        while at < end and data[at] == 0:
            at += 1
        table[COUNT, row] = at - first + 1
        return at
    if code == _UNDO:
        return _undo(data, at, end, page_size, table, row)
    if code == _CHECKPOINT:
        return at
    if code == _FREE:
        return _free(data, at, end)
    # Unknown types: the engine skips one byte and reads on, which is for the scan.
    if code > _FREE:
        return _BAD
    table[SESSION, row], at = var_number(data, at, end, VAR_INT_MAX)
    if at < 0 or code in (_COMMIT, _ROLLBACK):
        return at if table[SESSION, row] < NEGATIVE_FROM else _BAD
    if table[SESSION, row] >= NEGATIVE_FROM:  # the engine counts sessions from 1 on
        return _BAD
    if code == _PREPARE:
        table[BODY_START, row] = at
        return _counted(data, at, end, True)
    return _change(data, at, end, code, table, row)


@kernel
def walk(data: Any, at: int, last: bool, page_size: int, table: Any) -> tuple[int, int, int]:
    """Fill ``table`` with the records from ``at`` on, until it is full or a record is not plain.

    Args:
        data: bytes of the stream.
        at: the offset of the first record in them.
        last: whether the stream ends with these bytes.
        page_size: the size of an undo image that is expanded.
        table: `COLUMNS` rows of 64-bit numbers, with room for as many records as it has columns.

    Returns:
        How many records were found, the offset after the last one, and why it stopped: `FULL`,
        `MORE` or `IRREGULAR`.
    """
    rows = 0
    end = len(data)
    while rows < table.shape[1]:
        if at >= end:
            return rows, at, MORE
        after = _record(data, at, end, page_size, table, rows)
        # What reaches to the end of the window may go on after it: it is read again with more.
        if after == _SHORT or (after >= end and not last):
            return rows, at, MORE
        if after < 0:
            return rows, at, IRREGULAR
        table[START, rows] = at
        table[LENGTH, rows] = after - at
        at = after
        rows += 1
    return rows, at, FULL
