"""Arrow columns that repeat one value, or only point at bytes that are there already.

In: a value and a number of rows, or places in a buffer. Out: `pyarrow` arrays that cost no memory
per row (repeating ones are made once and sliced) or 16 bytes per row (views), so that a vectorised
reader never copies a body. `tallystick.arrow.schemas.plain` turns them into plain ones.

A bitmap of validity has one bit per row, lowest bit first, set where the row has a value. Where a
parameter is a bitmap, None means that every row has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.byte_kernels import le_word32
from tallystick.arrow.neighbours import distinct
from tallystick.arrow.numba_kernel import kernel
from tallystick.arrow.schemas import RECORDS
from tallystick.arrow.texts import whole_text
from tallystick.records import Clock, Outcome

VIEWED_MAX = (1 << 31) - 1
"""Most bytes that views may point into: a view's offset in its buffer has 31 bits."""
_SIZE_MIN = 1 << 14
"""Fewest rows of an array that is made to be sliced."""
_INLINE_MAX = 12
"""Most bytes that a view holds itself."""
_BINARY_VIEW = pa.binary_view()
_TEXT_LIST = RECORDS.field("resources").type


# -- batches --------------------------------------------------------------------------------


def record_batch(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """Make a batch of ``count`` rows in the order of `RECORDS`; missing columns are null."""
    return table_batch(RECORDS, columns, count)


def table_batch(schema: pa.Schema, columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """Make a batch of ``count`` rows in the order of a schema; missing columns are null."""
    arrays = [
        columns[field.name] if field.name in columns else nulls(field.type, count)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def whole_records(
    system: str, log: str, file: str, clock: Clock, count: int
) -> dict[str, pa.Array]:
    """Make the columns that are equal in every row of one file's valid records."""
    return {
        "system": constant(system, count),
        "log": constant(log, count),
        "file": constant(file, count),
        "outcome": constant(Outcome.VALID.value, count),
        "clock": constant(clock.value, count),
    }


def whole_transactions(system: str, log: str, clock: Clock, count: int) -> dict[str, pa.Array]:
    """Make the columns that are equal in every row of the plain transactions of a log."""
    return {
        "system": constant(system, count),
        "log": constant(log, count),
        "participants": no_texts(count),
        "open_participants": no_texts(count),
        "clock": constant(clock.value, count),
        "complete": pa.repeat(pa.scalar(True), count),
        "holes": constant("", count),
    }


def sliced(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of at most ``rows`` rows."""
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def in_order(found: Sequence[tuple[Any, pa.RecordBatch]]) -> list[pa.RecordBatch]:
    """Return the rows of batches by their places, of which each batch has those of its rows."""
    batches = [batch for _, batch in found]
    if len(found) < 2:
        return batches
    # Stable: rows of one place stay in the order of their batches.
    order = np.argsort(np.concatenate([places for places, _ in found]), kind="stable")
    table = pa.Table.from_batches(batches).take(pa.array(order))
    return [*table.combine_chunks().to_batches()]


# -- columns --------------------------------------------------------------------------------


def constant(text: str, count: int) -> pa.Array:
    """Make a dictionary-encoded column that repeats ``text``."""
    return _constant(text, _size(count)).slice(0, count)


def nulls(kind: pa.DataType, count: int) -> pa.Array:
    """Make a column of nulls."""
    return _nulls(kind, _size(count)).slice(0, count)


def no_texts(count: int) -> pa.Array:
    """Make a column of empty lists of texts."""
    return _no_texts(_size(count)).slice(0, count)


def repeated(text: str, count: int) -> pa.Array:
    """Make a plain column that repeats ``text``."""
    return pa.repeat(pa.scalar(whole_text(text), pa.string()), count)


def one_each(texts: pa.Array) -> pa.Array:
    """Make a column of lists that hold one of ``texts`` each."""
    return pa.ListArray.from_arrays(np.arange(len(texts) + 1, dtype=np.int32), texts, _TEXT_LIST)


def texts_of(values: Any, text: Callable[[int], str | None]) -> pa.Array:
    """Make a column of the texts of numbers, few of them different: each text is made once."""
    found, places = distinct(values)
    return pa.array(map(text, found), pa.string(), size=len(found)).take(pa.array(places))


def coded(codes: Any, texts: pa.Array) -> pa.Array:
    """Make a dictionary-encoded column; every code must be an index of ``texts``."""
    # Not checked: that would take a pass over all rows, and the codes come from our own tables.
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts, safe=False)


def numbers(values: Any, valid: Any | None) -> pa.Array:
    """Make a column over the memory of the NumPy array ``values``; ``valid`` is a bitmap."""
    bits = None if valid is None else pa.py_buffer(valid)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


def viewed(
    views: Any, valid: Any | None, data: pa.Buffer, kind: pa.DataType = _BINARY_VIEW
) -> pa.Array:
    """Make a column of views into ``data``, as `put_view` makes them; ``valid`` is a bitmap."""
    bits = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(kind, len(views), [bits, pa.py_buffer(views), data])


def byte_ranges(data: Any, starts: Any, lengths: Any) -> pa.Array:
    """Make a binary column of ranges of ``data``, not copied; a negative length is a null.

    ``data`` is a NumPy array of at most `VIEWED_MAX` bytes.
    """
    views, valid = new_views(len(starts)), new_bitmap(len(starts))
    put_views(data, starts, lengths, views, valid)
    return viewed(views, valid, pa.py_buffer(data))


def joined_bytes(kind: pa.DataType, offsets: Any, data: Any, valid: Any | None) -> pa.Array:
    """Make a column of texts or bytes that stand one after the other in the array ``data``.

    ``offsets`` has 32 bits for each: those of `offsets_of`. ``valid`` is a bitmap.
    """
    bits = None if valid is None else pa.py_buffer(valid)
    buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


# -- what columns are made of ---------------------------------------------------------------


def numbers_at(data: Any, places: Any, kind: str) -> Any:
    """Return the numbers at ``places`` of an array of bytes; ``kind`` as NumPy spells them."""
    stored = np.dtype(kind)
    # Gathered byte by byte: numbers stand at any offset, and a view needs contiguous bytes.
    taken = data[places[:, np.newaxis] + np.arange(stored.itemsize)]
    return taken.view(stored).reshape(len(places)).astype(stored.newbyteorder("="))


def offsets_of(lengths: Any) -> Any:
    """Return where values of these lengths begin, and the last one ends; below 0 stands for 0."""
    found = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=found[1:])
    return found


def bitmap(known: Any) -> Any | None:
    """Make a bitmap of an array of booleans; None where all of them are true."""
    return None if known.all() else np.packbits(known, bitorder="little")


def new_bitmap(count: int) -> Any:
    """Make a bitmap of ``count`` rows, all of them null."""
    return np.zeros(-(-count // 8), np.uint8)


def new_views(count: int) -> Any:
    """Make ``count`` empty views, four numbers each.

    Readers check the view of a null too, so it must be a possible one: an empty one is.
    """
    return np.zeros((count, 4), np.uint32)


@kernel
def put_view(data: Any, begin: Any, length: Any, views: Any, row: Any) -> None:
    """Write the view of ``length`` bytes at ``begin`` to a row of ``views``.

    Its numbers: the length, then either all of at most 12 bytes, or the first 4, the number of
    the buffer (0) and the offset in it; little-endian (Arrow columnar format, "Variable-size
    Binary View Layout").
    """
    views[row, 0] = length
    if length > _INLINE_MAX:
        views[row, 1] = le_word32(data, begin)
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
    """Write a view for each range; a negative length is a null, the others get their bit."""
    for row in range(len(starts)):
        length = int(lengths[row])
        put_view(data, int(starts[row]), max(length, 0), views, row)
        if length >= 0:
            put_bit(valid, row)


@kernel
def put_bit(valid: Any, row: int) -> None:
    """Mark a row as valid in a bitmap."""
    valid[row >> 3] |= np.uint8(1 << (row & 7))


# -- arrays to slice ------------------------------------------------------------------------


def _size(count: int) -> int:
    # Powers of two, so that few arrays are made, and kept.
    return max(_SIZE_MIN, 1 << max(count - 1, 0).bit_length())


@lru_cache(maxsize=64)
def _constant(text: str, size: int) -> pa.Array:
    indices = pa.array(np.zeros(size, np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array([whole_text(text)], pa.string()))


@lru_cache(maxsize=64)
def _nulls(kind: pa.DataType, size: int) -> pa.Array:
    return pa.nulls(size, kind)


@lru_cache(maxsize=8)
def _no_texts(size: int) -> pa.Array:
    offsets = pa.array(np.zeros(size + 1, np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array([], pa.string()), type=_TEXT_LIST)
