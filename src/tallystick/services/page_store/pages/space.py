"""Allocation of pages in the page store's own file.

In: nodes that need a page, and pages no longer needed. Out: page numbers. Page 0 holds the page
count, the first free page and the catalogue's root; free pages are linked one to the next.
"""

from __future__ import annotations

import secrets

from tallystick.errors import CorruptLogError
from tallystick.roles import Codec
from tallystick.services.page_store.pages.cache import PageCache
from tallystick.services.page_store.pages.layout import PAGE_SIZE, Free, Meta, Node, decode, encode

META_PAGE = 0
MARK_BITS = 62
OWN_PAGES = Codec(PAGE_SIZE, encode, decode)


class OwnPages(PageCache):
    """A cache of `layout` nodes that also allocates pages."""

    @property
    def meta(self) -> Meta:
        """The node of page 0."""
        return _as_meta(self.get(META_PAGE))

    def new_mark(self) -> int:
        """Put a new mark into page 0, for the section that begins next."""
        mark = _as_meta(self.edit(META_PAGE)).mark = secrets.randbits(MARK_BITS)
        return mark

    def allocate(self, node: Node) -> int:
        """Put ``node`` on a free page, or a new one at the end of the file; return its number."""
        meta = _as_meta(self.edit(META_PAGE))
        number = meta.first_free
        if number:
            free = self.get(number)
            if not isinstance(free, Free):
                raise CorruptLogError(f"page {number} is in the list of free pages, but in use")
            meta.first_free = free.next
        else:
            number = meta.page_count
            meta.page_count += 1
            self.nodes.pop(number, None)
        self.put(number, node)
        return number

    def release(self, number: int) -> None:
        """Put a page on the list of free pages."""
        meta = _as_meta(self.edit(META_PAGE))
        self.put(number, Free(meta.first_free))
        meta.first_free = number

    def _read(self, number: int) -> Node:
        if number and number >= self.meta.page_count:
            raise CorruptLogError(f"page {number} is asked for, but the last one is before it")
        return decode(number, self._page(number))


def _as_meta(node: Node) -> Meta:
    if not isinstance(node, Meta):
        raise CorruptLogError("page 0 is not the one that says what is where", offset=0)
    return node
