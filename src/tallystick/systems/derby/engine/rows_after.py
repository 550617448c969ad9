"""How many rows containers have after a boot, and where the pages of indexes lead then.

In: the files of containers, and the pieces of the log from the redo mark on. Out: by container,
how many rows redo and undo add, and the pages of an index as redo leaves them. A change counts
only where its page does not have it yet. What cannot be followed makes a container inexact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tallystick.systems.derby.engine.index_pages import (
    UNREADABLE,
    Node,
    child_of,
    is_leaf,
    node_of,
    rows_of_index,
)
from tallystick.systems.derby.engine.page_files import PageFile
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.container_pages import ROW_DELETED, read_page_header
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import read_envelope, split_instant
from tallystick.systems.derby.format.page_rows import Field, images_of, read_field, rows_of
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.containers import CONTROL_ROW, part_of
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.spans import ByteRange

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import Chunk
    from tallystick.systems.derby.runs.pieces import Piece

_FIRST_RECORD: Final = CONTROL_ROW[1]
"""The record id of what comes first on a page."""
_PAGE_BITS: Final = 32
_PAGE_MASK: Final = (1 << _PAGE_BITS) - 1
_ROOT: Final = 1
"""The first page of an index, which alone becomes a branch of a leaf."""
_UNDOING = operations.LOGICAL_UNDO_OF_ROW, operations.PHYSICAL_UNDO
_COUNTING = operations.INSERT, operations.DELETE, operations.PURGE, operations.COPY_ROWS
_SHAPING = operations.INIT_PAGE, operations.INVALIDATE_PAGE, operations.UPDATE_ROW
"""Operations after which rows on a page of an index may count that did not, or not any more."""
_FOLLOWED = (*_COUNTING, *_SHAPING, *_UNDOING, operations.UPDATE_FIELD)


class _UnknownError(Exception):
    """A change cannot be followed."""


@dataclass(slots=True)
class _PageState:
    """A page as the changes that were taken in leave it.

    Attributes:
        version: that of the file; what was made on an older one is there already.
        is_index: the page is one of an index.
        counts: rows on it are rows of a table, or of the leaf of an index.
        described: the first row of a page of an index, by column; None if there is none.
        below: the pages to which the other rows of a branch lead.
    """

    version: int
    is_index: bool
    counts: bool = False
    described: dict[int, Field] | None = None
    below: list[int] = field(default_factory=list)

    @property
    def is_branch(self) -> bool:
        return self.described is not None and not self.counts


class RowsAfter:
    """Follows what redo and undo do to the rows of containers.

    Args:
        log: the log's files.
        recovery: what a boot does with them.
        first: the number of the first log file of which pieces are noted.
        files: the containers that are followed, by number.
        indexes: those of them that are indexes.
    """

    def __init__(
        self,
        log: LogFiles,
        recovery: Recovery,
        first: int,
        files: Mapping[int, PageFile],
        indexes: Collection[int],
    ) -> None:
        self._log, self._indexes = log, frozenset(indexes)
        self._mark, self._stop = recovery.redo_mark, recovery.stop
        self._undone = {one.number for one in recovery.undo}
        self._added = dict.fromkeys(files, 0)
        self._states: dict[int, _PageState] = {}
        # A split that is taken back is not followed, nor what began before the first piece.
        hidden = any(one.internal or one.first >> 32 < first for one in recovery.undo)
        self._inexact = {*files} if hidden else set[int]()
        for number, file in files.items():
            self._load(number, file)

    def _load(self, container: int, file: PageFile) -> None:
        if file.removed or not file.page_size:
            self._inexact.add(container)
            return
        is_index = container in self._indexes
        try:
            for number, page in file.pages_at(range(1, file.size // file.page_size)):
                header = read_page_header(page)
                state = _PageState(header.version, is_index)
                if not is_index:
                    state.counts = header.has_rows and not header.overflow
                elif found := rows_of_index(page):
                    described, state.below = found
                    state.described, state.counts = dict(described), is_leaf(described)
                self._states[container << _PAGE_BITS | number] = state
        except UNREADABLE:
            self._inexact.add(container)

    def added(self, container: int) -> int | None:
        """Return how many rows a boot adds; None if that is not known."""
        return None if container in self._inexact else self._added.get(container)

    def nodes(self, container: int) -> dict[int, Node] | None:
        """Return the pages of an index after redo; None if they are not known."""
        if container in self._inexact or container not in self._added:
            return None
        found, first = {}, container << _PAGE_BITS
        try:
            for key, one in self._states.items():
                if key & -1 << _PAGE_BITS == first and one.described is not None:
                    found[key - first] = node_of(one.described, one.below)
        except UNREADABLE:
            return None
        return found

    def note(self, piece: Piece) -> None:
        """Take in a piece of the log, in order."""
        if isinstance(piece, ByteRange):
            if piece.body is not None and piece.is_believed and piece.place < self._stop:
                self._take(piece.place, piece.body)
        elif not piece.dropped and self._added:
            self._note_chunk(piece)

    def _note_chunk(self, chunk: Chunk) -> None:
        """Take in plain records: inserts and marks of rows by columns, the others one by one."""
        import numpy as np

        from tallystick.systems.derby.runs import walk

        columns, instants = chunk.columns, chunk.instants
        wanted = (columns[walk.SEGMENT] == 0) & np.isin(columns[walk.CONTAINER], [*self._added])
        undone = np.isin(columns[walk.TRANSACTION], [*self._undone])
        wanted &= (instants < self._stop) & ((instants >= self._mark) | undone)
        rows = np.flatnonzero(wanted & np.isin(columns[walk.OPERATION], _FOLLOWED))
        keys = columns[walk.CONTAINER, rows] << _PAGE_BITS | columns[walk.PAGE, rows]
        distinct, of = np.unique(keys, return_inverse=True)
        states = [self._state(key) for key in distinct.tolist()]
        version = np.array([one.version for one in states], np.int64)
        is_index = np.array([one.is_index for one in states], np.bool_)
        made = columns[walk.OPERATION, rows]
        record = columns[walk.RECORD_ID, rows]
        is_row = np.isin(made, (operations.INSERT, operations.DELETE))
        is_row &= (made == operations.DELETE) | (record != _FIRST_RECORD)
        shapes = np.isin(made, _SHAPING) | ((record == _FIRST_RECORD) & ~is_row)
        shapes &= is_index[of] | (made == operations.INIT_PAGE)
        # A new page gets its shape once, before its rows: all of them count, or none.
        begun = np.bincount(of[made == operations.INIT_PAGE], minlength=len(states))
        is_new = (version == 0) & (begun == 1) & (distinct & _PAGE_MASK != _ROOT)
        is_new[of[np.isin(made, (operations.INVALIDATE_PAGE, operations.UPDATE_ROW))]] = False
        first = shapes & is_new[of]
        for row in rows[first].tolist():
            self._take(int(instants[row]), chunk.body(row))
        counts = np.array([one.counts for one in states], np.bool_)
        slowly = np.array([one.is_branch for one in states], np.bool_)
        slowly[of[shapes & ~first]] = True
        one_by_one = (~is_row | slowly[of]) & ~first
        is_update = np.isin(made, (operations.UPDATE_ROW, operations.UPDATE_FIELD))
        one_by_one &= is_index[of] | ~is_update
        for row in rows[one_by_one].tolist():
            self._take(int(instants[row]), chunk.body(row))
        plain = is_row & ~slowly[of] & counts[of]
        effect = np.where((made == operations.DELETE) & (columns[walk.FLAG, rows] != 0), -1, 1)
        redone = (instants[rows] >= self._mark) & (columns[walk.VERSION, rows] >= version[of])
        change = effect * (redone.astype(np.int64) - undone[rows])
        containers = columns[walk.CONTAINER, rows]
        for container in np.unique(containers).tolist():
            self._added[container] += int(change[plain & (containers == container)].sum())

    def _state(self, key: int) -> _PageState:
        found = self._states.get(key)
        if found is None:
            found = _PageState(0, key >> _PAGE_BITS in self._indexes)
            self._states[key] = found
        return found

    def _take(self, place: int, body: Body) -> None:
        page: Page | None = body.fields.get("pageId")
        if page is None or page.segment or page.container not in self._added:
            return
        if body.operation not in _FOLLOWED:
            return
        state = self._state(page.container << _PAGE_BITS | page.number)
        redone = place >= self._mark and body.fields["pageVersion"] >= state.version
        undone = body.transaction in self._undone
        try:
            effect = self._effect(state, body) if redone or undone else 0
            self._added[page.container] += effect * (redone - undone)
            if redone:
                _shape(state, body)
        except (_UnknownError, *UNREADABLE):
            self._inexact.add(page.container)

    def _effect(self, state: _PageState, body: Body) -> int:
        """Return how many rows a change adds."""
        made = body.operation
        if made in _UNDOING:
            return self._effect_of_undo(state, body)
        if not state.counts or made not in _COUNTING:
            return 0
        if made == operations.INSERT:
            return int(body.fields["recordId"] != _FIRST_RECORD or not _is_first(state, body))
        if made == operations.DELETE:
            return -1 if body.fields["delete"] else 1
        live = sum(not row.status & ROW_DELETED for row in rows_of(body))
        return -live if made == operations.PURGE else live

    def _effect_of_undo(self, state: _PageState, body: Body) -> int:
        number, offset = split_instant(body.undo or 0)
        file = self._log.files.get(number)
        envelope = None if file is None else read_envelope(file.data, offset)
        if envelope is None:
            raise _UnknownError
        _, undone, _ = self._log.decode_or_error(number, envelope)
        if undone is None or undone.operation in _UNDOING:
            raise _UnknownError
        counts = undone.operation in _COUNTING and state.counts
        # What is taken back of a page's shape is not followed.
        if state.is_index and not counts:
            raise _UnknownError
        return -self._effect(state, undone)


def _is_first(state: _PageState, body: Body) -> bool:
    """Return whether an insert writes the row that describes an index page, or a table."""
    return state.is_index or body.fields["pageId"].number == CONTROL_ROW[0]


def _shape(state: _PageState, body: Body) -> None:
    """Let a page of an index lead where a change lets it, and its rows count or not."""
    made, fields = body.operation, body.fields
    if made == operations.INIT_PAGE:
        state.described, state.below = None, []
        state.counts = not state.is_index and not fields["initFlag"] & operations.OVERFLOW_PAGE
    elif made == operations.INVALIDATE_PAGE:
        state.described, state.below, state.counts = None, [], False
    elif state.is_index and fields.get("doMeSlot") == 0:
        _describe(state, body)
    elif state.is_branch:
        _lead(state, body)


def _describe(state: _PageState, body: Body) -> None:
    if body.operation == operations.UPDATE_FIELD and state.described is not None:
        value = read_field(Cursor(body.optional or b""))
        state.described[body.fields["fieldId"]] = value
    elif body.operation in (operations.INSERT, operations.UPDATE_ROW):
        row = images_of(body).row_after
        if row is None:
            raise _UnknownError
        state.described = {**(state.described or {}), **part_of(row).fields}
        state.counts = is_leaf(state.described)
    else:
        raise _UnknownError


def _lead(state: _PageState, body: Body) -> None:
    """Take in a change of rows of a branch."""
    fields = body.fields
    if body.operation == operations.INSERT:
        row = images_of(body).row_after
        if row is None:
            raise _UnknownError
        at, found, gone = fields["doMeSlot"], [child_of(row)], 0
    elif body.operation == operations.COPY_ROWS:
        at, found, gone = fields["destSlot"], [child_of(row) for row in rows_of(body)], 0
    elif body.operation == operations.PURGE:
        at, found, gone = fields["slot"], [], fields["num_rows"]
    else:
        raise _UnknownError
    if not 1 <= at <= at + gone <= 1 + len(state.below):
        raise _UnknownError
    state.below[at - 1 : at - 1 + gone] = found
