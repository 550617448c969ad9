"""How much a restart would lose: commits and rows, counted where the log tells.

In: an `EngineResult` or its stream. Out: a `Loss` for each way to lose something. Two are counted:
what stands in records that a restart does not read (*dropped*), and how much of that the tables do
not have either (*missing*). A checkpoint writes changes to the tables, so a dropped commit is lost
only where its rows are not there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystick.printable import counted
from tallystick.systems.h2.engine.large_objects import object_tables
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.engine.redo import Redo
from tallystick.systems.h2.engine.tables import StoreError
from tallystick.systems.h2.format.catalogue import table_names
from tallystick.systems.h2.format.entries import INCOMPLETE, TABLE_META, Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import Value, decode_row
from tallystick.systems.h2.read.files import OpenedFile
from tallystick.systems.h2.read.salvage import parts_after, salvaged
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.runs.pieces import LogPieces, Piece

if TYPE_CHECKING:
    from tallystick.systems.h2.runs.chunk import Chunk


@dataclass(frozen=True, slots=True)
class Loss:
    """Commits and row changes that a restart drops, as far as they can be counted."""

    commits: int = 0
    rows: int = 0

    def __str__(self) -> str:
        """Return both numbers in words."""
        return f"{counted(self.commits, 'commit')} and {counted(self.rows, 'row change')}"


Dropped = tuple[Entry, LogStream]
"""A record that a restart does not read, and the stream in which it stands."""


class _Count:
    """Counts commits, and the row changes before them of their sessions."""

    def __init__(self) -> None:
        self.commits = self.rows = 0
        self._open: Counter[int] = Counter()
        """Changes by session since its last commit."""

    def take(self, piece: Piece) -> None:
        """Add the next records of the log."""
        if not isinstance(piece, Entry):
            self._take_chunk(piece)
        elif piece.type == INCOMPLETE:
            return
        elif piece.session_bound:
            self._open[piece.session] += 1
        elif piece.code == Type.COMMIT:
            self.commits += 1
            self.rows += self._open.pop(piece.session, 0)

    def _take_chunk(self, chunk: Chunk) -> None:
        commits, before, after = chunk.committed()
        self.commits += commits
        for session, count in before.items():
            self.rows += self._open.pop(session, 0) + count
        self._open.update(after)


def _counted(pieces: Iterable[Piece]) -> Loss:
    """Count commits, and the row changes before them of their sessions."""
    count = _Count()
    for piece in pieces:
        count.take(piece)
    return Loss(count.commits, count.rows)


def loss_of(parts: Iterable[LogStream], zone: Zone) -> Loss:
    """Count what stands in some parts of a file."""
    return _counted(piece for part in parts for piece in LogPieces(part, zone).pieces())


def _entries_of(parts: Iterable[LogStream], zone: Zone) -> Iterator[Dropped]:
    for part in parts:
        for entry in LogPieces(part, zone).entries(()):
            if entry.type != INCOMPLETE:
                yield entry, part


def _after_damage(stream: LogStream, zone: Zone) -> Iterator[LogStream]:
    """Return the parts of the log that stand after the page with which the engine ends it."""
    every = salvaged(stream.pages, stream, zone)
    return (part for part, run in every if run.pages[0] in stream.lost)


def _after_header(file: OpenedFile) -> Iterable[LogStream]:
    """Return the log, or its parts, that the header in force should name and does not."""
    if (other := file.other) is not None:
        return (other,)
    if file.stream is None:
        return ()
    dropped, every = set(file.stream.dropped), salvaged(file.stream.pages, file.stream, file.zone)
    return (part for part, run in every if run.pages[0] in dropped)


def _after_redo(result: EngineResult) -> Iterator[Entry]:
    """Yield the commits and the committed rows after the place where redo ended."""
    log, recovery = result.log, result.recovery
    if log is None or recovery is None:
        return
    for entry in log.entries(()):
        if entry.pos >= result.opening.redone_before and (
            not entry.session_bound or recovery.redo(entry)
        ):
            yield entry


def _dropped_parts(result: EngineResult, code: str) -> Iterable[LogStream]:
    """Return the parts of the file that a restart does not read for a finding of this code."""
    stream, zone = result.file.stream, result.file.zone
    if code == "header-drops-log":
        return _after_header(result.file)
    if stream is not None and code == "lost-behind-damage":
        return _after_damage(stream, zone)
    if result.digest is not None and code == "log-cut-short":
        # Those after the page where the engine's scan ends early.
        return parts_after(result.digest.stream, result.digest.known_to, zone)
    return ()


def dropped_with(result: EngineResult, code: str) -> Iterable[Dropped]:
    """Return what a restart does not read for a finding of this code."""
    log = result.log
    if code == "partial-redo" and log is not None:
        return ((entry, log.stream) for entry in _after_redo(result))
    return _entries_of(_dropped_parts(result, code), result.file.zone)


def lost_with(result: EngineResult, code: str) -> Loss:
    """Count what a restart drops for a finding of this code, without what is gone already."""
    if code == "partial-redo":
        return _counted(_after_redo(result))
    return loss_of(_dropped_parts(result, code), result.file.zone)


# -- what of it the tables do not have --------------------------------------------------------

KEYS_MAX = 1 << 18
"""Rows of dropped transactions that are looked for at most."""
_Place = tuple[int, int]
"""A table and the key of a row."""
_Row = bytes | tuple[Value | None, ...] | None
"""A row as its bytes or its values; None where there is none."""


def missing_of(result: EngineResult, dropped: Iterable[Dropped]) -> Loss:
    """Count of dropped commits and rows those that the tables do not have after a restart.

    They are compared row by row, as the last of the dropped commits leaves it: changes that a
    checkpoint wrote to the pages are no loss, and neither are those that no commit ended.
    """
    wrong = Counter(commit for _, commit in _missing(result, dropped))
    return Loss(len(wrong), wrong.total())


def empties(dropped: Iterable[Dropped]) -> bool:
    """Return whether a table is emptied or removed: the log does not tell the rows it had."""
    return any(
        one.code == Type.TRUNCATE or (one.code == Type.REMOVE and one.table == TABLE_META)
        for one, _ in dropped
    )


def missing_rows(result: EngineResult, dropped: Iterable[Dropped]) -> Iterator[Dropped]:
    """Yield the records of `missing_of`: of each row the one that the last commit wrote."""
    for one, _ in _missing(result, dropped):
        entry = one[0]
        if entry.code == Type.ADD and not (entry.values or entry.fault):  # it comes from a run
            entry.values, _ = decode_row(entry.row, result.file.zone)
        yield one


def _missing(result: EngineResult, dropped: Iterable[Dropped]) -> Iterator[tuple[Dropped, int]]:
    """Yield the last dropped record of each row that the tables have otherwise, and its commit.

    The commit is its number among the dropped ones.
    """
    due = _due(dropped)
    # A large object is stored by commits of the engine's own, before that of the row that has it:
    # nobody was told of these.
    own = object_tables(table_names(result.opening.catalog.values()))
    if result.redo is None or all(table in own for table, _ in due):
        return
    held = dict[_Place, _Row]()
    for entry in result.redone():
        if (place := (entry.table, entry.key)) in due:
            held[place] = bytes(entry.row) if entry.code == Type.ADD else None
    for place, (one, commit) in due.items():
        try:
            found = held[place] if place in held else _on_pages(result.redo, *place)
        except StoreError:  # what the engine makes of a damaged page is not known
            continue
        entry = one[0]
        row = bytes(entry.row) if entry.code == Type.ADD else None
        if not _same(row, found, result.redo):
            yield one, commit


def _due(dropped: Iterable[Dropped]) -> dict[_Place, tuple[Dropped, int]]:
    """Return by table and key the last dropped record that was committed, and the commit's number.

    So rows ought to be after a restart that drops nothing.
    """
    due: dict[_Place, tuple[Dropped, int]] = {}
    open_rows = defaultdict[int, dict[_Place, Dropped]](dict)
    commits = count = 0
    for one in dropped:
        entry = one[0]
        # What is more is not looked for: the number of rows is a lower bound anyway.
        if entry.code in (Type.ADD, Type.REMOVE) and count < KEYS_MAX:
            open_rows[entry.session][entry.table, entry.key] = one
            count += 1
        elif entry.code == Type.COMMIT:
            commits += 1
            for place, last in open_rows.pop(entry.session, {}).items():
                # A later commit replaces what an earlier one has written: only the last state can
                # be missing.
                due[place] = last, commits
                if last[0].code == Type.REMOVE and place[0] == TABLE_META:
                    _forget(due, place[1] - 1)  # the key of a table there is one more
        elif entry.code == Type.TRUNCATE:
            # The table is empty after it: rows that were due before are gone rightly.
            _forget(due, entry.table)
            _forget(open_rows[entry.session], entry.table)
    return due


def _forget(places: dict[_Place, Any], table: int) -> None:
    """Take out the rows of a table that was emptied or removed."""
    for place in [one for one in places if one[0] == table]:
        places.pop(place)


def _on_pages(redo: Redo, table: int, key: int) -> _Row:
    """Return the row that the pages of a table have where redo does not change it."""
    if table in redo.emptied or (table != TABLE_META and table not in redo.tables.meta):
        return None
    return redo.tables.row(redo.root(table).root, key)


def _same(row: bytes | None, found: _Row, redo: Redo) -> bool:
    # Rows of the log have their column count in front, rows of pages do not: these are values.
    if row is None or found is None or isinstance(found, bytes):
        return row == found
    return decode_row(row, redo.zone)[0] == found
