"""Allocation of the pages of tables, with marks in the free list of the file.

In: nodes that need a page, and pages no longer needed. Out: page numbers. The free list on disk
marks the pages of tables only, and changes like any other page, under undo; the pages of the log
are known in memory, and found again by recovery. So no page belongs to both.
"""

from __future__ import annotations

from collections.abc import Collection

from tallystick.errors import CorruptLogError
from tallystick.roles import Pages
from tallystick.systems.h2.database.nodes import Empty, FreeList, Node
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.live.files import PageStoreFile


class Space:
    """The table pages of one file. Called under the store's latch.

    ``undone``: pages with an image in the log, a live view.
    """

    def __init__(self, cache: Pages, store: PageStoreFile, undone: Collection[int]) -> None:
        self.cache = cache
        self.page_size = store.page_size
        self.reserved: set[int] = set()
        """Pages that stay marked when they are released: a later record of the log uses them."""
        self._undone = undone
        self._store = store

    @property
    def page_count(self) -> int:
        """The number of pages in the file, those of the log included."""
        return self._store.page_count

    def allocate(self, node: Node) -> int:
        """Put ``node`` on a free page; return its number."""
        return self._use(self._store.allocate(), node)

    def allocate_root(self, node: Node) -> int:
        """Put the root of a new table on a free page that has no image in the log.

        The log names this page: it has to be free too once recovery has restored the images.
        """
        return self._use(self._store.allocate(exclude=self._undone), node)

    def _use(self, number: int, node: Node) -> int:
        self._mark(number, used=True)
        self.cache.put(number, node)
        return number

    def take(self, number: int, node: Node) -> None:
        """Put ``node`` on this page. Raises `CorruptLogError` if it is in use."""
        if self.in_use(number) or number <= layout.META_ROOT:
            raise CorruptLogError(f"page {number} is to be a new one, but in use")
        self._store.mark_used(number)
        self._use(number, node)

    def release(self, number: int) -> None:
        """Free a page."""
        self.cache.put(number, Empty())
        if number not in self.reserved:
            self._mark(number, used=False)
            self._store.release([number], zero=())

    def forget(self, number: int) -> None:
        """Unmark a page of an old log; its content does not matter."""
        self._mark(number, used=False)

    def in_use(self, number: int) -> bool:
        """Return True if the free list marks the page as used."""
        first, at = layout.place_in_list(number, self.page_size)
        node = self.cache.get(first) if first < self._store.page_count else Empty()
        return isinstance(node, FreeList) and layout.marks(node.bits, at)

    @property
    def lists(self) -> range:
        """The pages of the free list."""
        return self._store.free_list_pages

    def _mark(self, number: int, *, used: bool) -> None:
        first, at = layout.place_in_list(number, self.page_size)
        node = self.cache.get(first)
        if isinstance(node, Empty):
            bits = bytearray(self.page_size - layout.FREE_LIST_START)
            bits[0] = 1  # the list itself
            self.cache.put(first, FreeList(bits))
        elif not isinstance(node, FreeList):
            raise CorruptLogError(f"page {first} is no free list")
        node = self.cache.edit(first)
        if used:
            node.bits[at >> 3] |= 1 << (at & 7)
        else:
            node.bits[at >> 3] &= ~(1 << (at & 7))
