"""Overflow pages: the parts of a row that is too long for its leaf.

In: a leaf with one row. Out: a leaf that holds as much of it as fits, and overflow pages with the
rest, each of which names the page before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.errors import CorruptLogError
from tallystick.systems.h2.database.nodes import Chunk, Leaf, chunk_capacity
from tallystick.systems.h2.database.space import Space

_PAGE_NUMBER_SIZE = 4


class LongRows:
    """The long rows of one tree. Called under the store's latch."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._cache = space.cache

    def spill(self, number: int, leaf: Leaf) -> None:
        """Move what does not fit of the row of the leaf at page ``number`` to overflow pages.

        If they exist already, only the parent of the first is set: the leaf may have moved.
        """
        page_size = self._space.page_size
        if leaf.overflow:
            if self._cache.get(leaf.overflow).parent != number:
                self._cache.edit(leaf.overflow).parent = number
        elif leaf.size() > page_size:
            (row,) = leaf.rows
            inline = len(row) - (leaf.size() + _PAGE_NUMBER_SIZE - page_size)
            leaf.rows[0] = row[:inline]
            leaf.overflow = self._chain_of(number, memoryview(row)[inline:])

    def _chain_of(self, before: int, rest: memoryview) -> int:
        """Put the rest of the row of page ``before`` on new pages; return the first one."""
        page_size = self._space.page_size
        last, more = chunk_capacity(page_size, last=True), chunk_capacity(page_size, last=False)
        chunks: list[bytes] = []
        while len(rest) > last:
            chunks.append(bytes(rest[:more]))
            rest = rest[more:]
        chunks.append(bytes(rest))
        numbers = [self._space.allocate(Chunk(data, 0)) for data in chunks]
        for data, number, following in zip(chunks, numbers, [*numbers[1:], 0], strict=True):
            self._cache.put(number, Chunk(data, before, following))
            before = number
        return numbers[0]

    def chain(self, leaf: Leaf, page: int) -> Iterator[tuple[int, Chunk]]:
        """Yield the overflow pages of the leaf at ``page``, if any.

        Raises `CorruptLogError` if they are not linked correctly.
        """
        number, before = leaf.overflow, page
        for _ in range(self._space.page_count):
            if not number:
                return
            chunk = self._cache.get(number)
            if not isinstance(chunk, Chunk) or chunk.parent != before:
                raise CorruptLogError(
                    f"page {number} is no part of the row that begins on page {page}"
                )
            yield number, chunk
            number, before = chunk.next, number
        raise CorruptLogError(f"the long row in page {page} does not end")

    def whole(self, leaf: Leaf, page: int, place: int) -> bytes:
        """Return a complete row of the leaf at ``page``."""
        if not leaf.overflow:
            return leaf.rows[place]
        return leaf.rows[0] + b"".join([chunk.data for _, chunk in self.chain(leaf, page)])

    def drop(self, leaf: Leaf, page: int) -> None:
        """Free the overflow pages of the leaf at ``page``, whose row is removed."""
        for number in [number for number, _ in self.chain(leaf, page)]:
            self._space.release(number)
        leaf.overflow = 0
