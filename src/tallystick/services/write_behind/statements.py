"""SQL for operations that are rows: inserts and updates put a row there, deletes take it away.

In: operations in order, and the name of a dialect. Out: statements with their parameters.
Neighbours of one shape (table, columns of key and value) share a statement. On PostgreSQL their
rows go there as one JSON document, which is one statement and one parameter for any number of
rows; elsewhere they are executed many at once, as the driver does that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from tallystick.services.roles import Operation, OperationCode
from tallystick.services.write_behind.rows import decode_row

Parameters = dict[str, Any] | list[dict[str, Any]]
Statement = tuple[sa.sql.expression.Executable, Parameters]
_ROWS = sa.bindparam("rows", type_=sa.Text)


class Shape(NamedTuple):
    """What the rows of one statement have in common."""

    deletes: bool
    table: str
    key: tuple[str, ...]
    value: tuple[str, ...]


def statements(
    dialect: str,
    operations: Iterable[Operation],
    at_once: Callable[[str], bool] = lambda _: False,
) -> Iterator[Statement]:
    """SQL for operations in their order; ``at_once`` tells the tables of PostgreSQL whose rows
    may go there as a document: see `TAKES_DOCUMENTS`.

    Inserts and updates put the row there whether or not it exists. Raises `ValueError` for an
    operation that is no row.
    """
    for shape, group in groupby(map(_shaped, operations), key=itemgetter(0)):
        if at_once(shape.table) and not set(shape.key) & set(shape.value):
            for rows in _without_repeats(shape, group):
                yield _at_once(shape), {"rows": json.dumps(rows, ensure_ascii=False)}
        else:
            yield _one_by_one(dialect, shape), [row for _, _, row in group]


def _shaped(one: Operation) -> tuple[Shape, bytes, dict[str, Any]]:
    """Shape, key and row of an operation."""
    if one.code is OperationCode.OPAQUE:
        raise ValueError("an opaque operation needs a target with an apply function of its own")
    key = decode_row(one.key)
    deletes = one.code is OperationCode.DELETE
    value = {} if deletes or one.value is None else decode_row(one.value)
    return Shape(deletes, one.collection, tuple(key), tuple(value)), one.key, key | value


def _without_repeats(
    shape: Shape, group: Iterable[tuple[Shape, bytes, dict[str, Any]]]
) -> Iterator[list[dict[str, Any]]]:
    """Rows in runs none of which has a key twice: one statement can put a row once only."""
    keys: set[bytes] = set()
    rows: list[dict[str, Any]] = []
    for _, key, row in group:
        if key in keys and not shape.deletes:
            yield rows
            keys, rows = set(), []
        keys.add(key)
        rows.append(row)
    yield rows


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
"""True for a table, by its ``name``, whose columns all read a JSON value as they read its text:
arrays, composite types and JSON itself do not."""


def quoted(table: str) -> str:
    """A table's name as PostgreSQL wants it in SQL."""
    dialect: Any = postgresql.dialect
    return str(dialect().identifier_preparer.format_table(_table(Shape(False, table, (), ()))))


@lru_cache(maxsize=256)
def _at_once(shape: Shape) -> sa.sql.expression.Executable:
    """The statement whose parameter ``rows`` is a JSON list of rows; the table's own row type
    says what the columns are."""
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
