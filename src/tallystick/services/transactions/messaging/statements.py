"""Statements of ours within a branch of the application, for every kind of handle.

In: the handle of a branch, or a transaction of tasks, and statements. Out: their rows and counts,
whatever the driver, its rows and its calls look like; tables of ours, made at their first use.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import re
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions.resource import Resource
from tallystick.storage.fork import Uncopied

_MARKS = re.compile("%%|%s")
"""What stands in a statement for a '%', and for a parameter."""

POSTGRES, MYSQL, SQLITE = "postgresql", "mysql", "sqlite"


class Answer(NamedTuple):
    """What a statement returned: the number of rows it concerned, and the rows."""

    changed: int
    rows: Sequence[tuple[Any, ...]]


class SyncTransaction(Protocol):
    """The part of a `Transaction` that is needed here."""

    def __getitem__(self, name: str) -> Any: ...


class TaskTransaction(Protocol):
    """The part of an `AsyncTransaction` that is needed here."""

    def __getitem__(self, name: str) -> Any: ...

    @property
    def branches(self) -> Mapping[str, Any]:
        """Enlisted branches."""
        ...

    def enlist(self, name: str) -> Awaitable[Any]:
        """Enlist a resource."""
        ...

    def run(self, name: str, work: Callable[[Any], Any]) -> Awaitable[Any]:
        """Call ``work(handle)`` in a worker thread."""
        ...


class Manager(Protocol):
    """The part of a transaction manager that is needed here."""

    @property
    def resources(self) -> Mapping[str, Resource]:
        """The resources by name."""
        ...

    def begin(self, *, independent: bool = False) -> Any:
        """Begin a transaction; ``independent``: also within the block of another one."""
        ...


class ThreadAsk:
    """Runs statements in the branch of the resource ``name``, in this thread."""

    def __init__(self, transaction: SyncTransaction, name: str) -> None:
        _require_face(transaction, awaited=False)
        self._transaction = transaction
        self._name = name

    def __call__(self, text: str, *parameters: Any) -> Answer:
        """Return the answer to a statement."""
        return run_on(self._transaction[self._name], text, parameters)

    def table(self, table: Table, resource: Resource) -> str:
        """Return a table as statements name it; see `Table.of`."""
        return table.of(resource)


class TaskAsk:
    """The same for a transaction of tasks: its answers are awaited."""

    def __init__(self, transaction: TaskTransaction, name: str) -> None:
        _require_face(transaction, awaited=True)
        self._transaction = transaction
        self._name = name

    async def __call__(self, text: str, *parameters: Any) -> Answer:
        """Return the answer to a statement."""
        name, transaction = self._name, self._transaction
        if name not in transaction.branches:
            await transaction.enlist(name)
        handle = transaction[name]
        if hasattr(handle, "run_sync"):  # of an asynchronous engine
            found: Answer = await handle.run_sync(run_on, text, parameters)
            return found
        if not inspect.iscoroutinefunction(getattr(handle, "execute", None)):
            work = partial(run_on, text=text, parameters=parameters)
            answer: Answer = await transaction.run(name, work)
            return answer
        async with handle.cursor(row_factory=_plain_rows()) as cursor:
            await cursor.execute(text, parameters)
            rows = await cursor.fetchall() if cursor.description else []
            return Answer(cursor.rowcount, rows)

    async def table(self, table: Table, resource: Resource) -> str:
        """Return a table as statements name it; see `Table.of`."""
        return await asyncio.to_thread(table.of, resource)


Ask = ThreadAsk | TaskAsk


def _require_face(transaction: object, *, awaited: bool) -> None:
    """Raise `TransactionUsageError` for what is no transaction of threads, or of tasks."""
    enlist = getattr(transaction, "enlist", None)
    if not callable(enlist) or inspect.iscoroutinefunction(enlist) is not awaited:
        raise TransactionUsageError(
            f"an object of type {type(transaction).__name__} where a transaction is expected",
            expected=f"{'an AsyncTransaction' if awaited else 'a Transaction'} of the manager",
            advice="Pass what begin() of the manager gives; the calls for tasks are awaited",
        )


def run_on(handle: Any, text: str, parameters: Sequence[Any]) -> Answer:
    """Run a statement on the handle of a thread: of a driver, ours, or SQLAlchemy's."""
    if hasattr(handle, "exec_driver_sql"):
        options = {"preserve_rowcount": True}
        if handle.dialect.paramstyle == "numeric_dollar":
            text = _numbered(text)
        result = handle.exec_driver_sql(text, tuple(parameters), execution_options=options)
        rows = result.fetchall() if result.returns_rows else []
        return Answer(result.rowcount, [tuple(row) for row in rows])
    cursor = handle.cursor(row_factory=_plain_rows()) if _is_psycopg(handle) else handle.cursor()
    try:
        cursor.execute(text, parameters)
        found = cursor.fetchall() if cursor.description else []
        rows = [tuple(row.values() if isinstance(row, Mapping) else row) for row in found]
        return Answer(cursor.rowcount, rows)
    finally:
        cursor.close()


