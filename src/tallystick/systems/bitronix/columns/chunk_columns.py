"""Plain records as columns, for those who need a few values of each.

In: the bytes of a file, and where to begin. Out: `PlainChunk`s, or a `Run`; the walk is that of the
batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from secrets import randbelow
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import byte_ranges
from tallystick.arrow.crc_kernel import crc_table
from tallystick.systems.bitronix.columns.attributes import numbers_at
from tallystick.systems.bitronix.columns.kernels import (
    HASH_MODULUS,
    group_rows,
    mark_servers,
    new_columns,
    walk,
)
from tallystick.systems.bitronix.format.layout import (
    CLOSING,
    COMMITTING,
    END_MARKER,
    GTRID_OFFSET,
    HEADER_LENGTH_OFFSET,
    LARGEST_FOR_PAGE,
    LENGTH_OUTSIDE,
    RECORD_HEADER_LENGTH,
    RECORD_MIN,
)
from tallystick.systems.bitronix.read.plain_records import GtridRow, NamesRow, Row, Run

WINDOW = 1 << 20
"""Bytes that one chunk may have: bounds its columns."""
ROWS = 1 << 14
"""Largest number of records in a chunk."""
_TABLE = crc_table()
_HASH_FACTOR = 256 + randbelow(HASH_MODULUS - 256)
"""Secret, so that nobody can make a journal of gtrids that all have one hash."""
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


def walk_run(data: memoryview, begin: int) -> Run:
    """Return the plain records that begin at an offset: those that a search finds."""
    window = np.frombuffer(data, np.uint8)[begin : begin + WINDOW]
    columns = new_columns(min(ROWS, len(window) // RECORD_MIN + 1))
    count, size, _ = walk(window, _TABLE, **columns)
    offsets = columns["offsets"][:count]
    heads = numbers_at(window, offsets + HEADER_LENGTH_OFFSET, np.dtype(">i4"))
    odd = np.flatnonzero(heads != RECORD_HEADER_LENGTH)
    count = int(odd[0]) if len(odd) else int(count)
    if not count:
        return Run(begin, 0, begin, begin + int(size))
    end = int(offsets[count - 1] + columns["lengths"][count - 1])
    newest = np.lexsort((columns["sequences"][:count], columns["times"][:count]))[-1]
    return Run(begin + end, count, begin + int(offsets[newest]), begin + int(size))


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

    def _grouped(self, chosen: Any = slice(None)) -> tuple[Any, Any, int]:
        """Return the group of records, whether their names are new there, how many there are."""
        sizes = self._gtrid_sizes[chosen]
        begins = self._table["offsets"][chosen] + GTRID_OFFSET
        names_ends = begins - GTRID_OFFSET + self._lengths[chosen] - len(END_MARKER)
        count = len(begins)
        groups, latest = np.empty(count, np.int32), np.empty(count, np.int32)
        marks = np.empty(count, np.bool_)
        slots = np.full(2 << count.bit_length(), -1, np.int32)
        found = group_rows(
            self._window, begins, sizes, names_ends, _HASH_FACTOR, slots, latest, groups, marks
        )
        return groups, marks, int(found)

    def decisions(self, known: Collection[bytes]) -> tuple[Iterator[Row], Iterable[bytes]]:
        """Return records that open or close decisions, and those of ``known`` that are closed.

        A COMMITTING record and the one that closes it under the same names leave nothing open of
        their gtrid, so both are left out with all that is before them.
        """
        deciding = np.flatnonzero(np.isin(self._table["statuses"], _DECIDING))
        if not len(deciding):
            return iter(()), ()
        groups, marks, found = self._grouped(deciding)
        order = np.argsort(groups, kind="stable")
        groups, marks, places = groups[order], marks[order], np.arange(len(order))
        starts = np.searchsorted(groups, np.arange(found))
        opening = self._table["statuses"][deciding[order]] == COMMITTING
        lasts = np.maximum.reduceat(np.where(opening, places, -1), starts)
        follows = np.minimum(lasts + 1, np.append(starts[1:], len(order)) - 1)
        closed = (lasts >= 0) & (follows > lasts) & ~marks[follows]
        left = deciding[np.sort(order[~closed[groups] & (places >= lasts[groups])])]
        return self._rows(left), self._among(known, deciding[order[starts[closed]]])

    def _among(self, known: Collection[bytes], chosen: Any) -> Iterable[bytes]:
        """Return the gtrids of records that are in a set."""
        if not known:
            return ()
        starts = self._table["offsets"][chosen] + GTRID_OFFSET
        gtrids = byte_ranges(self._window, starts, self._gtrid_sizes[chosen]).cast(pa.binary())
        if len(known) <= len(gtrids):
            wanted = pa.array(known, pa.binary(), size=len(known))
            gtrids = gtrids.filter(pc.is_in(gtrids, value_set=wanted))
        return [one for one in gtrids.to_pylist() if one in known]

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
