"""Statements of SQL that bring a row from one state to another.

In: a table by its catalogue, the dialect of its system, and the row before and after. Out: one
statement, for the row with that primary key, or with all of these values. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.protocol import LOST, Collection, Column, Dialect

Values = Mapping[str, Any]


class CannotTellError(UnsupportedFormatError):
    """No statement can be given for a row; the message says why."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table in statements.

    Attributes:
        collection: as the catalogue has it.
        dialect: how its system writes values.
        twins: by what can be compared of the values, the rows that have that, of a table without
            key: their keys, and their values as `image_of` has them.
    """

    collection: Collection
    dialect: Dialect
    twins: Mapping[tuple[str, ...], set[tuple[str, str]]]

    def statement(self, key: str, old: Values | None, new: Values | None) -> str:
        """Return what makes ``new`` of the row ``old``; None is no row. Empty if they are equal.

        Raises:
            CannotTellError: no statement can be given.
        """
        name, limit = self.collection.quoted, "" if self.collection.key else self.dialect.one
        if old is None:
            return "" if new is None else self._insert(name, new)
        if new is None:
            return f"DELETE FROM {name} WHERE {self._where(key, old)}{limit}"
        computed = {one.name for one in self.collection.columns if one.computed}
        columns = [one for one in old if one not in new or old[one] != new[one]]
        changed = [
            f"{quoted(one)} = {self._literal(one, new)}" for one in columns if one not in computed
        ]
        if not changed:
            return ""
        return f"UPDATE {name} SET {', '.join(changed)} WHERE {self._where(key, old)}{limit}"

    def _insert(self, name: str, new: Values) -> str:
        if sorted(one.name for one in self.collection.columns) != sorted(new):
            raise CannotTellError("the columns of its table have changed since")
        columns = [one.name for one in self.collection.columns if not one.computed]
        literals = (self._literal(one, new) for one in columns)
        names = ", ".join(map(quoted, columns))
        return f"INSERT INTO {name} ({names}) VALUES ({', '.join(literals)})"

    def _where(self, key: str, old: Values) -> str:
        """Return the condition that is true of the row ``old`` only."""
        if not self.collection.key:
            self._require_lone(key, old)
        columns = self.collection.key or [one.name for one in self._compared]
        literals = [(quoted(one), self._literal(one, old)) for one in columns]
        return " AND ".join(
            f"{name} IS NULL" if text == "NULL" else f"{name} = {text}" for name, text in literals
        )

    def _require_lone(self, key: str, old: Values) -> None:
        compared = self._compared
        if not compared:
            raise CannotTellError("its table has no primary key, and no column that compares")
        alike = self.twins.get(comparable(compared, self.dialect, old), set())
        others = {image for other, image in alike if other != key}
        # Of rows that are the same it may be any; of what is only equal to the database it may not.
        whole = self.dialect.one and len(compared) == len(self.collection.columns)
        if others and not (whole and others == {image_of(compared, old)}):
            raise CannotTellError("its table has no primary key, and another row is equal to it")

    @property
    def _compared(self) -> list[Column]:
        return compared_columns(self.collection, self.dialect)

    def _literal(self, name: str, values: Values) -> str:
        column = next((one for one in self.collection.columns if one.name == name), None)
        if column is None or name not in values:
            raise CannotTellError(f"the column {name} is not there any more, or is not known")
        value = values[name]
        if isinstance(value, Mapping):
            raise CannotTellError(f"{name} cannot be had: {value.get(LOST, value)}")
        try:
            return self.dialect.literal(column, value)
        except UnsupportedFormatError as error:
            raise CannotTellError(f"{name}: {error.message}") from error


def identity(table: Collection, column: Column, way: str) -> str:
    """Return what has an identity generated ``ALWAYS``, or ``BY DEFAULT``."""
    return f"ALTER TABLE {table.quoted} ALTER COLUMN {quoted(column.name)} SET GENERATED {way}"


def compared_columns(collection: Collection, dialect: Dialect) -> list[Column]:
    """Return the columns of a table that a statement can compare."""
    return [one for one in collection.columns if dialect.compares(one)]


def comparable(columns: Iterable[Column], dialect: Dialect, values: Values) -> tuple[str, ...]:
    """Return what a statement compares of some columns of a row."""
    return tuple(repr(dialect.folded(one, values.get(one.name))) for one in columns)


def image_of(columns: Iterable[Column], values: Values) -> str:
    """Return the values of a row: rows that have the same cannot be told apart."""
    return repr([values.get(one.name) for one in columns])


def quoted(name: str) -> str:
    """Return a name as SQL has it whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
