"""The pages that the last checkpoint has written, as far as one log file tells of them.

In: the scan of a log and its recovery. Out: for each page that is changed in the file of the redo
mark and before that mark, the version that its file has at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.systems.derby.engine.page_versions import CUTTING, PageVersions
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.layout import split_instant
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.runs.pieces import file_pieces

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import Chunk, Runs


def flushed_pages(scan: LogScan, recovery: Recovery, runs: Runs | None) -> PageVersions:
    """Return the versions of pages after their last changes in one file before the redo mark."""
    found = PageVersions([])
    number, _ = split_instant(recovery.redo_mark)
    if number not in scan.log.files:
        return found
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
    _, last = np.unique(pages, axis=1, return_index=True)
    operations = chunk.columns[OPERATION]
    changes = np.isin(operations, (CONTAINER_CHANGE, CONTAINER_UNDO, *CUTTING)) & (
        chunk.instants < mark
    )
    ends = chunk.columns[GROUP] & int(Group.LAST) != 0
    wanted = np.union1d(rows[::-1][last], np.flatnonzero(changes | ends))
    for row in wanted.tolist():
        place = int(chunk.instants[row])
        if ends[row]:
            found.note_end(place, int(chunk.columns[TRANSACTION, row]))
        else:
            found.note(place, chunk.body(row))
