"""The integrity check of a page store.

In: its pages. Out: every `Defect`: damaged pages, keys out of order, pages used twice or by
nobody, free pages in use. Reads every page once; memory grows by a bit per page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.errors import CorruptLogError
from tallystick.services.page_store.cache import META_PAGE, PageCache
from tallystick.services.page_store.layout import Free, Inner, Leaf, Overflow
from tallystick.services.page_store.tables import Tables
from tallystick.services.page_store.tree import Tree


@dataclass(frozen=True, slots=True)
class Defect:
    """Something wrong, with the number of the page where it shows."""

    page: int
    what: str


class _Check:
    def __init__(self, cache: PageCache) -> None:
        self._cache = cache
        self._used = bytearray(cache.meta.page_count)
        self._used[META_PAGE] = 1

    def run(self, tables: Tables) -> Iterator[Defect]:
        for name, tree in tables.trees():
            yield from self._guarded(tree.root, self._tree(name, tree))
        yield from self._guarded(META_PAGE, self._free_pages())
        for number, used in enumerate(self._used):
            if not used:
                yield Defect(number, "belongs to no table and is not free")

    def _guarded(self, page: int, defects: Iterator[Defect]) -> Iterator[Defect]:
        try:
            yield from defects
        except CorruptLogError as error:
            yield Defect(page, str(error))

    def _tree(self, name: str, tree: Tree) -> Iterator[Defect]:
        last: int | None = None
        for number, node in tree.pages():
            yield from self._use(number, f"a node of {name}")
            if node.keys != sorted(set(node.keys)):
                yield Defect(number, f"{name}: keys are not in order")
            if isinstance(node, Inner):
                continue
            if node.keys and last is not None and node.keys[0] <= last:
                yield Defect(number, f"{name}: keys overlap those of the leaf before")
            last = node.keys[-1] if node.keys else last
            yield from self._long_rows(name, tree, number, node)

    def _long_rows(self, name: str, tree: Tree, number: int, leaf: Leaf) -> Iterator[Defect]:
        for key, row in zip(leaf.keys, leaf.rows, strict=True):
            if not isinstance(row, Overflow):
                continue
            length = 0
            for page, chunk in tree.chain(row):
                yield from self._use(page, f"row {key} of {name}")
                length += len(chunk.data)
            if length != row.length:
                yield Defect(number, f"{name}: row {key} has {length} bytes, not {row.length}")

    def _free_pages(self) -> Iterator[Defect]:
        number = self._cache.meta.first_free
        while number:
            node = self._cache.get(number)
            if not isinstance(node, Free):
                yield Defect(number, "is in the list of free pages, but in use")
                return
            if defects := list(self._use(number, "the list of free pages")):
                yield from defects
                return
            number = node.next
            self._cache.trim()

    def _use(self, number: int, by: str) -> Iterator[Defect]:
        if number >= len(self._used):
            yield Defect(number, f"{by} lies behind the last page")
        elif self._used[number]:
            yield Defect(number, f"is used twice, the second time by {by}")
        else:
            self._used[number] = 1


def check_store(cache: PageCache, tables: Tables) -> list[Defect]:
    """Everything that is wrong; empty is good."""
    return list(_Check(cache).run(tables))
