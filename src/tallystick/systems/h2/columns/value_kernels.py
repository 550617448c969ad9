"""The values of rows as JSON, as compiled kernels.

In: rows of bytes that `walk.walk` found in order. Out: a JSON object for each, the bytes
that `json.dumps` makes of the values as the engine prints them. What is printed by `format.values`
only (floating-point numbers, arrays, some decimals) is listed first and then copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.arrow.json_kernels import (
    digits_of,
    magnitude,
    packed_day,
    put_digits,
    put_hex,
    put_unit,
    put_whole,
)
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.h2.format.numbers import VAR_INT_MAX, VAR_LONG_MAX
from tallystick.systems.h2.format.values import types
from tallystick.systems.h2.format.values.types import TYPES, Layout
from tallystick.systems.h2.runs.rows import whole_number_at
from tallystick.systems.h2.runs.walk import NEGATIVE_FROM, after_value, number_at

CONSTANT, WHOLE, TEXT, HEX, LARGE, UUID, DECIMAL, MOMENT, OTHER = range(9)
"""How values are printed. `LARGE`: as `HEX`, where the object stands in its row; `OTHER`: by
`format.values`."""
NO_OBJECT, WHOLE_ROW = -1, -2
"""Of a row that has no JSON, and of one that `format.values` prints as a whole."""

_MOMENTS = (types.TIME, types.DATE, types.TIMESTAMP)
_LOCAL_MOMENTS = (types.LOCAL_TIME, types.LOCAL_DATE, types.LOCAL_TIMESTAMP)
_WHOLE_NUMBERS = (
    types.BYTE,
    types.SHORT,
    types.INT,
    types.LONG,
    types.ENUM,
    types.INT_NEGATIVE,
    types.LONG_NEGATIVE,
    types.DECIMAL_SMALL_0,
)
_BY_LAYOUT = {
    Layout.COUNTED_BYTES: HEX,
    Layout.COUNTED_TEXT: TEXT,
    Layout.SHORT_TEXT: TEXT,
}
_QUOTE = ord('"')
_ZERO, _MINUS, _POINT, _COLON, _BLANK = b"0-.: "
_SHORT_TEXT, _SHORT_BYTES = types.STRING_0_31, types.BYTES_0_31
_NS_PER_MS, _NS_PER_SECOND, _MS_PER_DAY = 1_000_000, 1_000_000_000, 86_400_000
_LIMIT = 1 << 46
"""Numbers of times from here on are printed by `format.values`."""
_EXPONENT_MIN = -6
_UUID_SIZE, _UUID_DASHES = 16, (4, 6, 8, 10)
_TIME_ONLY, _DATE_ONLY = -1, -1
_UNUSUAL = -2


def kinds_of(plain_zone: bool) -> Any:
    """Return how values are printed, by type.

    ``plain_zone``: stored times are those of UTC, and dates those of the Gregorian calendar.
    """
    kinds = np.full(256, OTHER, np.uint8)
    for code, one in TYPES.items():
        if one.layout == Layout.FIXED:
            kinds[code] = CONSTANT if not one.size else HEX
        else:
            kinds[code] = _BY_LAYOUT.get(one.layout, OTHER)
    kinds[types.BYTES_0_31] = HEX
    for codes, kind in (
        (_WHOLE_NUMBERS, WHOLE),
        ((types.BLOB,), LARGE),
        ((types.CLOB, types.JSON, types.GEOMETRY), OTHER),
        ((types.UUID,), UUID),
        ((types.DECIMAL_SMALL,), DECIMAL),
        (_LOCAL_MOMENTS, MOMENT),
        (_MOMENTS, MOMENT if plain_zone else OTHER),
    ):
        kinds[list(codes)] = kind
    return kinds


@kernel
def find_others(
    data: Any, starts: Any, lengths: Any, bases: Any, kinds: Any, places: Any, rows: Any
) -> int:
    """List the values that `format.values` prints; return how many there are.

    ``places`` takes the offset of each in ``data``, -1 for a whole row; ``rows`` its row.
    """
    count = 0
    for row in range(len(starts)):
        if bases[row] == WHOLE_ROW:
            places[count], rows[count] = -1, row
            count += 1
        if bases[row] < 0:
            continue
        end = starts[row] + lengths[row]
        columns, at = number_at(data, starts[row], end, VAR_INT_MAX)
        for _ in range(columns):
            if is_other(data, at, end, kinds):
                places[count], rows[count] = at, row
                count += 1
            at = _after(data, at, end)
    return count


@kernel
def read_doubles(data: Any, places: Any, bits: Any) -> None:
    """Read the bits of the DOUBLEs among values; they are stored in opposite order."""
    for at in range(len(places)):
        bits[at] = 0
        if places[at] < 0 or data[places[at]] != types.DOUBLE:
            continue
        # A negative number is shifted with its sign, so 64 steps get all of its bits.
        stored, _ = number_at(data, places[at] + 1, len(data), VAR_LONG_MAX)
        reversed_bits = 0
        for _ in range(64):
            reversed_bits = reversed_bits << 1 | stored & 1
            stored >>= 1
        bits[at] = reversed_bits


@kernel
def _after(data: Any, at: int, end: int) -> int:
    """Return the offset after a value, or an array of values."""
    if data[at] != types.ARRAY:
        return after_value(data, at, end)
    count, at = number_at(data, at + 1, end, VAR_INT_MAX)
    for _ in range(count):
        at = after_value(data, at, end)
    return at


@kernel
def is_other(data: Any, at: int, end: int, kinds: Any) -> bool:
    """Return True if a value is printed by `format.values`."""
    kind = kinds[data[at]]
    if kind == DECIMAL:
        scale, at = number_at(data, at + 1, end, VAR_INT_MAX)
        unscaled, _ = number_at(data, at, end, VAR_LONG_MAX)
        digits = digits_of(magnitude(unscaled))
        return scale >= NEGATIVE_FROM or (scale > 0 and digits - 1 - scale < _EXPONENT_MIN)
    if kind == MOMENT:
        date, nanos = _moment(data, at, end)
        return date == _UNUSUAL or nanos == _UNUSUAL
    if kind == LARGE:
        count, _ = number_at(data, at + 1, end, VAR_INT_MAX)
        return count >= NEGATIVE_FROM
    return bool(kind == OTHER)


@kernel
def write_objects(
    data: Any, starts: Any, lengths: Any, bases: Any, kinds: Any, texts: Any, out: Any, ends: Any
) -> None:
    """Write the JSON object of each row to ``out``, and where it ends there to ``ends``.

    ``bases`` has the number of the label of each row's first column, or `NO_OBJECT` or `WHOLE_ROW`.
    ``texts``: labels, constants by type, and what `find_others` listed; of each the texts one after
    the other, and where they end.
    """
    (labels, label_ends), (constants, constant_ends), (others, other_ends) = texts
    to = 0
    other = 0
    for row in range(len(starts)):
        ends[row] = to
        if bases[row] == WHOLE_ROW:
            to = _copy_text(others, other_ends, other, out, to)
            other += 1
        if bases[row] < 0:
            continue
        end = starts[row] + lengths[row]
        columns, at = number_at(data, starts[row], end, VAR_INT_MAX)
        for column in range(columns):
            to = _copy_text(labels, label_ends, bases[row] + column, out, to)
            if kinds[data[at]] == CONSTANT:
                to = _copy_text(constants, constant_ends, data[at], out, to)
            elif is_other(data, at, end, kinds):
                to = _copy_text(others, other_ends, other, out, to)
                other += 1
            else:
                to = _write_value(data, at, end, kinds[data[at]], out, to)
            at = _after(data, at, end)
        out[to] = _CLOSE
        to += 1
    ends[len(starts)] = to


_CLOSE = ord("}")


@kernel
def _copy_text(texts: Any, ends: Any, number: int, out: Any, to: int) -> int:
    """Write a text of several by its number; return the offset after it in ``out``."""
    for at in range(ends[number - 1] if number else 0, ends[number]):
        out[to] = texts[at]
        to += 1
    return to


@kernel
def _write_value(data: Any, at: int, end: int, kind: int, out: Any, to: int) -> int:
    """Write a value in quotes; return the offset after it in ``out``."""
    out[to] = _QUOTE
    to += 1
    if kind == TEXT:
        to = _write_text(data, at, end, out, to)
    elif kind == WHOLE:
        to = put_whole(whole_number_at(data, at, end), out, to)
    elif kind == DECIMAL:
        to = _write_decimal(data, at, end, out, to)
    elif kind == MOMENT:
        to = _write_moment(data, at, end, out, to)
    else:
        to = _write_bytes(data, at, end, kind, out, to)
    out[to] = _QUOTE
    return to + 1


# -- bytes and texts ------------------------------------------------------------------------


@kernel
def _write_bytes(data: Any, at: int, end: int, kind: int, out: Any, to: int) -> int:
    code = int(data[at])
    at += 1
    if kind == UUID:
        count = _UUID_SIZE
    elif code >= _SHORT_BYTES and code < types.LOCAL_TIME:
        count = code - _SHORT_BYTES
    else:
        count, at = number_at(data, at, end, VAR_INT_MAX)
    for place in range(count):
        if kind == UUID and place in _UUID_DASHES:
            out[to] = _MINUS
            to += 1
        to = put_hex(int(data[at + place]), 2, out, to)
    return to


@kernel
def _write_text(data: Any, at: int, end: int, out: Any, to: int) -> int:
    code = int(data[at])
    at += 1
    if code >= _SHORT_TEXT and code < _SHORT_BYTES:
        count = code - _SHORT_TEXT
    else:
        count, at = number_at(data, at, end, VAR_INT_MAX)
    for _ in range(count):
        unit = int(data[at])
        at += 1
        if unit >= 0xE0:
            unit = (unit & 0xF) << 12 | (int(data[at]) & 0x3F) << 6 | int(data[at + 1]) & 0x3F
            at += 2
        elif unit >= 0x80:
            unit = (unit & 0x1F) << 6 | int(data[at]) & 0x3F
            at += 1
        to = put_unit(unit, out, to)
    return to


# -- numbers --------------------------------------------------------------------------------


@kernel
def _write_decimal(data: Any, at: int, end: int, out: Any, to: int) -> int:
    """Write an unscaled number with a point; `is_other` sees to it that it needs no exponent."""
    scale, at = number_at(data, at + 1, end, VAR_INT_MAX)
    unscaled, _ = number_at(data, at, end, VAR_LONG_MAX)
    if unscaled < 0:
        out[to] = _MINUS
        to += 1
    value = magnitude(unscaled)
    count = max(digits_of(value), scale + 1)
    to = put_digits(value, count, out, to)
    if scale > 0:
        # From the end, as each digit moves to where the next one was.
        for place in range(to, to - scale, -1):
            out[place] = out[place - 1]
        out[to - scale] = _POINT
        to += 1
    return to


# -- dates and times ------------------------------------------------------------------------


@kernel
def _moment(data: Any, at: int, end: int) -> tuple[int, int]:
    """Return the packed date and the nanoseconds of the day of a value, -1 for what it has not.

    `_UNUSUAL` stands for what is not printed in the usual number of digits.
    """
    code = int(data[at])
    first, at = number_at(data, at + 1, end, VAR_LONG_MAX)
    if first < -_LIMIT or first >= _LIMIT:
        return _UNUSUAL, _UNUSUAL
    if code == types.DATE:
        # A DATE is stored in minutes.
        return _usual_date(packed_day(first * 60_000 // _MS_PER_DAY)), _DATE_ONLY
    if code == types.TIME:
        return _TIME_ONLY, first % _MS_PER_DAY * _NS_PER_MS
    if code == types.TIMESTAMP:
        nanos, _ = number_at(data, at, end, VAR_INT_MAX)
        # The kernel reads a vI as unsigned, the engine as an int: bit 31 is its sign.
        nanos = ((nanos & 0xFFFF_FFFF) ^ 1 << 31) - (1 << 31)
        return (
            _usual_date(packed_day(first // _MS_PER_DAY)),
            # 1.2 and 1.3 store the nanoseconds of the second, 1.4 those of the millisecond.
            first % _MS_PER_DAY * _NS_PER_MS + nanos % _NS_PER_MS,
        )
    if code == types.LOCAL_DATE:
        return _usual_date(first), _DATE_ONLY
    if code == types.LOCAL_TIME:
        nanos, _ = number_at(data, at, end, VAR_LONG_MAX)
        return _TIME_ONLY, _usual_time(first, nanos)
    ms, at = number_at(data, at, end, VAR_LONG_MAX)
    nanos, _ = number_at(data, at, end, VAR_LONG_MAX)
    return _usual_date(first), _usual_time(ms, nanos)


@kernel
def _usual_date(packed: int) -> int:
    """Return a packed date whose year has four digits, else `_UNUSUAL`."""
    return packed if 1 <= packed >> 9 <= 9999 else _UNUSUAL


@kernel
def _usual_time(ms: int, nanos: int) -> int:
    """Return the nanoseconds of the day, `_UNUSUAL` for what is no time of a day."""
    if 0 <= ms < _MS_PER_DAY and 0 <= nanos < _NS_PER_SECOND:
        return ms * _NS_PER_MS + nanos
    return _UNUSUAL


@kernel
def _write_moment(data: Any, at: int, end: int, out: Any, to: int) -> int:
    date, nanos = _moment(data, at, end)
    if date >= 0:
        to = _write_parts(date >> 9, date >> 5 & 15, date & 31, 4, _MINUS, out, to)
    if date >= 0 and nanos >= 0:
        out[to] = _BLANK
        to += 1
    if nanos >= 0:
        to = _write_time(nanos, out, to)
    return to


@kernel
def _write_parts(one: int, two: int, three: int, digits: int, sign: int, out: Any, to: int) -> int:
    """Write three numbers with a sign between them, the first one of ``digits`` digits."""
    to = put_digits(np.uint64(one), digits, out, to)
    out[to] = sign
    to = put_digits(np.uint64(two), 2, out, to + 1)
    out[to] = sign
    return put_digits(np.uint64(three), 2, out, to + 1)


@kernel
def _write_time(nanos: int, out: Any, to: int) -> int:
    seconds, rest = nanos // _NS_PER_SECOND, nanos % _NS_PER_SECOND
    to = _write_parts(seconds // 3600, seconds // 60 % 60, seconds % 60, 2, _COLON, out, to)
    if rest:
        out[to] = _POINT
        to = put_digits(np.uint64(rest), 9, out, to + 1)
        while out[to - 1] == _ZERO:
            to -= 1
    return to
