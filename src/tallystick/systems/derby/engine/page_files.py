"""Containers of which single pages are read: what recovery and a count of rows ask of them.

In: the path of a container's file, and numbers of pages. Out: their versions or what is wrong with
them, how many rows they have, and where those are.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tallystick.storage.source import read_part, source_size
from tallystick.systems.derby.engine.index_pages import (
    UNREADABLE,
    is_leaf,
    is_tree,
    node_of,
    rows_of_index,
)
from tallystick.systems.derby.format.compressed_numbers import (
    Cursor,
    compressed_int,
    compressed_long,
)
from tallystick.systems.derby.format.container_pages import (
    ALLOCATION,
    CHECKSUM_SIZE,
    HEAD_AT,
    HEAD_SIZE,
    ROW_DELETED,
    ROWS,
    clear_page,
    is_head_summed,
    is_summed,
    read_head,
    read_page_header,
    rows_at,
)
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.page_rows import read_row
from tallystick.systems.derby.read.containers import CONTROL_ROW

_DROPPED, _COMMITTED_DROP = 1, 2
_EXTENT = struct.Struct(">16xqi28x")
"""Of the pages that an allocation page counts: the last that it can count, and how many there are;
then come, as long as a number of bits says, which of them are free."""
_BITS = struct.Struct(">i")
_READ_AT_ONCE = 1 << 18
"""Bytes of pages near each other that are read at once."""


@dataclass(frozen=True, slots=True)
class PageHead:
    """What recovery asks of a page: its version, or what is wrong with it.

    ``version`` is None where the page is not there or cannot be read; ``problem`` says why, and
    ``unwritten`` that it was never written: it is after the end of the file, or all zeros; ``cut``
    that the file ends in it. ``used`` is a page of rows, whether or not it has any.
    """

    number: int
    version: int | None
    problem: str = ""
    unwritten: bool = False
    cut: bool = False
    used: bool = False


class PageFile:
    """A container's file, of which single pages are read.

    Attributes:
        page_size: in bytes; 0 if the head of the container cannot be read.
        dropped: the container was dropped, or removed.
        removed: its drop was committed, and it was removed: recovery leaves it alone.
        version: of the container, which a drop raises, and what takes it back.
        pages: how many its first allocation page counts, with itself.
        pages_max: how many it can count.
    """

    def __init__(self, path: str, cipher: LogCipher | None = None) -> None:
        self._path, self._cipher = path, cipher
        self.size = source_size(path)
        data = read_part(path, HEAD_AT, HEAD_SIZE + _EXTENT.size)
        head = read_head(data[:HEAD_SIZE]) if is_head_summed(data[:HEAD_SIZE]) else None
        _, self.page_size, self.version = head or (0, 0, 0)
        status = 0 if head is None else head.status
        self.dropped = bool(status & (_DROPPED | _COMMITTED_DROP))
        self.removed = bool(status & _COMMITTED_DROP)
        self.pages, self.pages_max = 0, 0
        if head is not None and len(data) == HEAD_SIZE + _EXTENT.size:
            last, count = _EXTENT.unpack_from(data, HEAD_SIZE)
            self.pages, self.pages_max = 1 + max(0, count), 1 + last

    def free(self) -> frozenset[int]:
        """Return the numbers of the pages that the first allocation page says are free."""
        begin = HEAD_AT + HEAD_SIZE + _EXTENT.size
        data = read_part(self._path, begin, self.page_size)
        size = -(-max(0, _BITS.unpack_from(data)[0]) // 8)
        bits = data[_BITS.size : _BITS.size + size]
        places = (8 * at + bit for at, byte in enumerate(bits) for bit in range(8)
                  if byte & 0x80 >> bit)  # fmt: skip
        return frozenset(1 + place for place in places)

    def heads(self, numbers: Iterable[int]) -> Iterator[PageHead]:
        """Yield what recovery asks of pages, whose numbers grow."""
        wanted = list(numbers)
        there = bisect_left(wanted, self.size // self.page_size)
        for number, page in self.pages_at(wanted[:there]):
            yield _head(number, page, self.page_size)
        for number in wanted[there:]:
            # Files grow by whole pages: one that ends within a page was cut, and had that page.
            cut = number * self.page_size < self.size
            problem = (
                f"{'its file ends in it' if cut else 'it is after the end of its file'} (XSDG0)"
            )
            yield PageHead(number, None, problem, unwritten=not cut, cut=cut)

    def pages_at(self, numbers: Iterable[int]) -> Iterator[tuple[int, memoryview]]:
        """Yield pages as they are in memory, whose numbers grow."""
        size = self.page_size
        for near, data in self.stretches(numbers):
            for number in near:
                begin = (number - near[0]) * size
                page = data[begin : begin + size]
                # Decrypted, zeros would seem to be a damaged page.
                if self._cipher is not None and any(page):  # one never written is not encrypted
                    page = memoryview(clear_page(page, number, self._cipher))
                yield number, page

    def stretches(self, numbers: Iterable[int]) -> Iterator[tuple[list[int], memoryview]]:
        """Yield numbers of pages near each other, which grow, and the bytes from the first on."""
        near: list[int] = []
        for number in (*numbers, None):
            if near and (number is None or (number - near[0]) * self.page_size >= _READ_AT_ONCE):
                first, size = near[0], self.page_size
                data = read_part(self._path, first * size, (near[-1] + 1 - first) * size)
                yield near, memoryview(data)
                near = []
            if number is not None:
                near.append(number)

    def rows(self, *, is_index: bool) -> int:
        """Return how many rows the pages have that are not deleted; -1 if that is not known."""
        if self.removed or not self.page_size:
            return -1
        pages = self.pages_at(range(1, self.size // self.page_size))
        try:
            return sum(len(_live_rows(number, page, is_index=is_index)) for number, page in pages)
        except UNREADABLE:
            return -1

    def places(self, *, is_index: bool) -> frozenset[bytes] | None:
        """Return where the rows of a table begin, or where those of an index say so.

        As an index has it: page and record id. Of rows that are not deleted; None if that is not
        known.
        """
        found = set[bytes]()
        try:
            for number, page in self.pages_at(range(1, self.size // self.page_size)):
                data = bytes(page[:-CHECKSUM_SIZE])
                for at in _live_rows(number, page, is_index=is_index):
                    if is_index:
                        found.add(read_row(Cursor(data, at)).fields[-1].data or b"")
                    else:
                        record = Cursor(data, at + 1).compressed_int()
                        found.add(compressed_long(number) + compressed_int(record))
        except UNREADABLE:
            return None
        return frozenset(found)

    def is_tree(self, changed: Collection[int] = ()) -> bool:
        """Return whether the pages of an index are one tree, as `index_pages.is_tree` has it.

        True also where a page cannot be read.
        """
        pages = self.pages_at(range(1, self.size // self.page_size))
        try:
            found = ((number, rows_of_index(page)) for number, page in pages)
            nodes = {number: node_of(*rows) for number, rows in found if rows is not None}
        except UNREADABLE:
            return True
        return is_tree(nodes, changed)


def _head(number: int, page: memoryview, size: int) -> PageHead:
    if len(page) < size:
        return PageHead(number, None, "its file became shorter")
    header = read_page_header(page)
    if header.kind not in (ROWS, ALLOCATION):
        problem = f"its format id is {header.kind} (XSDBB)"
        return PageHead(number, None, problem, unwritten=not any(page))
    if not is_summed(page, number):
        return PageHead(number, None, "its checksum is wrong (XSDG2)")
    return PageHead(number, header.version, used=header.has_rows)


def _live_rows(number: int, page: memoryview, *, is_index: bool) -> list[int]:
    """Return where rows of a table or index begin on a page that are not deleted."""
    header = read_page_header(page)
    if not header.has_rows or header.overflow or not header.rows:
        return []
    places = rows_at(page)
    if is_index:
        found = rows_of_index(page)
        if found is None or not is_leaf(found[0]):
            return []
    of_rows = places[1:] if is_index or number == CONTROL_ROW[0] else places
    return [place for place in of_rows if not page[place] & ROW_DELETED]
