"""The walk over the log stream for vectorised reading, as compiled kernels.

In: stream bytes as a NumPy array. Out: columns of numbers, one place per record or run of no-ops.
The walk knows everything that is in order; at the first record that is not (cut, damaged, unknown,
arrays in arrays) it stops, and the caller goes on with `scan.Scan`, which knows the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.arrow.numba_kernel import kernel, small_kernel

# Rows of the table that `walk` fills, by number: each is a column of the batch.
START, LENGTH, CODE, COUNT, SESSION, NUMBER, BODY_START, BODY_LENGTH = range(8)
COLUMNS = 8
"""``NUMBER`` is the row key, or the page of an undo image."""

FULL, MORE, STRANGE = range(3)
"""Why the walk stopped: no rows left, bytes missing, a record that is not in order."""

_NOOP, _UNDO, _COMMIT, _PREPARE, _ROLLBACK, _ADD, _REMOVE, _TRUNCATE, _CHECKPOINT, _FREE = range(10)
_BAD = -1
_SHORT = -2


@small_kernel
def _var(data: Any, at: int, end: int, limit: int) -> tuple[int, int]:
    """Value and place behind a number of at most ``limit`` bytes; place `_SHORT` or `_BAD`."""
    if at < end and data[at] < 0x80:
        return int(data[at]), at + 1
    value = 0
    for index in range(limit):
        if at + index >= end:
            return 0, _SHORT
        byte = int(data[at + index])
        if index == 4 and limit == 5:
            value |= byte << 28
            return value, at + 5
        if index == 9:
            return value + byte * (-1 << 63), at + 10 if byte < 2 else _BAD
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    return 0, _BAD


@small_kernel
def _units(data: Any, at: int, end: int, count: int) -> int:
    """The place behind ``count`` UTF-16 units."""
    if count > end - at:
        return _SHORT
    high = np.uint8(0)
    place, behind = np.uint64(at), np.uint64(at + count)
    while place < behind:  # compiled to wide steps
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
    count, at = _var(data, at, end, 5)
    if at < 0:
        return at
    if count >= 1 << 31:
        return _BAD
    if text:
        return _units(data, at, end, count)
    return at + count if count <= end - at else _SHORT


@small_kernel
def _numbers(data: Any, at: int, end: int, longs: int, ints: int) -> int:
    """The place behind so many long numbers and then so many short ones."""
    for index in range(longs + ints):
        _, at = _var(data, at, end, 10 if index < longs else 5)
        if at < 0:
            return at
    return at


@kernel
def _value(data: Any, at: int, end: int) -> int:
    """The place behind the value at ``at``, or `_BAD`; collections are the caller's."""
    code = int(data[at])
    at += 1
    if code == 0 or 32 <= code < 58 or 60 <= code < 66:
        return at
    if 68 <= code < 100:
        return _units(data, at, end, code - 68)
    if 100 <= code < 132:
        return at + code - 100
    if code in (13, 14, 21):
        return _counted(data, at, end, True)
    if code in (4, 66, 8, 25):
        return _numbers(data, at, end, 0, 1)
    if code in (5, 67, 7, 9, 10, 58, 133):
        return _numbers(data, at, end, 1, 0)
    return _other_value(data, at, end, code)


@kernel
def _other_value(data: Any, at: int, end: int, code: int) -> int:
    if code in (12, 15, 16, 19, 22, 136):
        return _counted(data, at, end, False)
    if code == 59:
        at = _numbers(data, at, end, 0, 1)
        return _numbers(data, at, end, 1, 0) if at > 0 else at
    if code in (11, 24):
        return _numbers(data, at, end, 1 if code == 11 else 2, 1)
    if code in (132, 134):
        return _numbers(data, at, end, 2 if code == 132 else 3, 0)
    if code in (2, 3):
        return at + code - 1
    return at + 16 if code == 20 else _BAD


