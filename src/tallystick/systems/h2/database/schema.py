"""The catalogue of an H2 database that holds the tables of a page store.

In: a table's name and number, or rows of the catalogue. Out: the rows that create the table, or
what a row means. Two tables are the catalogue:

    page index  table -1, root page 4: id, type (0 table, 1 index), parent, root page, options,
                columns; its row key is the id plus 1
    SYS         table 0: id, 0, type of object, SQL; its row key is the id

A table of ours has two columns, K BIGINT, which is the row key, and V VARBINARY. It is three
objects: the table, its primary key, which has no pages as K is the row key (option ``d``), and the
constraint. Source: files that 1.4.200 wrote.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tallystick.errors import CorruptLogError
from tallystick.systems.h2.format.entries import META_COLUMNS, TABLE_CATALOG, TABLE_META
from tallystick.systems.h2.format.numbers import decode_var_int
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.encode import Plain, encode_value
from tallystick.systems.h2.format.values.types import (
    EngineFailureError,
    FileCorruptedError,
    decode_value,
)

CATALOG_COLUMNS = 4
TABLE_COLUMNS = 2
OBJECTS_PER_TABLE = 3
DATA, BTREE = 0, 1
TABLE, INDEX, USER, CONSTRAINT, SETTING, CONSTANT = 0, 1, 2, 5, 6, 11
_OPTIONS = "OFF,0,,{},true,false"
"""Collation and its strength, "temp", "d", binary and UUID compared unsigned."""
_DELEGATES = 3
_COLUMNS = '\n    "K" BIGINT NOT NULL,\n    "V" VARBINARY NOT NULL\n'
_NAME = r'"((?:[^"]|"")*)"'
_TABLE_SQL = re.compile(
    rf'CREATE CACHED TABLE "PUBLIC"\.{_NAME}\(\n'
    r'    "K" BIGINT NOT NULL(?: SELECTIVITY \d+)?,\n'
    r'    "V" VARBINARY NOT NULL(?: SELECTIVITY \d+)?\n\)'
)
_OTHER_SQL = re.compile(rf'CREATE [\w ]*(?:TABLE|VIEW)(?: IF NOT EXISTS)? "PUBLIC"\.{_NAME}')
_STORE_ID_SQL = re.compile(r'CREATE CONSTANT "PUBLIC"\."STORE_ID" VALUE (\d+)')

Row = tuple[int, int, bytes]
"""Table, row key, values."""


class IndexRow(NamedTuple):
    """One row of the page index. ``root`` is 0 for an index without pages."""

    number: int
    is_table: bool
    parent: int
    root: int
    delegates: bool
    columns: int


# -- rows -------------------------------------------------------------------------------------


def encode_values(items: tuple[Plain, ...]) -> bytes:
    """Return values as they are in a page, without their count."""
    return b"".join(map(encode_value, items))


def decode_values(row: bytes, columns: int) -> list[str]:
    """Return the values of a catalogue row as text, "" for NULL. Raises `CorruptLogError`."""
    texts, at = [], 0
    try:
        for _ in range(columns):
            value, at = decode_value(row, at, Zone())
            texts.append(value.text if value is not None and isinstance(value.text, str) else "")
    except (IndexError, FileCorruptedError, EngineFailureError) as error:
        raise CorruptLogError(f"a row of the catalogue is none: {error}") from error
    return texts


def split_row(row: bytes) -> tuple[int, bytes]:
    """Return column count and values of a row of the log."""
    columns, at = decode_var_int(row, 0)
    return columns, row[at:]


def decode_index_row(row: bytes) -> IndexRow:
    """Decode a row of the page index. Raises `CorruptLogError`."""
    number, kind, parent, root, options, columns = decode_values(row, META_COLUMNS)
    parts = options.split(",")
    try:
        return IndexRow(
            number=int(number),
            is_table=int(kind) == DATA,
            parent=int(parent),
            root=int(root),
            delegates=len(parts) > _DELEGATES and parts[_DELEGATES] == "d",
            columns=len(columns.split(",")),
        )
    except ValueError as error:
        raise CorruptLogError("a row of the page index has no numbers") from error


def index_row(number: int, kind: int, parent: int, root: int, columns: str) -> Row:
    """Make a row of the page index; an index without a root is its table's key."""
    options = _OPTIONS.format("d" if kind == BTREE and not root else "")
    values = encode_values((number, kind, parent, root, options, columns))
    return TABLE_META, number + 1, values


def object_row(number: int, kind: int, sql: str) -> Row:
    """Make a row of SYS."""
    return TABLE_CATALOG, number, encode_values((number, 0, kind, sql))


def table_rows(number: int, name: str, root: int) -> list[Row]:
    """Return the rows that create a table with this root page, in the order of the engine.

    They use `OBJECTS_PER_TABLE` numbers from ``number`` on.
    """
    table = f'"PUBLIC"."{name.replace(chr(34), 2 * chr(34))}"'
    # Names that the engine generates end in hexadecimal digits, so these never collide.
    key, constraint = (f'"PUBLIC"."{kind}_T{number}"' for kind in ("PRIMARY_KEY", "CONSTRAINT"))
    create = f"CREATE CACHED TABLE {table}({_COLUMNS})"
    index = f'CREATE PRIMARY KEY {key} ON {table}("K")'
    add = f'ALTER TABLE {table} ADD CONSTRAINT {constraint} PRIMARY KEY("K") INDEX {key}'
    return [
        index_row(number, DATA, number, root, "0,1"),
        object_row(number, TABLE, create),
        index_row(number + 1, BTREE, number, 0, "0"),
        object_row(number + 1, INDEX, index),
        object_row(number + 2, CONSTRAINT, add),
    ]


def table_name(sql: str) -> str | None:
    """Return the name of a table of ours, None if ``sql`` creates something else."""
    match = _TABLE_SQL.fullmatch(sql)
    return match[1].replace('""', '"') if match else None


def taken_name(sql: str) -> str | None:
    """Return the name that the table or view of ``sql`` occupies, if any."""
    match = _OTHER_SQL.match(sql)
    return match[1].replace('""', '"') if match else None


def store_id(sql: str) -> int | None:
    """Return the store's number, None if ``sql`` creates something else."""
    match = _STORE_ID_SQL.fullmatch(sql)
    return int(match[1]) if match else None
