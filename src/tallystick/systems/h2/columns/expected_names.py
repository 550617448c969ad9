"""The tables of a database as they are expected to be after recovery.

In: the pieces of a plain log. Out: the names and lives of tables, as the catalogue has them if
every change of it in the log is applied. That is right for nearly all logs and costs little;
whoever uses these names compares them afterwards with what the recovery of the whole log gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.engine.tables import StoreError, Tables, UndonePages
from tallystick.systems.h2.format.catalogue import (
    Catalogue,
    Row,
    TableLives,
    build_of,
    table_names,
)
from tallystick.systems.h2.format.entries import TABLE_CATALOG, TABLE_META, Entry, Type
from tallystick.systems.h2.format.record_kernels import NUMBER
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.walk import Piece, entries_of

_VALUED = frozenset((TABLE_CATALOG,))


class ExpectedNames:
    """Takes the pieces of a log, and tells the names of tables after it."""

    def __init__(self, stream: LogStream, zone: Zone) -> None:
        self._stream, self._zone = stream, zone
        self._recovery = Recovery()
        self._changes: list[Entry] = []

    def take(self, piece: Piece) -> None:
        """Take the next piece."""
        for page, pos, start in piece.undone_pages():
            self._recovery.undo.setdefault(page, (pos, start))
        self._changes += entries_of(
            piece, self._stream, self._zone, _VALUED, _telling_changes(piece)
        )

    def names(self) -> TableLives:
        """Return the tables and their lives."""
        catalogue = Catalogue(self._before())
        for entry in self._changes:
            catalogue.apply(entry)
        found = table_names(catalogue.rows.values())
        return TableLives(found, catalogue.births, build_of(catalogue.rows.values()))

    def _before(self) -> dict[int, Row]:
        """Return the rows of the catalogue before the log; none where they cannot be read."""
        tables = Tables(UndonePages(self._stream.pages, self._stream, self._recovery), self._zone)
        try:
            tables.open_meta()
            row = tables.meta.get(TABLE_CATALOG)
            return {} if row is None else dict(tables.rows(row.root))
        except StoreError:
            return {}


def _telling_changes(piece: Piece) -> Any:
    """Return the places of new rows of the page index, and of changes of the catalogue.

    Of these only the last one of each row before the next row of the page index.
    """
    changes = np.flatnonzero(piece.changes)
    tables = piece.tables[changes]
    made = changes[(tables == TABLE_META) & (piece.codes[changes] == Type.ADD)]
    places = changes[tables == TABLE_CATALOG][::-1]
    telling = np.stack((np.searchsorted(made, places), piece.table[NUMBER][places]))
    _, firsts = np.unique(telling, axis=1, return_index=True)
    return np.sort(np.concatenate((made, places[firsts])))
