"""The rows of tables as they are told where a log begins later than it does: any place will do.

A checkpoint gives up the files before that of the oldest open transaction, so what the first record
is that a log still has depends on when the file before it was full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tallystick.records import Kind
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.tables import Database, Numbers, Values
from tests.systems.derby.logs import reading_of

Rows = dict[str, dict[str, Values]]
"""By table and key."""


class Beginnings:
    """A log of a database that was written by its last checkpoint up to some record."""

    def __init__(self, database: Path) -> None:
        reading = reading_of(database)
        self._log = reading.source.path
        self._ranges = [one for one in reading.scan.ranges() if one.is_believed]
        end = min(reading.recovery.redo_mark, reading.recovery.undo_mark)
        self.places: Sequence[int] = [
            one.place for one in self._ranges if one.envelope is not None and one.place < end
        ]

    def rows(self, place: int = 0) -> Rows:
        """The rows at the end of the log, if it begins at a place."""
        ranges = partial(_from, place, self._ranges)
        database = Database(ranges, self._log)
        return {name: _rows(database, name, ranges) for name in database.tables}


def _from(place: int, ranges: Sequence[ByteRange], *_: Numbers) -> Iterator[ByteRange]:
    return (one for one in ranges if one.place >= place)


def _rows(database: Database, name: str, ranges: partial[Iterator[ByteRange]]) -> dict[str, Values]:
    found = {key: dict(values) for key, values in database.rows_before(name)}
    for one in database.changes(name, ranges):
        if one.kind is Kind.TRUNCATE:
            found.clear()
        elif one.kind is Kind.DELETE:
            found.pop(one.key, None)
        else:
            found[one.key] = {**found.get(one.key, {}), **(one.values or {})}
    return found
