"""A B+ tree of signed 64-bit keys and rows of bytes, over the page cache.

In: a root page and keys. Out: rows, in order of their keys. The root keeps its page: when it is
full its content goes to new pages and it becomes their parent. Empty leaves are freed, unless they
are the first of their parent; pages that are only sparse are not merged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tallystick.errors import CorruptLogError
from tallystick.services.page_store.pages.layout import (
    BODY_SIZE,
    INLINE_MAX,
    INNER_MAX,
    KEY_MIN,
    Chunk,
    Inner,
    Leaf,
    Overflow,
    entry_size,
)
from tallystick.services.page_store.pages.space import OwnPages
from tallystick.storage.btree import DEPTH_MAX, Descent, middle

_LEVELS = range(DEPTH_MAX)
_READ_MAX = 16
"""Most leaves that a tree remembers from reads, even if they are evicted meanwhile."""
_NOWHERE = (-1, Leaf())


class Tree:
    """The rows of one table. Called under the store's latch."""

    def __init__(self, cache: OwnPages, root: int) -> None:
        self.root = root
        self._cache = cache
        self._descent = Descent(root, self._node, Inner, bisect_right, self._loop)
        self._read: dict[int, tuple[int, Leaf]] = {}
        """The leaves of keys that were read last, with page numbers: they may be changed next."""

    def get(self, key: int) -> bytes | None:
        """Return the row of ``key``, None if there is none."""
        read = self._read
        if len(read) >= _READ_MAX:
            read.clear()
        _, leaf = read[key] = self._find(key)
        keys = leaf.keys
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            return None
        row = leaf.rows[place]
        return row if type(row) is bytes else self._whole(row)

    def batch(
        self, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Return rows from ``start`` on, and the key to go on from, if any.

        At most ``count`` rows, and no more once they have ``size`` bytes.
        """
        rows: list[tuple[int, bytes]] = []
        for leaf in self._leaves(start):
            for index in range(bisect_left(leaf.keys, start), len(leaf.keys)):
                if len(rows) >= count or size <= 0:
                    return rows, leaf.keys[index]
                row = self._whole(leaf.rows[index])
                rows.append((leaf.keys[index], row))
                size -= len(row)
        return rows, None

    def _leaves(self, start: int) -> Iterator[Leaf]:
        """Yield the leaf where ``start`` belongs, and those after it."""
        (number, _), last = self._find(start), KEY_MIN - 1
        for _ in range(self._cache.meta.page_count):
            leaf = self._leaf(number)
            if leaf.keys:
                if leaf.keys[0] <= last:
                    break
                last = leaf.keys[-1]
            yield leaf
            number = leaf.next
            if not number:
                return
        raise CorruptLogError(f"the leaves of the tree at page {self.root} are not in order")

    def set(self, key: int, row: bytes) -> None:
        """Add a row, or replace the one with this key."""
        number, leaf = self._read.pop(key, _NOWHERE)
        keys = leaf.keys
        # A leaf that still is the node of its page is the right one for the keys between its own.
        if self._cache.nodes.get(number) is not leaf or not keys or not keys[0] <= key <= keys[-1]:
            number, leaf = self._find(key)
            keys = leaf.keys
        self._cache.change(number, leaf)
        place = bisect_left(keys, key)
        stored = row if len(row) <= INLINE_MAX else self._store(row)
        if place < len(keys) and keys[place] == key:
            old = leaf.rows[place]
            leaf.rows[place] = stored
            if type(old) is bytes and len(row) <= len(old):
                return
            self._drop(old)
            if entry_size(stored) <= entry_size(old):
                return
        else:
            leaf.keys.insert(place, key)
            leaf.rows.insert(place, stored)
        if leaf.size() > BODY_SIZE:
            self._split_leaf(self._descent.path(key), leaf, place)

    def delete(self, key: int) -> bool:
        """Remove a row; return False if there was none."""
        path = self._descent.path(key)
        leaf = self._leaf(path[-1])
        place = bisect_left(leaf.keys, key)
        if place == len(leaf.keys) or leaf.keys[place] != key:
            return False
        leaf = self._edit_leaf(path[-1])
        self._drop(leaf.rows[place])
        del leaf.keys[place], leaf.rows[place]
        if not leaf.keys and len(path) > 1:
            self._remove_leaf(path, leaf)
        return True

    def clear(self) -> None:
        """Remove every row and free every page but the root."""
        for number, node in self.pages():
            if isinstance(node, Leaf):
                for row in node.rows:
                    self._drop(row)
            if number != self.root:
                self._cache.release(number)
        self._cache.put(self.root, Leaf())

    def pages(self) -> Iterator[tuple[int, Leaf | Inner]]:
        """Yield leaves and inner nodes with their page numbers, parents first.

        A node is valid until the next one is asked for. Raises `CorruptLogError` for a loop.
        """
        return self._descent.walk(self._cache.meta.page_count, self._cache.trim)

    def chain(self, row: Overflow) -> Iterator[tuple[int, Chunk]]:
        """Yield the overflow pages of a long row. Raises `CorruptLogError` if one is missing."""
        number, rest = row.page, row.length
        if rest > self._cache.meta.page_count * BODY_SIZE:
            raise CorruptLogError(f"the row at page {number} is longer than all pages")
        while rest > 0:
            chunk = self._cache.get(number)
            if not isinstance(chunk, Chunk) or len(chunk.data) != min(rest, BODY_SIZE):
                raise CorruptLogError(f"page {number} is no part of a long row")
            yield number, chunk
            rest -= len(chunk.data)
            number = chunk.next

    # -- descent ----------------------------------------------------------------------------

    def _find(self, key: int) -> tuple[int, Leaf]:
        """Return the leaf where ``key`` belongs, with its page number."""
        number, cache = self.root, self._cache
        in_memory, used = cache.nodes.get, cache.nodes.move_to_end
        for _ in _LEVELS:
            node = in_memory(number)
            if node is None:
                node = cache.get(number)
            else:
                used(number)
            if type(node) is Leaf:
                return number, node
            if type(node) is not Inner:
                raise CorruptLogError(f"page {number} is no leaf of the tree at page {self.root}")
            number = node.children[bisect_right(node.keys, key)]
        raise self._loop()

    def _node(self, number: int, _parent: int) -> Leaf | Inner:
        node = self._cache.get(number)
        if not isinstance(node, Leaf | Inner):
            raise CorruptLogError(f"page {number} is no node of the tree at page {self.root}")
        return node

    def _loop(self) -> CorruptLogError:
        return CorruptLogError(f"the tree at page {self.root} loops")

    def _leaf(self, number: int) -> Leaf:
        node = self._cache.get(number)
        if not isinstance(node, Leaf):
            raise CorruptLogError(f"page {number} is no leaf of the tree at page {self.root}")
        return node

    def _edit_leaf(self, number: int) -> Leaf:
        node = self._cache.edit(number)
        assert isinstance(node, Leaf), "found as a leaf a moment ago"
        return node

    def _edit_inner(self, number: int) -> Inner:
        node = self._cache.edit(number)
        assert isinstance(node, Inner), "found as an inner node a moment ago"
        return node

    # -- splitting and removing ---------------------------------------------------------------

    def _split_leaf(self, path: list[int], leaf: Leaf, place: int) -> None:
        # Ascending keys leave full leaves; a leaf that others fill is split in the middle.
        ascending = leaf.next == 0 and place == len(leaf.keys) - 1
        cut = place if ascending else middle(list(map(entry_size, leaf.rows)))
        right = Leaf(leaf.keys[cut:], leaf.rows[cut:], leaf.next)
        del leaf.keys[cut:], leaf.rows[cut:]
        if path[-1] != self.root:
            leaf.next = self._cache.allocate(right)
            self._insert(path[:-1], right.keys[0], leaf.next)
            return
        second = self._cache.allocate(right)
        first = self._cache.allocate(Leaf(leaf.keys, leaf.rows, second))
        self._cache.put(self.root, Inner([right.keys[0]], [first, second]))

    def _insert(self, path: list[int], key: int, child: int) -> None:
        """Add a child for keys from ``key`` on to the inner node at the end of ``path``."""
        node = self._edit_inner(path[-1])
        place = bisect_right(node.keys, key)
        node.keys.insert(place, key)
        node.children.insert(place + 1, child)
        if len(node.keys) <= INNER_MAX:
            return
        half = len(node.keys) // 2
        up = node.keys[half]
        right = Inner(node.keys[half + 1 :], node.children[half + 1 :])
        del node.keys[half:], node.children[half + 1 :]
        if path[-1] == self.root:
            first = self._cache.allocate(Inner(node.keys, node.children))
            second = self._cache.allocate(right)
            self._cache.put(self.root, Inner([up], [first, second]))
        else:
            self._insert(path[:-1], up, self._cache.allocate(right))

    def _remove_leaf(self, path: list[int], leaf: Leaf) -> None:
        """Free an empty leaf, unless it is the first of its parent: then it stays, empty."""
        parent = self._edit_inner(path[-2])
        place = parent.children.index(path[-1])
        if place == 0:
            return
        left = self._descent.edge(path[:-1], parent.children[place - 1], first=False)
        self._edit_leaf(left[-1]).next = leaf.next
        del parent.children[place], parent.keys[place - 1]
        self._cache.release(path[-1])

    # -- long rows ------------------------------------------------------------------------------

    def _store(self, row: bytes) -> bytes | Overflow:
        if len(row) <= INLINE_MAX:
            return row
        following = 0
        for start in range((len(row) - 1) // BODY_SIZE * BODY_SIZE, -1, -BODY_SIZE):
            chunk = Chunk(row[start : start + BODY_SIZE], following)
            following = self._cache.allocate(chunk)
        return Overflow(following, len(row))

    def _whole(self, row: bytes | Overflow) -> bytes:
        if isinstance(row, bytes):
            return row
        return b"".join(chunk.data for _, chunk in self.chain(row))

    def _drop(self, row: bytes | Overflow) -> None:
        if isinstance(row, Overflow):
            for number in [number for number, _ in self.chain(row)]:
                self._cache.release(number)
