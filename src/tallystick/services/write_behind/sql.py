"""SQL databases as targets, through SQLAlchemy: PostgreSQL, MariaDB, MySQL, SQLite.

In: entries whose operations are rows (`tallystick.services.write_behind.rows`), or any, with a
function of yours that applies them. Out: one database transaction per batch. The numbers applied
stand in a table of the database, written in the same transaction: so the effect of each entry
is exactly once, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from tallystick.services.roles import Operation, OperationCode, PersistEntry
from tallystick.services.write_behind.rows import decode_row
from tallystick.services.write_behind.target import TargetDownError

APPLIED_TABLE = "tallystick_applied"
_LOG_ID_SIZE = 36

Statement = tuple[sa.sql.expression.Executable, list[dict[str, Any]]]
_Shape = tuple[bool, str, tuple[str, ...], tuple[str, ...]]

# SQLSTATE classes: connection, rollback (serialization, deadlock), resources, operator
_DOWN_STATES = ("08", "40", "53", "57")
# too many connections, shutdown, read only, lock wait timeout, deadlock, gone away, lost
_DOWN_NUMBERS = frozenset((1040, 1053, 1205, 1213, 1290, 1836, 2002, 2003, 2006, 2013))
_DOWN_WORDS = ("database is locked", "database or disk is full", "disk I/O error", "unable to open")


class SqlTarget:
    """A database. ``apply(connection, entry)`` replaces the mapping of rows to tables; with
    ``applied_table=None`` no numbers are kept, and applying has to be idempotent. The table of
    numbers is created where it is missing."""

    def __init__(
        self,
        engine: Engine,
        *,
        apply: Callable[[Connection, PersistEntry], object] | None = None,
        applied_table: str | None = APPLIED_TABLE,
        batch_max: int = 500,
    ) -> None:
        self.batch_max = batch_max
        self._engine = engine
        self._apply = apply
        self._log_id = ""
        self._known_max = 0
        self._numbers = None if applied_table is None else _numbers_table(applied_table)

    def open(self, log_id: str) -> None:
        """Only notes the log: the database may be down, and is asked for the first batch."""
        self._log_id = log_id
        self._known_max = -1

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        """Apply what the database does not hold yet, in one transaction."""
        try:
            if self._known_max < 0:
                self._prepare()
            with self._engine.begin() as connection:
                fresh = self._claim(connection, entries)
                if self._apply is None:
                    _apply_rows(connection, fresh)
                else:
                    for entry in fresh:
                        self._apply(connection, entry)
        except sa.exc.DBAPIError as error:
            self._doubt(entries)
            if _is_down(error):
                raise TargetDownError(str(error.orig)) from error
            raise

    def _doubt(self, entries: Sequence[PersistEntry]) -> None:
        """A commit that failed may have taken place: look these numbers up next time."""
        if self._known_max >= 0:
            greatest = max(_signed(one.number) for one in entries)
            self._known_max = max(self._known_max, greatest)

    def settled(self, below: int) -> None:
        """Forget numbers that cannot come again."""
        numbers = self._numbers
        if numbers is None or self._known_max < 0:
            return
        gone = sa.delete(numbers).where(
            numbers.c.log == self._log_id, numbers.c.number < _signed(below)
        )
        try:
            with self._engine.begin() as connection:
                connection.execute(gone)
        except sa.exc.DBAPIError as error:
            if not _is_down(error):
                raise

    def close(self) -> None:
        """The engine is its owner's."""

    def _prepare(self) -> None:
        numbers = self._numbers
        if numbers is not None:
            numbers.metadata.create_all(self._engine)
            greatest = sa.select(sa.func.max(numbers.c.number)).where(numbers.c.log == self._log_id)
            with self._engine.begin() as connection:
                self._known_max = connection.execute(greatest).scalar() or 0
        else:
            self._known_max = 0

    def _claim(self, connection: Connection, entries: Sequence[PersistEntry]) -> list[PersistEntry]:
        """The entries that are not applied yet; their numbers are now, in this transaction."""
        numbers = self._numbers
        if numbers is None:
            return list(entries)
        doubtful = [one.number for one in entries if _signed(one.number) <= self._known_max]
        held: set[int] = set()
        if doubtful:
            query = sa.select(numbers.c.number).where(
                numbers.c.log == self._log_id, numbers.c.number.in_(map(_signed, doubtful))
            )
            held = set(connection.execute(query).scalars())
        fresh = [one for one in entries if _signed(one.number) not in held]
        if fresh:
            rows = [{"log": self._log_id, "number": _signed(one.number)} for one in fresh]
            connection.execute(sa.insert(numbers), rows)
        return fresh