@small_kernel
def _row(data: Any, at: int, end: int) -> int:
    """The place behind the values of a row, or `_BAD`."""
    count, at = _var(data, at, end, 5)
    if at < 0 or count >= 1 << 31:
        return _BAD
    inner = False
    while count > 0:
        if at >= end:
            return _BAD
        count -= 1
        if data[at] == 17 and not inner:  # an array: its values follow as if they were columns
            items, at = _var(data, at + 1, end, 5)
            if at < 0 or items >= 1 << 31:
                return _BAD
            count += items
            inner = True
            continue
        at = _value(data, at, end)
        if at < 0 or at > end:
            return _BAD
    return at


@kernel
def _lzf(data: Any, at: int, end: int, size: int) -> bool:
    """True if the image expands to exactly ``size`` bytes, with a literal at its end."""
    done = 0
    while done < size:
        if at >= end:
            return False
        control = int(data[at])
        at += 1
        if control < 32:
            at += control + 1
            done += control + 1
            if at > end:
                return False
            continue
        length = control >> 5
        if length == 7:
            if at >= end:
                return False
            length += int(data[at])
            at += 1
        if at >= end:
            return False
        distance = ((control & 31) << 8 | int(data[at])) + 1
        at += 1
        done += length + 2
        if distance > done - length - 2 or done >= size:
            return False
    return done == size


@kernel
def _undo(data: Any, at: int, end: int, page_size: int, table: Any, row: int) -> int:
    page, at = _var(data, at, end, 5)
    if at < 0:
        return at
    size, at = _var(data, at, end, 5)
    if at < 0:
        return at
    count = page_size if size == 0 else 0 if size == 1 else size
    if count > 2 * page_size:
        return _BAD
    if count > end - at:
        return _SHORT
    if size > 1 and not _lzf(data, at, at + count, page_size):
        return _BAD
    table[NUMBER, row] = page
    table[BODY_START, row], table[BODY_LENGTH, row] = at, count
    return at + count


@small_kernel
def _change(data: Any, at: int, end: int, code: int, table: Any, row: int) -> int:
    """ADD, REMOVE, TRUNCATE behind the session."""
    _, at = _var(data, at, end, 5)
    if at < 0 or code == _TRUNCATE:
        return at
    table[NUMBER, row], at = _var(data, at, end, 10)
    if at < 0 or code == _REMOVE:
        return at
    count, at = _var(data, at, end, 5)
    if at < 0:
        return at
    if count >= 1 << 31:
        return _BAD
    if count > end - at:
        return _SHORT
    table[BODY_START, row], table[BODY_LENGTH, row] = at, count
    return at + count if _row(data, at, at + count) == at + count else _BAD


@kernel
def _free(data: Any, at: int, end: int) -> int:
    count, at = _var(data, at, end, 5)
    if at >= 0 and count < 1 << 31:
        for _ in range(count):
            _, at = _var(data, at, end, 5)
            if at < 0:
                break
    return at


@small_kernel
def _record(data: Any, at: int, end: int, page_size: int, table: Any, row: int) -> int:
    """The place behind the record at ``at``, whose fields go to row ``row`` of ``table``."""
    code = int(data[at])
    table[CODE, row], table[COUNT, row], table[NUMBER, row], table[BODY_LENGTH, row] = (
        code,
        1,
        0,
        -1,
    )
    at += 1
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
    if code > _FREE:
        return _BAD
    table[SESSION, row], at = _var(data, at, end, 5)
    if at < 0:
        return at
    if code in (_COMMIT, _ROLLBACK):
        return at
    if code == _PREPARE:
        table[BODY_START, row] = at
        table[BODY_LENGTH, row] = -1
        return _counted(data, at, end, True)
    return _change(data, at, end, code, table, row)


@kernel
def walk(data: Any, at: int, last: bool, page_size: int, table: Any) -> tuple[int, int, int]:
    """Fill ``table`` (`COLUMNS` rows of 64-bit numbers) from ``at``. Returns how many records, the
    place behind the last one, and why it stopped. ``last``: no more bytes will come."""
    rows = 0
    end = len(data)
    while rows < table.shape[1]:
        if at >= end:
            return rows, at, MORE
        behind = _record(data, at, end, page_size, table, rows)
        if behind == _SHORT or (behind >= end and not last):
            return rows, at, MORE
        if behind < 0:
            return rows, at, STRANGE
        table[START, rows] = at
        table[LENGTH, rows] = behind - at
        at = behind
        rows += 1
    return rows, at, FULL
