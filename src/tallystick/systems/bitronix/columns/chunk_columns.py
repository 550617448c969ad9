"""Plain records as columns, for those who need a few values of each.

In: the bytes of a file and a range. Out: `PlainChunk`s; the walk is that of the batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.arrow.crc_kernel import crc_table
from tallystick.systems.bitronix.columns.kernels import group_rows, mark_servers, new_columns, walk
from tallystick.systems.bitronix.format.layout import (
    CLOSING,
    COMMITTING,
    END_MARKER,
    GTRID_OFFSET,
    LARGEST_FOR_PAGE,
    LENGTH_OUTSIDE,
    RECORD_MIN,
)
from tallystick.systems.bitronix.read.plain_records import GtridRow, NamesRow, Row

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

    def gtrids(self) -> tuple[Iterator[GtridRow], Iterator[NamesRow]]:
        """Return the records by gtrid, and the names that they have one after the other."""
        table, marked = self.by_gtrid()
        begins, sizes, *others = table
        columns = (begins, begins + GTRID_OFFSET + sizes, *others)
        return (
            zip(*(one.tolist() for one in columns), strict=True),
            zip(*(one.tolist() for one in marked), strict=True),
        )

    def by_gtrid(self) -> tuple[Any, Any]:
        """Return two tables: the records by gtrid, and the names as in `NamesRow`.

        The first has the columns of `GtridRow`, but the size of the gtrid for its end.
        """
        groups, marks, found = self._grouped()
        order = np.argsort(groups, kind="stable")
        starts = np.searchsorted(groups[order], np.arange(found))
        firsts, lasts = order[starts], order[np.append(starts[1:], self.count) - 1]
        deciding = np.where(self._table["statuses"] == COMMITTING, self._table["offsets"], -1)
        begins, times = self._table["offsets"], self._table["times"]
        table = np.stack(
            [
                begins[firsts],
                self._gtrid_sizes[firsts],
                times[firsts],
                self._table["statuses"][lasts],
                times[lasts],
                begins[lasts],
                np.maximum.reduceat(deciding[order], starts),
                np.bincount(groups),
                np.add.reduceat(self._lengths[order], starts),
            ]
        )
        names = begins[marks] + GTRID_OFFSET + self._gtrid_sizes[marks]
        ends = begins[marks] + self._lengths[marks] - len(END_MARKER)
        return table, np.stack([groups[marks], names, ends])

    def _grouped(self) -> tuple[Any, Any, int]:
        """Return the group of each record, whether its names are new there, how many there are."""
        begins = self._table["offsets"] + GTRID_OFFSET
        names_ends = self._table["offsets"] + self._lengths - len(END_MARKER)
        groups, latest = np.empty(self.count, np.int32), np.empty(self.count, np.int32)
        marks = np.empty(self.count, np.bool_)
        slots = np.full(2 << self.count.bit_length(), -1, np.int32)
        found = group_rows(
            self._window, begins, self._gtrid_sizes, names_ends, slots, latest, groups, marks
        )
        return groups, marks, int(found)

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
            self._table["statuses"][chosen].tolist(),
            strict=True,
        )
