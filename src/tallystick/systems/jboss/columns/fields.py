"""The rows of a scan and the numbers in their records as lists, without an object per record.

In: the bytes of one file. Out: arrays of rows, and for valid ones the numbers that a replay needs,
as plain ints in parallel lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tallystick.systems.jboss.columns.kernels import features, fill_fields
from tallystick.systems.jboss.format.layout import Shape
from tallystick.systems.jboss.read.scan import ROW, numbers

PIECE = 1 << 14
"""Rows whose numbers are in lists at a time."""
Fields = tuple[int, int, int, int, int, int]
"""Type byte, offset, end, transaction, record id; and a count, a user type or 0."""


def rows_of(piece: Any) -> Any:
    """Return a piece of a scan as an array with a row per row, over the same memory."""
    return np.frombuffer(piece, np.int64).reshape(-1, ROW)


def fields_of(shape: Shape, data: memoryview, rows: Any) -> Iterator[Fields]:
    """Yield the numbers of the records at some rows, all of them whole records of that shape."""
    raw, table = np.frombuffer(data, np.uint8), np.array(features(shape), np.int64)
    for begin in range(0, len(rows), PIECE):
        part = np.ascontiguousarray(rows[begin : begin + PIECE])
        kinds, fields = np.empty(len(part), np.uint8), np.zeros((3, len(part)), np.int64)
        fill_fields(raw, part, numbers(shape), table, kinds, fields)
        offsets = part[:, 0]
        columns: Iterable[Any] = (kinds, offsets, offsets + part[:, 1], *fields)
        yield from zip(*(column.tolist() for column in columns), strict=True)


def type_table(kinds: Iterable[int]) -> Any:
    """Return which bytes are one of some record types, by the byte."""
    table = np.zeros(256, np.bool_)
    table[list(kinds)] = True
    return table
