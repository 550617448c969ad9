"""The tables of a page store as the engine's catalogue has them: names, numbers and trees.

In: the space of one file. Out: a tree per table; for the log, what a change is to the engine.
Tables of another shape than ours, or with an index beside their key, are left as they are, and out.
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
from tallystick.systems.h2.database.undo_guard import Guard
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import TABLE_CATALOG, TABLE_META
from tallystick.systems.h2.format.numbers import decode_var_int, encode_var_int, encode_var_long
from tallystick.systems.h2.format.values import types as values
from tallystick.systems.h2.format.values.encode import SHORT_MAX, encode_value

_FIRST_KEY = -(1 << 63)
_ROWS_AT_ONCE = 1000
_BYTES_AT_ONCE = 1 << 20


class Replacing(bytes):
    """A row for the log that takes the place of another: the engine logs that as two changes."""


class KeyedTree:
    """Rows of bytes in a table of ours."""

    def __init__(self, tree: DataTree) -> None:
        self.tree = tree

    def get(self, key: int) -> bytes | None:
        """The row of ``key``, None if there is none."""
        row = self.tree.get(key)
        return None if row is None else unpack(row)

    def batch(
        self, start: int, count: int, size: int
    ) -> tuple[list[tuple[int, bytes]], int | None]:
        """See `DataTree.batch`."""
        rows, following = self.tree.batch(start, count, size)
        return [(key, unpack(row)) for key, row in rows], following


class H2Tables:
    """Called under the store's latch, except `to_log`."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.guard = Guard(space)
        self.index: dict[int, IndexRow] = {}
        self.trees: dict[int, DataTree] = {}
        self._keyed: dict[int, KeyedTree] = {}
        self._names: dict[str, int] = {}
        self._taken: set[str] = {""}
        self._making: dict[int, int] = {}
        self._last_object = 0
        self._store_id = 0
        self.trees[TABLE_META] = DataTree(space, TABLE_META, schema.META_COLUMNS, layout.META_ROOT)
        for _, row in self.rows(TABLE_META):
            self.know(schema.decode_index_row(row))

    # -- what is there ------------------------------------------------------------------------

    def rows(self, table: int) -> Iterator[tuple[int, bytes]]:
        """All rows of a table of the engine, as they stand in pages."""
        following: int | None = _FIRST_KEY
        while following is not None:
            some, following = self.tree_of(table).batch(following, _ROWS_AT_ONCE, _BYTES_AT_ONCE)
            self.space.cache.trim()
            yield from some

    def tree_of(self, table: int) -> DataTree:
        """The tree of any table of the engine. Raises `CorruptLogError`."""
        try:
            return self.trees[table]
        except KeyError:
            raise CorruptLogError(f"there is no table {table}") from None

    def indexed(self, table: int) -> bool:
        """True if rows of the table also stand in an index with pages."""
        return any(
            one.parent == table and one.root for one in self.index.values() if not one.is_table
        )

    def know(self, row: IndexRow) -> None:
        """A row of the page index."""
        self.index[row.number] = row
        if row.is_table:
            self.trees[row.number] = DataTree(self.space, row.number, row.columns, row.root)

    def forget(self, number: int) -> None:
        """A table or index that is gone."""
        self.index.pop(number, None)
        self.trees.pop(number, None)

    def read_catalogue(self) -> None:
        """Learn the names; to be called when everything that the log says is applied."""
        for number, row in self.rows(TABLE_CATALOG):
            *_, sql = schema.decode_values(row, schema.CATALOG_COLUMNS)
            self._last_object = max(self._last_object, number)
            self._store_id = schema.store_id(sql) or self._store_id
            if (taken := schema.taken_name(sql)) is not None:
                self._taken.add(taken)
            name = schema.table_name(sql)
            if name is not None and self._is_ours(number):
                self._learn(number, name)
        self._last_object = max([self._last_object, *self.index])

    def _is_ours(self, number: int) -> bool:
        keys = [one for one in self.index.values() if one.parent == number and not one.is_table]
        return number in self.trees and [one.delegates and not one.root for one in keys] == [True]

    def _learn(self, number: int, name: str) -> None:
        self._names[name] = number
        self._keyed[number] = KeyedTree(self.trees[number])

    # -- the service's view -------------------------------------------------------------------

    @property
    def store_id(self) -> int:
        """A random number made with the store; 0 in a database that the engine made."""
        return self._store_id

    def names(self) -> list[str]:
        """Names of all tables of ours, in order."""
        return sorted(self._names)

    def id_of(self, name: str) -> int:
        """The number of a table. Raises `KeyError`."""
        return self._names[name]

    def free_id(self) -> int:
        """A number that a new table can have."""
        return self._last_object + 1

    def tree(self, table: int) -> KeyedTree:
        """The rows of a table of ours. Raises `CorruptLogError` for a number that none has."""
        try:
            return self._keyed[table]
        except KeyError:
            raise CorruptLogError(f"there is no table {table}") from None

    def to_log(self, changes: Changes, latch: AbstractContextManager[object], /) -> Changes:
        """The rows as the engine has them, and which of them were there before: it does not
        recover a log that adds a row twice."""
        logged: dict[tuple[int, int], bytes | None] = {}
        for (table, key), row in changes.items():
            with latch:
                if table == CATALOGUE:
                    logged |= self._new_table(key, row or b"")
                    continue
                tree = self.tree(table).tree
                there = tree.has(key)
                self.guard.row(tree, key)
                self.space.cache.trim()
            if row is not None:
                made = encode_var_int(schema.TABLE_COLUMNS) + pack(key, row)
                logged[table, key] = Replacing(made) if there else made
            elif there:
                logged[table, key] = None
        return logged

    def apply(self, table: int, key: int, row: bytes | None) -> None:
        """Change a row, or remove it with None; a row of the catalogue makes a table."""
        if table == CATALOGUE:
            self._create(key, (row or b"").decode())
        elif row is None:
            self.tree(table).tree.delete(key)
        else:
            self.tree(table).tree.set(key, pack(key, row))

    def check(self) -> list[Defect]:
        """Everything that is wrong; empty is good. See `check_pages` for what can be found."""
        return list(check_pages(self.space, self.trees, self.index))

    def _new_table(self, number: int, name: bytes) -> dict[tuple[int, int], bytes | None]:
        if name.decode() in self._taken:
            raise LogWriteError(
                f"a table cannot be named {name.decode()!r}",
                expected="a name that nothing in the database has",
                found="none" if not name else "a table or view of another shape",
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
                self.know(schema.decode_index_row(row))
        self._last_object = max(self._last_object, number + schema.OBJECTS_PER_TABLE - 1)
        self._learn(number, name)


def pack(key: int, row: bytes) -> bytes:
    """Key and row as the values of a table of ours."""
    return _bigint(key) + encode_value(row)


def _bigint(number: int) -> bytes:
    if 0 <= number < values.DECIMAL_0 - values.LONG_0_7:
        return bytes((values.LONG_0_7 + number,))
    code = values.LONG_NEGATIVE if number < 0 else values.LONG
    return bytes((code,)) + encode_var_long(abs(number))


def unpack(row: bytes) -> bytes:
    """The row that `pack` took. Raises `CorruptLogError`."""
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
