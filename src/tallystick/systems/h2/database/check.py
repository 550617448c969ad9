"""The integrity check of tables in a page store file.

In: its pages. Out: every `Defect`: damaged pages, keys out of order or outside their parent's
range, wrong parents, incomplete long rows, pages used twice, not at all, or not marked as used. A
page's own checksum covers seven of its bytes; damage to the rest shows only where it contradicts
the tree. Reads every page of every table once; memory grows by a byte per page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tallystick.errors import CorruptLogError
from tallystick.roles import Defect
from tallystick.systems.h2.database.nodes import EnginePage, Inner, Leaf
from tallystick.systems.h2.database.schema import IndexRow
from tallystick.systems.h2.database.space import Space
from tallystick.systems.h2.database.tree import DataTree
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.numbers import LONG_MAX, LONG_MIN


def check_pages(
    space: Space, trees: Mapping[int, DataTree], index: Mapping[int, IndexRow]
) -> Iterator[Defect]:
    """Yield every defect.

    Unused pages that are marked as used are reported only if every index of the engine is one page:
    larger indexes are not read.
    """
    check = _Check(space)
    for tree in trees.values():
        yield from check.tree(tree)
    for row in index.values():
        if row.root and not row.is_table:
            yield from check.index(row)
    yield from check.free_list()


class _Check:
    def __init__(self, space: Space) -> None:
        self._space = space
        self._used = bytearray(space.page_count)
        self._all_used_known = True
        """False if an index has pages that are not read."""

    def tree(self, tree: DataTree) -> Iterator[Defect]:
        waiting = [(tree.root, 0, LONG_MIN, LONG_MAX)]
        while waiting:
            self._space.cache.trim()
            number, parent, low, high = waiting.pop()
            if defects := list(self._use(number, f"a node of table {tree.table}")):
                yield from defects  # its children were checked already, or it has no page
                continue
            try:
                node = tree.node(number, parent)
                yield from self._node(tree, number, node, low, high)
            except CorruptLogError as error:
                yield Defect(number, str(error))
                continue
            if isinstance(node, Inner):
                lows = [low, *(key + 1 for key in node.keys)]
                highs = [*node.keys, high]
                children = zip(node.children, lows, highs, strict=True)
                waiting += [(child, number, first, last) for child, first, last in children]

    def _node(
        self, tree: DataTree, number: int, node: Leaf | Inner, low: int, high: int
    ) -> Iterator[Defect]:
        if node.keys != sorted(set(node.keys)):
            yield Defect(number, f"table {tree.table}: keys are not in order")
        if node.keys and not low <= min(node.keys) <= max(node.keys) <= high:
            yield Defect(number, f"table {tree.table}: keys that belong to other pages")
        if isinstance(node, Inner):
            return
        if not node.keys and number != tree.root:
            yield Defect(number, f"table {tree.table}: a leaf without rows")
        if node.columns != tree.columns:
            yield Defect(number, f"table {tree.table}: rows of {node.columns} columns")
        for page, _ in tree.long_rows.chain(node, number):
            yield from self._use(page, f"row {node.keys[0]} of table {tree.table}")

    def index(self, row: IndexRow) -> Iterator[Defect]:
        """Check the root of an index."""
        yield from self._use(row.root, f"the root of index {row.number}")
        try:
            node = self._space.cache.get(row.root)
        except CorruptLogError as error:
            yield Defect(row.root, str(error))
            return
        kind = node.page[0] & ~layout.LAST if isinstance(node, EnginePage) else layout.EMPTY
        if kind not in (layout.EMPTY, layout.BTREE_LEAF, layout.BTREE_NODE):
            yield Defect(row.root, f"is no page of index {row.number}")
        self._all_used_known &= kind != layout.BTREE_NODE

    def _use(self, number: int, by: str) -> Iterator[Defect]:
        if not layout.FREE_LIST_ROOT < number < len(self._used):
            yield Defect(number, f"{by} lies outside the pages")
        elif self._used[number]:
            yield Defect(number, f"is used twice, the second time by {by}")
        else:
            self._used[number] = 1
            if not self._marked(number):
                yield Defect(number, f"{by} is not marked as used")

    def _marked(self, number: int) -> bool:
        try:
            return self._space.in_use(number)
        except CorruptLogError:
            return False  # reported once, with the page of the free list

    def free_list(self) -> Iterator[Defect]:
        """Check that every marked page belongs to a table, or is the list itself."""
        for number in range(layout.FREE_LIST_ROOT, len(self._used)):
            try:
                if number in self._space.lists:
                    self._space.cache.get(number)
                elif self._all_used_known and not self._used[number] and self._space.in_use(number):
                    yield Defect(number, "is marked as used, but belongs to no table")
            except CorruptLogError as error:
                if number in self._space.lists:
                    yield Defect(number, str(error))
            self._space.cache.trim()
