"""The three stages of recovery, from the bytes alone: undo, allocate, redo.

In: the log stream. Out: a `Recovery`: which undo images count, what each session committed last,
what is in doubt, which pages the log uses, and for every row record whether redo applies it.
Source: docs/formats/h2.md, "What recovery does".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from tallystick.systems.h2.engine.digest import LogDigest
from tallystick.systems.h2.format.entries import INCOMPLETE, META_COLUMNS, TABLE_META, Entry, Type
from tallystick.systems.h2.format.values.java_text import whole_number
from tallystick.systems.h2.format.values.types import Value
from tallystick.systems.h2.read.scan import ScanEnd
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.runs.pieces import OWN_TABLES, LogPieces

if TYPE_CHECKING:
    from tallystick.systems.h2.runs.chunk import Chunk

HEAD_COLUMN = 3
"""Column of a page-index row that holds the root page of the index."""

META_NUMBERS = 4
"""Columns of such a row that are numbers, the first ones."""
_TABLE_KIND = "0"
_KINDS = (_TABLE_KIND, "1")
_OPTIONS = re.compile(r"[^,]+,\d,(temp)?,d?(,(true|false)){0,2}")
"""Compare mode and its strength; temporary; ``d`` where the index delegates to its table, whose row
keys are its values; how binary values are sorted."""
_COLUMN_LIST = re.compile(r"\d+(/\d+)?(,\d+(/\d+)?)*")
"""The numbers of columns, with the way in which they are sorted."""

UNDO_STAGE = 0
ALLOCATE_STAGE = 1
REDO_STAGE = 2
"""The engine's numbers of the stages of recovery."""


@dataclass(slots=True)
class SessionState:
    """Last commit and prepared transaction of a session, as stage 0 finds them.

    Attributes:
        commit_section: the section of its last COMMIT; 0 with ``commit_pos`` 0: it has none.
        commit_pos: the position of that COMMIT.
        in_doubt: the name under which it is prepared; None: nothing of it is in doubt.
        prepare_page: the data page that holds that prepare record.
    """

    session: int
    commit_section: int = 0
    commit_pos: int = 0
    in_doubt: str | None = None
    prepare_page: int = 0

    def committed(self, section: int, pos: int) -> bool:
        """Return True if an entry at this position was followed by a commit of this session."""
        if section != self.commit_section:
            return section < self.commit_section
        return pos <= self.commit_pos


