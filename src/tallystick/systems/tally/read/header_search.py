"""Find every whole copy of a group header in a segment, at any place.

In: the bytes of a segment. Out: headers by place, found by one search in linear time. The walk uses
them at a place that is damaged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice

from tallystick.storage.files import Bytes
from tallystick.storage.zeros import is_zero
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    GROUP_MAGIC,
    HEADER_SIZE,
    INDEX,
    GroupHeader,
    decode_group_header,
    round_up,
)

_WINDOW = 1 << 16
"""Bytes that are searched for headers at a time."""


class HeaderCopies:
    """All whole group headers from ``start`` to ``end`` for which ``own(header)`` is true.

    Attributes:
        leads: leading copies, in order of offsets.
        trails: trailing copies by the offset of their group.
    """

    def __init__(
        self,
        data: Bytes,
        start: int,
        own: Callable[[GroupHeader], bool],
        end: int | None = None,
    ) -> None:
        self.start = start
        self.leads: list[GroupHeader] = []
        self.trails: dict[int, GroupHeader] = {}
        self._places: list[int] = []
        self._marks: list[int] = []
        for place in magic_places(data, start, end):
            header = decode_group_header(data, place)
            if header is None or not own(header):
                continue
            if header.offset == place:
                self.leads.append(header)
            elif header.end - HEADER_SIZE == place:
                self.trails.setdefault(header.offset, header)
            else:
                continue
            self._places.append(place)
            self._marks.append(header.durable_lsn)
        for index in range(len(self._marks) - 2, -1, -1):
            self._marks[index] = max(self._marks[index], self._marks[index + 1])

    def durable_mark_from(self, offset: int) -> int:
        """Return the highest durable LSN that a header at or after ``offset`` states."""
        index = bisect_left(self._places, offset)
        return self._marks[index] if index < len(self._marks) else 0

    def lead_from(self, offset: int, lsn: int) -> GroupHeader | None:
        """Return the first group at or after ``offset`` whose first LSN is at least ``lsn``."""
        start = bisect_left(self.leads, offset, key=lambda header: header.offset)
        for header in islice(self.leads, start, None):
            if header.first_lsn >= lsn and not header.flags & INDEX:
                return header
        return None


def magic_places(data: Bytes, start: int = DATA_OFFSET, end: int | None = None) -> Iterator[int]:
    """Yield the offsets of group magics at multiples of the size of a header."""
    view = memoryview(data)
    stop = len(view) if end is None else min(end, len(view))
    for begin in range(round_up(start, HEADER_SIZE), stop, _WINDOW):
        after = min(begin + _WINDOW, stop)
        if is_zero(view, begin, after):
            continue  # the unused end of a segment: most of what is ever searched
        first_bytes = bytes(view[begin:after])[::HEADER_SIZE]
        found = first_bytes.find(GROUP_MAGIC[:1])
        while found >= 0:
            place = begin + found * HEADER_SIZE
            if data[place : place + len(GROUP_MAGIC)] == GROUP_MAGIC:
                yield place
            found = first_bytes.find(GROUP_MAGIC[:1], found + 1)
