"""The tables of a database as they are expected to be after recovery.

In: the pieces of a plain log. Out: the names of tables, as the catalogue has them if every change
of it in the log is applied. That is right for nearly all logs and costs little; whoever uses these
names compares them afterwards with what the recovery of the whole log gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.engine.tables import StoreError, Tables, UndonePages
from tallystick.systems.h2.format.entries import TABLE_CATALOG, Entry, Type
from tallystick.systems.h2.format.record_kernels import NUMBER
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.h2.read.changes import TableName, table_names
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.walk import Piece, entries_of

_VALUED = frozenset((TABLE_CATALOG,))
_Catalog = dict[int, tuple[Value | None, ...]]


class ExpectedNames:
    """Takes the pieces of a log, and tells the names of tables after it."""

    def __init__(self, stream: LogStream, zone: Zone) -> None:
        self._stream, self._zone = stream, zone
        self._recovery = Recovery()
        self._changes: dict[int, Entry] = {}

    def take(self, piece: Piece) -> None:
        """Take the next piece."""
        for page, pos, start in piece.undone_pages():
            self._recovery.undo.setdefault(page, (pos, start))
        for entry in entries_of(piece, self._stream, self._zone, _VALUED, _last_changes(piece)):
            self._changes[entry.key] = entry

    def names(self) -> dict[int, TableName]:
        """Return the tables by id, without the types of their columns."""
        catalog = self._before()
        for key, entry in self._changes.items():
            if entry.code == Type.ADD:
                catalog[key] = entry.values
            else:
                catalog.pop(key, None)
        found = table_names(catalog.values())
        return {table: TableName(one.name, one.columns) for table, one in found.items()}

    def _before(self) -> _Catalog:
        """Return the rows of the catalogue before the log; none where they cannot be read."""
        tables = Tables(UndonePages(self._stream.pages, self._stream, self._recovery), self._zone)
        try:
            tables.open_meta()
            row = tables.meta.get(TABLE_CATALOG)
            return {} if row is None else dict(tables.rows(row.root))
        except StoreError:
            return {}


def _last_changes(piece: Piece) -> Any:
    """Return the place of the last change of each row of the catalogue."""
    places = np.flatnonzero(piece.changes)
    places = places[piece.tables[places] == TABLE_CATALOG][::-1]
    _, firsts = np.unique(piece.table[NUMBER][places], return_index=True)
    return np.sort(places[firsts])
