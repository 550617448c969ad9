"""Plain records that follow each other, as columns; for files that are long enough to pay.

In: the bytes of a file, and where to begin. Out: `Chunk`s, and where others of an earlier life end.
Import this module only where it pays: it loads NumPy and the compiler.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from secrets import randbelow
from typing import Any

import numpy as np

from tallystick.arrow.crc_kernel import crc_table
from tallystick.arrow.neighbours import last_where, lasts_of, starts_of, sums
from tallystick.systems.bitronix.format import layout
from tallystick.systems.bitronix.format.record import stored_names
from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
from tallystick.systems.bitronix.read.scan import StaleRun
from tallystick.systems.bitronix.runs.walk import (
    HASH_MODULUS,
    group_rows,
    mark_servers,
    new_columns,
    walk,
)

WINDOW = 1 << 20
"""Bytes that one chunk may have: bounds its columns."""
ROWS = 1 << 14
"""Largest number of records in a chunk."""
_TABLE = crc_table()
_HASH_FACTOR = 256 + randbelow(HASH_MODULUS - 256)
"""Secret, so that nobody can make a journal of gtrids that all have one hash."""
_DECIDING = np.array(sorted({layout.COMMITTING, *layout.CLOSING}), np.int32)


def read_chunk(data: memoryview, begin: int, end: int, rows: int = ROWS) -> Chunk:
    """Return the plain records from an offset on; none where the first is not plain."""
    window = np.frombuffer(data, np.uint8)[begin : min(end, begin + WINDOW)]
    columns = new_columns(min(rows, ROWS, len(window) // layout.RECORD_MIN + 1))
    count, size, names = walk(window, _TABLE, **columns)
    for name, column in columns.items():
        # Names have arrays of their own, and the ends of their lists begin with a 0.
        ends = {"list_ends": count + 1, "name_starts": names, "name_sizes": names}
        columns[name] = column[: ends.get(name, count)]
    return Chunk(begin, window[:size], columns)


def read_stale_run(data: memoryview, begin: int, end: int) -> StaleRun:
    """Return where the plain records end that begin at an offset, and the newest of them."""
    chunk = read_chunk(data, begin, end)
    if not chunk.count:
        return StaleRun(begin, 0, begin)
    stamps = chunk.columns["sequences"], chunk.columns["times"]  # the last key is the first
    newest = np.lexsort(stamps)[-1]
    return StaleRun(chunk.end, chunk.count, begin + int(chunk.columns["offsets"][newest]))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The records of a chunk by gtrid.

    Attributes:
        count: how many gtrids there are.
        of_rows: the number of the gtrid of each record, from 0 in order of the first records.
        new_names: whether a record is the first of its gtrid, or its names differ from those of
            the record before it.
    """

    count: int
    of_rows: Any
    new_names: Any


