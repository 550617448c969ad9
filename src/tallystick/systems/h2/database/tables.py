"""The tables of a page store in the catalogue of an H2 database: names, numbers and trees.

In: the space of one file. Out: a tree per table; the records that a change is to the engine. Tables
of another shape than ours, or with a secondary index, are ignored and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from tallystick.errors import CorruptLogError, LogWriteError
from tallystick.roles import CATALOGUE, Changes, Defect
from tallystick.systems.h2.database import schema
from tallystick.systems.h2.database.check import check_pages
from tallystick.systems.h2.database.nodes import Leaf
from tallystick.systems.h2.database.schema import IndexRow
from tallystick.systems.h2.database.space import Space
from tallystick.systems.h2.database.tree import DataTree
from tallystick.systems.h2.database.undo_guard import UndoGuard
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import META_COLUMNS, TABLE_CATALOG, TABLE_META
from tallystick.systems.h2.format.numbers import decode_var_int, encode_var_int, encode_var_long
from tallystick.systems.h2.format.values import types as values
from tallystick.systems.h2.format.values.encode import SHORT_MAX, encode_value

_FIRST_KEY = -(1 << 63)
_BATCH_ROWS = 1000
_BATCH_BYTES = 1 << 20


class Replacing(bytes):
    """A row for the log that replaces another: the engine logs that as two changes."""


class KeyedTree:
    """The rows of bytes in a table of ours."""

    def __init__(self, tree: DataTree) -> None:
        self.tree = tree

    def get(self, key: int) -> bytes | None:
        """Return the row of ``key``, None if there is none."""
        row = self.tree.get(key)
        return None if row is None else unpack(row)

    def batch(
        self, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """Return rows from ``start`` on, as `DataTree.batch` does."""
        rows, following = self.tree.batch(start, count, size)
        return [(key, unpack(row)) for key, row in rows], following


class H2Tables:
    """Tables by name and number. Called under the store's latch, except `to_log`."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.guard = UndoGuard(space)
        self.index: dict[int, IndexRow] = {}
        self.trees: dict[int, DataTree] = {}
        self._keyed: dict[int, KeyedTree] = {}
        self._names: dict[str, int] = {}
        self._taken: set[str] = {""}
        self._making: dict[int, int] = {}
        self._last_object = 0
        self._store_id = 0
        self.trees[TABLE_META] = DataTree(space, TABLE_META, META_COLUMNS, layout.META_ROOT)
        for _, row in self.rows(TABLE_META):
            self.add_index(schema.decode_index_row(row))

    # -- the engine's tables ------------------------------------------------------------------

    def rows(self, table: int) -> Iterator[tuple[int, bytes]]:
        """Yield all rows of a table of the engine, as they are in pages."""
        following: int | None = _FIRST_KEY
        while following is not None:
            some, following = self.tree_of(table).batch(following, _BATCH_ROWS, _BATCH_BYTES)
            self.space.cache.trim()
            yield from some

    def tree_of(self, table: int) -> DataTree:
        """Return the tree of any table of the engine. Raises `CorruptLogError`."""
        try:
            return self.trees[table]
        except KeyError:
            raise CorruptLogError(f"there is no table {table}") from None

    def indexed(self, table: int) -> bool:
        """Return True if the table has a secondary index with pages."""
        return any(
            one.parent == table and one.root for one in self.index.values() if not one.is_table
        )

    def add_index(self, row: IndexRow) -> None:
        """Add the table or index of a row of the page index."""
        self.index[row.number] = row
        if row.is_table:
            self.trees[row.number] = DataTree(self.space, row.number, row.columns, row.root)

    def remove_index(self, number: int) -> None:
        """Remove a table or index."""
        self.index.pop(number, None)
        self.trees.pop(number, None)

    def read_catalogue(self) -> None:
        """Read the names of tables; called when redo is complete."""
        for number, row in self.rows(TABLE_CATALOG):
            *_, sql = schema.decode_values(row, schema.CATALOG_COLUMNS)
            self._last_object = max(self._last_object, number)
            self._store_id = schema.store_id(sql) or self._store_id
            if (taken := schema.taken_name(sql)) is not None:
                self._taken.add(taken)
            name = schema.table_name(sql)
            if name is not None and self._is_ours(number):
                self._register(number, name)
        self._last_object = max([self._last_object, *self.index])

    def _is_ours(self, number: int) -> bool:
        keys = [one for one in self.index.values() if one.parent == number and not one.is_table]
        return number in self.trees and [one.delegates and not one.root for one in keys] == [True]

    def _register(self, number: int, name: str) -> None:
        self._names[name] = number
        self._keyed[number] = KeyedTree(self.trees[number])

    # -- the store's tables -------------------------------------------------------------------

    @property
    def store_id(self) -> int:
        """A random number made with the store; 0 in a database that the engine made."""
        return self._store_id

    def names(self) -> list[str]:
        """Return the names of all tables of ours, sorted."""
        return sorted(self._names)

    def id_of(self, name: str) -> int:
        """Return the number of a table. Raises `KeyError`."""
        return self._names[name]

    def free_id(self) -> int:
        """Return a number that a new table can have."""
        return self._last_object + 1

    def tree(self, table: int) -> KeyedTree:
        """Return the rows of a table of ours. Raises `CorruptLogError` if there is none."""
        try:
            return self._keyed[table]
        except KeyError:
            raise CorruptLogError(f"there is no table {table}") from None

    def to_log(self, changes: Changes, latch: AbstractContextManager[object], /) -> Changes:
        """Return the rows in the engine's form, `Replacing` where a row exists already.

        The engine does not recover a log that adds a row twice.
        """
        logged: dict[tuple[int, int], bytes | None] = {}
        for (table, key), row in changes.items():
            with latch:
                if table == CATALOGUE:
                    logged |= self._new_table(key, row or b"")
                    continue
                tree = self.tree(table).tree
                exists = tree.has(key)
                self.guard.row(tree, key)
                self.space.cache.trim()
            if row is not None:
                made = encode_var_int(schema.TABLE_COLUMNS) + pack(key, row)
                logged[table, key] = Replacing(made) if exists else made
            elif exists:
                logged[table, key] = None
        return logged

    def apply(self, table: int, key: int, row: bytes | None) -> None:
        """Change a row, or remove it with None; a row of the catalogue creates a table."""
        if table == CATALOGUE:
            self._create(key, (row or b"").decode())
        elif row is None:
            self.tree(table).tree.delete(key)
        else:
            self.tree(table).tree.set(key, pack(key, row))

    def check(self) -> list[Defect]:
        """Return every defect; see `check_pages` for what can be found."""
        return list(check_pages(self.space, self.trees, self.index))

    def _new_table(self, number: int, name: bytes) -> dict[tuple[int, int], bytes | None]:
        if name.decode() in self._taken:
            raise LogWriteError(
                f"a table cannot be named {name.decode()!r}",
                expected="a name that nothing in the database has",
                found="an empty name" if not name else "a table or view of another shape",
            )
        if number not in self._making:
            leaf = Leaf(number, schema.TABLE_COLUMNS)
            self._making[number] = self.space.allocate_root(leaf)
        made: dict[tuple[int, int], bytes | None] = {}
        for table, key, row in schema.table_rows(number, name.decode(), self._making[number]):
            self.guard.row(self.trees[table], key)
            made[table, key] = encode_var_int(self.trees[table].columns) + row
        return made

    def _create(self, number: int, name: str) -> None:
        for table, key, row in schema.table_rows(number, name, self._making.pop(number)):
            self.trees[table].set(key, row)
            if table == TABLE_META:
                self.add_index(schema.decode_index_row(row))
        self._last_object = max(self._last_object, number + schema.OBJECTS_PER_TABLE - 1)
        self._register(number, name)


def pack(key: int, row: bytes) -> bytes:
    """Encode key and row as the values of a table of ours."""
    return _bigint(key) + encode_value(row)


def _bigint(number: int) -> bytes:
    if 0 <= number < values.DECIMAL_0 - values.LONG_0_7:
        return bytes((values.LONG_0_7 + number,))
    code = values.LONG_NEGATIVE if number < 0 else values.LONG
    return bytes((code,)) + encode_var_long(abs(number))


def unpack(row: bytes) -> bytes:
    """Return the row that `pack` encoded. Raises `CorruptLogError`."""
    try:
        at = 1
        if row[0] in (values.LONG, values.LONG_NEGATIVE):
            while row[at] & 0x80:
                at += 1
            at += 1
        code = row[at]
        if values.BYTES_0_31 <= code <= values.BYTES_0_31 + SHORT_MAX:
            start, length = at + 1, code - values.BYTES_0_31
        elif code == values.BYTES:
            length, start = decode_var_int(row, at + 1)
        else:
            raise CorruptLogError(f"a row holds a value of type {code}")
        if start + length != len(row):
            raise CorruptLogError("a row is not as long as it says")
    except IndexError:
        raise CorruptLogError("a row ends too early") from None
    return row[start:]
