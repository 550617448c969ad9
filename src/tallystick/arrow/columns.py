"""Arrow columns that repeat one value, or only point at bytes that are there already.

In: a value and a number of rows, or places in a buffer. Out: `pyarrow` arrays that cost no memory
per row (repeating ones are made once and sliced) or 16 bytes per row (views), so that a vectorised
reader never copies a body. `tallystick.arrow.schemas.plain` turns them into plain ones.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.numba_kernel import kernel
from tallystick.arrow.schemas import RECORDS

VIEWED_MAX = (1 << 31) - 1
"""A view's place in its buffer has 31 bits."""
_SIZE_MIN = 1 << 14
_BINARY_VIEW = pa.binary_view()
_TEXT_LIST = RECORDS.field("resources").type


def constant(text: str, count: int) -> pa.Array:
    """A dictionary-encoded column of one text."""
    return _constant(text, _size(count)).slice(0, count)


def nulls(kind: pa.DataType, count: int) -> pa.Array:
    """A column of nulls."""
    return _nulls(kind, _size(count)).slice(0, count)


def no_texts(count: int) -> pa.Array:
    """A column of empty lists of texts."""
    return _no_texts(_size(count)).slice(0, count)


def coded(codes: Any, texts: pa.Array) -> pa.Array:
    """A dictionary-encoded column; every code is known to be the place of a text."""
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts, safe=False)


def record_batch(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """A batch in the order of `RECORDS`; columns that are not given are null."""
    arrays = [
        columns[field.name] if field.name in columns else nulls(field.type, count)
        for field in RECORDS
    ]
    return pa.RecordBatch.from_arrays(arrays, names=RECORDS.names)


def numbers(values: Any, valid: Any | None) -> pa.Array:
    """A column of numbers over ``values``; ``valid`` is a bitmap, None where all are valid."""
    bits = None if valid is None else pa.py_buffer(valid)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


def viewed(
    views: Any, valid: Any | None, data: pa.Buffer, kind: pa.DataType = _BINARY_VIEW
) -> pa.Array:
    """A column of views as `put_view` makes them, into ``data``."""
    bits = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(kind, len(views), [bits, pa.py_buffer(views), data])


def new_bitmap(count: int) -> Any:
    """Validity bits of so many rows, all of them unset."""
    return np.zeros(-(-count // 8), np.uint8)


def new_views(count: int) -> Any:
    """Room for so many views, all of them empty: four numbers each. Also the view of a null must
    be a possible one."""
    return np.zeros((count, 4), np.uint32)


@kernel
def put_view(data: Any, begin: Any, length: Any, views: Any, row: Any) -> None:
    """The view of ``length`` bytes at ``begin``: the length, and either all of at most 12 bytes
    or the first 4, the number of the buffer (0) and the place in it."""
    views[row, 0] = length
    if length > 12:
        at = np.uint64(begin)
        views[row, 1] = (
            np.uint32(data[at])
            | np.uint32(data[at + np.uint64(1)]) << np.uint32(8)
            | np.uint32(data[at + np.uint64(2)]) << np.uint32(16)
            | np.uint32(data[at + np.uint64(3)]) << np.uint32(24)
        )
        views[row, 2] = 0
        views[row, 3] = begin
        return
    views[row, 1] = 0
    views[row, 2] = 0
    views[row, 3] = 0
    for place in range(length):
        views[row, 1 + place // 4] |= np.uint32(data[begin + place]) << np.uint32(8 * (place % 4))


@kernel
def put_views(data: Any, starts: Any, lengths: Any, views: Any, valid: Any) -> None:
    """A view for each place; a negative length is a null, and the others get their bit."""
    for row in range(len(starts)):
        length = int(lengths[row])
        put_view(data, int(starts[row]), max(length, 0), views, row)
        if length >= 0:
            put_bit(valid, row)


@kernel
def put_bit(valid: Any, row: int) -> None:
    """Mark a row as valid."""
    valid[row >> 3] |= np.uint8(1 << (row & 7))


def _size(count: int) -> int:
    return max(_SIZE_MIN, 1 << max(count - 1, 0).bit_length())


@lru_cache(maxsize=64)
def _constant(text: str, size: int) -> pa.Array:
    indices = pa.array(np.zeros(size, np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array([text], pa.string()))


@lru_cache(maxsize=64)
def _nulls(kind: pa.DataType, size: int) -> pa.Array:
    return pa.nulls(size, kind)


@lru_cache(maxsize=8)
def _no_texts(size: int) -> pa.Array:
    offsets = pa.array(np.zeros(size + 1, np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array([], pa.string()), type=_TEXT_LIST)
