"""What each range of bytes of a file is: rows of the scan judged, and the spans between them.

In: the rows of one file and what the other files say (which ids have a header, whether records
follow in later files). Out: `Judged` records, and `Span`s that tile the file.

| found                                                  | outcome                            |
|--------------------------------------------------------|------------------------------------|
| right stamp, right check                               | valid                              |
| right check, lower file id                             | stale: an earlier life of the file |
| right check, higher id, from the start of the file on  | valid, unheaded: the header was    |
|                                                        | not renewed; the loader drops it   |
| right check, an id no life had, one byte off           | corrupt: the id was destroyed      |
| right check in format 2, format 1 header               | valid, appended: the loader drops  |
| right stamp, wrong check, no record of this life behind| torn                               |
| right stamp, wrong check, records of this life behind  | corrupt                            |
| one byte over and over (J or 0)                        | unused                             |
| anything else                                          | stale: remains of an earlier life  |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tallystick.records import Outcome, Span
from tallystick.systems.jboss.format.layout import FILL_J, FILL_ZERO, STAMP_SIZE, Name
from tallystick.systems.jboss.read.scan import DAMAGED, OTHER, STALE, VALID, Row

FILL = bytes([FILL_J, FILL_ZERO])
APPENDED = "a record of format 2 in a file whose header says format 1: its loader drops it"
UNHEADED = "the header was not renewed for these records: no header has their id, they are dropped"
TORN = "the check is wrong and no record of this life of the journal follows: never finished"
DAMAGE = "the check is wrong although records of this life of the journal follow: it was damaged"
NO_TYPE = "the file id of this life stands here, but the byte before it is no record type"
WRONG_ID = "a whole record under a file id that this file never had: the id was damaged"
EARLIER = "written under another id than the file has now"
REMAINS = "no whole record: what an earlier life of the file left, or a destroyed record"
FILLED = "preallocated and never written, or padding"


@dataclass(frozen=True, slots=True)
class Judged:
    """A range that is, was or was to be a record. ``row.size`` is the judged length.

    ``dropped`` is true where bytes of this life are whole and the loader does not see them.
    """

    row: Row
    outcome: Outcome
    reason: str = ""
    dropped: bool = False


def judge(
    data: memoryview, rows: Sequence[Row], stamp: int, start: int, *, last: bool
) -> list[Judged]:
    """The records of one file, by offset and without overlaps.

    ``start`` is where the first may begin, ``last`` tells that no later file has records.
    Linear in the rows and in the bytes that are not records.
    """
    final = max((row.end for row in rows if row.status in (VALID, OTHER)), default=0)
    unheaded, limits = _unheaded_id(rows, stamp), _limits(rows, len(data))
    judged: list[Judged] = []
    place = start
    for index, row in enumerate(rows):
        if row.offset < place:
            continue
        if _should_begin(judged, place, start) and row.offset > place:
            judged += _destroyed(data, place, row.offset, stamp, torn=last and place >= final)
            place = judged[-1].row.end if judged else place
        judged.append(
            _judge_row(data, row, stamp, unheaded, limits[index], last and row.offset >= final)
        )
        place = judged[-1].row.end
    if _should_begin(judged, place, start):
        judged += _destroyed(data, place, len(data), stamp, torn=last and place >= final)
    return judged


def _should_begin(judged: Sequence[Judged], place: int, start: int) -> bool:
    """True where a record of this life should begin: right behind another, or the header."""
    if not judged:
        return place == start
    return judged[-1].outcome is Outcome.VALID and not judged[-1].dropped


def _destroyed(
    data: memoryview, at: int, limit: int, stamp: int, *, torn: bool
) -> Iterator[Judged]:
    """The record whose type byte was destroyed: the id of this life stands one byte behind."""
    if stamp <= 0 or at + STAMP_SIZE > limit or Name.EVENT <= data[at] <= Name.ROLLBACK:
        return
    if int.from_bytes(data[at + 1 : at + STAMP_SIZE], "big", signed=True) == stamp:
        row = Row(at, _damaged_size(data, Row(at, 0, DAMAGED, stamp), limit), DAMAGED, stamp)
        yield Judged(row, Outcome.TORN if torn else Outcome.CORRUPT, NO_TYPE)


def _limits(rows: Sequence[Row], end: int) -> list[int]:
    """For each row, where the next begins that cannot lie inside it."""
    limits = [end] * len(rows)
    healthy = whole = end
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        limits[index] = healthy if row.status == STALE else whole
        if row.status in (VALID, OTHER):
            limits[index], healthy = end, row.offset
        if row.status != DAMAGED:
            whole = row.offset
    return limits


def _unheaded_id(rows: Sequence[Row], stamp: int) -> int | None:
    """The higher id under which the file was begun anew, if its records up to the first one
    under the header's id carry it."""
    healthy = [row for row in rows if row.status in (VALID, STALE)]
    if not healthy or not healthy[0].file_id > stamp > 0:
        return None
    began = healthy[0].file_id
    own = next((row.offset for row in healthy if row.status == VALID), None)
    later = (row for row in healthy if row.file_id == began and own is not None)
    return None if any(row.offset > (own or 0) for row in later) else began


