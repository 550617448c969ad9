"""Plain records as columns, for those who need a few values of each.

In: the bytes of a file and a range. Out: `PlainChunk`s; the walk is that of the batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.arrow.crc_kernel import crc_table
from tallystick.systems.bitronix.columns.kernels import mark_servers, new_columns, walk
from tallystick.systems.bitronix.format.layout import (
    CLOSING,
    COMMITTING,
    END_MARKER,
    GTRID_OFFSET,
    LARGEST_FOR_PAGE,
    LENGTH_OUTSIDE,
    RECORD_MIN,
)
from tallystick.systems.bitronix.read.plain_records import Row

WINDOW = 1 << 20
"""Bytes that one chunk may have: bounds its columns."""
ROWS = 1 << 14
"""Largest number of records in a chunk."""
_TABLE = crc_table()
_DECIDING = np.array(sorted({COMMITTING, *CLOSING}), np.int32)


def walk_chunks(data: memoryview, begin: int, end: int) -> Iterator[PlainChunk]:
    """Yield the plain records of a range."""
    array = np.frombuffer(data, np.uint8)
    while begin < end:
        window = array[begin : min(end, begin + WINDOW)]
        columns = new_columns(min(ROWS, len(window) // RECORD_MIN + 1))
        count, size, _ = walk(window, _TABLE, **columns)
        lengths = columns["lengths"][:count]
        if not count or int(lengths.max()) > LARGEST_FOR_PAGE + LENGTH_OUTSIDE:
            return
        table = {name: columns[name][:count] for name in ("offsets", "statuses", "times")}
        gtrids = columns["gtrids"][:count, 0].astype(np.int64)
        yield PlainChunk(begin, window[:size].tobytes(), window, table, lengths, gtrids)
        begin += int(size)


@dataclass(frozen=True, slots=True)
class PlainChunk:
    """Plain records that follow each other; ``base`` is the offset of the first in the file."""

    base: int
    data: bytes
    _window: Any
    _table: dict[str, Any]
    _lengths: Any
    _gtrid_sizes: Any

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.base + len(self.data)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._lengths)

    def rows(self) -> Iterator[Row]:
        """Yield all of them."""
        return self._rows(slice(None))

    def decisions(self) -> Iterator[Row]:
        """Yield those whose status opens or closes a decision."""
        return self._rows(np.isin(self._table["statuses"], _DECIDING))

    def first_of_servers(self) -> Iterator[Row]:
        """Yield the first one, and each whose server id is not that of the one before it."""
        marks = np.empty(self.count, np.bool_)
        begins = self._table["offsets"] + GTRID_OFFSET
        mark_servers(self._window, begins, self._gtrid_sizes, marks)
        return self._rows(marks)

    def _rows(self, chosen: Any) -> Iterator[Row]:
        begins, lengths = self._table["offsets"][chosen], self._lengths[chosen]
        return zip(
            begins.tolist(),
            (begins + GTRID_OFFSET + self._gtrid_sizes[chosen]).tolist(),
            (begins + lengths - len(END_MARKER)).tolist(),
            lengths.tolist(),
            self._table["statuses"][chosen].tolist(),
            self._table["times"][chosen].tolist(),
            strict=True,
        )
