"""A log of which splits have read the groups: the walk over it jumps over these.

In: what the splits of a plain log leave open. Out: a `ReadRun` for the walk over the whole log,
which gives all groups of a split as one place, and access that does not read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tallystick.storage.source import ByteSource, with_zeros
from tallystick.systems.tally.format.layout import HEADER_SIZE, decode_group_header
from tallystick.systems.tally.read.closing import Rest
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.files import Catalog, FileAccess
from tallystick.systems.tally.read.walk import Expected, Place, SegmentView


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPlace(Place):
    """Whole groups that a split has read; `header` is that of the last one.

    Attributes:
        counts: how many records they hold, and how many of these in clear text.
    """

    counts: tuple[int, int]

    @property
    def count(self) -> int:
        """Number of records."""
        return self.counts[0]

    @property
    def count_in_clear(self) -> int:
        """Number of records that are not encrypted."""
        return self.counts[1]


class KnownGroups:
    """Returns the groups of a split as a place where they are due; None of what no split told.

    Attributes:
        access: opens of a segment that was left only what follows its groups, and zeros before.
    """

    def __init__(self, catalog: Catalog, access: FileAccess, rests: Sequence[Rest]) -> None:
        self._part = access.part
        self._open = access.open
        self._files = {file.header.number: file for file in catalog.segments if file.header}
        self._rests = {
            (rest.edges.segment, Expected(*rest.edges.begin)): rest
            for rest in rests
            if rest.edges.begin != rest.edges.end and min(rest.counts) >= 0
        }
        ends = {rest.edges.segment: rest.edges.end[0] for rest in rests}
        self._ends = {
            file.path: (ends[number] - HEADER_SIZE, file.header.size)
            for number, file in self._files.items()
            if number in ends and file.stated_end is not None and file.header is not None
        }
        self.access = replace(access, open=self._opened)

    def __call__(self, view: SegmentView, due: Expected, stop: int | None) -> Place | None:
        """Return the place of the split that begins with what is due."""
        del stop  # a split ends there at the latest
        number = view.header.number
        rest = self._rests.get((number, due))
        if rest is None:
            return None
        then = Expected(*rest.edges.end)
        part = self._part(self._files[number].path, then.offset - HEADER_SIZE, HEADER_SIZE)
        last = decode_group_header(part, 0)
        if last is None or Expected.after(last) != then:  # the file has changed since
            return None
        return KnownPlace(
            Case.VALID, due.offset, then.offset, due.lsn, last, then=then, counts=rest.counts
        )

    def _opened(self, path: str) -> ByteSource:
        begin, size = self._ends.get(path, (0, 0))
        if size:
            part = self._part(path, begin, size - begin + 1)
            if len(part) == size - begin:  # else the file was cut, or has grown
                return with_zeros(path, part, begin, size)
        return self._open(path)
