"""Parts of JSON texts, written by compiled kernels: one set for the kernels of all systems.

In: a number, a UTF-16 unit, bytes or a day, a buffer of bytes and the place to write to. Out: the
place after what was written, which is what `json.dumps` makes of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.arrow.numba_kernel import kernel, small_kernel

_ESCAPES = np.zeros(128, np.uint8)
"""The letter after the backslash of a character that JSON escapes so."""
for _letter, _escape in zip(b'"\\\n\r\t\f\b', b'"\\nrtfb', strict=True):
    _ESCAPES[_letter] = _escape
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_BLANK, _QUOTE, _BACKSLASH, _DELETE = b' "\\\x7f'
_ZERO, _MINUS, _LETTER_U = b"0-u"


@small_kernel
def put_unit(unit: int, out: Any, to: int) -> int:
    """Write a UTF-16 unit in ASCII."""
    if unit >= _BLANK and unit < _DELETE and unit not in (_QUOTE, _BACKSLASH):
        out[to] = unit
        return to + 1
    out[to] = _BACKSLASH
    if unit < 128 and _ESCAPES[unit]:
        out[to + 1] = _ESCAPES[unit]
        return to + 2
    out[to + 1] = _LETTER_U
    return put_hex(unit, 4, out, to + 2)


@kernel
def put_hex(value: int, count: int, out: Any, to: int) -> int:
    """Write the last ``count`` hexadecimal digits of a number."""
    for place in range(count):
        out[to + place] = _HEX[value >> 4 * (count - 1 - place) & 15]
    return to + count


@kernel
def put_bytes(data: Any, begin: int, end: int, out: Any, to: int) -> int:
    """Write two hexadecimal digits for each of some bytes."""
    for place in range(end - begin):
        byte = data[begin + place]
        out[to + 2 * place] = _HEX[byte >> 4]
        out[to + 2 * place + 1] = _HEX[byte & 15]
    return to + 2 * (end - begin)


@kernel
def put_whole(number: int, out: Any, to: int) -> int:
    """Write a number of 64 bits."""
    if number < 0:
        out[to] = _MINUS
        to += 1
    value = magnitude(number)
    return put_digits(value, digits_of(value), out, to)


@kernel
def put_digits(value: Any, count: int, out: Any, to: int) -> int:
    """Write the last ``count`` digits of an unsigned number."""
    for place in range(to + count - 1, to - 1, -1):
        out[place] = _ZERO + int(value % np.uint64(10))
        value //= np.uint64(10)
    return to + count


@kernel
def magnitude(number: int) -> Any:
    """Return the absolute value, unsigned: that of the smallest number too."""
    return np.uint64(-number) if number < 0 else np.uint64(number)


@kernel
def digits_of(number: Any) -> int:
    """Return how many digits an unsigned number has."""
    count = 1
    # Both operands unsigned: numba, as NumPy does, makes a float of a signed and an unsigned
    # number.
    while number >= np.uint64(10):
        number //= np.uint64(10)
        count += 1
    return count


@kernel
def packed_day(day: int) -> int:
    """Return year << 9 | month << 5 | day of a day counted from 1970-01-01, as `datetime` does."""
    # Eras of 400 years, and years that begin on March 1, so that a leap day is the last of its
    # year: `civil_from_days` of H. Hinnant's date algorithms.
    era, day_of_era = (day + 719_468) // 146_097, (day + 719_468) % 146_097
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    return year << 9 | month << 5 | (day_of_year - (153 * shifted + 2) // 5 + 1)
