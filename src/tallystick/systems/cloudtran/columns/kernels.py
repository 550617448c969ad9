"""Places of targets and operations in whole entries, without a Python object each.

In: the bytes of a file and the columns of entries, which the walk has verified. Out: views of the
names and bodies. They are functions over NumPy arrays, compiled where numba is installed.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.byte_kernels import Number, le_uint16, le_uint32
from tallystick.arrow.columns import put_view
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.cloudtran.format import entries
from tallystick.systems.cloudtran.runs.walk import is_utf8

Array = Any
"""A NumPy array; of bytes unless a docstring says otherwise."""

_TARGET_COUNT, _OPERATION_COUNT = entries.TARGET_COUNT_SIZE, entries.OPERATION_COUNT_SIZE
_OPERATION_HEAD, _BLOB_SIZE = entries.OPERATION_HEAD_SIZE, entries.BLOB_SIZE_SIZE
_CODE_AT, _NAME_SIZE_AT = entries.OPERATION_CODE_AT, entries.OPERATION_NAME_SIZE_AT

# rows of the table of operations
ENTRY, ORDINAL, CODE, NAME, NAME_LENGTH, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH = range(9)
OPERATION_COLUMNS = 9


@kernel
def put_operations(data: Array, starts: Array, out: Array) -> bool:
    """Fill a column per operation of entries; return whether every key is UTF-8.

    ``starts`` are the `TARGETS_END` of exact entries. ``out`` has `OPERATION_COLUMNS` rows of
    signed 64-bit numbers; the length of a value that is not there is -1.
    """
    row = 0
    plain = True
    for entry in range(len(starts)):
        place = int(starts[entry])
        count = le_uint32(data, place)
        place += _OPERATION_COUNT
        for ordinal in range(count):
            out[ENTRY, row], out[ORDINAL, row] = entry, ordinal
            place = _put_operation(data, place, out, row)
            key = out[KEY, row]
            plain = plain and is_utf8(data, key, key + out[KEY_LENGTH, row])
            row += 1
    return plain


@kernel
def _put_operation(data: Array, place: int, out: Array, row: int) -> Number:
    """Fill the column of one operation; return its end."""
    out[CODE, row], out[NAME, row] = data[place + _CODE_AT], place + _OPERATION_HEAD
    out[NAME_LENGTH, row] = le_uint16(data, place + _NAME_SIZE_AT)
    place = out[NAME, row] + out[NAME_LENGTH, row]
    out[KEY, row], out[KEY_LENGTH, row] = place + _BLOB_SIZE, le_uint32(data, place)
    place = out[KEY, row] + out[KEY_LENGTH, row]
    size = le_uint32(data, place)
    place += _BLOB_SIZE
    out[VALUE, row], out[VALUE_LENGTH, row] = place, -1 if size == entries.NO_VALUE else size
    return place + max(0, out[VALUE_LENGTH, row])


@kernel
def put_targets(data: Array, bodies: Array, counts: Array, views: Array) -> None:
    """Fill views of the target names of all entries, in order."""
    name = 0
    for index in range(len(bodies)):
        place = int(bodies[index]) + _TARGET_COUNT
        for _ in range(int(counts[index])):
            size = int(data[place])
            put_view(data, place + 1, size, views, name)
            place += 1 + size
            name += 1
