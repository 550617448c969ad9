"""Whole records of one file as columns of integers, and record by record as plain ints.

In: the bytes of a file and rows of its scan. Out: a `Chunk` with the numbers that a replay needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.arrow.neighbours import marked
from tallystick.systems.jboss.format.layout import IN_TRANSACTION, Shape
from tallystick.systems.jboss.read.scan import OFFSET, ROW, SIZE, numbers
from tallystick.systems.jboss.runs.walk import features, fill_fields

PIECE = 1 << 14
"""Rows whose numbers are in lists at a time."""
Fields = tuple[int, int, int, int, int, int]
"""Type byte, offset, end, transaction, record id; and a count, a user type or 0."""


def rows_of(piece: Any) -> Any:
    """Return a piece of a scan as an array with a row per row, over the same memory."""
    return np.frombuffer(piece, np.int64).reshape(-1, ROW)


@dataclass(frozen=True, slots=True)
class Chunk:
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

    def at(self, places: Any) -> Chunk:
        """Return those at some places, or at those where an array of booleans is true."""
        columns = (self.kinds, self.transactions, self.ids, self.counts)
        return Chunk(self.rows[places], *(one[places] for one in columns))

    def fields(self) -> Iterator[Fields]:
        """Yield their numbers record by record."""
        for begin in range(0, len(self.rows), PIECE):
            part = self.at(slice(begin, begin + PIECE))
            offsets = part.rows[:, OFFSET]
            columns = (part.kinds, offsets, offsets + part.rows[:, SIZE])
            numbers = (part.transactions, part.ids, part.counts)
            # Lists of Python's own integers: to iterate over an array makes a NumPy scalar of each
            # number, and every comparison in the replay would be slower with those.
            yield from zip(*(one.tolist() for one in (*columns, *numbers)), strict=True)


def chunk_of(shape: Shape, data: memoryview, rows: Any) -> Chunk:
    """Return the records at some rows, all of them whole records of that shape."""
    raw, table = np.frombuffer(data, np.uint8), np.array(features(shape), np.int64)
    # For a strided selection the kernel would be compiled a second time.
    rows = np.ascontiguousarray(rows)
    kinds, fields = np.empty(len(rows), np.uint8), np.zeros((3, len(rows)), np.int64)
    fill_fields(raw, rows, numbers(shape), table, kinds, fields)
    return Chunk(rows, kinds, *fields)


def fields_of(shape: Shape, data: memoryview, rows: Any) -> Iterator[Fields]:
    """Yield the numbers of the records at some rows, all of them whole records of that shape."""
    return chunk_of(shape, data, rows).fields()


INSIDE = marked(IN_TRANSACTION)
"""Which bytes are types of records in transactions."""