@dataclass(frozen=True)
class Chunk:
    """Plain records that follow each other.

    Attributes:
        base: the offset of the first one in the file.
        window: their bytes.
        columns: those of `new_columns`, offsets from `base` on.
    """

    base: int
    window: Any
    columns: dict[str, Any]

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.base + len(self.window)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.columns["offsets"])

    @cached_property
    def data(self) -> bytes:
        """A copy of their bytes: slices of it are many times faster than those of an array."""
        found: bytes = self.window.tobytes()
        return found

    def gtrids(self, chosen: Any) -> list[bytes]:
        """Return the gtrids of some records."""
        begins = self.columns["offsets"][chosen] + layout.GTRID_OFFSET
        ends = begins + self.columns["gtrid_sizes"][chosen]
        data = self.data
        return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    def names(self, chosen: Any) -> list[tuple[str, ...]]:
        """Return the names of some records."""
        begins, ends = self.name_ranges(chosen)
        data = self.data
        return [
            stored_names(data[begin:end])
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]

    def name_ranges(self, chosen: Any) -> tuple[Any, Any]:
        """Return where the names of some records begin and end, with their count."""
        begins, sizes = self.columns["offsets"][chosen], self.columns["gtrid_sizes"][chosen]
        ends = begins + self.columns["lengths"][chosen] - len(layout.END_MARKER)
        return begins + layout.GTRID_OFFSET + sizes, ends

    def servers(self) -> list[bytes]:
        """Return the gtrid of the first record, and of each with another server id than before."""
        marks = np.empty(self.count, np.bool_)
        begins = self.columns["offsets"] + layout.GTRID_OFFSET
        mark_servers(self.window, begins, self.columns["gtrid_sizes"], marks)
        return self.gtrids(marks)

    @cached_property
    def groups(self) -> _Groups:
        """The records by gtrid."""
        return self._grouped(slice(None))

    def _grouped(self, chosen: Any) -> _Groups:
        begins = self.columns["offsets"][chosen] + layout.GTRID_OFFSET
        sizes, (_, ends) = self.columns["gtrid_sizes"][chosen], self.name_ranges(chosen)
        count = len(begins)
        groups, latest = np.empty(count, np.int32), np.empty(count, np.int32)
        marks = np.empty(count, np.bool_)
        # Between two and four slots for each row: probing stays short, and a free one is there.
        slots = np.full(2 << count.bit_length(), -1, np.int32)
        found = group_rows(
            self.window, begins, sizes, ends, _HASH_FACTOR, slots, latest, groups, marks
        )
        return _Groups(int(found), groups, marks)

    @cached_property
    def _sorted(self) -> tuple[Any, Any]:
        """The records by gtrid, and where those of each begin among them."""
        # Stable: the records of a gtrid stay in log order, so the last one is its state.
        order = np.argsort(self.groups.of_rows, kind="stable")
        return order, starts_of(self.groups.of_rows[order])

    def ends(self) -> tuple[Any, Any]:
        """Return the numbers of the first and of the last record of each gtrid."""
        order, starts = self._sorted
        return order[starts], order[lasts_of(starts, self.count)]

    def rows_of(self, groups: list[int]) -> Any:
        """Return the records of some gtrids, without those whose names are as in the one before."""
        chosen = np.zeros(self.groups.count, np.bool_)
        chosen[groups] = True
        return np.flatnonzero(chosen[self.groups.of_rows] & self.groups.new_names)

    def by_gtrid(self) -> Any:
        """Return what the records of each gtrid come to.

        Rows: time of the first one; status, time and place of the last, place of the last
        COMMITTING (-1: none), number and bytes. Places are offsets in the file.
        """
        (order, starts), (firsts, lasts) = self._sorted, self.ends()
        statuses, times = self.columns["statuses"], self.columns["times"]
        places = self.columns["offsets"] + self.base
        # Places rise, so the maximum is that of the last one.
        deciding = np.where(statuses == layout.COMMITTING, places, -1)
        return np.stack(
            [
                times[firsts],
                statuses[lasts],
                times[lasts],
                places[lasts],
                np.maximum.reduceat(deciding[order], starts),
                np.bincount(self.groups.of_rows),
                sums(self.columns["lengths"][order], starts),
            ]
        )

    def decide(self, found: OpenDecisions) -> None:
        """Apply the records to the open decisions."""
        # Before or after the rows would be the same: none of those is of these gtrids.
        for gtrid in self.surely_closed() if found else ():
            found.pop(gtrid, None)
        for row in self.decisions():
            found.decide(*row)

    def surely_closed(self) -> list[bytes]:
        """Return the gtrids that no decision is open of after the records, whatever was before."""
        return self.gtrids(self._deciding[1])

    def decisions(self) -> Iterable[tuple[int, bytes, tuple[str, ...]]]:
        """Return status, gtrid and names of the records that decide of any other, in order."""
        rows, _ = self._deciding
        statuses = self.columns["statuses"][rows].tolist()
        return zip(statuses, self.gtrids(rows), self.names(rows), strict=True)

    @cached_property
    def _deciding(self) -> tuple[Any, Any]:
        """The rows to be applied in order, and one row of each gtrid that certainly ends closed.

        A COMMITTING record and the one that closes it under the same names leave nothing open of
        their gtrid, so both are left out with all that is before them.
        """
        deciding = np.flatnonzero(np.isin(self.columns["statuses"], _DECIDING))
        if not len(deciding):
            return deciding, deciding
        found = self._grouped(deciding)
        order = np.argsort(found.of_rows, kind="stable")
        groups, marks, places = found.of_rows[order], found.new_names[order], np.arange(len(order))
        starts = starts_of(groups)
        lasts = last_where(self.columns["statuses"][deciding[order]] == layout.COMMITTING, starts)
        # The record after the last COMMITTING one, or the gtrid's last where none follows.
        follows = np.minimum(lasts + 1, lasts_of(starts, len(order)))
        # An end with all names of the COMMITTING record before it takes each of them off the list;
        # one with other names may leave some open.
        closed = (lasts >= 0) & (follows > lasts) & ~marks[follows]
        # COMMITTING replaces what was on the list for its gtrid: nothing before the last one
        # counts.
        left = deciding[np.sort(order[~closed[groups] & (places >= lasts[groups])])]
        return left, deciding[order[starts[closed]]]
