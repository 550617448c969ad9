"""The pages that the last checkpoint has written, and the rows that lead to versions of pages.

In: the scan of a log and its recovery. Out: for each page that is changed before the redo mark, in
its file or in the files that lead up to it, the version that its file has at least; and the changes
that lead to given versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tallystick.systems.derby.engine.page_versions import CUTTING, PageVersions
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import split_instant
from tallystick.systems.derby.format.operations import INSERT, UPDATE_ROW
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.files import previous_end
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.runs.pieces import file_pieces

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import Chunk, Runs

_WRITING = (INSERT, UPDATE_ROW)
BYTES_BEFORE = 1 << 24
"""Of log files before that of the redo mark: those that a transaction holds back may be many."""


def flushed_pages(scan: LogScan, recovery: Recovery, runs: Runs | None) -> PageVersions:
    """Return the versions of pages after their last changes before the redo mark."""
    found = PageVersions([])
    for number in _files_up_to(scan, recovery):
        for piece in file_pieces(scan.file(number), runs):
            if isinstance(piece, ByteRange):
                if piece.place >= recovery.redo_mark:
                    break
                if piece.body is not None and piece.is_believed:
                    found.note(piece.place, piece.body)
            else:
                if piece.size and piece.instants[0] >= recovery.redo_mark:
                    break
                _note_chunk(found, piece, recovery.redo_mark)
    return found


def rows_written(
    scan: LogScan, recovery: Recovery, runs: Runs | None, wanted: Mapping[Page, int]
) -> Iterator[tuple[int, Body]]:
    """Yield the inserts and updates of rows that lead to these versions of pages, by instants.

    From the files that lead up to the redo mark on; of several to one version the last.
    """
    found: dict[Page, tuple[int, Body]] = {}
    # What columns of a chunk are asked for, made once.
    sought = (
        [one.container for one in wanted],
        [one.number for one in wanted],
        [version - 1 for version in wanted.values()],
    )
    first = min(_files_up_to(scan, recovery), default=0)
    for number in (one for one in scan.log.files if wanted and one >= first):
        for piece in file_pieces(scan.file(number), runs):
            if isinstance(piece, ByteRange):
                body = piece.body if piece.is_believed else None
                changes = [] if body is None else [(piece.place, body)]
            else:
                rows = _rows_with(sought, piece)
                changes = [(int(piece.instants[row]), piece.body(row)) for row in rows]
            found |= {
                body.fields["pageId"]: (place, body)
                for place, body in changes
                if body.operation in _WRITING
                and wanted.get(body.fields["pageId"]) == body.fields["pageVersion"] + 1
            }
    yield from found.values()


def _rows_with(sought: Sequence[list[int]], chunk: Chunk) -> list[int]:
    """Return the rows of inserts and updates with one of these containers, pages and versions."""
    import numpy as np

    from tallystick.systems.derby.runs.walk import CONTAINER, OPERATION, PAGE, SEGMENT, VERSION

    columns = chunk.columns
    rows = np.flatnonzero(np.isin(columns[OPERATION], _WRITING) & (columns[SEGMENT] == 0))
    for column, values in zip((CONTAINER, PAGE, VERSION), sought, strict=True):
        rows = rows[np.isin(columns[column, rows], values)]
    found: list[int] = rows.tolist()
    return found


def _files_up_to(scan: LogScan, recovery: Recovery) -> Sequence[int]:
    """Return the numbers of the files before the redo mark that join, as many as are read."""
    files, size = scan.log.files, 0
    first = last = split_instant(recovery.redo_mark)[0]
    if last not in files:
        return ()
    while first - 1 in files and size + files[first - 1].size <= BYTES_BEFORE:
        if split_instant(previous_end(files[first]))[0] != first - 1:
            break
        first -= 1
        size += files[first].size
    return range(first, last + 1)


def _note_chunk(found: PageVersions, chunk: Chunk, mark: int) -> None:
    """Note the creations of containers, and the last change of each page."""
    import numpy as np

    from tallystick.systems.derby.format.layout import Group
    from tallystick.systems.derby.format.operations import CONTAINER_CHANGE, CONTAINER_UNDO
    from tallystick.systems.derby.runs.walk import (
        CONTAINER,
        GROUP,
        OPERATION,
        PAGE,
        SEGMENT,
        TRANSACTION,
    )

    rows = np.flatnonzero((chunk.columns[SEGMENT] >= 0) & (chunk.instants < mark))
    pages = chunk.columns[[SEGMENT, CONTAINER, PAGE]][:, rows[::-1]]
    # The pages were put in reverse, so that the first occurrence is the last change.
    _, last = np.unique(pages, axis=1, return_index=True)
    operations = chunk.columns[OPERATION]
    changes = np.isin(operations, (CONTAINER_CHANGE, CONTAINER_UNDO, *CUTTING)) & (
        chunk.instants < mark
    )
    ends = chunk.columns[GROUP] & int(Group.LAST) != 0
    # `union1d` sorts: they are noted in log order.
    wanted = np.union1d(rows[::-1][last], np.flatnonzero(changes | ends))
    for row in wanted.tolist():
        place = int(chunk.instants[row])
        if ends[row]:
            found.note_end(place, int(chunk.columns[TRANSACTION, row]))
        else:
            found.note(place, chunk.body(row))
