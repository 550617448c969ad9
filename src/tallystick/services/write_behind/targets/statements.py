"""SQL for operations on rows: inserts and updates are upserts, deletes are deletes.

In: operations in order, and the name of a dialect. Out: statements with their parameters. Adjacent
operations of one shape (table, columns of key and value) share a statement. PostgreSQL gets their
rows as one JSON document, which is one statement and one parameter for any number of rows; other
databases get them as the driver's *executemany*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from tallystick.roles import Operation, OperationCode
from tallystick.services.write_behind.targets.rows import row_and_text

Parameters = dict[str, Any] | list[dict[str, Any]]
Statement = tuple[sa.sql.expression.Executable, Parameters]
_BY_ALL = (str, int, float, bytes, type(None))
_ROWS = sa.bindparam("rows", type_=sa.Text)


class Shape(NamedTuple):
    """The properties that the rows of one statement have in common."""

    deletes: bool
    table: str
    key: tuple[str, ...]
    value: tuple[str, ...]


def statements(
    dialect: str,
    operations: Iterable[Operation],
    at_once: Callable[[str], bool] = lambda _: False,
) -> Iterator[Statement]:
    """Yield statements for operations in their order.

    Inserts and updates write the row whether or not it exists. ``at_once(table)`` is true for the
    tables of PostgreSQL that take rows as a document: see `TAKES_DOCUMENTS`. Raises `ValueError`
    for an operation that is not a row, or would change a key.
    """
    for parts, group in groupby(map(_parsed, operations), key=itemgetter(0)):
        shape = Shape(*parts)
        if at_once(shape.table) and not set(shape.key) & set(shape.value):
            for documents in _without_repeats(shape, group):
                yield _at_once(shape), {"rows": f"[{','.join(documents)}]"}
        else:
            rows = [key | value for _, _, (key, value), _ in group]
            yield _one_by_one(dialect, shape), [_for_driver(dialect, row) for row in rows]


def _for_driver(dialect: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with values that the driver of a database takes."""
    if dialect == "postgresql" or all(isinstance(one, _BY_ALL) for one in row.values()):
        return row
    return {name: _driver_value(dialect, value) for name, value in row.items()}


def _driver_value(dialect: str, value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if dialect != "sqlite" or isinstance(value, bytes):
        return value
    if isinstance(value, datetime):
        return value.isoformat(" ")  # as SQLite's own functions have it
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, date | time | Decimal) else value


_Parts = tuple[bool, str, tuple[str, ...], tuple[str, ...]]
_Rows = tuple[dict[str, Any], dict[str, Any]]
_Parsed = tuple[_Parts, bytes, _Rows, str]
"""The parts of a shape; the key's bytes; the rows of key and value; both as one JSON object, valid
if no column is in both."""


def _parsed(one: Operation) -> _Parsed:
    code, table, data, value_data, _ = one
    if code is OperationCode.OPAQUE:
        raise ValueError("an opaque operation needs a target with an apply function of its own")
    key, text = row_and_text(data)
    if code is OperationCode.DELETE or value_data is None:
        return (code is OperationCode.DELETE, table, tuple(key), ()), data, (key, {}), text
    value, value_text = row_and_text(value_data)
    _require_one_key(key, value)
    if not key:
        text = value_text
    elif value:
        text = f"{text[:-1]},{value_text[1:]}"
    return (False, table, tuple(key), tuple(value)), data, (key, value), text


def _require_one_key(key: dict[str, Any], value: dict[str, Any]) -> None:
    """Raise `ValueError` for a row that has another key than its operation.

    It would be another row, later changes of which are in no order with this one. A number may be
    given as a text.
    """
    for name in key.keys() & value.keys():
        if key[name] != value[name] and str(key[name]) != str(value[name]):
            raise ValueError(
                f"the row has {value[name]!r} in column {name!r}, and its key {key[name]!r}; a key "
                "cannot change. Delete the row and insert another one in the same transaction"
            )


def _without_repeats(shape: Shape, group: Iterable[_Parsed]) -> Iterator[list[str]]:
    """Yield runs of documents without a repeated key: a statement can write a row only once."""
    keys: set[bytes] = set()
    documents: list[str] = []
    for _, key, _, document in group:
        if key in keys and not shape.deletes:
            yield documents
            keys, documents = set(), []
        keys.add(key)
        documents.append(document)
    yield documents


# -- one statement for one row -----------------------------------------------------------


def _table(shape: Shape) -> Any:
    schema, _, plain = shape.table.rpartition(".")
    columns: list[sa.ColumnClause[Any]] = [sa.column(one) for one in (*shape.key, *shape.value)]
    return sa.table(plain, *columns, schema=schema or None)


@lru_cache(maxsize=256)
def _one_by_one(dialect: str, shape: Shape) -> sa.sql.expression.Executable:
    table = _table(shape)
    if shape.deletes:
        return sa.delete(table).where(*(table.c[one] == sa.bindparam(one) for one in shape.key))
    upsert: sa.sql.expression.Executable = _UPSERTS.get(dialect, _upsert_mysql)(table, shape)
    return upsert


def _upsert_sqlite(table: Any, shape: Shape) -> Any:
    return _on_conflict(sqlite.insert(table), shape)


def _upsert_postgresql(table: Any, shape: Shape) -> Any:
    return _on_conflict(postgresql.insert(table), shape)


def _on_conflict(insert: Any, shape: Shape) -> Any:
    if not shape.value:
        return insert.on_conflict_do_nothing(index_elements=list(shape.key))
    new = {one: insert.excluded[one] for one in shape.value}
    return insert.on_conflict_do_update(index_elements=list(shape.key), set_=new)


def _upsert_mysql(table: Any, shape: Shape) -> Any:
    insert = mysql.insert(table)
    new = {one: insert.inserted[one] for one in shape.value or shape.key}
    return insert.on_duplicate_key_update(new)


_UPSERTS: dict[str, Callable[[Any, Shape], Any]] = {
    "sqlite": _upsert_sqlite,
    "postgresql": _upsert_postgresql,
}


# -- one statement for many rows: PostgreSQL ---------------------------------------------

TAKES_DOCUMENTS = sa.text(
    "SELECT bool_and(t.typcategory IN ('B', 'D', 'E', 'G', 'I', 'N', 'S', 'T', 'V')"
    " OR t.typname IN ('bytea', 'uuid'))"
    " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
    " WHERE a.attrelid = to_regclass(:name) AND a.attnum > 0 AND NOT a.attisdropped"
)
"""True for a table, by its ``name``, whose columns all read a JSON value as they read its text.
Arrays, composite types and JSON do not."""


def quoted(table: str) -> str:
    """Return a table's name, quoted for PostgreSQL."""
    dialect: Any = postgresql.dialect
    return str(dialect().identifier_preparer.format_table(_table(Shape(False, table, (), ()))))


@lru_cache(maxsize=256)
def _at_once(shape: Shape) -> sa.sql.expression.Executable:
    """Return the statement whose parameter ``rows`` is a JSON list of rows.

    The table's row type gives the types of the columns.
    """
    table = _table(shape)
    names = (*shape.key, *shape.value)
    source = sa.func.json_populate_recordset(
        sa.literal_column(f"NULL::{quoted(shape.table)}"), sa.cast(_ROWS, sa.JSON)
    ).table_valued(*names)
    if shape.deletes:
        return sa.delete(table).where(*(table.c[one] == source.c[one] for one in shape.key))
    rows = sa.select(*(source.c[one] for one in names))
    insert = postgresql.insert(table).from_select(list(names), rows)
    statement: sa.sql.expression.Executable = _on_conflict(insert, shape)
    return statement