@dataclass(slots=True)
class Recovery:
    """The state after stages 0 and 1; `redo` decides stage 2."""

    sessions: dict[int, SessionState] = field(default_factory=dict)
    undo: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Page to (position, stream start) of the image that stage 0 writes."""
    damaged_images: dict[int, bytes] = field(default_factory=dict)
    """Images that stage 0 writes although they did not expand."""
    index_roots: dict[int, int] = field(default_factory=dict)
    """Root pages of indexes created in the log, to the position of the last such entry."""
    short_index_row: tuple[int, int] | None = None
    """Position and stream start of the first row of the page index without a root page: stage 0
    takes the root page of each, committed or not, and fails."""
    odd_index_rows: list[int] = field(default_factory=list)
    """Stream starts of rows of the page index that the engine never writes."""
    used_pages: set[int] = field(default_factory=set)
    """What stage 1 marks as used: see `used_pages`."""
    end: ScanEnd = field(default_factory=ScanEnd)
    empty: bool = True
    """The log has no whole record."""
    last_section: int | None = None
    """The section of the last whole record."""

    def observe(self, entry: Entry) -> None:
        """Apply stage 0 to one entry."""
        if entry.type == INCOMPLETE:
            return
        self.empty = False
        self.last_section = entry.section
        handler = _OBSERVERS.get(entry.code)
        if handler is not None:
            handler(self, entry)

    def observe_chunk(self, chunk: Chunk, ends: Iterable[Entry], rows: Iterable[Entry]) -> None:
        """Apply stage 0 to records that are in order.

        Args:
            chunk: the records.
            ends: of these the prepare records and the last COMMIT of each session.
            rows: of these the rows that are added to the page index, with their values.
        """
        self.empty = False
        self.last_section = int(chunk.sections[-1])
        for page, pos, start in chunk.undone_pages():
            # The first image of a page in the whole log counts, and not the first of its section.
            self.undo.setdefault(page, (pos, start))
        for entry in chain(ends, rows):
            _OBSERVERS[entry.code](self, entry)

    def redo(self, entry: Entry) -> bool:
        """Return whether stage 2 applies this row record."""
        state = self.sessions.get(entry.session)
        return state is not None and state.committed(entry.section, entry.pos)

    def undo_applied(self, entry: Entry) -> bool:
        """Return whether stage 0 writes this image: the first of its page."""
        return self.undo.get(entry.page, (0, 0))[0] == entry.pos

    def freed(self, entry: Entry) -> list[int]:
        """Return the pages that stage 2 really frees for a FREE_LOG entry."""
        return [page for page in entry.pages if page not in self.used_pages]

    def decisions(self, entry: Entry) -> dict[str, Any]:
        """Return what recovery decides of an entry, in the oracle's words."""
        if entry.type == INCOMPLETE:
            return {}
        if entry.session_bound:
            return {"redo": self.redo(entry)}
        if entry.code == Type.UNDO:
            return {"applied_in_stage0": self.undo_applied(entry)}
        if entry.code == Type.FREE_LOG:
            return {"freed": self.freed(entry)}
        return {}

    def in_doubt(self) -> list[SessionState]:
        """Return the sessions with a transaction in doubt, in the engine's order."""
        return [state for state in self.ordered_sessions() if state.in_doubt is not None]

    def ordered_sessions(self) -> list[SessionState]:
        """Return all sessions in the engine's order."""
        return [self.sessions[session] for session in sorted(self.sessions)]

    def _session(self, session: int) -> SessionState:
        return self.sessions.setdefault(session, SessionState(session))

    def _undo(self, entry: Entry) -> None:
        first, _ = self.undo.setdefault(entry.page, (entry.pos, entry.start))
        if first == entry.pos and entry.fault:
            self.damaged_images[entry.page] = entry.image

    def _commit(self, entry: Entry) -> None:
        state = self._session(entry.session)
        state.commit_section, state.commit_pos = entry.section, entry.pos
        # A commit of the session takes every prepared name of it out of doubt.
        state.in_doubt = None

    def _prepare(self, entry: Entry) -> None:
        state = self._session(entry.session)
        state.in_doubt, state.prepare_page = entry.name, entry.page

    def _add(self, entry: Entry) -> None:
        if entry.table != TABLE_META:
            return
        if len(entry.values) <= HEAD_COLUMN:
            self.short_index_row = self.short_index_row or (entry.pos, entry.start)
            return
        if is_odd_row(entry.values):
            self.odd_index_rows.append(entry.start)
        head = entry.values[HEAD_COLUMN]
        root = None if head is None else whole_number(head.text)
        if root is not None:
            self.index_roots[root] = entry.pos


_OBSERVERS: dict[int, Callable[[Recovery, Entry], None]] = {
    Type.UNDO: Recovery._undo,
    Type.COMMIT: Recovery._commit,
    Type.PREPARE_COMMIT: Recovery._prepare,
    Type.ADD: Recovery._add,
}


def is_odd_row(values: tuple[Value | None, ...]) -> bool:
    """Return whether a row of the page index holds what the engine never writes."""
    texts = [one.text if one is not None and isinstance(one.text, str) else "" for one in values]
    if len(texts) != META_COLUMNS or None in map(whole_number, texts[:META_NUMBERS]):
        return True
    index, kind, parent, root, options, columns = texts
    if kind not in _KINDS or (kind == _TABLE_KIND) != (index == parent):
        return True
    if not _OPTIONS.fullmatch(options) or not _COLUMN_LIST.fullmatch(columns):
        return True
    delegates = options.split(",")[3] == "d"
    return delegates != (root == "0") or (delegates and kind == _TABLE_KIND)


def recover(log: LogPieces, digest: LogDigest | None = None) -> Recovery:
    """Run stages 0 and 1 over the whole log; ``digest`` takes its records as well."""
    recovery = Recovery(used_pages=used_pages(log.stream))
    for piece in log.pieces():
        if isinstance(piece, Entry):
            recovery.observe(piece)
            if digest is not None:
                digest.observe(piece)
        elif piece.odd:
            for entry in piece.odd:
                recovery.observe(entry)
            if digest is not None:
                digest.observe_odd(log, piece)
        else:
            # A list, because the digest takes them after the recovery did.
            rows = list(log.of_chunk(piece, piece.added_to(TABLE_META), OWN_TABLES))
            recovery.observe_chunk(piece, log.of_chunk(piece, piece.last_ends()), rows)
            if digest is not None:
                digest.observe_chunk(log, piece, rows)
    recovery.end = log.end
    return recovery


def used_pages(stream: LogStream) -> set[int]:
    """Run stage 1: return every trunk page and every listed data page, written or not."""
    return {page for trunk in stream.chain.trunks for page in trunk.pages}
