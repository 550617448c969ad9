"""The parts of a B+ tree over pages that do not depend on the bytes of its nodes.

In: nodes by page number. Out: the path to a leaf, every node of the tree, the index at which a full
leaf is split, the error for a damaged page. Two trees use it, which look keys up, split and remove
nodes each in its own way, because their separators, links and long rows differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.errors import CorruptLogError

DEPTH_MAX = 64
"""Levels of a tree: more than 2^64 keys can need, so a longer path is a loop."""


@dataclass(frozen=True, slots=True)
class Descent:
    """The ways down from the root of one tree.

    ``node(number, parent)`` returns the node in a page below page ``parent`` (0 for the root);
    ``inner`` is the type of a node with ``keys`` and ``children``; ``child_of(keys, key)`` returns
    the index of the child that ``key`` belongs to; ``loop()`` makes the error for an endless path.
    """

    root: int
    node: Callable[[int, int], Any]
    inner: type[Any]
    child_of: Callable[[Sequence[int], int], int]
    loop: Callable[[], CorruptLogError]

    def path(self, key: int) -> list[int]:
        """Return the page numbers from the root to the leaf where ``key`` belongs."""
        path, parent = [self.root], 0
        while isinstance(node := self.node(path[-1], parent), self.inner):
            parent = path[-1]
            self._descend(path, node.children[self.child_of(node.keys, key)])
        return path

    def edge(self, path: list[int], number: int, *, first: bool) -> list[int]:
        """Return ``path`` with the way from its child ``number`` to the first or last leaf."""
        way = [*path, number]
        while isinstance(node := self.node(way[-1], way[-2]), self.inner):
            self._descend(way, node.children[0 if first else -1])
        return way

    def _descend(self, path: list[int], child: int) -> None:
        if len(path) > DEPTH_MAX:
            raise self.loop()
        path.append(child)

    def walk(self, node_count_max: int, trim: Callable[[], None]) -> Iterator[tuple[int, Any]]:
        """Yield every node with its page number, parents first and children in order.

        ``trim`` runs before each node is read: a node is valid until the next one is asked for.
        """
        waiting = [(self.root, 0)]
        for _ in range(node_count_max):
            if not waiting:
                return
            trim()
            number, parent = waiting.pop()
            node = self.node(number, parent)
            if isinstance(node, self.inner):
                waiting.extend((child, number) for child in reversed(node.children))
            yield number, node
        if waiting:
            raise self.loop()


def middle(sizes: Sequence[int]) -> int:
    """Return the index that splits entries of these sizes into halves of about equal bytes.

    Both halves have at least one entry; 0 for a single entry.
    """
    half, total = sum(sizes) // 2, 0
    for place, size in enumerate(sizes):
        total += size
        if total >= half:
            return min(max(place, 1), len(sizes) - 1)
    return len(sizes) - 1


def damaged_page(number: int, page_size: int, expected: str, found: str) -> CorruptLogError:
    """Make the error for a page that does not hold a node."""
    return CorruptLogError(
        f"page {number} is damaged",
        offset=number * page_size,
        expected=expected,
        found=found,
        advice="Restore a backup; 'tallystick store check' lists what else is hurt",
    )
