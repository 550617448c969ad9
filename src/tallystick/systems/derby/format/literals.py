"""Values of Derby in statements of SQL.

In: a column with its type as declared, and a plain value (`format.sql_values`). Out: a literal, or
an expression of literals where a value is longer than one may be.
"""

from __future__ import annotations

import math
import re
from typing import Any

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.protocol import Column, Dialect

_TEXT_MAX = 10_000
"""Characters of a literal: Derby takes 65,535 bytes of its own UTF-8."""
_HEX_MAX = 16_000
"""Hexadecimal digits of a literal, of which Derby takes 32,672."""
_PARTED = frozenset({"CLOB", "BLOB", "LONG VARCHAR", "LONG VARCHAR FOR BIT DATA"})
"""Types that compare with nothing, and that no literal has: it is cast."""


def _literal(column: Column, value: Any) -> str:
    if value is None:
        return "NULL"
    text, declared, kind = str(value), column.declared, column.kind
    if "\ufffd" in text:  # or it stands for what is no character
        raise UnsupportedFormatError("its text may hold what is no character")
    name = declared.partition("(")[0]
    if kind in ("smallint", "int", "bigint", "boolean"):
        return text.upper()
    if kind.startswith("decimal"):
        return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text
    if kind in ("float", "double"):
        digits, _, exponent = repr(float(value)).partition("e")
        number = f"{digits}E{exponent or 0}"
        return f"CAST({number} AS REAL)" if kind == "float" else number
    if kind in ("date", "timestamp_ntz") or name == "TIME":
        return f"{name}('{text}')"
    if name == "XML":
        return f"XMLPARSE(DOCUMENT {_joined(text, 'CLOB')} PRESERVE WHITESPACE)"
    if kind != "binary" and name not in ("CHAR", "VARCHAR", *_PARTED):
        raise UnsupportedFormatError(f"a value of type {declared or '(unknown)'} has no literal")
    cast = name if name in _PARTED else ""
    if kind == "binary":
        return _joined(text, cast, "X", _HEX_MAX, declared)
    return _joined(text, cast, declared=declared)


def _joined(text: str, cast: str, mark: str = "", size: int = _TEXT_MAX, declared: str = "") -> str:
    """Return a text or hexadecimal digits in quotes, in several pieces where they are many."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)] or [""]
    quoted = [f"{mark}'" + one.replace("'", "''") + "'" for one in pieces]
    if cast:
        quoted = [f"CAST({one} AS {cast})" for one in quoted]
    elif len(quoted) > 1:
        return f"CAST({' || '.join(quoted)} AS {declared})"
    return " || ".join(quoted)


def _compares(column: Column) -> bool:
    name = column.declared.partition("(")[0]
    return name not in _PARTED | {"XML"} and (column.kind != "string" or name in _COMPARED)


_COMPARED = frozenset({"CHAR", "VARCHAR", "TIME"})


def _folded(column: Column, value: Any) -> Any:
    """Return a value without the spaces at its end: the shorter one is filled up with them."""
    if not isinstance(value, str):
        return value
    return _SPACES.sub("", value) if column.kind == "binary" else value.rstrip(" ")


_SPACES = re.compile("(?:20)+$")
"""Spaces in bytes, as hexadecimal digits."""


def _declared(column: Column, longest: int) -> str:
    """Return the type for a column of another system; no CHAR, which fills up with spaces."""
    kind, is_long = column.kind, longest > _VARYING_MAX
    if found := _DECIMAL.fullmatch(kind):
        return kind.upper() if int(found[1]) <= _DIGITS_MAX else _VARCHAR
    if kind == "binary":
        return "BLOB" if is_long else f"{_VARCHAR} FOR BIT DATA"
    if column.declared.partition("(")[0] == "TIME" and longest <= len("hh:mm:ss"):
        return "TIME"
    if (found := _WIDTH.fullmatch(column.declared)) and int(found[1]) <= _VARYING_MAX:
        return column.declared
    return _MADE.get(kind) or ("CLOB" if is_long else _VARCHAR)


def _holds(column: Column, value: Any) -> bool:
    """Return whether a value of another system stands in a column of such a type."""
    if column.kind in ("float", "double"):
        return math.isfinite(float(value))
    if column.kind in ("date", "timestamp_ntz"):
        return str(value) >= _FIRST_DAY and _YEAR.match(str(value)) is not None
    return True


_MADE = {
    "tinyint": "SMALLINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT",
    "boolean": "BOOLEAN", "float": "REAL", "double": "DOUBLE", "date": "DATE",
    "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
_VARYING_MAX, _DIGITS_MAX = 32_672, 31
_VARCHAR = f"VARCHAR({_VARYING_MAX})"
_DECIMAL, _WIDTH = re.compile(r"decimal\((\d+),\d+\)"), re.compile(r"VARCHAR\((\d+)\)")
_FIRST_DAY, _YEAR = "0001-01-01", re.compile(r"\d{4}-")

DIALECT = Dialect(_literal, _compares, _folded, _declared, _holds)
