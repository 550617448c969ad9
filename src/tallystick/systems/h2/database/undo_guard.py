"""Undo images of every page that the engine's redo may change.

In: a row that is about to be logged. Out: undo images. While a transaction is in doubt 1.4.200
writes the pages that it has redone in place, keeps the log, and starts over with the next opening:
a page that it changes without an image in the log stays changed. Its trees get other shapes than
ours: it splits leaves elsewhere, updates a row by removing and adding it, and frees a leaf with its
last row, so that the next row goes to a neighbour. So for each row the log gets images of

* the leaf where it belongs and the leaves next to it, with their long rows, and all nodes above
* the children of a node that may have been split by then: they name their parent
* the free list
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.systems.h2.database.nodes import KEY_SIZE_MAX, Inner, Leaf
from tallystick.systems.h2.database.space import Space
from tallystick.systems.h2.database.tree import DataTree

_SPLITS = 10
"""Leaves that the engine splits at most for one row: each split leaves at most two thirds of some
hundred rows on the side of the new row."""
_ENTRY_MAX = 4 + KEY_SIZE_MAX


class UndoGuard:
    """The undo images for the trees of one file. Called under the store's latch."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._cache = space.cache
        self._done: set[int] = set()
        """Leaves whose rows have all the images that they need in this section."""
        self._above_done: set[int] = set()
        """Nodes whose children all have images in this section. A page that becomes a child later
        is new or changed, so it has an image as well."""
        self._section = -1
        self._below: dict[int, int] = {}
        """By node, the rows below it that were logged since its children last got images."""

    def row(self, tree: DataTree, key: int) -> None:
        """Log the images for a row that is about to be logged as added, changed or removed."""
        if self._section != self._cache.sections:
            self._section = self._cache.sections
            self._done.clear()
            self._above_done.clear()
            for number in self._space.lists:
                self._cache.log_image(number)
        path = tree.descent.path(key)
        if path[-1] in self._done:
            self._count(path)
            return
        for one in (path, *self._neighbours(tree, path)):
            for number in one:
                self._cache.log_image(number)
            leaf = self._cache.get(one[-1])
            if isinstance(leaf, Leaf):
                for number in [number for number, _ in tree.long_rows.chain(leaf, one[-1])]:
                    self._cache.log_image(number)
            self._count(one)
        self._done.add(path[-1])

    def _neighbours(self, tree: DataTree, path: list[int]) -> Iterator[list[int]]:
        """Yield the paths to the leaves before and after the one at the end of ``path``."""
        for step in (-1, 1):
            for depth in range(len(path) - 2, -1, -1):
                node = self._cache.get(path[depth])
                place = node.children.index(path[depth + 1]) + step
                if 0 <= place < len(node.children):
                    yield tree.descent.edge(path[: depth + 1], node.children[place], first=step > 0)
                    break

    def _count(self, path: list[int]) -> None:
        """Count a row below these nodes; log the children of a node that it may fill."""
        for number in path[:-1]:
            if number in self._above_done:
                continue
            self._below[number] = below = self._below.get(number, 0) + 1
            node = self._cache.get(number)
            assert isinstance(node, Inner), "above a leaf"
            if node.size() + below * _SPLITS * _ENTRY_MAX > self._space.page_size:
                for child in node.children:
                    self._cache.log_image(child)
                self._below[number] = 0
                self._above_done.add(number)
