"""Redo of a plain log, many records at once.

In: the pieces of a plain log, and which sessions commit where. Out: row keys that tables have
gained and lost. What is odd, what fails, and rows of the engine's own tables are left to be applied
one by one. Import this module only where a log is long: it loads NumPy and the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.engine.redo import Redo
from tallystick.systems.h2.engine.tables import MetaRow, StoreError
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.record_kernels import BODY_LENGTH, BODY_START, NUMBER
from tallystick.systems.h2.format.row_kernels import NO_COLUMN, read_rows
from tallystick.systems.h2.read.skim import OWN_TABLES, PlainLog
from tallystick.systems.h2.read.walk import Piece, distinct

_AT_ONCE_MIN = 32
"""Records that are applied at once at least; fewer take longer so."""
_NO_COMMIT = (-1, 0)
_Group = tuple[int, Any, Any]
"""A table, ascending keys that change in it, and whether each is there afterwards."""


def redone_in(tables: frozenset[int], recovery: Recovery, plain: PlainLog) -> Iterator[Entry]:
    """Yield the changes of these tables that redo applies, with values."""
    for piece in plain.pieces():
        places = redone(recovery, piece)
        wanted = places[np.isin(piece.tables[places], list(tables))]
        yield from plain.entries(piece, wanted, tables)


def apply_at_once(redo: Redo, recovery: Recovery, plain: PlainLog) -> Iterator[Entry]:
    """Apply runs of plain changes; yield the entries that are to be applied in between."""
    for piece in plain.pieces():
        places = redone(recovery, piece)
        alone = np.isin(piece.tables[places], list(OWN_TABLES))
        alone |= piece.codes[places] == Type.TRUNCATE
        borders = np.flatnonzero(np.diff(alone)) + 1
        for run, single in zip(
            np.split(places, borders), [*alone[:1], *alone[borders]], strict=False
        ):
            if single or len(run) < _AT_ONCE_MIN or not _applied(redo, piece, run):
                yield from plain.entries(piece, run, OWN_TABLES)


def redone(recovery: Recovery, piece: Piece) -> Any:
    """Return the places of the changes that redo applies."""
    sessions, slots = piece.sessions()
    states = (recovery.sessions.get(session) for session in sessions)
    ends = [(one.commit_section, one.commit_pos) if one else _NO_COMMIT for one in states]
    section, pos = np.array([*ends, _NO_COMMIT], np.int64).T[:, slots]
    before = (piece.sections < section) | (piece.sections == section) & (piece.sequence <= pos)
    return np.flatnonzero(before & piece.changes)


def _applied(redo: Redo, piece: Piece, places: Any) -> bool:
    """Apply the changes if there is nothing odd about any of them; return whether they were."""
    tables = piece.tables[places]
    groups: list[_Group] = []
    for table in distinct(tables)[0]:
        try:
            group = _group(redo, piece, table, places[tables == table])
        except StoreError:  # it is for the record that it stops
            return False
        if group is None:
            return False
        groups.append(group)
    for table, keys, present in groups:
        redo.changed[table].set_each(keys, present)
    return True


def _group(redo: Redo, piece: Piece, table: int, places: Any) -> _Group | None:
    """Return what changes of one table do; None if one of them is odd."""
    row = redo.root(table)
    adds = piece.codes[places] == Type.ADD
    if not _has_own_keys(redo, piece, row, places[adds]):
        return None
    keys = piece.table[NUMBER][places]
    order = np.argsort(keys, kind="stable")
    keys, adds = keys[order], adds[order]
    same = keys[1:] == keys[:-1]
    if (same & (adds[1:] == adds[:-1])).any():  # added twice, or removed twice
        return None
    first, last = np.append(True, ~same), np.append(~same, True)
    keys = keys[first]
    if (redo.has_each(table, keys) == adds[first]).any():
        return None
    return table, keys, adds[last]


def _has_own_keys(redo: Redo, piece: Piece, row: MetaRow, places: Any) -> bool:
    """Return True if added rows have the columns of their table, and the keys it gives them."""
    column = redo.tables.key_column(row.index)
    if column is not None and column < 0:
        return False
    starts, lengths, keys = piece.table[[BODY_START, BODY_LENGTH, NUMBER]][:, places]
    counts, numbers = np.empty_like(keys), np.empty_like(keys)
    known = NO_COLUMN if column is None else column
    if not read_rows(piece.data, starts, lengths, known, counts, numbers):
        return False
    if row.columns and (counts != row.columns).any():
        return False
    return bool((keys != 0).all() if column is None else (keys == numbers).all())
