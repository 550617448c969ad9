"""Statements to a server of MariaDB or MySQL, and what their answers mean.

In: a connection of PyMySQL and XA statements. Out: nothing, or the server's refusal as an answer of
a resource. To MariaDB several are sent at once, and their answers are read together.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NoReturn

import pymysql
from pymysql.constants import COMMAND
from pymysql.err import raise_mysql_exception  # not `pymysql.err`: see install_as_MySQLdb

from tallystick.services.transactions.resource import (
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
)
from tallystick.services.transactions.resources.connection_resource import DriverErrors, message_of

Connection = Any
"""A PyMySQL connection, whatever its type of cursor."""

XAER_NOTA = 1397
XAER_RMFAIL = 1399
_ROLLED_BACK = frozenset({1402, 1613, 1614, 1213, 1205})
"""XA_RBROLLBACK, XA_RBTIMEOUT, XA_RBDEADLOCK, deadlock, lock wait timeout."""
_HEURISTIC = frozenset({1401})
_OF_ACTIVE = ("INSERT", "XA END", "XA PREPARE")
"""Statements that XAER_RMFAIL answers if the application has ended the branch."""

_ERROR = 0xFF
"""First byte of an answer that is an error; 0 is success."""
_REQUEST = struct.Struct("<iB")
"""Head of a request: 3 bytes of length, 1 of sequence number (0), 1 of the command.

An answer begins in the same way, with its kind in place of the command.
"""
_SHORTEST_ANSWER = 11
"""Bytes of an answer without text: 4 of the head; kind, two counts, status and warnings."""

driver_errors = DriverErrors(pymysql.Error)


def _read_answer(connection: Connection) -> None:
    """Read the answer to a statement without rows, of which only the first byte matters.

    PyMySQL's own call makes objects of it that cost more than the rest of a round trip.

    Raises:
        pymysql.Error: the server refuses the statement, or the connection is lost.
    """
    limit = connection._read_timeout
    if getattr(connection, "_current_timeout", limit) != limit:  # older ones set it in each call
        connection._sock.settimeout(limit)
        connection._current_timeout = limit
    answer: bytes = connection._read_bytes(_SHORTEST_ANSWER)
    head, kind = _REQUEST.unpack_from(answer)
    size, number = head & 0xFFFFFF, head >> 24
    if number != 1:  # 0 when the server is shut down
        connection._force_close()
        raise pymysql.OperationalError(0, "the connection was lost: an answer out of turn")
    if size > _SHORTEST_ANSWER - 4:
        answer += connection._read_bytes(size - _SHORTEST_ANSWER + 4)
    if kind == _ERROR:
        raise_mysql_exception(answer[4:])
    if kind != 0:
        raise pymysql.InternalError(0, f"no answer to an XA statement: {answer[:16]!r}")


def ask(connection: Connection, statement: str) -> None:
    """Run a statement without rows; a refusal of the server is raised as an answer."""
    try:
        connection._execute_command(COMMAND.COM_QUERY, statement)
        _read_answer(connection)
    except pymysql.Error as error:
        raise_meaning(statement, error)


def takes_several(connection: Connection) -> bool:
    """Return True if several statements can be sent before an answer is read.

    MariaDB reads them one after the other. Of MySQL's kin Aurora is known not to.
    """
    waiting = connection._result
    if waiting is not None and (waiting.unbuffered_active or waiting.has_next):
        return False  # the application has left rows unread
    return connection.open and "MariaDB" in connection.get_server_info()


def send(connection: Connection, statements: Sequence[str]) -> None:
    """Send statements, each as a request of its own; `receive` reads the answers in turn."""
    requests = []
    for statement in statements:
        text = statement.encode(connection.encoding)
        requests.append(_REQUEST.pack(len(text) + 1, COMMAND.COM_QUERY) + text)
    connection._write_bytes(b"".join(requests))


def receive(connection: Connection, statement: str) -> None:
    """Read the answer to a statement that was sent; raises as `ask` does."""
    try:
        if not connection.open:
            raise pymysql.InterfaceError(0, "the connection was lost")
        _read_answer(connection)
    except pymysql.Error as error:
        raise_meaning(statement, error)


def raise_meaning(statement: str, error: Exception) -> NoReturn:
    """Raise what an error says of a branch; the error itself if it says nothing."""
    code = error.args[0] if error.args else 0
    text = f"{statement.partition(' X')[0]}: {message_of(error)}"
    if code == XAER_NOTA or (code == XAER_RMFAIL and statement.startswith(_OF_ACTIVE)):
        raise BranchUnknown(text) from error
    if code in _ROLLED_BACK:
        raise BranchRolledBack(text) from error
    if code in _HEURISTIC:
        raise BranchHeuristic(text) from error
    raise error


def quoted(name: str) -> str:
    """Return the name of a database or table as statements take it, whatever ``sql_mode`` is."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Return an ASCII text as statements take it, whatever ``sql_mode`` is."""
    return f"_ascii X'{text.encode('ascii').hex()}'"


def set_autocommit(connection: Connection) -> None:
    """Set the mode in which alone MariaDB ends branches that another session prepared."""
    connection.autocommit(True)


def alive(connection: Connection) -> bool:
    """Return True if the server answers on the connection."""
    try:
        connection.ping(reconnect=False)
    except pymysql.Error:
        return False
    return True
