"""The integrity check of a page store.

In: its pages. Out: every `Defect`: damaged pages, keys out of order or outside their parent's
range, leaves not linked in order, pages used twice or not at all, free pages in use. Reads every
page once, whatever it holds; memory grows by a byte per page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.errors import CorruptLogError
from tallystick.roles import Defect
from tallystick.services.page_store.pages.layout import (
    KEY_MAX,
    KEY_MIN,
    Free,
    Inner,
    Leaf,
    Overflow,
)
from tallystick.services.page_store.pages.space import META_PAGE, OwnPages
from tallystick.services.page_store.pages.tree import Tree

Trees = Iterable[tuple[str, Tree]]
"""Every tree of the store, with its name for messages."""


class _Check:
    def __init__(self, cache: OwnPages, page_count: int) -> None:
        self._cache = cache
        self._used = bytearray(page_count)
        self._used[META_PAGE] = 1

    def run(self, trees: Trees) -> Iterator[Defect]:
        for name, tree in trees:
            yield from self._tree(name, tree)
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
        leaves = _Leaves(name)
        waiting = [(tree.root, KEY_MIN, KEY_MAX + 1)]
        while waiting:
            self._cache.trim()
            number, low, high = waiting.pop()
            if defects := list(self._use(number, f"a node of {name}")):
                yield from defects  # its children were checked already, or it has no page
                continue
            yield from self._guarded(
                number, self._node(name, tree, number, (low, high), leaves, waiting)
            )
        yield from leaves.follow(0, 0)

    def _node(
        self,
        name: str,
        tree: Tree,
        number: int,
        bounds: tuple[int, int],
        leaves: _Leaves,
        waiting: list[tuple[int, int, int]],
    ) -> Iterator[Defect]:
        node = self._cache.get(number)
        if not isinstance(node, Leaf | Inner):
            yield Defect(number, f"is no node of {name}")
            return
        if node.keys != sorted(set(node.keys)):
            yield Defect(number, f"{name}: keys are not in order")
        if node.keys and not bounds[0] <= min(node.keys) <= max(node.keys) < bounds[1]:
            yield Defect(number, f"{name}: keys that belong to other pages")
        if isinstance(node, Inner):
            edges = [bounds[0], *node.keys, bounds[1]]
            waiting.extend(reversed([*zip(node.children, edges[:-1], edges[1:], strict=True)]))
            return
        yield from leaves.follow(number, node.next)
        yield from self._long_rows(name, tree, number, node)

    def _long_rows(self, name: str, tree: Tree, number: int, leaf: Leaf) -> Iterator[Defect]:
        for key, row in zip(leaf.keys, leaf.rows, strict=True):
            if isinstance(row, Overflow):
                yield from self._guarded(number, self._long_row(f"row {key} of {name}", tree, row))

    def _long_row(self, what: str, tree: Tree, row: Overflow) -> Iterator[Defect]:
        for page, _ in tree.chain(row):
            yield from self._use(page, what)

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
            yield Defect(number, f"{by} lies after the last page")
        elif self._used[number]:
            yield Defect(number, f"is used twice, the second time by {by}")
        else:
            self._used[number] = 1


class _Leaves:
    """Check that the links of a tree's leaves lead through all of them in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last, self._link = 0, 0

    def follow(self, number: int, link: int) -> Iterator[Defect]:
        """Take the next leaf in order of keys, with its link; 0 is the end."""
        if self._last and self._link != number:
            yield Defect(self._last, f"{self._name}: is linked to {self._link}, not to {number}")
        self._last, self._link = number, link


def check_trees(cache: OwnPages, trees: Trees) -> list[Defect]:
    """Return every defect; empty if there is none."""
    return list(_Check(cache, cache.meta.page_count).run(trees))
