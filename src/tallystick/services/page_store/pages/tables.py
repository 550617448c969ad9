"""The tables of a page store: names, numbers and trees.

In: the page cache. Out: a tree per table. The catalogue is itself a tree, table 0 in the log: its
keys are table numbers, its rows the root's page number (8 bytes, little-endian) and the name in
UTF-8. The log holds only the name; the root's page is allocated when the row is applied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager

from tallystick.errors import CorruptLogError
from tallystick.roles import CATALOGUE, Changes, Defect
from tallystick.services.page_store.pages.check import check_trees
from tallystick.services.page_store.pages.layout import KEY_MIN, Leaf
from tallystick.services.page_store.pages.space import OwnPages
from tallystick.services.page_store.pages.tree import Tree

_ROOT = struct.Struct("<Q")
_BATCH_ROWS = 1000
_BATCH_BYTES = 1 << 20


class Tables:
    """Tables by name and number. Called under the store's latch."""

    def __init__(self, cache: OwnPages) -> None:
        self._cache = cache
        self._catalogue = Tree(cache, cache.meta.catalogue)
        self._trees = {CATALOGUE: self._catalogue}
        self._names: dict[str, int] = {}
        following: int | None = KEY_MIN
        while following is not None:
            rows, following = self._catalogue.batch(following, _BATCH_ROWS, _BATCH_BYTES)
            for number, row in rows:
                self._register(number, row)
            cache.trim()

    @property
    def store_id(self) -> int:
        """A random number made with the store."""
        return self._cache.meta.store_id

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return sorted(self._names)

    def id_of(self, name: str) -> int:
        """Return the number of a table. Raises `KeyError`."""
        return self._names[name]

    def free_id(self) -> int:
        """Return a number that no table has."""
        return max(self._names.values(), default=CATALOGUE) + 1

    def tree(self, table: int) -> Tree:
        """Return the rows of a table. Raises `CorruptLogError` if there is no such table."""
        try:
            return self._trees[table]
        except KeyError:
            raise CorruptLogError(f"there is no table {table}") from None

    def trees(self) -> Iterator[tuple[str, Tree]]:
        """Yield the catalogue and every table."""
        yield "(catalogue)", self._catalogue
        for name, number in sorted(self._names.items()):
            yield name, self._trees[number]

    def to_log(self, changes: Changes, _latch: AbstractContextManager[object], /) -> Changes:
        """Return the changes: the log needs no other form."""
        return changes

    def check(self) -> list[Defect]:
        """Return every defect of pages and trees; empty if there is none."""
        return check_trees(self._cache, self.trees())

    def apply(self, table: int, key: int, row: bytes | None) -> None:
        """Change a row, or remove it with None; a row of the catalogue creates a table."""
        if table == CATALOGUE:
            self._create(key, row or b"")
            return
        tree = self._trees.get(table) or self.tree(table)
        if row is None:
            tree.delete(key)
        else:
            tree.set(key, row)

    def _create(self, number: int, name: bytes) -> None:
        if number not in self._trees:
            row = _ROOT.pack(self._cache.allocate(Leaf())) + name
            self._catalogue.set(number, row)
            self._register(number, row)

    def _register(self, number: int, row: bytes) -> None:
        try:
            (root,) = _ROOT.unpack_from(row)
            name = row[_ROOT.size :].decode()
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptLogError(f"the catalogue's row of table {number} is none") from error
        self._trees[number] = Tree(self._cache, root)
        self._names[name] = number
