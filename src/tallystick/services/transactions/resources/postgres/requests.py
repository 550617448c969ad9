"""Requests to a server of PostgreSQL, and what their answers mean.

In: a connection and a statement. Out: the answer, or the driver's error as an answer of a resource.

A statement of the application that ends the transaction, such as COMMIT, leaves no trace in the
connection if others follow. So a branch begins with a setting that lasts as long as its
transaction, and the request to prepare or commit fails on the server if the setting is gone:

    BEGIN; SET LOCAL tallystick.branch = 'gid'
    INSERT INTO tallystick_outcomes ...; PREPARE TRANSACTION 'gid'      one request, too
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import psycopg
from psycopg import generators, waiting
from psycopg.pq import ExecStatus
from psycopg.rows import tuple_row

from tallystick.records import Xid
from tallystick.services.driver_errors import ErrorKind, kind_of
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    ResourceAnswer,
)
from tallystick.services.transactions.resources.connection_resource import DriverErrors, message_of
from tallystick.services.transactions.resources.pool import Connections

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult


Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]

INTERVAL_S = 0.1
"""Time between looks for signals while an answer is waited for."""
MARK = "tallystick.branch"
"""The setting of a transaction that tells which branch it is."""
_ENDED = "tallystick.ended_by_application"
"""A setting that does not exist; asking for it lets a request fail."""


class Database(Protocol):
    """The database of a branch, as the branch and its requests use it.

    Attributes:
        name: the name of the resource.
        quoted_name: the name as statements take it.
        outcome_table: the table of outcome rows as statements name it; None if there is none.
        pool: the connections of threads.
        detect_read_only: ask before each prepare whether the branch wrote anything.
        ask_reset: asks a new session for the statements that make it again what it is.
        resets: the answers, by connection.
    """

    name: str
    quoted_name: str
    outcome_table: str | None
    pool: Connections[Connection]
    detect_read_only: bool
    ask_reset: str
    resets: WeakKeyDictionary[Any, bytes]

    def renew(self, connection: Any) -> Any:
        """Return another connection of the same session, and end this one."""
        ...

    def end_session(self, connection: Connection | AsyncConnection) -> None:
        """End the session of a connection, so that a call that waits for it fails."""
        ...


class RefusalErrors(DriverErrors):
    """A block in which a refusal of the server means `BranchRolledBack`."""

    __slots__ = ()

    def answer(self, error: BaseException) -> ResourceAnswer:
        """Return the answer: rolled back, unless the connection or the server went away.

        An error that the server sends and survives is its answer, that of a cancelled COMMIT too:
        from where a commit cannot be undone any more it raises none.
        """
        if getattr(error, "sqlstate", None) is None or kind_of(error) is ErrorKind.LOST:
            return super().answer(error)
        return BranchRolledBack(message_of(error))


driver_errors = DriverErrors(psycopg.Error)
refusals = RefusalErrors(psycopg.Error)


def execute(connection: Connection, command: str) -> PGresult:
    """Run one command by libpq's simple protocol and return its answer.

    Not by ``tpc_prepare`` and ``tpc_commit``: psycopg does not read the tag, and making the
    command there costs more time than its round trip.
    """
    connection.pgconn.send_query(command.encode("ascii"))
    return wait(connection)[-1]


def wait(connection: Connection) -> list[PGresult]:
    """Wait for the answers to a command; a signal can interrupt it."""
    pgconn = connection.pgconn
    results: list[PGresult] = waiting.wait(generators.execute(pgconn), pgconn.socket, INTERVAL_S)
    return results


def run_query(connection: Connection, query: str, parameters: Any = None) -> Any:
    """Run a query; its rows are tuples, whatever those of the application are."""
    return connection.cursor(row_factory=tuple_row).execute(query, parameters)


def command_tag(result: PGresult) -> str:
    """Return the command tag of an answer. Raises `BranchUnknown`, or the driver's error."""
    if result.status == ExecStatus.COMMAND_OK:
        return (result.command_status or b"").decode("ascii")
    error = psycopg.errors.error_from_result(result)
    if isinstance(error, psycopg.errors.UndefinedObject) and not was_ended(error):
        raise BranchUnknown(message_of(error)) from error
    raise error


def is_pooled(connection: Connection | AsyncConnection, backend: PGresult) -> bool:
    """Return True if a session that asked for its process is not the one that was connected to.

    Raises:
        psycopg.Error: the question has no answer.
    """
    if backend.status != ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(backend)
    return int(backend.get_value(0, 0) or b"") != connection.pgconn.backend_pid


def text_literal(text: str) -> str:
    """Return a text as statements take it, whatever ``standard_conforming_strings`` is."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def encoded(connection: Connection | AsyncConnection, request: str) -> bytes:
    """Return a request as the session reads it."""
    return request.encode("ascii" if request.isascii() else connection.info.encoding)


def beginning(gid: str, begin: str = "BEGIN") -> str:
    """Return the request that begins the transaction of a branch, and marks it with its id."""
    return f"{begin}; SET LOCAL {MARK} = '{gid}'"


def ending(database: Database, xid: Xid, gid: str, verb: str, *, with_row: bool) -> str:
    """Return the request that ends the work of a branch, and fails in another transaction.

    Args:
        database: with the name of the resource and the table of outcome rows.
        xid: the branch.
        gid: its id as the server has it.
        verb: ``PREPARE TRANSACTION`` or ``COMMIT``.
        with_row: store the outcome row, if there is a table for it.
    """
    mark = f"CASE current_setting('{MARK}', true) WHEN '{gid}'"
    unbroken = f"{mark} THEN {database.quoted_name} ELSE current_setting('{_ENDED}') END"
    command = verb if verb == "COMMIT" else f"{verb} '{gid}'"
    if with_row and database.outcome_table is not None:
        row = f"'{xid.gtrid.hex()}', {unbroken}"
        return f"INSERT INTO {database.outcome_table} VALUES ({row}); {command}"
    return f"SELECT {unbroken}; {command}"


def was_ended(error: BaseException) -> bool:
    """Return True for the error of a request of `ending` in another transaction."""
    return _ENDED in str(error)


def alive(connection: Connection) -> bool:
    """Return True if the server answers on the connection."""
    if connection.closed:
        return False
    try:
        return execute(connection, "").status == ExecStatus.EMPTY_QUERY
    except psycopg.Error:
        return False
