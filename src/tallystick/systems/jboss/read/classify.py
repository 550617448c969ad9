"""Classify each range of a file: rows of the scan -> valid, torn, corrupt or stale records.

In: the rows of one file, and whether records follow in later files. Out: `FileReading`: its
classified ranges, by offset.

| found                                                  | outcome                            |
|--------------------------------------------------------|------------------------------------|
| right stamp, right check                               | valid                              |
| right check, lower file id                             | stale: an earlier life of the file |
| right check, higher id, from the start of the file on  | valid, unheaded: the header was    |
|                                                        | not renewed; the loader drops it   |
| right check, an id no life had, one byte off           | corrupt: the id was destroyed      |
| right check in format 2, format 1 header               | valid, appended: the loader drops  |
| right stamp, wrong check, no later record of this life | torn                               |
| right stamp, wrong check, later records of this life   | corrupt                            |
| one byte over and over (J or 0)                        | unused                             |
| anything else                                          | stale: remains of an earlier life  |

The last two rows are the gaps between ranges; `tallystick.systems.jboss.read.spans` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tallystick.records import Outcome
from tallystick.storage.zeros import last_other_end
from tallystick.systems.jboss.format.file_names import number_of
from tallystick.systems.jboss.format.layout import (
    EVENT,
    FILE_ID_MASK,
    FILL,
    FILL_J,
    FILL_ZERO,
    ROLLBACK,
    STAMP_SIZE,
    Item,
    Shape,
    decode,
)
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.scan import (
    DAMAGED,
    OTHER,
    SECOND_SHAPE,
    STALE,
    VALID,
    Row,
    measure_at,
    scan,
)

APPENDED = "a record of format 2 in a file whose header says format 1: its loader drops it"
UNHEADED = "the header was not renewed for these records: no header has their id, they are dropped"
TORN = "the check is wrong and no record of this life of the journal follows: never finished"
DAMAGE = "the check is wrong although records of this life of the journal follow: it was damaged"
NO_TYPE = "the file id of this life stands here, but the byte before it is no record type"
WRONG_ID = "a whole record under a file id that this file never had: the id was damaged"
EARLIER = "written under another id than the file has now"
_FILLED = (4 * bytes([FILL_J]), 4 * bytes([FILL_ZERO]))
"""Ends of claimed records that were never written so far."""
_J_STAMP = int.from_bytes(_FILLED[0])
"""Of a file whose header was never written: all of its fill looks so."""


@dataclass(frozen=True, slots=True)
class Classified:
    """A range that is, was or was to be a record. ``row.size`` is its size after classification.

    ``dropped`` is true where the bytes are a whole record of this life that the loader ignores.
    """

    row: Row
    outcome: Outcome
    reason: str = ""
    dropped: bool = False


@dataclass(slots=True)
class FileReading:
    """One file and its classified ranges, by offset.

    ``unheaded_id`` is the id of its records if the file was reused and its header not renewed.
    """

    file: JournalFile
    shape: Shape
    ranges: list[Classified]
    unheaded_id: int | None = None

    @property
    def effective_id(self) -> int:
        """The file id by which the file was written, whatever its header says."""
        return self.file.file_id if self.unheaded_id is None else self.unheaded_id

    @property
    def has_records(self) -> bool:
        """True if the file holds a whole record of its life."""
        return any(map(self.belongs, self.ranges))

    def belongs(self, one: Classified) -> bool:
        """Return whether the range is a whole record of this life of the file."""
        return one.outcome is Outcome.VALID and (one.dropped or self.unheaded_id is None)

    def whole(self, one: Classified) -> bool:
        """Return False for a stale record that a later one has overwritten in part."""
        if one.outcome is not Outcome.STALE:
            return True
        return measure_at(self.file.data(), one.row.offset, self.shape) == one.row.size

    def item(self, one: Classified) -> Item:
        """Return the decoded record."""
        shape = SECOND_SHAPE[self.shape.name] if one.row.status == OTHER else self.shape
        return decode(shape, self.file.data(), one.row.offset, one.row.size)


def read_file(journal: JournalFiles, file: JournalFile, *, last: bool) -> FileReading:
    """Return one file, classified; ``last`` as in `classify`."""
    shape = journal.shape(file)
    data = file.data()
    second = SECOND_SHAPE.get(shape.name)
    rows = list(scan(data, shape, file.stamp, second=second))

    def most() -> int:  # of all files, and seldom asked for
        # In format 2 a header is renewed before records follow: no id is far above the others.
        ids = ((one.file_id, number_of(one.name)) for one in journal.files if one.header)
        return max(chain.from_iterable(ids)) + len(journal.files) if shape.compact else FILE_ID_MASK

    ranges = classify(data, rows, file.stamp, shape.header_size, last=last, most=most)
    unheaded = next((one.row.file_id for one in ranges if one.reason == UNHEADED), None)
    return FileReading(file, shape, ranges, unheaded)


def read_files(journal: JournalFiles) -> Iterator[FileReading]:
    """Yield the files in order of their header ids.

    Every file is scanned twice: a bad record is torn only if no later file holds records.
    """
    final = last_with_records(journal)
    last = final is None
    for file in journal.ordered():
        last = last or file is final
        yield read_file(journal, file, last=last)


def last_with_records(journal: JournalFiles) -> JournalFile | None:
    """Return the file with the highest id that holds a record of its life."""
    for file in reversed(journal.ordered()):
        rows = scan(file.data(), journal.shape(file), file.stamp)
        if any(row.status == VALID for row in rows):
            return file
    return None


def nothing_follows(journal: JournalFiles, file: JournalFile) -> bool:
    """Return whether no file after this one holds a record of its life."""
    files, last = list(journal.ordered()), last_with_records(journal)
    return last is None or files.index(file) >= files.index(last)


def classify(
    data: memoryview,
    rows: Sequence[Row],
    stamp: int,
    start: int,
    *,
    last: bool,
    most: Callable[[], int],
) -> list[Classified]:
    """Return the ranges of one file that are records, by offset and without overlaps.

    Args:
        data: the bytes of the file.
        rows: the rows of its scan.
        stamp: the stamp of its header.
        start: offset of the first record.
        last: no later file has records.
        most: returns an id above which no file was used again.

    Takes time linear in the rows and in the bytes that are not records.
    """
    final = max((row.end for row in rows if row.status in (VALID, OTHER)), default=0)
    unheaded, limits = _unheaded_id(rows, stamp, most), _limits(rows, len(data))
    ranges: list[Classified] = []
    place = start
    for index, row in enumerate(rows):
        if row.offset < place:
            continue
        if _should_begin(ranges, place, start) and row.offset > place:
            ranges += _destroyed(data, place, row.offset, stamp, torn=last and place >= final)
            place = ranges[-1].row.end if ranges else place
        torn = last and row.offset >= final
        ranges.append(_classify_row(data, row, stamp, unheaded, limits[index], torn))
        place = ranges[-1].row.end
    if _should_begin(ranges, place, start):
        ranges += _destroyed(data, place, len(data), stamp, torn=last and place >= final)
    return ranges


def _should_begin(ranges: Sequence[Classified], place: int, start: int) -> bool:
    """Return whether a record of this life should begin: after another one, or the header."""
    if not ranges:
        return place == start
    return ranges[-1].outcome is Outcome.VALID and not ranges[-1].dropped


def _destroyed(
    data: memoryview, at: int, limit: int, stamp: int, *, torn: bool
) -> Iterator[Classified]:
    """Yield the record whose type byte was destroyed: the id of this life follows that byte."""
    if stamp <= 0 or stamp == _J_STAMP or at + STAMP_SIZE > limit:
        return
    if EVENT <= data[at] <= ROLLBACK:
        return
    if int.from_bytes(data[at + 1 : at + STAMP_SIZE], "big", signed=True) == stamp:
        row = Row(at, _damaged_size(data, Row(at, 0, DAMAGED, stamp), limit), DAMAGED, stamp)
        yield Classified(row, Outcome.TORN if torn else Outcome.CORRUPT, NO_TYPE)


def _limits(rows: Sequence[Row], end: int) -> list[int]:
    """Return for each row where the next one begins that cannot be inside it."""
    limits = [end] * len(rows)
    # Two limits, as a stale record may lie across later stale ones, but not across what was written
    # after it; and what is damaged ends before any whole record.
    other = whole = end
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        limits[index] = other if row.status == STALE else whole
        if row.status in (VALID, OTHER):
            limits[index], other = end, row.offset
        if row.status != DAMAGED:
            whole = row.offset
    return limits


def _unheaded_id(rows: Sequence[Row], stamp: int, most: Callable[[], int]) -> int | None:
    """Return the higher id under which the file was reused without a new header.

    Its records, up to the first one under the header's id, carry it; None if they do not.
    """
    found = [row for row in rows if row.status in (VALID, STALE)]
    # In this order: `most` looks at all files, and is called for few.
    if not found or not found[0].file_id > stamp > 0 or found[0].file_id > most():
        return None
    began = found[0].file_id
    own = next((row.offset for row in found if row.status == VALID), None)
    later = (row for row in found if row.file_id == began and own is not None)
    return None if any(row.offset > (own or 0) for row in later) else began


def _classify_row(
    data: memoryview, row: Row, stamp: int, unheaded: int | None, limit: int, torn: bool
) -> Classified:
    if row.status == VALID:
        return Classified(row, Outcome.VALID)
    if row.status == OTHER:
        return Classified(row, Outcome.VALID, APPENDED, dropped=True)
    if row.status == DAMAGED:
        size = _damaged_size(data, row, limit)
        reason = TORN if torn else DAMAGE
        where = Row(row.offset, size, DAMAGED, row.file_id)
        return Classified(where, Outcome.TORN if torn else Outcome.CORRUPT, reason)
    where = Row(row.offset, min(row.size, limit - row.offset), STALE, row.file_id)
    if row.file_id == unheaded:
        return Classified(where, Outcome.VALID, UNHEADED, dropped=True)
    if unheaded is None and is_damaged_id(row.file_id, stamp):
        return Classified(where, Outcome.CORRUPT, WRONG_ID)
    return Classified(where, Outcome.STALE, EARLIER)


def is_damaged_id(found: int, stamp: int) -> bool:
    """Return whether no earlier life had the id and it is one byte off from this life's."""
    if 0 < found < stamp:
        return False
    # The ids are signed numbers of 32 bits; masked, their bytes can be counted.
    apart = (found ^ stamp) & 0xFFFFFFFF
    return sum(1 for byte in apart.to_bytes(4, "big") if byte) == 1


def _damaged_size(data: memoryview, row: Row, limit: int) -> int:
    """Return the size that the damaged record claims if possible, else up to the fill after it."""
    if 0 < row.size <= limit - row.offset:
        limit = row.offset + row.size
        if bytes(data[max(row.offset, limit - len(_FILLED[0])) : limit]) not in _FILLED:
            return row.size
    return max(STAMP_SIZE, last_other_end(data, row.offset, limit, FILL) - row.offset)