def _numbers_table(name: str) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("log", sa.String(_LOG_ID_SIZE), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    )


def _signed(number: int) -> int:
    """The number as databases hold it: 63 bits do for more commits than there will be."""
    return min(number, (1 << 63) - 1)


# -- rows --------------------------------------------------------------------------------


def _apply_rows(connection: Connection, entries: Iterable[PersistEntry]) -> None:
    operations = (one for entry in entries for one in entry.operations)
    for statement, rows in statements(connection.dialect.name, operations):
        connection.execute(statement, rows)


def statements(dialect: str, operations: Iterable[Operation]) -> Iterator[Statement]:
    """SQL for operations in their order; neighbours of one shape share a statement.

    Inserts and updates put the row there whether or not it exists. Raises `ValueError` for an
    operation that is no row.
    """
    shaped = ((_shape(one), one) for one in operations)
    for shape, group in groupby(((s, r) for (s, r), _ in shaped), key=lambda pair: pair[0]):
        yield _statement(dialect, *shape), [row for _, row in group]


def _shape(one: Operation) -> tuple[_Shape, dict[str, Any]]:
    if one.code is OperationCode.OPAQUE:
        raise ValueError("an opaque operation needs a target with an apply function of its own")
    key = decode_row(one.key)
    deletes = one.code is OperationCode.DELETE
    value = {} if deletes or one.value is None else decode_row(one.value)
    return (deletes, one.collection, tuple(key), tuple(value)), key | value


def _statement(
    dialect: str, deletes: bool, name: str, key: tuple[str, ...], value: tuple[str, ...]
) -> sa.sql.expression.Executable:
    schema, _, plain = name.rpartition(".")
    columns: list[sa.ColumnClause[Any]] = [sa.column(one) for one in (*key, *value)]
    table = sa.table(plain, *columns, schema=schema or None)
    if deletes:
        return sa.delete(table).where(*(table.c[one] == sa.bindparam(one) for one in key))
    upsert: sa.sql.expression.Executable = _UPSERTS.get(dialect, _upsert_mysql)(table, key, value)
    return upsert


def _upsert_sqlite(table: Any, key: tuple[str, ...], value: tuple[str, ...]) -> Any:
    insert = sqlite.insert(table)
    if not value:
        return insert.on_conflict_do_nothing(index_elements=list(key))
    new = {one: insert.excluded[one] for one in value}
    return insert.on_conflict_do_update(index_elements=list(key), set_=new)


def _upsert_postgresql(table: Any, key: tuple[str, ...], value: tuple[str, ...]) -> Any:
    insert = postgresql.insert(table)
    if not value:
        return insert.on_conflict_do_nothing(index_elements=list(key))
    new = {one: insert.excluded[one] for one in value}
    return insert.on_conflict_do_update(index_elements=list(key), set_=new)


def _upsert_mysql(table: Any, key: tuple[str, ...], value: tuple[str, ...]) -> Any:
    insert = mysql.insert(table)
    new = {one: insert.inserted[one] for one in value or key}
    return insert.on_duplicate_key_update(new)


_UPSERTS = {"sqlite": _upsert_sqlite, "postgresql": _upsert_postgresql}


# -- errors ------------------------------------------------------------------------------


def _is_down(error: sa.exc.DBAPIError) -> bool:
    """True where the database is at fault or out of reach, and not what was asked of it."""
    cause = error.orig
    if error.connection_invalidated or isinstance(error, sa.exc.InterfaceError):
        return True
    state = getattr(cause, "sqlstate", None)
    if isinstance(state, str):
        return state.startswith(_DOWN_STATES)
    arguments = getattr(cause, "args", ())
    if arguments and isinstance(arguments[0], int):
        return arguments[0] in _DOWN_NUMBERS
    text = str(cause)
    refused = type(cause).__module__.startswith("psycopg") and state is None
    return refused or any(word in text for word in _DOWN_WORDS)