def _numbered(text: str) -> str:
    """Return a statement with ``$1``, ``$2`` ... for its parameters, as asyncpg takes them."""
    numbers = itertools.count(1)
    return _MARKS.sub(lambda mark: "%" if mark[0] == "%%" else f"${next(numbers)}", text)


def _is_psycopg(handle: Any) -> bool:
    return hasattr(handle, "pgconn")


def _plain_rows() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


class Table(Uncopied):
    """A table of ours, in databases of the application.

    Args:
        name: its name, without a schema.
        make: the statements that make it, by dialect; ``{table}`` stands for the table.
    """

    def __init__(self, name: str, make: Mapping[str, Sequence[str]]) -> None:
        self.name = name
        self._make = make
        self._names: weakref.WeakKeyDictionary[Resource, str] = weakref.WeakKeyDictionary()

    def of(self, resource: Resource) -> str:
        """Return the table as statements name it; make it if it is not there.

        Raises:
            TransactionUsageError: the resource is no database of SQL, or the user lacks rights.
            ResourceUnreachable: the database is away.
        """
        # Without a lock: a database that does not answer keeps nobody from another one, nor, if the
        # process is forked meanwhile, its child. Two threads that make the table get the same one.
        known = self._names.get(resource)
        if known is None:
            known = self._names[resource] = self._find(resource)
        return known

    def _find(self, resource: Any) -> str:
        statements = self._make.get(dialect_of(resource), ())
        with resource.errors, resource.pool.borrow() as connection:
            ask = partial(_ask_plain, connection)
            table = f"{_schema(dialect_of(resource), ask, resource.name)}.{self.name}"
            if not self._is_there(connection, table):
                try:
                    for statement in statements:
                        ask(statement.format(table=table))
                    connection.commit()
                except Exception as error:  # whatever its driver raises
                    connection.rollback()
                    if not self._is_there(connection, table):  # made by another at this moment
                        raise TransactionUsageError(
                            f"the table {self.name} cannot be made in {resource.name!r}: {error}",
                            advice="Make it by hand: "
                            + "; ".join(one.format(table=table) for one in statements).replace(
                                "%%", "%"
                            ),
                        ) from error
        return table

    @staticmethod
    def _is_there(connection: Any, table: str) -> bool:
        try:
            _ask_plain(connection, f"SELECT 1 FROM {table} WHERE 1 = 0")
        except Exception:  # each driver has its own for a table that is not there
            return False
        finally:
            connection.rollback()
        return True


def for_threads(manager: Manager) -> Manager:
    """Return the manager for threads, also that of a manager for tasks."""
    return getattr(manager, "manager", manager)


def resource_of(manager: Manager, name: str) -> Resource:
    """Return a resource of a manager. Raises `TransactionUsageError` if there is none."""
    resources = getattr(manager, "resources", None)
    if not isinstance(resources, Mapping):
        raise TransactionUsageError(
            f"{type(manager).__name__} is no transaction manager",
            expected="a TransactionManager or an AsyncTransactionManager",
        )
    return named(resources, name)


def named(resources: Mapping[str, Resource], name: str) -> Resource:
    """Return the resource of a name. Raises `TransactionUsageError` if there is none."""
    if name not in resources:
        raise TransactionUsageError(
            f"there is no resource {name!r}",
            expected=f"one of {sorted(resources)}",
            advice="Give it to the manager under that name",
        )
    return resources[name]


def dialect_of(resource: Any) -> str:
    """Return the dialect of a resource.

    Raises:
        TransactionUsageError: it is no database of SQL.
    """
    dialect = getattr(resource, "dialect", None)
    if dialect is None:
        raise TransactionUsageError(
            f"{resource.name!r} keeps no table",
            expected="PostgreSQL, MariaDB, MySQL or SQLite, by URL or by a SQLAlchemy engine",
        )
    return str(dialect)


def _ask_plain(connection: Any, text: str) -> Answer:
    return run_on(connection, text, ())


def _schema(dialect: str, ask: Callable[[str], Answer], name: str) -> str:
    """Return the schema of tables of ours, quoted, with ``%%`` for a '%'."""
    if dialect == SQLITE:
        return "main"
    mysql = dialect == MYSQL
    found = ask("SELECT DATABASE()" if mysql else "SELECT quote_ident(current_schema())").rows[0][0]
    if found is None:
        raise TransactionUsageError(
            f"the connections of {name!r} have no schema",
            advice="Name a database in its address, or set search_path",
        )
    if mysql:
        from tallystick.services.transactions.resources.mysql import quoted

        found = quoted(found)
    return str(found).replace("%", "%%")
