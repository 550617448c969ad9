"""The pages that the last checkpoint has written, and the rows that lead to versions of pages.

In: the scan of a log and its recovery. Out: for each page that is changed before the redo mark, in
its file or in the files that lead up to it, the version that its file has at least; and the changes
that lead to given versions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from tallystick.systems.derby.engine.page_files import PageFile
from tallystick.systems.derby.engine.page_versions import CUTTING, PageVersions
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.engine.rows_after import RowsAfter
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import make_instant, split_instant
from tallystick.systems.derby.format.operations import (
    DELETE,
    INSERT,
    LOGICAL_UNDO_OF_ROW,
    SET_RESERVED_SPACE,
    UPDATE_ROW,
)
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.files import LogBytes, previous_end
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.runs.pieces import Piece, file_pieces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.systems.derby.runs import walk
    from tallystick.systems.derby.runs.chunk import Chunk, Runs

_WRITING = (INSERT, UPDATE_ROW)
_MARKING = (DELETE, SET_RESERVED_SPACE, LOGICAL_UNDO_OF_ROW)
"""Operations after which the fields of a row that was written last are what they were.

An undo takes back a change of before, or marks the row as deleted if that was inserted.
"""
_UNDO_PURGES = 2
"""Flag of an insert of which the undo purges the row."""
_MIX = 0x1E3779B97F4A7C15
"""A product with it is cut to 64 bits."""
_KEPT = 8
"""Numbers that are kept of a change."""
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
    """What the last changes up to a version of a page leave there of a row.

    Attributes:
        place: instant of the change.
        page: the page.
        image: the row comes first; empty where the change has none.
        leads: it is the change that leads to the version.
        record_id: of the row.
        deleted: whether the change marks the row as deleted; None where it writes it.
    """

    place: int
    page: Page
    image: bytes | memoryview
    leads: bool
    record_id: int
    deleted: bool | None = None


def rows_written(
    scan: LogScan,
    recovery: Recovery,
    runs: Runs | None,
    wanted: Mapping[Page, int],
    files: Callable[[int], PageFile] | None = None,
    after: RowsAfter | None = None,
) -> Iterable[Written]:
    """Return the rows that inserts, updates and marks write last up to these versions of pages.

    From the files that lead up to the redo mark on. A row of an insert or update where nothing but
    marks of rows as deleted came after it; of such a mark where it leads to the version. With the
    ``files`` of containers by number, rows may be left out that the pages have. What is read for
    that is noted in ``after``, too.
    """
    found = _Last(wanted)
    sought = _Sought(wanted) if wanted and runs is not None else None
    for piece in _pieces(scan, recovery, runs) if wanted or after is not None else ():
        if after is not None:
            after.note(piece)
        if isinstance(piece, ByteRange):
            if piece.body is not None and piece.is_believed:
                found.note(piece.place, piece.body)
        elif sought is not None:
            for row, body in piece.bodies.items():
                found.note(int(piece.instants[row]), body)
            sought.note(piece)
    if sought is not None:
        if files is not None:
            sought.leave_out(files, found.pages)
        found.merge(sought)
    return found.rows()


def _pieces(scan: LogScan, recovery: Recovery, runs: Runs | None) -> Iterator[Piece]:
    """Yield the pieces of the log from the files that lead up to the redo mark on, to its end."""
    first = first_file(scan, recovery)
    for number in (one for one in scan.log.files if one >= first):
        for piece in file_pieces(scan.file(number), runs):
            at = piece.offset + piece.length if isinstance(piece, ByteRange) else piece.end
            yield piece
            # What stands after the end is searched for records, which takes long.
            if make_instant(number, at) >= recovery.stop > 0:
                return


class _Last:
    """The last changes of pages up to versions of them."""

    def __init__(self, wanted: Mapping[Page, int]) -> None:
        self._wanted = wanted
        self._changes: dict[Page, tuple[int, Written | None]] = {}
        """By page, with its instant, that which is no mark; None where it writes no row."""
        self._marks: dict[Page, Written] = {}

    @property
    def pages(self) -> Collection[Page]:
        """The pages whose changes were taken in."""
        return self._changes.keys() | self._marks.keys()

    def note(self, place: int, body: Body) -> None:
        """Take in a change, in log order."""
        page: Page | None = body.fields.get("pageId")
        version = 0 if page is None else self._wanted.get(page, 0)
        if page is None or body.fields["pageVersion"] >= version:
            return
        fields, leads = body.fields, body.fields["pageVersion"] + 1 == version
        row = Written(place, page, body.optional or b"", leads, fields.get("recordId", 0))
        self._take(row, body.operation, fields.get("insertFlag", fields.get("delete")) or 0)

    def merge(self, sought: _Sought) -> None:
        """Take in the changes that columns have."""
        for change in sought.changes():
            self._take(*change)

    def _take(self, row: Written, operation: int, flag: int) -> None:
        """Take in a change as if it wrote the row, with the flag of an insert or a delete."""
        if operation == DELETE:
            if row.leads:
                mark = row._replace(deleted=bool(flag))
                self._marks[row.page] = max(mark, self._marks.get(row.page, mark), key=_place)
        elif operation not in _MARKING and row.place > self._changed(row.page):
            # The row of an insert may be gone by an undo, which is a mark.
            purged = operation == INSERT and flag & _UNDO_PURGES and not row.leads
            stays = operation in _WRITING and not purged
            self._changes[row.page] = row.place, row if stays else None

    def rows(self) -> list[Written]:
        """Return the rows that stand there."""
        written = [row for _, row in self._changes.values() if row is not None]
        # An older container of that number may have had the version, too.
        last = (one for one in self._marks.values() if one.place > self._changed(one.page))
        return [*written, *last]

    def _changed(self, page: Page) -> int:
        return self._changes.get(page, (0, None))[0]


def _place(one: Written) -> int:
    return one.place


class _Sought:
    """The last changes of pages up to versions of them, as plain records in columns have them."""

    def __init__(self, wanted: Mapping[Page, int]) -> None:
        import numpy as np

        pages = _columns_of(wanted)
        self._wanted, self._order = [*wanted], np.argsort(_key_of(pages))
        self._pages, self._keys = pages[:, self._order], _key_of(pages)[self._order]
        self._versions = np.fromiter(wanted.values(), np.int64)[self._order]
        self._files: list[LogBytes] = []
        self._changes = np.zeros((_KEPT, len(wanted)), np.int64)
        """By page: the instant, the number of the file, and columns of the record."""
        self._marks = self._changes.copy()

    def note(self, chunk: Chunk) -> None:
        """Take in the plain records of a chunk, in log order."""
        import numpy as np

        from tallystick.systems.derby.runs import walk

        columns = chunk.columns
        rows = np.flatnonzero((columns[walk.SEGMENT] == 0) & (columns[walk.ODD] == 0))
        pages = columns[[walk.CONTAINER, walk.PAGE]][:, rows]
        at = np.searchsorted(self._keys, _key_of(pages))
        at = np.minimum(at, len(self._keys) - 1)
        is_wanted = (self._pages[:, at] == pages).all(axis=0)
        is_wanted &= columns[walk.VERSION, rows] < self._versions[at]
        rows, at = rows[is_wanted], at[is_wanted]
        operations = columns[walk.OPERATION, rows]
        leads = columns[walk.VERSION, rows] + 1 == self._versions[at]
        self._files.append(chunk.file)
        numbers = [
            walk.OPERATION, walk.RECORD_ID, walk.VERSION, walk.FLAG, walk.TAIL, walk.TAIL_LENGTH
        ]  # fmt: skip
        of_rows = (
            (self._changes, ~np.isin(operations, _MARKING)),
            (self._marks, (operations == DELETE) & leads),
        )
        for kept, of in of_rows:
            # What is put last in a place stays there.
            kept[0, at[of]] = chunk.instants[rows[of]]
            kept[1, at[of]] = len(self._files) - 1
            kept[2:, at[of]] = columns[numbers][:, rows[of]]

    def leave_out(self, files: Callable[[int], PageFile], odd: Collection[Page]) -> None:
        """Leave out what stands on the pages of these files, but for odd pages."""
        import numpy as np

        from tallystick.systems.derby.runs.stored import stand

        left = (self._changes[0] | self._marks[0]) != 0
        left &= ~np.isin(self._keys, _key_of(_columns_of(odd)))
        order = np.lexsort(self._pages[::-1])
        order = order[left[order]]
        containers = self._pages[0, order]
        kept = (one[:, order] for one in (self._changes, self._marks))
        asked = [self._asked(one) for one in kept if one[0].any()]
        ends = [*(np.flatnonzero(np.diff(containers)) + 1).tolist(), len(order)]
        begin = 0
        for end in ends if len(order) else ():
            file = files(int(containers[begin]))
            numbers = self._pages[1, order[begin:end]]
            for near, data in file.stretches(numbers.tolist()):
                part = slice(begin, begin := begin + len(near))
                size, at = file.page_size, order[part]
                places = (self._pages[1, at] - near[0]) * size
                of_rows = [(islice(images, len(near)), rows[:, part]) for images, rows in asked]
                if len(data) == places[-1] + size:
                    stands = [stand(data, places, size, [*one], rows) for one, rows in of_rows]
                    of = at[np.logical_and.reduce(stands)]
                    self._changes[0, of] = self._marks[0, of] = 0

    def _asked(self, kept: walk.Columns) -> tuple[Iterator[memoryview], walk.Columns]:
        """Return images, and record ids with marks, as `runs.stored.stand` takes them."""
        import numpy as np

        from tallystick.systems.derby.runs.stored import NO_MARK

        place, file, operation, record_id, _, flag, begin, length = kept
        is_asked = (place != 0) & np.isin(operation, (*_WRITING, DELETE))
        marked = np.where(is_asked & (operation == DELETE), flag, NO_MARK)
        where = zip(file.tolist(), begin.tolist(), (length * is_asked).tolist(), strict=True)
        images = (self._files[of].part(first, first + count) for of, first, count in where)
        return images, np.stack((record_id, marked))

    def changes(self) -> Iterator[tuple[Written, int, int]]:
        """Yield the changes, each as the row that it may write, its operation and its flag."""
        import numpy as np

        for kept in (self._changes, self._marks):
            for at in np.flatnonzero(kept[0]).tolist():
                place, file, operation, record_id, before, flag, begin, size = kept[:, at].tolist()
                leads = before + 1 == int(self._versions[at])
                image = self._files[file].part(begin, begin + size)
                row = Written(place, self._wanted[self._order[at]], image, leads, record_id)
                yield row, operation, flag


def _columns_of(pages: Collection[Page]) -> NDArray[np.int64]:
    """Return the containers and the numbers of pages."""
    import numpy as np

    numbers = chain.from_iterable((one.container, one.number) for one in pages)
    found: NDArray[np.int64] = np.fromiter(numbers, np.int64, 2 * len(pages)).reshape(-1, 2).T
    return found


def _key_of(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for each container and page; different ones seldom share it."""
    container, page = columns
    keys: NDArray[np.int64] = container * _MIX ^ page
    return keys


