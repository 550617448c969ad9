"""Two parts of one journal as the bytes prove them: which is later, and what is open.

In: the bytes of both parts. Out: a `Pair` with each part's pieces, the order of the parts, the
dangling set over both, and what was counted. Nothing here is the engine's opinion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tallystick.records import Outcome
from tallystick.systems.bitronix.dangling import DanglingSet
from tallystick.systems.bitronix.layout import COMMITTING, HEADER_LENGTH, FileHeader
from tallystick.systems.bitronix.record import TransactionLogRecord, decode_record
from tallystick.systems.bitronix.scan import (
    CountedWalk,
    Piece,
    Stamp,
    header_piece,
    stamp,
    tail_pieces,
)


@dataclass(slots=True)
class Part:
    """One file of the pair; ``data`` is None where it is missing or cannot be read.

    ``number`` is 1 or 2, ``first`` and ``last`` the first and last record that stands in the
    counted range, ``copies_end`` where the leading COMMITTING records end.
    """

    number: int
    path: str | None
    data: memoryview | None
    header: FileHeader | None = None
    first: TransactionLogRecord | None = None
    last: TransactionLogRecord | None = None
    starts: set[int] = field(default_factory=set)
    """Offsets of the leading COMMITTING records, and of the first other one."""
    holds_first_of_other: bool = False

    def __post_init__(self) -> None:
        if self.data is not None:
            self.header = FileHeader.decode(self.data)

    @property
    def size(self) -> int:
        return 0 if self.data is None else len(self.data)

    def counted(self) -> Iterator[Piece]:
        """Header and counted range, piece by piece."""
        if self.data is None or not self.size:
            return
        yield header_piece(self.data)
        if self.header is not None:
            yield from CountedWalk(self.data).pieces()

    def pieces(self, newest: Stamp | None) -> Iterator[Piece]:
        """All pieces of the file; ``newest`` as in `tail_pieces`."""
        place = 0
        for piece in self.counted():
            yield piece
            place = piece.end
        if self.data is not None and place < self.size:
            yield from tail_pieces(self.data, place, newest)

    @property
    def swap_defect(self) -> bool:
        """True if the timestamp is a place in this file, as 2.1.3 and 2.1.4 leave it at a swap."""
        if self.header is None:
            return False
        mark = self.header.timestamp
        return HEADER_LENGTH <= mark <= self.size and (
            mark in self.starts or mark == self.header.position
        )


@dataclass(slots=True)
class Pair:
    """Both parts, looked through once."""

    parts: tuple[Part, Part]
    newest: Stamp | None = None

    def __post_init__(self) -> None:
        for part, other in (self.parts, self.parts[::-1]):
            _look_through(part, _first_record(other))
        stamps = [stamp(part.last) for part in self.parts if part.last is not None]
        self.newest = max(stamps, default=None)

    @property
    def data(self) -> tuple[memoryview | None, memoryview | None]:
        return (self.parts[0].data, self.parts[1].data)

    def order(self) -> tuple[Part, Part]:
        """The earlier part, then the one that is in use according to the bytes."""
        return self.parts if _second_is_later(*self.parts) else self.parts[::-1]

    def records(self) -> Iterator[tuple[Part, Piece]]:
        """Every whole record that is not stale, earlier part first."""
        for part in self.order():
            for piece in part.pieces(self.newest):
                if piece.record is not None and piece.outcome is Outcome.VALID:
                    yield part, piece

    def dangling(self) -> DanglingSet:
        """The decisions that are open according to both parts."""
        found = DanglingSet()
        for _, piece in self.records():
            assert piece.record is not None  # `records` gives no others
            found.apply(piece.record)
        return found


def _look_through(part: Part, first_of_other: TransactionLogRecord | None) -> None:
    copies = True
    part.starts.add(HEADER_LENGTH)
    for piece in part.counted():
        record = piece.record
        if record is None:
            continue
        if copies:
            part.starts.add(piece.offset)
            copies = record.status == COMMITTING
        part.first = part.first or record
        part.last = record
        part.holds_first_of_other |= record == first_of_other and record.status == COMMITTING


def _first_record(part: Part) -> TransactionLogRecord | None:
    if part.data is None or part.header is None or part.header.position <= HEADER_LENGTH:
        return None
    return decode_record(part.data, HEADER_LENGTH, part.size)


def _second_is_later(one: Part, two: Part) -> bool:
    """Which part is in use: by what it holds, then by the timestamps.

    The timestamps tell, as they do to the original, unless a swap has spoilt one or they are
    equal. Then: a swap begins the later file with copies of records of the earlier one, so the
    file that holds the other's first record is the earlier; else the later last record tells,
    within one run of the writer.
    """
    if one.header is None or two.header is None:
        return two.header is not None
    if one.swap_defect or two.swap_defect or one.header.timestamp == two.header.timestamp:
        if one.holds_first_of_other != two.holds_first_of_other:
            return one.holds_first_of_other
        if (one.last is None) != (two.last is None):
            return one.last is None
        if one.last is not None and two.last is not None and stamp(one.last) != stamp(two.last):
            return stamp(two.last) > stamp(one.last)
    return one.header.timestamp <= two.header.timestamp