def _judge_row(
    data: memoryview, row: Row, stamp: int, unheaded: int | None, limit: int, torn: bool
) -> Judged:
    if row.status == VALID:
        return Judged(row, Outcome.VALID)
    if row.status == OTHER:
        return Judged(row, Outcome.VALID, APPENDED, dropped=True)
    if row.status == DAMAGED:
        size = _damaged_size(data, row, limit)
        reason = TORN if torn else DAMAGE
        where = Row(row.offset, size, DAMAGED, row.file_id)
        return Judged(where, Outcome.TORN if torn else Outcome.CORRUPT, reason)
    where = Row(row.offset, min(row.size, limit - row.offset), STALE, row.file_id)
    if row.file_id == unheaded:
        return Judged(where, Outcome.VALID, UNHEADED, dropped=True)
    if unheaded is None and damaged_id(row.file_id, stamp):
        return Judged(where, Outcome.CORRUPT, WRONG_ID)
    return Judged(where, Outcome.STALE, EARLIER)


def damaged_id(found: int, stamp: int) -> bool:
    """True for an id that no earlier life had and that is one byte apart from this life's."""
    if 0 < found < stamp:
        return False
    apart = (found ^ stamp) & 0xFFFFFFFF
    return sum(1 for byte in apart.to_bytes(4, "big") if byte) == 1


def _damaged_size(data: memoryview, row: Row, limit: int) -> int:
    """What the damaged record claims if that is possible, else up to the fill behind it."""
    if 0 < row.size <= limit - row.offset:
        tail = bytes(data[row.offset : row.offset + row.size])
        return max(STAMP_SIZE, len(tail.rstrip(FILL))) if tail.endswith(_runs(tail)) else row.size
    return max(STAMP_SIZE, len(bytes(data[row.offset : limit]).rstrip(FILL)))


def _runs(tail: bytes) -> bytes:
    """Four equal fill bytes if the claimed end holds them: the record was never written so far."""
    return tail[-4:] if tail[-4:] in (b"JJJJ", b"\0\0\0\0") else b"\xff" * 5


# -- spans ----------------------------------------------------------------------------------


def tile(data: memoryview, header: Span | None, judged: Iterable[Judged]) -> Iterator[Span]:
    """Spans that tile the file: header, records, and what lies between them.

    Neighbouring records of one outcome and reason share a span.
    """
    place = 0
    if header is not None:
        yield header
        place = header.length
    run: Span | None = None
    for one in judged:
        if one.row.offset > place:
            if run is not None:
                yield run
            run = None
            yield from _gap(data, place, one.row.offset)
        run, done = _joined(run, one)
        if done is not None:
            yield done
        place = one.row.end
    if run is not None:
        yield run
    yield from _gap(data, place, len(data))


def _joined(run: Span | None, one: Judged) -> tuple[Span, Span | None]:
    """The run with ``one`` in it, and the run that ended if it did not fit."""
    what = "stale records" if one.outcome is Outcome.STALE else "records"
    if one.outcome in (Outcome.TORN, Outcome.CORRUPT):
        what = "damaged record"
    if run is not None and (run.outcome, run.what, run.reason) == (one.outcome, what, one.reason):
        return Span(run.offset, one.row.end - run.offset, one.outcome, what, one.reason), None
    return Span(one.row.offset, one.row.size, one.outcome, what, one.reason), run


def _gap(data: memoryview, begin: int, end: int) -> Iterator[Span]:
    """What lies between two records: fill, and remains of something else."""
    raw = bytes(data[begin:end])
    head = len(raw) - len(raw.lstrip(FILL))
    body = max(0, len(raw.rstrip(FILL)) - head)
    tail = len(raw) - head - body
    if head:
        yield Span(begin, head, Outcome.UNUSED, "fill", FILLED)
    if body:
        yield Span(begin + head, body, Outcome.STALE, "remains", REMAINS)
    if body and tail:
        yield Span(begin + head + body, tail, Outcome.UNUSED, "fill", FILLED)