def first_file(scan: LogScan, recovery: Recovery) -> int:
    """Return the number of the first file of those that are read up to the redo mark."""
    return min(_files_up_to(scan, recovery), default=0)


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
    """Note the creations of containers and pages, and the last change of each page."""
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
        VERSION,
    )

    rows = np.flatnonzero((chunk.columns[SEGMENT] >= 0) & (chunk.instants < mark))
    pages = chunk.columns[[SEGMENT, CONTAINER, PAGE]][:, rows[::-1]]
    # The pages were put in reverse, so that the first occurrence is the last change.
    _, last = np.unique(pages, axis=1, return_index=True)
    operations = chunk.columns[OPERATION]
    changes = np.isin(operations, (CONTAINER_CHANGE, CONTAINER_UNDO, *CUTTING))
    changes |= (chunk.columns[SEGMENT] >= 0) & (chunk.columns[VERSION] == 0)
    changes &= chunk.instants < mark
    ends = chunk.columns[GROUP] & int(Group.LAST) != 0
    # `union1d` sorts: they are noted in log order.
    wanted = np.union1d(rows[::-1][last], np.flatnonzero(changes | ends))
    for row in wanted.tolist():
        place = int(chunk.instants[row])
        if ends[row]:
            found.note_end(place, int(chunk.columns[TRANSACTION, row]))
        else:
            found.note(place, chunk.body(row))
