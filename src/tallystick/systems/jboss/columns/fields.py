"""The rows of a scan and the numbers in their records as lists, without an object per record.

In: the bytes of one file. Out: arrays of rows, and for valid ones the numbers that a replay needs,
as plain ints in parallel lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import new_bitmap, new_views, viewed
from tallystick.arrow.columns import numbers as filled
from tallystick.systems.jboss.columns.kernels import features, fill_fields, fill_xids
from tallystick.systems.jboss.format.layout import IN_TRANSACTION, PREPARE, Shape
from tallystick.systems.jboss.read.scan import ROW, numbers

PIECE = 1 << 14
"""Rows whose numbers are in lists at a time."""
Fields = tuple[int, int, int, int, int, int]
"""Type byte, offset, end, transaction, record id; and a count, a user type or 0."""


def rows_of(piece: Any) -> Any:
    """Return a piece of a scan as an array with a row per row, over the same memory."""
    return np.frombuffer(piece, np.int64).reshape(-1, ROW)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records as columns: an entry in each for every record.

    Attributes:
        rows: rows of the scan.
        kinds: type bytes.
        transactions: numbers of transactions; 0 where there is none.
        ids: record ids; 0 where there is none.
        counts: the counts of commits and prepares, and user types; 0 of others.
    """

    rows: Any
    kinds: Any
    transactions: Any
    ids: Any
    counts: Any

    def at(self, places: Any) -> RecordColumns:
        """Return those at some places, or at those where an array of booleans is true."""
        columns = (self.kinds, self.transactions, self.ids, self.counts)
        return RecordColumns(self.rows[places], *(one[places] for one in columns))

    def fields(self) -> Iterator[Fields]:
        """Yield their numbers record by record."""
        for begin in range(0, len(self.rows), PIECE):
            part = self.at(slice(begin, begin + PIECE))
            offsets = part.rows[:, 0]
            columns = (part.kinds, offsets, offsets + part.rows[:, 1])
            numbers = (part.transactions, part.ids, part.counts)
            yield from zip(*(one.tolist() for one in (*columns, *numbers)), strict=True)


def columns_of(shape: Shape, data: memoryview, rows: Any) -> RecordColumns:
    """Return the records at some rows, all of them whole records of that shape."""
    raw, table = np.frombuffer(data, np.uint8), np.array(features(shape), np.int64)
    rows = np.ascontiguousarray(rows)
    kinds, fields = np.empty(len(rows), np.uint8), np.zeros((3, len(rows)), np.int64)
    fill_fields(raw, rows, numbers(shape), table, kinds, fields)
    return RecordColumns(rows, kinds, *fields)


def fields_of(shape: Shape, data: memoryview, rows: Any) -> Iterator[Fields]:
    """Yield the numbers of the records at some rows, all of them whole records of that shape."""
    return columns_of(shape, data, rows).fields()


def xids_of(
    shape: Shape, data: memoryview, records: RecordColumns
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return format id, gtrid and bqual of those records that are prepares with an Xid."""
    count = len(records.rows)
    if not (records.kinds == PREPARE).any():
        return pa.nulls(count, pa.int32()), *(pa.nulls(count, pa.binary()) for _ in range(2))
    raw, table = np.frombuffer(data, np.uint8), np.array(features(shape), np.int64)
    format_ids, present = np.zeros(count, np.int32), new_bitmap(count)
    views = new_views(count), new_views(count)
    out = (format_ids, *views)
    fill_xids(raw, records.rows, numbers(shape), table, records.kinds, present, out)
    buffer = pa.py_buffer(data)
    gtrids, bquals = (viewed(one, present, buffer).cast(pa.binary()) for one in views)
    return filled(format_ids, present), gtrids, bquals


def type_table(kinds: Iterable[int]) -> Any:
    """Return which bytes are one of some record types, by the byte."""
    table = np.zeros(256, np.bool_)
    table[list(kinds)] = True
    return table


INSIDE = type_table(IN_TRANSACTION)
"""Which bytes are types of records in transactions."""
