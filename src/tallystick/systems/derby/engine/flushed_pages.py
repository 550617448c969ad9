"""The pages that the last checkpoint has written, and the rows that lead to versions of pages.

In: the scan of a log and its recovery. Out: for each page that is changed before the redo mark, in
its file or in the files that lead up to it, the version that its file has at least; and the changes
that lead to given versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tallystick.systems.derby.engine.page_versions import CUTTING, PageVersions
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import make_instant, split_instant
from tallystick.systems.derby.format.operations import INSERT, UPDATE_ROW
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.files import previous_end
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.runs.pieces import Piece, file_pieces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.systems.derby.runs.chunk import Chunk, Runs

_WRITING = (INSERT, UPDATE_ROW)
_MIX = 0x1E3779B97F4A7C15
"""A product with it is cut to 64 bits."""
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


class Written(NamedTuple):
    """A row that an insert or an update writes to a page, at an instant.

    The image is what its record has after the operation: that of the row comes first.
    """

    place: int
    page: Page
    image: bytes | memoryview


def rows_written(
    scan: LogScan, recovery: Recovery, runs: Runs | None, wanted: Mapping[Page, int]
) -> Iterable[Written]:
    """Return the rows whose inserts and updates lead to these versions of pages.

    From the files that lead up to the redo mark on; of several to one version the last.
    """
    found: dict[Page, Written] = {}
    sought = _Sought(wanted) if wanted and runs is not None else None
    for piece in _pieces(scan, recovery, runs) if wanted else ():
        if isinstance(piece, ByteRange):
            if piece.body is not None and piece.is_believed:
                found |= _row_of(wanted, piece.place, piece.body)
        elif sought is not None:
            odd = (
                _row_of(wanted, int(piece.instants[row]), body)
                for row, body in piece.bodies.items()
            )
            rows = [*sought.rows(piece), *chain.from_iterable(one.values() for one in odd)]
            found |= {one.page: one for one in sorted(rows, key=lambda one: one.place)}
    return found.values()


def _pieces(scan: LogScan, recovery: Recovery, runs: Runs | None) -> Iterator[Piece]:
    """Yield the pieces of the log from the files that lead up to the redo mark on, to its end."""
    first = min(_files_up_to(scan, recovery), default=0)
    for number in (one for one in scan.log.files if one >= first):
        for piece in file_pieces(scan.file(number), runs):
            at = piece.offset + piece.length if isinstance(piece, ByteRange) else piece.end
            yield piece
            # What stands after the end is searched for records, which takes long.
            if make_instant(number, at) >= recovery.stop > 0:
                return


def _row_of(wanted: Mapping[Page, int], place: int, body: Body) -> dict[Page, Written]:
    """Return what a record writes to a page, if that leads to the version that is wanted."""
    if body.operation not in _WRITING:
        return {}
    page: Page = body.fields["pageId"]
    leads = wanted.get(page) == body.fields["pageVersion"] + 1
    return {page: Written(place, page, body.optional or b"")} if leads else {}


class _Sought:
    """What columns of a chunk are asked for, made once."""

    def __init__(self, wanted: Mapping[Page, int]) -> None:
        import numpy as np

        self._wanted = wanted
        changed = [(one.container, one.number, version - 1) for one, version in wanted.items()]
        self._keys = np.unique(_key_of(np.array(changed, np.int64).T))

    def rows(self, chunk: Chunk) -> Iterator[Written]:
        """Yield the plain rows of inserts and updates that lead to the versions."""
        import numpy as np

        from tallystick.systems.derby.runs import walk

        columns = chunk.columns
        wanted = np.isin(columns[walk.OPERATION], _WRITING) & (columns[walk.SEGMENT] == 0)
        rows = np.flatnonzero(wanted & (columns[walk.ODD] == 0))
        keys = _key_of(columns[[walk.CONTAINER, walk.PAGE, walk.VERSION]][:, rows])
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        rows = rows[self._keys[at] == keys]
        numbers = columns[[walk.CONTAINER, walk.PAGE, walk.VERSION, walk.TAIL, walk.TAIL_LENGTH]]
        instants = chunk.instants[rows].tolist()
        for place, one in zip(instants, numbers[:, rows].T.tolist(), strict=True):
            container, number, version, begin, size = one
            page = Page(0, container, number)
            if self._wanted.get(page) == version + 1:  # else two keys are equal by chance
                yield Written(place, page, chunk.file.data[begin : begin + size])


def _key_of(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for each container, page and version; different ones seldom share it."""
    container, page, version = columns
    keys: NDArray[np.int64] = (container * _MIX ^ page) * _MIX ^ version
    return keys


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
