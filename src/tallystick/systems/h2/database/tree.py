"""A data tree of the engine: signed 64-bit keys and rows of bytes, over the page cache.

In: a root page and keys. Out: rows (values without their count), in order of their keys. The root
keeps its page: when it is full its content goes to new pages and it becomes their parent. Every
node names its parent, and no leaf but a root is empty: the engine's cursors rely on both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from tallystick.errors import CorruptLogError
from tallystick.storage.btree import DEPTH_MAX, Descent, middle
from tallystick.systems.h2.database.nodes import (
    UNKNOWN_COUNT,
    Inner,
    Leaf,
    entry_size,
    leaf_head,
)
from tallystick.systems.h2.database.overflow import LongRows
from tallystick.systems.h2.database.space import Space


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
        self.descent = Descent(root, self.node, Inner, bisect_left, self._loop)

    def get(self, key: int) -> bytes | None:
        """Return the row of ``key``, None if there is none."""
        found = self._find(key)
        leaf = found.leaf
        place = bisect_left(leaf.keys, key)
        if place == len(leaf.keys) or leaf.keys[place] != key:
            return None
        return self.long_rows.whole(leaf, found.page, place)

    def has(self, key: int) -> bool:
        """Return True if there is a row."""
        leaf = self._find(key).leaf
        place = bisect_left(leaf.keys, key)
        return place < len(leaf.keys) and leaf.keys[place] == key

    def batch(
        self, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Return rows from ``start`` on, and the key to go on from, if any.

        At most ``count`` rows, and no more once they have ``size`` bytes.
        """
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
        """Add a row, or replace the one with this key."""
        path = self.descent.path(key)
        leaf = self._leaf(self._cache.edit(path[-1]), path[-1])
        place = bisect_left(leaf.keys, key)
        if place < len(leaf.keys) and leaf.keys[place] == key:
            self.long_rows.drop(leaf, path[-1])
            leaf.rows[place] = row
        else:
            self._clear_counts(path)
            if leaf.overflow:  # its only row keeps a leaf of its own
                self._replace(path, leaf, _beside_long_row(leaf, key, row))
                return
            leaf.keys.insert(place, key)
            leaf.rows.insert(place, row)
        if leaf.size() > self._space.page_size:
            self._replace(path, leaf, _split(leaf, place, self._space.page_size))

    def delete(self, key: int) -> bool:
        """Remove a row; return False if there was none."""
        path = self.descent.path(key)
        leaf = self._leaf(self._cache.get(path[-1]), path[-1])
        place = bisect_left(leaf.keys, key)
        if place == len(leaf.keys) or leaf.keys[place] != key:
            return False
        self._clear_counts(path)
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
        """Yield leaves and inner nodes with their page numbers, parents first.

        A node is valid until the next one is asked for. Raises `CorruptLogError` for a loop.
        """
        return self.descent.walk(self._space.page_count, self._cache.trim)

    # -- descent ----------------------------------------------------------------------------

    def node(self, number: int, parent: int) -> Leaf | Inner:
        """Return a node of this tree below page ``parent``. Raises `CorruptLogError`."""
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
        raise self._loop()

    def _leaf(self, node: object, number: int) -> Leaf:
        """Return the node at a page as a leaf. Raises `CorruptLogError` if it is none."""
        if not isinstance(node, Leaf):
            raise self._corrupt(f"page {number} is no leaf of it")
        return node

    def _clear_counts(self, path: list[int]) -> None:
        """Clear the row counts of inner nodes: the engine accepts that they are not known."""
        for number in path[:-1]:
            if self._cache.get(number).row_count != UNKNOWN_COUNT:
                self._cache.edit(number).row_count = UNKNOWN_COUNT

    def _corrupt(self, what: str) -> CorruptLogError:
        return CorruptLogError(f"the tree of table {self.table} at page {self.root}: {what}")

    def _loop(self) -> CorruptLogError:
        return self._corrupt("it loops")

    # -- splitting ------------------------------------------------------------------------------

    def _replace(self, path: list[int], leaf: Leaf, pieces: list[Leaf]) -> None:
        """Put ``pieces``, which hold the rows of ``leaf``, in its place."""
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
            # Anew, as the insertion may have split the parents.
            path = self.descent.path(piece.keys[0])
            left, number = piece, following

    def _place(self, piece: Leaf, parent: int) -> int:
        """Put a leaf on a new page below ``parent``; return the page."""
        piece.parent = parent
        number = self._space.allocate(piece)
        self.long_rows.spill(number, piece)
        return number

    def _insert(self, path: list[int], left: int, key: int, child: int) -> None:
        """Add ``child`` to the end of ``path`` after ``left``, whose largest key is ``key``."""
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
        """Put an inner node on a new page, and set the parent of its children."""
        number = self._space.allocate(node)
        for child in node.children:
            self._cache.edit(child).parent = number
        return number

    # -- removing -------------------------------------------------------------------------------

    def _remove(self, path: list[int]) -> None:
        """Free the empty node at the end of ``path``, and parents without other children."""
        while len(path) > 1:
            number = path.pop()
            self._space.release(number)
            parent = self._cache.edit(path[-1])
            place = parent.children.index(number)
            del parent.children[place]
            if parent.children:
                # There is a key less than children: where the last child goes, the key of the one
                # before it does, which then takes all keys above.
                del parent.keys[place if place < len(parent.keys) else place - 1]
                return
        self._cache.put(self.root, Leaf(self.table, self.columns))


def _beside_long_row(long: Leaf, key: int, row: bytes) -> list[Leaf]:
    """Return leaves for a new row and a long one, which keeps a leaf of its own."""
    other = Leaf(long.table, long.columns, 0, [key], [row])
    return [other, long] if key < long.keys[0] else [long, other]


def _split(leaf: Leaf, place: int, page_size: int) -> list[Leaf]:
    """Return leaves for the rows of one that the row at ``place`` has made too large.

    Ascending keys leave full leaves; a leaf that others fill is split in the middle. Each fits into
    a page, or holds a single row that does not.
    """
    keys, rows = leaf.keys, leaf.rows
    ascending = place == len(keys) - 1 and place > 0
    at = place if ascending else middle(list(map(entry_size, keys, rows)))
    pieces = [_part(leaf, keys[:at], rows[:at]), _part(leaf, keys[at:], rows[at:])]
    if not pieces[0].keys or any(piece.size() > page_size for piece in pieces):
        return _fill(leaf, page_size)
    return pieces


def _part(leaf: Leaf, keys: list[int], rows: list[bytes]) -> Leaf:
    return Leaf(leaf.table, leaf.columns, 0, keys, rows)


def _fill(leaf: Leaf, page_size: int) -> list[Leaf]:
    """Fill leaves with rows in order; a row that does not fit gets a leaf of its own."""
    capacity = page_size - leaf_head(leaf.table, leaf.columns)
    pieces, left = [_part(leaf, [], [])], capacity
    for key, row in zip(leaf.keys, leaf.rows, strict=True):
        size = entry_size(key, row)
        if size > left and pieces[-1].keys:
            pieces.append(_part(leaf, [], []))
            left = capacity
        pieces[-1].keys.append(key)
        pieces[-1].rows.append(row)
        left -= size
    return pieces
