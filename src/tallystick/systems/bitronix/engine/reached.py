"""Which records 2.1.4 reads when ``skipCorruptedLogs`` makes it skip damage.

In: the bytes of a file, and its pieces in order. Out: per piece whether the cursor of 2.1.4 returns
its records. After damage the cursor may resume in the middle of
a record, so it runs along with the walk until both are at the same offset again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tallystick.systems.bitronix.engine.cursor_v2 import RandomAccessCursor
from tallystick.systems.bitronix.engine.events import Accepted, Stop
from tallystick.systems.bitronix.format.layout import HEADER_LENGTH, FileHeader
from tallystick.systems.bitronix.read.files import Part
from tallystick.systems.bitronix.read.scan import RecordSpan, Stamp, counted_end
from tallystick.systems.bitronix.runs.pieces import pieces

if TYPE_CHECKING:
    from tallystick.systems.bitronix.runs.pieces import Piece


class ReachedRecords:
    """Decides span by span whether 2.1.4 reaches the record. Linear in the counted range."""

    def __init__(self, data: memoryview) -> None:
        header = FileHeader.decode(data)
        self._data = data
        self._end = HEADER_LENGTH if header is None else counted_end(header, len(data))
        self._cursor: RandomAccessCursor | None = None
        self._stopped = False

    @property
    def in_step(self) -> bool:
        """True while the cursor of 2.1.4 stands where the next span begins."""
        return self._cursor is None and not self._stopped

    def reaches(self, span: RecordSpan) -> bool:
        """Return whether 2.1.4 gives the record of ``span``; the spans come in order.

        Whole, exact, counted records may be left out while the cursor is in step.
        """
        if not 0 < span.offset < self._end:
            return False
        record = span.record
        if record is not None and self.in_step and record.is_exact and span.counted:
            return True
        return self._follow(span) and record is not None

    def _follow(self, span: RecordSpan) -> bool:
        """Run the cursor to the end of the span; true if it accepts a record at its start."""
        if self._cursor is None:
            self._cursor = RandomAccessCursor(self._data, span.offset)
        accepted = False
        while self._cursor.place < span.end and not self._stopped:
            event = self._cursor.step(span.end)
            self._stopped = isinstance(event, Stop)
            accepted = accepted or (isinstance(event, Accepted) and event.offset == span.offset)
        # Both stand at one offset again: the cursor is given up until the next damage.
        if self._cursor.place == span.end:
            self._cursor = None
        return accepted


def reached_pieces(part: Part, newest: Stamp | None) -> Iterator[tuple[Piece, bool]]:
    """Yield the pieces of a file, each with whether 2.1.4 reaches its records.

    A chunk is reached: it begins where the cursor stands, and all of its records are accepted.
    """
    found = ReachedRecords(part.data or memoryview(b""))
    for piece in pieces(part, newest, lambda: found.in_step):
        yield piece, not isinstance(piece, RecordSpan) or found.reaches(piece)
