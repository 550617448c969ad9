"""Redo of a log that is read in runs, many records at once.

In: the chunks of a log, and which sessions commit where. Out: row keys that tables have
gained and lost. What is odd, what fails, and rows of the engine's own tables are left to be applied
one by one. Import this module only where a log is long: it loads NumPy and the compiler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from tallystick.arrow.neighbours import distinct, firsts
from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.engine.redo import Redo
from tallystick.systems.h2.engine.tables import MetaRow, StoreError
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.runs.chunk import Chunk
from tallystick.systems.h2.runs.pieces import OWN_TABLES, LogPieces
from tallystick.systems.h2.runs.rows import NO_COLUMN, read_rows
from tallystick.systems.h2.runs.walk import BODY_LENGTH, BODY_START, NUMBER

_AT_ONCE_MIN = 32
"""Records that are applied at once at least; fewer take longer so."""
_NO_COMMIT = (-1, 0)
_Group = tuple[int, Any, Any]
"""A table, ascending keys that change in it, and whether each is there afterwards."""


def redone_in(tables: Collection[int], recovery: Recovery, log: LogPieces) -> Iterator[Entry]:
    """Yield the changes of these tables that redo applies; their added rows have values."""
    for chunk in log.chunks():
        places = redone(recovery, chunk)
        wanted = places[np.isin(chunk.tables[places], list(tables))]
        yield from log.of_chunk(chunk, wanted, tables)


def apply_at_once(redo: Redo, recovery: Recovery, log: LogPieces) -> Iterator[Entry]:
    """Apply changes of chunks; yield the entries that are to be applied in between."""
    for chunk in log.chunks():
        places = redone(recovery, chunk)
        alone = np.isin(chunk.tables[places], list(OWN_TABLES))
        # Rows of the page index make and remove tables, and TRUNCATE empties one: changes before
        # and after these must not be put together.
        alone |= (chunk.codes[places] == Type.TRUNCATE) | bool(chunk.odd)
        borders = np.flatnonzero(np.diff(alone)) + 1
        # Not strict: `split` makes one part, an empty one, where there are no places.
        for some, single in zip(
            np.split(places, borders), [*alone[:1], *alone[borders]], strict=False
        ):
            if single or len(some) < _AT_ONCE_MIN or not _applied(redo, chunk, some):
                yield from log.of_chunk(chunk, some, OWN_TABLES)


def redone(recovery: Recovery, chunk: Chunk) -> Any:
    """Return the places of the changes that redo applies: `Recovery.redo` for a whole chunk."""
    sessions, slots = chunk.sessions()
    states = (recovery.sessions.get(session) for session in sessions)
    ends = [(one.commit_section, one.commit_pos) if one else _NO_COMMIT for one in states]
    # As an index -1, of no session, is the last column.
    section, pos = np.array([*ends, _NO_COMMIT], np.int64).T[:, slots]
    before = (chunk.sections < section) | (chunk.sections == section) & (chunk.sequence <= pos)
    return np.flatnonzero(before & chunk.changes)


def _applied(redo: Redo, chunk: Chunk, places: Any) -> bool:
    """Apply the changes if there is nothing odd about any of them; return whether they were."""
    tables = chunk.tables[places]
    groups: list[_Group] = []
    for table in distinct(tables)[0]:
        try:
            group = _group(redo, chunk, table, places[tables == table])
        except StoreError:  # it is for the record that it stops
            return False
        if group is None:
            return False
        groups.append(group)
    # After all tables were looked at: a chunk that is given to `apply` must not be half applied.
    for table, keys, present in groups:
        redo.changed[table].set_each(keys, present)
    return True


def _group(redo: Redo, chunk: Chunk, table: int, places: Any) -> _Group | None:
    """Return the effect of the changes of one table; None if one of these changes is odd."""
    row = redo.root(table)
    adds = chunk.codes[places] == Type.ADD
    if not _has_own_keys(redo, chunk, row, places[adds]):
        return None
    keys = chunk.table[NUMBER][places]
    order = np.argsort(keys, kind="stable")
    keys, adds = keys[order], adds[order]
    # The sort is stable: records of a key stand in log order, and have to take turns. So the first
    # one says what must have been there, and the last one what is there afterwards.
    if not firsts(keys, adds).all():  # added twice, or removed twice
        return None
    first = firsts(keys)
    last = np.append(first[1:], True)
    keys = keys[first]
    if (redo.has_each(table, keys) == adds[first]).any():
        return None
    return table, keys, adds[last]


def _has_own_keys(redo: Redo, chunk: Chunk, row: MetaRow, places: Any) -> bool:
    """Return True if added rows have the columns of their table, and the keys it gives them."""
    column = redo.tables.key_column(row.index)
    if column is not None and column < 0:
        return False
    starts, lengths, keys = chunk.table[[BODY_START, BODY_LENGTH, NUMBER]][:, places]
    counts, numbers = np.empty_like(keys), np.empty_like(keys)
    known = NO_COLUMN if column is None else column
    if not read_rows(chunk.data, starts, lengths, known, counts, numbers):
        return False
    if row.columns and (counts != row.columns).any():
        return False
    return bool((keys != 0).all() if column is None else (keys == numbers).all())
