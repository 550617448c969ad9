"""Every byte of one file sorted by outcome: the strict walk, which loses nothing on the way.

In: the bytes of a file. Out: `Piece` after `Piece`, tiling it: the header, each record, each
damaged stretch, and behind the position in the header what is stale, uncounted or unused.

Where the original loses step behind damage, the walk finds it again: it looks for the next
place where a whole record with a right CRC stands. Beside each piece stands whether 2.1.4,
told to skip damage, gets that far. The search is bounded, so the walk is linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.records import Outcome
from tallystick.storage.zeros import first_nonzero, is_zero, last_nonzero_end
from tallystick.systems.bitronix.engine.cursor_v2 import Accepted, RandomAccessCursor, Stop
from tallystick.systems.bitronix.format.layout import FORMAT_ID, HEADER_LENGTH, FileHeader
from tallystick.systems.bitronix.format.record import TransactionLogRecord, decode_record
from tallystick.systems.bitronix.read.search import RecordSearch

Stamp = tuple[int, int]
"""Time and sequence number: the order of records within one run of the writer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of bytes and what it is; ``record`` where it is a whole one.

    ``reached`` is true if 2.1.4 with ``skipCorruptedLogs`` gives its caller this record.
    ``counted`` is true below the position in the header.
    """

    offset: int
    length: int
    outcome: Outcome
    what: str
    reason: str = ""
    record: TransactionLogRecord | None = None
    reached: bool = False
    counted: bool = True

    @property
    def end(self) -> int:
        return self.offset + self.length


def stamp(record: TransactionLogRecord) -> Stamp:
    """The record's place in the order of its writer's run."""
    return (record.time, record.sequence_number)


def counted_end(header: FileHeader, size: int) -> int:
    """Where the counted range ends, whatever the position in the header says."""
    return min(max(header.position, HEADER_LENGTH), size)


def header_piece(data: memoryview) -> Piece:
    """The first piece of a file that is not empty."""
    header = FileHeader.decode(data)
    if header is None:
        reason = f"{len(data)} bytes are no file header; it has {HEADER_LENGTH}"
        return Piece(0, len(data), Outcome.CORRUPT, "file header", reason)
    problem = header_problem(header, len(data))
    outcome = Outcome.CORRUPT if problem else Outcome.VALID
    return Piece(0, HEADER_LENGTH, outcome, "file header", problem)


def header_problem(header: FileHeader, size: int) -> str:
    """What no writer leaves in a header, in words; empty if there is nothing."""
    if header.format_id != FORMAT_ID:
        return f"format id {header.format_id & 0xFFFFFFFF:08x} instead of {FORMAT_ID:08x}"
    if not HEADER_LENGTH <= header.position <= size:
        return f"position {header.position} lies outside the file of {size} bytes"
    return ""


class CountedWalk:
    """The walk from offset 21 to the position in the header, piece by piece.

    ``place`` is where the next piece starts; ``in_step`` is true while 2.1.4 would stand at
    the same place. A vectorised reader may move ``place`` over whole records in step.
    """

    def __init__(self, data: memoryview) -> None:
        header = FileHeader.decode(data)
        self._data = data
        self._search = RecordSearch(data)
        self._original: RandomAccessCursor | None = None
        self._original_stopped = header is None
        self.place = HEADER_LENGTH
        self.end = HEADER_LENGTH if header is None else counted_end(header, len(data))

    @property
    def in_step(self) -> bool:
        return self._original is None and not self._original_stopped

    def pieces(self) -> Iterator[Piece]:
        """All pieces that are left."""
        while self.place < self.end:
            yield self.next_piece()

    def next_piece(self) -> Piece:
        """The piece at ``place``, which must lie below ``end``."""
        record = decode_record(self._data, self.place, len(self._data))
        if record is None:
            piece = self._damage()
            self._follow(piece)
        else:
            piece = self._whole(record)
        self.place = piece.end
        return piece

    def _whole(self, record: TransactionLogRecord) -> Piece:
        crosses = self.place + record.size > self.end
        reached = self.in_step
        if not (self.in_step and record.is_exact) or crosses:
            reached = self._follow(Piece(self.place, record.size, Outcome.VALID, "record"))
        reason = "the position in the header points into it" if crosses else ""
        return Piece(
            self.place, record.size, Outcome.VALID, "record", reason, record, reached, not crosses
        )

    def _damage(self) -> Piece:
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
        return Piece(begin, stop - begin, Outcome.TORN if torn else Outcome.CORRUPT, what, reason)

    def _follow(self, piece: Piece) -> bool:
        """Let the original go on to the end of the piece; true if it gives it out."""
        if self._original is None:
            self._original = RandomAccessCursor(self._data, piece.offset)
        gives = False
        while self._original.place < piece.end and not self._original_stopped:
            event = self._original.step(piece.end)
            self._original_stopped = isinstance(event, Stop)
            gives = gives or (isinstance(event, Accepted) and event.offset == piece.offset)
        if self._original.place == piece.end:
            self._original = None
        return gives


def tail_pieces(data: memoryview, begin: int, newest: Stamp | None) -> Iterator[Piece]:
    """What lies from ``begin``, the end of the counted range, to the end of the file.

    Whole records newer than ``newest`` (of all that both files count), standing right at
    the begin, were written but not counted; all others are of an earlier life of the file.
    """
    search = RecordSearch(data)
    place, size, fresh = begin, len(data), True
    while place < size:
        found = search.next_record(place, size)
        fresh = fresh and found == place
        limit = size if found is None else found
        if limit > place:
            yield from _remains(data, place, limit)
        if found is None:
            return
        record = decode_record(data, found, size)
        assert record is not None  # the search has just decoded it
        fresh = fresh and (newest is None or stamp(record) > newest)
        yield _tail_record(found, record, fresh)
        place = found + record.size


def _tail_record(offset: int, record: TransactionLogRecord, fresh: bool) -> Piece:
    outcome = Outcome.VALID if fresh else Outcome.STALE
    reason = "whole, and newer than all that the headers count: its position was not stored"
    if not fresh:
        reason = "behind the position in the header: left from before the file was rewound"
    return Piece(offset, record.size, outcome, "record", reason, record, counted=False)


def _remains(data: memoryview, begin: int, end: int) -> Iterator[Piece]:
    zeros = first_nonzero(data, begin, end)
    if zeros > begin:
        yield Piece(begin, zeros - begin, Outcome.UNUSED, "zeros", "never written", counted=False)
    if zeros < end:
        last = last_nonzero_end(data, zeros, end)
        reason = "parts of records from before the file was rewound"
        yield Piece(zeros, last - zeros, Outcome.UNUSED, "remains", reason, counted=False)
        if last < end:
            yield Piece(last, end - last, Outcome.UNUSED, "zeros", "never written", counted=False)
