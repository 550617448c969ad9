"""Pages of a page store file that tables use: handed out, taken back, marked in the free list.

In: nodes that want a page, and pages that nobody needs. Out: page numbers. The free list on disk
knows the pages of tables only, and changes like any other page, under undo; which pages the log
has is known in memory, and found again by recovery. So no page is both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tallystick.errors import CorruptLogError
from tallystick.roles import Pages
from tallystick.systems.h2.database.nodes import BITMAP_START, Empty, FreeList, Node
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
        """Pages that stay marked when they are taken back: the log has another use for them."""
        self._undone = undone
        self._store = store
        self._per_list = (store.page_size - BITMAP_START) * 8

    @property
    def page_count(self) -> int:
        """Pages of the file, those of the log included."""
        return self._store.page_count

    def allocate(self, node: Node) -> int:
        """A page for ``node``."""
        return self._use(self._store.allocate(), node)

    def allocate_root(self, node: Node) -> int:
        """A page for the root of a new table, which the log names: one that is free as well when
        recovery has put images back, whatever redo has made of the trees by then."""
        return self._use(self._store.allocate(exclude=self._undone), node)

    def _use(self, number: int, node: Node) -> int:
        self._mark(number, used=True)
        self.cache.put(number, node)
        return number

    def take(self, number: int, node: Node) -> None:
        """This very page for ``node``. Raises `CorruptLogError` if it is in use."""
        if self.in_use(number) or number <= layout.META_ROOT:
            raise CorruptLogError(f"page {number} is to be a new one, but in use")
        self._store.mark_used(number)
        self._use(number, node)

    def release(self, number: int) -> None:
        """Take a page back."""
        self.cache.put(number, Empty())
        if number not in self.reserved:
            self._mark(number, used=False)
            self._store.release([number], zero=())

    def forget(self, number: int) -> None:
        """Not in use by a table: it was of a log that is gone. Its content is nobody's."""
        self._mark(number, used=False)

    def in_use(self, number: int) -> bool:
        """True if the free list has it as used."""
        first, at = self._place(number)
        node = self.cache.get(first) if first < self._store.page_count else Empty()
        return isinstance(node, FreeList) and bool(node.bits[at >> 3] >> (at & 7) & 1)

    def lists(self) -> Iterator[int]:
        """The pages of the free list."""
        yield from range(layout.FREE_LIST_ROOT, self._store.page_count, self._per_list)

    def is_list(self, number: int) -> bool:
        """True for a page of the free list itself."""
        return (number - layout.FREE_LIST_ROOT) % self._per_list == 0

    def _place(self, number: int) -> tuple[int, int]:
        part, at = divmod(number - layout.FREE_LIST_ROOT, self._per_list)
        return layout.FREE_LIST_ROOT + part * self._per_list, at

    def _mark(self, number: int, *, used: bool) -> None:
        first, at = self._place(number)
        node = self.cache.get(first)
        if isinstance(node, Empty):
            bits = bytearray(self._per_list // 8)
            bits[0] = 1  # the list itself
            self.cache.put(first, FreeList(bits))
        elif not isinstance(node, FreeList):
            raise CorruptLogError(f"page {first} is no free list")
        node = self.cache.edit(first)
        if used:
            node.bits[at >> 3] |= 1 << (at & 7)
        else:
            node.bits[at >> 3] &= ~(1 << (at & 7))
