"""A file in pieces: chunks of plain records, and spans of everything between them.

In: the bytes of a file. Out: pieces that tile it, in order. The strict walk of `read.scan` gives
the spans; where a run of plain records begins the compiled walk takes over, if that pays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self, TypeAlias

from tallystick.records import Outcome
from tallystick.storage.mapped import let_go
from tallystick.systems import runs
from tallystick.systems.bitronix.read.files import Part
from tallystick.systems.bitronix.read.scan import (
    CountedWalk,
    RecordSpan,
    Stamp,
    header_span,
    tail_spans,
    unused_span,
)

if TYPE_CHECKING:
    from tallystick.systems.bitronix.read.open_decisions import OpenDecisions
    from tallystick.systems.bitronix.runs.chunk import Chunk
    from tallystick.systems.bitronix.runs.known import KnownRecords

    Piece: TypeAlias = RecordSpan | Chunk

_PAUSE_MAX = 1 << 12
"""Most bytes after an odd record in which the compiled walk is not tried: some forty records."""

ReadChunk: TypeAlias = "Callable[[memoryview, int, int], Chunk]"


class Runs:
    """The runs of plain records in a file.

    Args:
        data: the bytes of the file.
        read: returns the plain records from one offset on, up to another or the first odd one;
            None where that does not pay.
        least: records of a run.
    """

    def __init__(self, data: memoryview, read: ReadChunk | None, least: int = 1) -> None:
        self._data = data
        self._read = read
        self._least = least
        self._odd_until = 0
        self._pause = 1

    @classmethod
    def where_they_pay(cls, data: memoryview, size: int) -> Self:
        """Return the runs of a file, of which so many bytes are to be read."""
        if not runs.pay_here(size):
            return cls(data, None)
        from tallystick.systems.bitronix.runs.chunk import read_chunk

        return cls(data, read_chunk, runs.RUN_MIN)

    def chunk(self, begin: int, end: int) -> Chunk | None:
        """Return the next plain records of a run; None where the first is odd, or they are few.

        The offsets must not go back.
        """
        if self._read is None or not self._odd_until <= begin < end:
            return None
        let_go(self._data, begin)
        chunk = self._read(self._data, begin, end)
        # Few records before an odd one cost less one by one; at the end no odd one follows.
        if chunk.count >= self._least or (chunk.count and chunk.end == end):
            self._pause = 1
            return chunk
        # The compiled walk is not tried again before the odd record was passed, and ever later
        # where one odd record follows another: each trial costs as much as several spans.
        self._odd_until = chunk.end + self._pause
        self._pause = min(2 * self._pause, _PAUSE_MAX)
        return None


def pieces(
    part: Part, newest: Stamp | None, in_step: Callable[[], bool] = lambda: True
) -> Iterator[Piece]:
    """Yield all pieces of a file.

    Args:
        part: the file.
        newest: the stamp of the newest record that either header counts, as in `tail_spans`.
        in_step: says, before each piece of the counted range, whether the cursor of 2.1.4 stands at
            its begin; only then may it be a chunk.
    """
    if part.data is None or not part.size:
        return
    yield header_span(part.data)
    if part.header is None:
        return
    walk = CountedWalk(part.data)
    yield from counted_pieces(walk, Runs.where_they_pay(part.data, walk.end - walk.place), in_step)
    if walk.place >= part.size:
        return
    if walk.place >= part.content_end:
        yield unused_span(walk.place, part.size)
    elif runs.pay_here(part.content_end - walk.place):
        from tallystick.systems.bitronix.runs.chunk import read_stale_run

        yield from tail_spans(part.data, walk.place, newest, read_stale_run)
    else:
        yield from tail_spans(part.data, walk.place, newest)


def counted_pieces(
    walk: CountedWalk, found: Runs, in_step: Callable[[], bool], end: int | None = None
) -> Iterator[Piece]:
    """Yield the pieces of the counted range that are left to a walk, and begin before ``end``."""
    stop = walk.end if end is None else min(walk.end, end)
    while walk.place < stop:
        chunk = found.chunk(walk.place, stop) if in_step() else None
        if chunk is None:
            yield walk.next_span()
        else:
            walk.place = chunk.end
            yield chunk


def span_of(piece: Piece | KnownRecords) -> RecordSpan:
    """Return a piece as one span."""
    if isinstance(piece, RecordSpan):
        return piece
    length = piece.end - piece.base
    return RecordSpan(piece.base, length, Outcome.VALID, "record", count=piece.count)


def apply(piece: Piece | KnownRecords, found: OpenDecisions) -> None:
    """Apply the whole records of a piece that are not stale to the open decisions."""
    if not isinstance(piece, RecordSpan):
        piece.decide(found)
    elif piece.whole is not None:
        found.apply(piece.whole)
