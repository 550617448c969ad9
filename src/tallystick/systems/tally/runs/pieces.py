"""The places of a segment: chunks of plain records, and single groups between them.

In: the view of a segment, and what is due in it. Out: a place with the chunk of a run where the
compiled walk can vouch for its groups, and reading in runs pays; else the group is left to
`SegmentView`, which judges it by itself. Both ways verify every group alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from tallystick.arrow.numba_kernel import has_compiler
from tallystick.systems import runs
from tallystick.systems.tally.format.layout import GroupHeader
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.files import Catalog
from tallystick.systems.tally.read.walk import Expected, Place, SegmentView

if TYPE_CHECKING:
    from tallystick.systems.tally.runs.chunk import Chunk

ReadChunk: TypeAlias = (
    "Callable[[SegmentView, Expected, int | None], tuple[Chunk, GroupHeader] | None]"
)

_WALK: Final = "tallystick.systems.tally.runs.walk"
OPENED_FROM: Final = 64 << 20
"""Bytes from which on the compiled walk is loaded to open a log: its owner waits for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlace(Place):
    """Whole groups of a run; `header` is that of the last one.

    Attributes:
        chunk: their records.
    """

    chunk: Chunk

    @property
    def count(self) -> int:
        """Number of records."""
        return self.chunk.count

    def index_entries(self) -> list[tuple[int, int, int]]:
        """Return offset, first LSN and time of each group."""
        return self.chunk.groups()


class Runs:
    """Returns places with chunks, once a log has proved to be long enough.

    Args:
        known: bytes that the log is known to have.
        key: that of an encrypted log.
        pay: returns whether it saves time to read a log of so many bytes in runs.
        read: reads chunks from the first group on; by default the compiled walk, where there is
            one, with the records of all codes.
    """

    def __init__(
        self,
        known: int = 0,
        key: bytes | None = None,
        pay: Callable[[int], bool] = runs.pay,
        read: ReadChunk | None = None,
    ) -> None:
        self._known = known
        self._key = key
        self._pay: Callable[[int], bool] | None = None if read is not None else pay
        self._read = read
        self._view: SegmentView | None = None
        self._begin = self._place = 0

    @classmethod
    def of(cls, catalog: Catalog, key: bytes | None) -> Runs:
        """Return those of a log, which is known to reach up to the start of its last segment."""
        return cls(sum(one.stated_end or 0 for one in catalog.segments), key)

    @classmethod
    def at_opening(cls) -> Runs:
        """Return those of a log that is being opened."""
        return cls(pay=pay_at_opening)

    def __call__(self, view: SegmentView, due: Expected, stop: int | None) -> Place | None:
        """Return a place with the groups from ``due`` on; None if the first is read by itself."""
        # Asked at each group until it pays: how long a log is shows only as it is read.
        if self._pay is not None and self._pay(self._passed(view, due)):
            self._read, self._pay = _reader(self._key) if has_compiler() else None, None
        found = self._read(view, due, stop) if self._read is not None else None
        if found is None:
            return None
        chunk, last = found
        return ChunkPlace(
            Case.VALID, due.offset, last.end, due.lsn, last, then=Expected.after(last), chunk=chunk
        )

    def _passed(self, view: SegmentView, due: Expected) -> int:
        """Return how many bytes the log is known to have by now."""
        if view is not self._view:
            self._known += self._place - self._begin
            self._view, self._begin = view, due.offset
        self._place = due.offset
        return self._known + self._place - self._begin


def pay_at_opening(size: int) -> bool:
    """Return whether runs pay where compiling them would keep the owner of a log waiting."""
    return _WALK in sys.modules or size >= OPENED_FROM


def chunk_of(place: Place) -> Chunk | None:
    """Return the chunk of a place; None of a single group, or of what is none."""
    return place.chunk if isinstance(place, ChunkPlace) else None


def _reader(key: bytes | None) -> ReadChunk:
    from tallystick.systems.tally.runs.groups import ALL_CODES, EVERY_SIZE, ChunkReader

    return ChunkReader(known=ALL_CODES, large=EVERY_SIZE, key=key)
