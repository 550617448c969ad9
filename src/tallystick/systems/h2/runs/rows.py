"""The numbers in rows, as a compiled kernel.

In: rows of bytes that `walk.walk` found in order. Out: their column counts, and the whole
number in one column. Import this module only where a log is long: it loads the compiler.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.h2.format.numbers import VAR_INT_MAX, VAR_LONG_MAX
from tallystick.systems.h2.format.values import types
from tallystick.systems.h2.runs.walk import MASK_32, after_value, number_at

NO_COLUMN = -1
_SIGN_32 = 1 << 31


@kernel
def read_rows(data: Any, starts: Any, lengths: Any, column: int, counts: Any, numbers: Any) -> bool:
    """Read how many columns each row has, and the number in ``column`` unless that is `NO_COLUMN`.

    Args:
        data: the bytes that hold the rows.
        starts: the offset of each row in ``data``.
        lengths: how many bytes each row has.
        column: the column whose number is wanted.
        counts: takes the number of columns of each row.
        numbers: takes the number of each row; with `NO_COLUMN` nothing is written to it.

    Returns:
        False if some row has no whole number there, or only its decoder can tell; the rows after it
        are not read then.
    """
    for row in range(len(starts)):
        at, end = starts[row], starts[row] + lengths[row]
        counts[row], at = number_at(data, at, end, VAR_INT_MAX)
        if column == NO_COLUMN:
            continue
        if column >= counts[row]:
            return False
        for _ in range(column):
            # An array is several values to `after_value`, so the column would not be found.
            if data[at] == types.ARRAY:
                return False
            at = after_value(data, at, end)
            if at < 0:
                return False
        if not is_whole(data[at]):
            return False
        numbers[row] = whole_number_at(data, at, end)
    return True


@kernel
def is_whole(code: int) -> bool:
    """Return True for the type of a whole number of at most 64 bits."""
    return (
        types.BYTE <= code <= types.LONG
        or types.INT_0_15 <= code < types.DECIMAL_0
        or types.INT_NEGATIVE <= code <= types.LONG_NEGATIVE
    )


@kernel
def whole_number_at(data: Any, at: int, end: int) -> int:
    """Return the number at ``at``: of a type of `is_whole`, ENUM, or a DECIMAL without scale."""
    code = int(data[at])
    at += 1
    if code >= types.INT_0_15 and code < types.LONG_0_7:
        return code - types.INT_0_15
    if code >= types.LONG_0_7 and code < types.DECIMAL_0:
        return code - types.LONG_0_7
    if code == types.BYTE:
        return (int(data[at]) ^ 0x80) - 0x80
    if code == types.SHORT:
        return ((int(data[at]) << 8 | int(data[at + 1])) ^ 0x8000) - 0x8000
    if code in (types.LONG, types.LONG_NEGATIVE, types.DECIMAL_SMALL_0):
        number, _ = number_at(data, at, end, VAR_LONG_MAX)
        return -number if code == types.LONG_NEGATIVE else number
    number, _ = number_at(data, at, end, VAR_INT_MAX)
    number = -number if code == types.INT_NEGATIVE else number
    # A negative minimum has no positive twin: H2 writes it as itself, and it wraps here as there.
    return ((number & MASK_32) ^ _SIGN_32) - _SIGN_32
