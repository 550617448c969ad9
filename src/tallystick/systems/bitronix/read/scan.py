"""The strict walk: every byte of one file, sorted by outcome.

In: the bytes of a file. Out: `RecordSpan`s that tile it: the header, each record, each damaged
range, and after the position in the header what is stale, uncounted or unused.

After damage the walk searches the next offset where a whole record with a right CRC stands. The
search is bounded, so the walk is linear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tallystick.records import Outcome
from tallystick.storage.zeros import first_nonzero, is_zero, last_nonzero_end
from tallystick.systems.bitronix.format.layout import FORMAT_ID, HEADER_LENGTH, FileHeader
from tallystick.systems.bitronix.format.record import TransactionLogRecord, decode_record
from tallystick.systems.bitronix.read.search import RecordSearch

REMAINS: Final = "remains"
"""Bytes that no header counts, and that are no whole record."""
Stamp = tuple[int, int]
"""Time and sequence number: the order of records within one run of the writer."""


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """A range of bytes and what it is; ``record`` where it is a whole one.

    ``counted`` is true below the position in the header. A span of ``count`` stale records has the
    newest of them.
    """

    offset: int
    length: int
    outcome: Outcome
    what: str
    reason: str = ""
    record: TransactionLogRecord | None = None
    counted: bool = True
    count: int = 1

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + self.length

    @property
    def whole(self) -> TransactionLogRecord | None:
        """The whole record of the present life of its file that this is; None if it is none."""
        return self.record if self.outcome is Outcome.VALID else None

    @property
    def is_damage(self) -> bool:
        """True if it is damaged, and not the header."""
        return self.offset > 0 and self.outcome in (Outcome.CORRUPT, Outcome.TORN)


class StaleRun(NamedTuple):
    """Plain records that follow each other.

    Attributes:
        end: the offset after the last one.
        records: how many there are; perhaps none.
        newest: the offset of the one with the greatest time and sequence number.
    """

    end: int
    records: int
    newest: int


ReadStaleRun = Callable[[memoryview, int, int], StaleRun]
"""Reads the plain records of a file between two offsets."""


def stamp(record: TransactionLogRecord) -> Stamp:
    """Return the place of a record in the order of its writer's run."""
    return (record.time, record.sequence_number)


def counted_end(header: FileHeader, size: int) -> int:
    """Return the end of the counted range, also for an invalid position in the header."""
    return min(max(header.position, HEADER_LENGTH), size)


def header_span(data: memoryview) -> RecordSpan:
    """Return the first span of a file that is not empty."""
    header = FileHeader.decode(data)
    if header is None:
        reason = f"{len(data)} bytes are no file header; it has {HEADER_LENGTH}"
        return RecordSpan(0, len(data), Outcome.CORRUPT, "file header", reason)
    problem = header_problem(header, len(data))
    outcome = Outcome.CORRUPT if problem else Outcome.VALID
    return RecordSpan(0, HEADER_LENGTH, outcome, "file header", problem)


def header_problem(header: FileHeader, size: int) -> str:
    """Return what no writer leaves in a header, in words; empty for a valid header."""
    if header.format_id != FORMAT_ID:
        return f"format id {header.format_id & 0xFFFFFFFF:08x} instead of {FORMAT_ID:08x}"
    if not HEADER_LENGTH <= header.position <= size:
        return f"position {header.position} lies outside the file of {size} bytes"
    return ""


