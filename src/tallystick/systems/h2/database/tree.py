"""A data tree of the engine: signed 64-bit keys and rows of bytes, over the page cache.

In: a root page and keys. Out: rows (values without their count), in order of their keys. The root
never moves: when it is full its content goes to new pages and it becomes their parent. Every
node names its parent, and no leaf but a root is empty: the engine's cursors rest on both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from tallystick.errors import CorruptLogError
from tallystick.systems.h2.database.leaf_split import beside, cut
from tallystick.systems.h2.database.nodes import UNKNOWN_COUNT, Inner, Leaf
from tallystick.systems.h2.database.overflow import LongRows
from tallystick.systems.h2.database.space import Space

DEPTH_MAX = 64
"""More levels than 2^64 keys can need: a longer way down is a loop."""


class _Found(NamedTuple):
    """A leaf, its page, and the largest key that can be in it (None: any)."""

    page: int
    leaf: Leaf
    limit: int | None


class DataTree:
    """The rows of one table. Called under the store's latch."""

    def __init__(self, space: Space, table: int, columns: int, root: int) -> None:
        self.table = table
        self.columns = columns
        self.root = root
        self.long_rows = LongRows(space)
        self._space = space
        self._cache = space.cache

    def get(self, key: int) -> bytes | None:
        """The row of ``key``, None if there is none."""
        found = self._find(key)
        leaf = found.leaf
        place = bisect_left(leaf.keys, key)
        if place == len(leaf.keys) or leaf.keys[place] != key:
            return None
        return self.long_rows.whole(leaf, found.page, place)

    def has(self, key: int) -> bool:
        """True if there is a row."""
        leaf = self._find(key).leaf
        place = bisect_left(leaf.keys, key)
        return place < len(leaf.keys) and leaf.keys[place] == key

    def batch(
        self, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Rows from ``start`` on, at most ``count``, and no more once they have ``size`` bytes;
        and the key to go on from, if any."""
        rows: list[tuple[int, bytes]] = []
        following: int | None = start
        while following is not None:
            found = self._find(following)
            leaf, limit = found.leaf, found.limit
            for place in range(bisect_left(leaf.keys, following), len(leaf.keys)):
                if len(rows) >= count or size <= 0:
                    return rows, leaf.keys[place]
                row = self.long_rows.whole(leaf, found.page, place)
                rows.append((leaf.keys[place], row))
                size -= len(row)
            if limit is not None and limit < following:
                raise self._corrupt("the keys of the tree are not in order")
            following = None if limit is None else limit + 1
        return rows, None

    def set(self, key: int, row: bytes) -> None:
        """Add the row or replace the one that is there."""
        path = self.path(key)
        leaf = self._leaf(self._cache.edit(path[-1]), path[-1])
        place = bisect_left(leaf.keys, key)
        if place < len(leaf.keys) and leaf.keys[place] == key:
            self.long_rows.drop(leaf, path[-1])
            leaf.rows[place] = row
        else:
            self._forget_counts(path)
            if leaf.overflow:  # its one row stays alone
                self._put_pieces(path, leaf, beside(leaf, key, row))
                return
            leaf.keys.insert(place, key)
            leaf.rows.insert(place, row)
        if leaf.size() > self._space.page_size:
            self._put_pieces(path, leaf, cut(leaf, place, self._space.page_size))

    def delete(self, key: int) -> bool:
        """Remove the row; False if there was none."""
        path = self.path(key)
        leaf = self._leaf(self._cache.get(path[-1]), path[-1])
        place = bisect_left(leaf.keys, key)
        if place == len(leaf.keys) or leaf.keys[place] != key:
            return False
        self._forget_counts(path)
        leaf = self._cache.edit(path[-1])
        self.long_rows.drop(leaf, path[-1])
        del leaf.keys[place], leaf.rows[place]
        if not leaf.keys:
            self._remove(path)
        return True

    def clear(self) -> None:
        """Remove every row and free every page but the root."""
        for number, node in self.pages():
            if isinstance(node, Leaf):
                self.long_rows.drop(self._cache.edit(number), number)
            if number != self.root:
                self._space.release(number)
        self._cache.put(self.root, Leaf(self.table, self.columns))

    def pages(self) -> Iterator[tuple[int, Leaf | Inner]]:
        """Leaves and inner nodes with their page numbers, parents first; a node is good until
        the next one is asked for. Raises `CorruptLogError` rather than walk in circles."""
        waiting, left = [(self.root, 0)], self._space.page_count
        while waiting:
            self._cache.trim()
            number, parent = waiting.pop()
            node = self.node(number, parent)
            left -= 1
            if left < 0:
                raise self._corrupt("it loops")
            if isinstance(node, Inner):
                waiting.extend((child, number) for child in reversed(node.children))
            yield number, node

    # -- the way down -----------------------------------------------------------------------

    def node(self, number: int, parent: int) -> Leaf | Inner:
        """A node of this tree below ``parent``. Raises `CorruptLogError`."""
        node = self._cache.get(number)
        if not isinstance(node, Leaf | Inner):
            raise self._corrupt(f"page {number} is no node of it")
        if node.parent != parent or node.table != self.table:
            raise self._corrupt(f"page {number} is a node of another one")
        return node

    def _find(self, key: int) -> _Found:
        limit: int | None = None
        number, parent = self.root, 0
        for _ in range(DEPTH_MAX):
            node = self.node(number, parent)
            if isinstance(node, Leaf):
                return _Found(number, node, limit)
            place = bisect_left(node.keys, key)
            if place < len(node.keys):
                limit = node.keys[place]
            number, parent = node.children[place], number
        raise self._corrupt("it loops")

    def path(self, key: int) -> list[int]:
        """Page numbers from the root to the leaf where ``key`` belongs."""
        path, parent = [self.root], 0
        while isinstance(node := self.node(path[-1], parent), Inner):
            if len(path) > DEPTH_MAX:
                raise self._corrupt("it loops")
            parent = path[-1]
            path.append(node.children[bisect_left(node.keys, key)])
        return path

    def edge(self, path: list[int], number: int, *, first: bool) -> list[int]:
        """``path``, then the way from its child ``number`` to the first or last leaf below."""
        way = [*path, number]
        while isinstance(node := self.node(way[-1], way[-2]), Inner):
            if len(way) > DEPTH_MAX:
                raise self._corrupt("it loops")
            way.append(node.children[0 if first else -1])
        return way

    def _leaf(self, node: object, number: int) -> Leaf:
        if not isinstance(node, Leaf):
            raise self._corrupt(f"page {number} is no leaf of it")
        return node

    def _forget_counts(self, path: list[int]) -> None:
        """The engine's nodes can hold how many rows are below; not known is right, too."""
        for number in path[:-1]:
            if self._cache.get(number).row_count != UNKNOWN_COUNT:
                self._cache.edit(number).row_count = UNKNOWN_COUNT

    def _corrupt(self, what: str) -> CorruptLogError:
        return CorruptLogError(f"the tree of table {self.table} at page {self.root}: {what}")

    # -- splitting ------------------------------------------------------------------------------

    def _put_pieces(self, path: list[int], leaf: Leaf, pieces: list[Leaf]) -> None:
        """Let these leaves stand where ``leaf`` stood, which they are made of."""
        if path[-1] == self.root and len(pieces) > 1:
            numbers = [self._place(piece, self.root) for piece in pieces]
            node = Inner(self.table, [piece.keys[-1] for piece in pieces[:-1]], numbers)
            self._cache.put(self.root, node)
            return
        pieces[0].parent = leaf.parent
        self._cache.put(path[-1], pieces[0])
        self.long_rows.spill(path[-1], pieces[0])
        left, number = pieces[0], path[-1]
        for piece in pieces[1:]:
            following = self._place(piece, path[-2])
            self._insert(path[:-1], number, left.keys[-1], following)
            path = self.path(piece.keys[0])
            left, number = piece, following

    def _place(self, piece: Leaf, parent: int) -> int:
        piece.parent = parent
        number = self._space.allocate(piece)
        self.long_rows.spill(number, piece)
        return number

    def _insert(self, path: list[int], left: int, key: int, child: int) -> None:
        """Add ``child`` behind ``left``, whose largest key is ``key``, to the inner node at the
        end of ``path``."""
        node = self._cache.edit(path[-1])
        place = node.children.index(left)
        node.keys.insert(place, key)
        node.children.insert(place + 1, child)
        if node.size() <= self._space.page_size:
            return
        half = len(node.keys) // 2
        up = node.keys[half]
        right = Inner(self.table, node.keys[half + 1 :], node.children[half + 1 :], node.parent)
        del node.keys[half:], node.children[half + 1 :]
        if path[-1] == self.root:
            first = self._adopt(Inner(self.table, node.keys, node.children, self.root))
            right.parent = self.root
            second = self._adopt(right)
            self._cache.put(self.root, Inner(self.table, [up], [first, second]))
        else:
            self._insert(path[:-1], path[-1], up, self._adopt(right))

    def _adopt(self, node: Inner) -> int:
        """A page for an inner node; its children learn their parent's number."""
        number = self._space.allocate(node)
        for child in node.children:
            self._move(child, number)
        return number

    def _move(self, number: int, parent: int) -> None:
        self._cache.edit(number).parent = parent

    # -- removing -------------------------------------------------------------------------------

    def _remove(self, path: list[int]) -> None:
        """Free the empty node at the end of ``path``, and parents that have nothing else."""
        while len(path) > 1:
            number = path.pop()
            self._space.release(number)
            parent = self._cache.edit(path[-1])
            place = parent.children.index(number)
            del parent.children[place]
            if parent.children:
                del parent.keys[place if place < len(parent.keys) else place - 1]
                return
        self._cache.put(self.root, Leaf(self.table, self.columns))
