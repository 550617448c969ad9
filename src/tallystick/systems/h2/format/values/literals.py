"""Values of H2 in statements of SQL, for all releases with a page store.

In: a column with its type as declared, and a value as a query shows it. Out: a literal.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.protocol import Column, Dialect

_TEXTS = frozenset(
    {
        "CHAR", "CHARACTER", "NCHAR", "VARCHAR", "VARCHAR2", "NVARCHAR", "NVARCHAR2",
        "VARCHAR_CASESENSITIVE", "VARCHAR_IGNORECASE", "LONGVARCHAR", "LONGNVARCHAR", "STRING",
        "CLOB", "NCLOB", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "NTEXT", "ENUM",
    }
)  # fmt: skip
_DECIMALS = frozenset({"DECIMAL", "NUMERIC", "DEC", "NUMBER"})
_PLAIN = _DECIMALS | {"INTERVAL"}
"""Types whose values are shown as their literals."""
_PLAIN_KINDS = frozenset({"tinyint", "smallint", "int", "bigint", "boolean"})
_OBJECTS = frozenset({"OTHER", "OBJECT", "JAVA_OBJECT"})
_CAST = {"float": "REAL", "double": "DOUBLE"}
_LEAST = str(-(2**63))
"""Its digits without the sign are no BIGINT."""
_BARE = "{1}"


def _literal(column: Column, value: Any) -> str:
    if value is None:
        return "NULL"
    text = str(value)
    if "\ufffd" in text:  # or it stands for what is no character
        raise UnsupportedFormatError("its text may hold what is no character")
    form = _form(column)
    if form == _BARE and text == _LEAST:
        form = "CAST({0} AS BIGINT)"
    return form.format("'" + text.replace("'", "''") + "'", text)


def _form(column: Column) -> str:
    """Return how a literal has the text in quotes, or without."""
    declared, kind, name = column.declared, column.kind, _name(column)
    if kind in _PLAIN_KINDS or name in _PLAIN:
        return _BARE
    if kind == "binary" or name in _OBJECTS:
        return "X{0}"
    if name in _TEXTS:
        return "{0}"
    if kind in _CAST or declared.endswith("WITH TIME ZONE") or name in ("UUID", "GEOMETRY"):
        return f"CAST({{0}} AS {_CAST.get(kind, declared)})"
    if kind in ("date", "timestamp_ntz") or name in ("TIME", "JSON"):
        return f"{'TIMESTAMP' if kind == 'timestamp_ntz' else name} {{0}}"
    raise UnsupportedFormatError(f"a value of type {declared or '(unknown)'} has no literal")


def _name(column: Column) -> str:
    return column.declared.partition("(")[0].partition(" ")[0]


def _compares(column: Column) -> bool:
    return _name(column) not in _OBJECTS | {"ARRAY", "ROW", "JSON", "GEOMETRY"}


def _folded(column: Column, value: Any) -> Any:
    """Return a value without what its type does not tell apart: case, zeros at the end, zone.

    A time that is no `datetime` of Python stays as it is.
    """
    if not isinstance(value, str):
        return value
    if column.declared.startswith("VARCHAR_IGNORECASE"):
        return value.upper().lower()
    if _name(column) in _DECIMALS:
        return Decimal(value).as_integer_ratio()
    if column.declared.endswith("WITH TIME ZONE"):
        day = "2000-01-01 " if _name(column) == "TIME" else ""
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(day + value).astimezone(UTC)
    return value


def _declared(column: Column, longest: int) -> str:
    """Return the type for a column of another system.

    No CHAR, of which some releases cut spaces at the end. Since 2.0, a type without a length takes
    so many characters or bytes, and a TIMESTAMP without one six digits of a second.
    """
    kind, is_long = column.kind, longest > _WITHOUT_LENGTH_MAX
    if kind == "binary":
        return "BLOB" if is_long else "VARBINARY"
    if kind.startswith("decimal"):
        return kind.upper()
    as_it_is = column.declared == "TIME" or _VARCHAR.fullmatch(column.declared)
    return _MADE.get(kind) or (column.declared if as_it_is else _TEXT[is_long])


_MADE = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT",
    "boolean": "BOOLEAN", "float": "REAL", "double": "DOUBLE", "date": "DATE",
    "timestamp_ntz": "TIMESTAMP(9)",
}  # fmt: skip
_TEXT, _VARCHAR = ("VARCHAR", "CLOB"), re.compile(r"VARCHAR\(\d{1,5}\)")
_WITHOUT_LENGTH_MAX = 1 << 20

DIALECT = Dialect(
    _literal, _compares, _folded, _declared, one=" LIMIT 1", zoned=True, rewrites=True
)