class CountedWalk:
    """Walk from offset 21 to the position in the header, span by span.

    ``place`` is the offset of the next span, ``end`` the end of the counted range. Who reads a run
    of whole records by other means moves ``place`` after it.
    """

    def __init__(self, data: memoryview) -> None:
        header = FileHeader.decode(data)
        self._data = data
        self._search = RecordSearch(data)
        self.place = HEADER_LENGTH
        self.end = HEADER_LENGTH if header is None else counted_end(header, len(data))

    def spans(self) -> Iterator[RecordSpan]:
        """Yield all spans that are left."""
        while self.place < self.end:
            yield self.next_span()

    def next_span(self) -> RecordSpan:
        """Return the span at ``place``, which must lie below ``end``, and move after it."""
        record = decode_record(self._data, self.place, len(self._data))
        span = self._damage() if record is None else self._whole(record)
        self.place = span.end
        return span

    def _whole(self, record: TransactionLogRecord) -> RecordSpan:
        crosses = self.place + record.size > self.end
        reason = "the position in the header points into it" if crosses else ""
        return RecordSpan(
            self.place,
            record.size,
            Outcome.VALID,
            "record",
            reason,
            record,
            counted=not crosses,
        )

    def _damage(self) -> RecordSpan:
        begin = self.place
        follower = self._search.next_record(begin + 1, self.end)
        limit = self.end if follower is None else follower
        stop, marked = self._search.damaged_end(begin, limit)
        torn = follower is None and not marked
        what, reason = "damaged record", "no whole record with a right CRC stands here"
        if is_zero(self._data, begin, stop):
            what, reason = "hole", "zeros where the header counts a record"
        if torn:
            reason += "; no whole record follows, so the write may never have finished"
        outcome = Outcome.TORN if torn else Outcome.CORRUPT
        return RecordSpan(begin, stop - begin, outcome, what, reason)


def tail_spans(
    data: memoryview, begin: int, newest: Stamp | None, read_run: ReadStaleRun | None = None
) -> Iterator[RecordSpan]:
    """Yield the spans from ``begin``, the end of the counted range, to the end of the file.

    Whole records newer than ``newest`` (of all that both files count), directly at ``begin``, were
    written but not counted; all others are of an earlier life of the file. With ``read_run`` many
    of the latter may be one span.
    """
    search = RecordSearch(data)
    return spans_behind(data, begin, len(data), newest, search, read_run, fresh=True)


def spans_behind(
    data: memoryview,
    begin: int,
    end: int,
    newest: Stamp | None,
    search: RecordSearch,
    read_run: ReadStaleRun | None,
    *,
    fresh: bool,
) -> Iterator[RecordSpan]:
    """Yield those of `tail_spans` that begin before ``end``.

    Args:
        data: the bytes of the file.
        begin: where one of these spans begins.
        end: the end of the file, or where a whole record begins.
        newest: as there.
        search: finds the records.
        read_run: as there.
        fresh: whether ``begin`` is the end of the counted range.
    """
    place, size = begin, len(data)
    while place < end:
        run = read_run(data, place, end) if read_run and not fresh else None
        if run is not None and run.records and search.passes(run.end - place, run.records):
            record = decode_record(data, run.newest, size)
            assert record is not None  # the walk has just checked it
            yield _stale_span(place, run.end - place, record, run.records)
            place = run.end
            continue
        found = search.next_record(place, end)
        fresh = fresh and found == place
        limit = end if found is None else found
        if limit > place:
            yield from _remains(data, place, limit)
        if found is None:
            return
        record = decode_record(data, found, size)
        assert record is not None  # the search has just decoded it
        fresh = fresh and (newest is None or stamp(record) > newest)
        yield _fresh_span(found, record) if fresh else _stale_span(found, record.size, record)
        place = found + record.size


def _fresh_span(offset: int, record: TransactionLogRecord) -> RecordSpan:
    reason = "whole, and newer than all that the headers count: its position was not stored"
    return RecordSpan(offset, record.size, Outcome.VALID, "record", reason, record, counted=False)


def _stale_span(
    offset: int, length: int, newest: TransactionLogRecord, count: int = 1
) -> RecordSpan:
    reason = "after the position in the header: left from before the file was rewound"
    return RecordSpan(
        offset, length, Outcome.STALE, "record", reason, newest, counted=False, count=count
    )


def _remains(data: memoryview, begin: int, end: int) -> Iterator[RecordSpan]:
    zeros = first_nonzero(data, begin, end)
    if zeros > begin:
        yield unused_span(begin, zeros)
    if zeros < end:
        last = last_nonzero_end(data, zeros, end)
        reason = "parts of records from before the file was rewound"
        yield RecordSpan(zeros, last - zeros, Outcome.UNUSED, REMAINS, reason, counted=False)
        if last < end:
            yield unused_span(last, end)


def unused_span(begin: int, end: int) -> RecordSpan:
    """Return the span of zeros that no record was ever written to."""
    return RecordSpan(begin, end - begin, Outcome.UNUSED, "zeros", "never written", counted=False)
