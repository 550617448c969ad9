"""A branch as an XA transaction of MariaDB or MySQL.

In: a connection of the resource and the id of the branch. Out: votes, and the connection when the
branch is over.
"""

from __future__ import annotations

import re
import weakref
from contextlib import suppress
from typing import Any

import pymysql

from tallystick.errors import TransactionUsageError
from tallystick.reconcile.ids import literal
from tallystick.records import Xid
from tallystick.services.driver_errors import ErrorKind, kind_of
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    ResourceAnswer,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connection_resource import (
    ConnectionResource,
    closed_by_application,
    ended_by_application,
    message_of,
)
from tallystick.services.transactions.resources.handle import Handle, branch_is_over
from tallystick.services.transactions.resources.mysql.statements import (
    Connection,
    ask,
    driver_errors,
    receive,
    send,
    takes_several,
    text_literal,
)
from tallystick.services.transactions.resources.pool import Pool
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading

_NOBODY = 0
"""In place of a thread: none may use the connection any more."""
_CHANGES_SESSION = re.compile(
    r"(?:\s|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|(?:--\s|#)[^\n]*\n)*"
    r"(?:SET|USE|CALL|EXECUTE|PREPARE|LOCK|FLUSH|HANDLER|BEGIN\s+NOT|"
    r"(?:CREATE(?:\s+OR\s+REPLACE)?|DROP)\s+TEMPORARY)\b"
    r"|/\*M?!|.*(?:\bGET_LOCK\s*\(|\bINTO\s+@|:=)",
    re.IGNORECASE | re.DOTALL,
)
"""Beginnings of statements after which a session is not what it was when it was new."""


class MySqlBranch:
    """One branch: a connection with an XA transaction."""

    __slots__ = (
        "_autocommit",
        "_awaited",
        "_connection",
        "_ended",
        "_handle",
        "_literal",
        "_over",
        "_prepare_sent",
        "_resource",
        "statements",
        "xid",
    )

    def __init__(
        self, resource: ConnectionResource[Connection], connection: Connection, xid: Xid
    ) -> None:
        self.xid = xid
        self._resource = resource
        self._connection = connection
        self._autocommit = connection.get_autocommit()
        self._literal = literal(xid)
        self._awaited: list[str] = []
        """Statements that were sent, and whose answers were not read yet."""
        self._ended = False
        self._prepare_sent = False
        self._over = False
        self._handle = Handle(connection, resource.name)
        self.statements = _Statements(connection, resource.name)

    def start(self) -> None:
        """Begin the branch on the server."""
        ask(self._connection, f"XA START {self._literal}")
        self.statements.watch()

    @property
    def raw(self) -> Connection:
        """The driver's connection."""
        return self._connection

    @property
    def handle(self) -> Handle:
        """Statements of the branch."""
        return self._handle

    def send_prepare(self) -> bool:
        """Send the statements of `prepare` at once, where the server takes that."""
        usable = self._connection.open and self.statements.end()
        if not (usable and takes_several(self._connection)):
            return False
        self._send(self._preparing())
        return True

    def send_commit(self) -> bool:
        """Send XA COMMIT, where the server takes that before other answers are read."""
        if not takes_several(self._connection):
            return False
        self._send([f"XA COMMIT {self._literal}"])
        return True

    def _send(self, statements: list[str]) -> None:
        self._awaited = statements
        with suppress(pymysql.Error):  # the call that waits meets it again
            send(self._connection, statements)

    def _preparing(self) -> list[str]:
        """Return what prepares: the outcome row, there if the branch commits; END and PREPARE."""
        statements = []
        table = self._resource.outcome_table
        if table is not None and not self._ended:
            name = text_literal(self._handle.name)
            statements.append(f"INSERT INTO {table} VALUES ('{self.xid.gtrid.hex()}', {name})")
        if not self._ended:
            statements.append(f"XA END {self._literal}")
        statements.append(f"XA PREPARE {self._literal}")
        self._ended = self._prepare_sent = True
        return statements

    def prepare(self) -> Vote:
        """Store the outcome row, run XA END and XA PREPARE."""
        with driver_errors:
            if not self._awaited:
                self._require_connection()
                self._run(self._preparing())
            try:
                self._receive()
            except BranchUnknown as answer:
                raise ended_by_application(self._handle.name) from answer
        return Vote.PREPARED

    def commit(self) -> None:
        """Run XA COMMIT."""
        self._over = True
        with driver_errors:
            if not self._awaited:
                ask(self._connection, f"XA COMMIT {self._literal}")
            self._receive()

    def commit_one_phase(self) -> None:
        """Run XA END and XA COMMIT ... ONE PHASE."""
        with driver_errors:
            try:
                self._end()
            except BranchUnknown as answer:
                raise ended_by_application(self._handle.name) from answer
            self._over = True
            try:
                ask(self._connection, f"XA COMMIT {self._literal} ONE PHASE")
            except pymysql.Error as error:
                self._ask_for_outcome(error)
                raise

    def _ask_for_outcome(self, error: pymysql.Error) -> None:
        """Raise `BranchRolledBack` if the branch of a commit that failed can be rolled back.

        The server answers a statement that was cancelled, say, with no word of the branch.
        """
        if kind_of(error) is not ErrorKind.LOST:
            with suppress(BranchUnknown):
                ask(self._connection, f"XA ROLLBACK {self._literal}")
                raise BranchRolledBack(message_of(error)) from error

    def rollback(self) -> None:
        """Run XA END and XA ROLLBACK, unless the branch has ended."""
        if self._over:
            return
        if not (usable := self.statements.end()):
            self.abort()
        if not (usable and self._connection.open):
            if self._prepare_sent:
                raise ResourceUnreachable("the connection was lost at prepare")
            return  # the server rolls back with the connection
        with driver_errors:
            with suppress(BranchRolledBack, BranchUnknown):  # a rollback is due all the same
                with suppress(pymysql.Error):  # what it answered to a prepare does not matter
                    self._receive()
                self._end()
            self._over = True
            ask(self._connection, f"XA ROLLBACK {self._literal}")

    def _run(self, statements: list[str]) -> None:
        """Run statements, at once where the server takes that; then `_receive` follows."""
        if takes_several(self._connection):
            self._send(statements)
            return
        for statement in statements:
            ask(self._connection, statement)

    def _receive(self) -> None:
        """Read the answers that are awaited. Raises the first error among them."""
        first: Exception | None = None
        while self._awaited:
            statement = self._awaited.pop(0)
            try:
                receive(self._connection, statement)
            except (pymysql.Error, ResourceAnswer) as error:
                first = first or error
                if not self._connection.open:
                    self._awaited = []
        if first is not None:
            raise first

    def _end(self) -> None:
        self._require_connection()
        if not self._ended:
            self._ended = True
            ask(self._connection, f"XA END {self._literal}")

    def _require_connection(self) -> None:
        if not self._connection.open:
            raise closed_by_application(self._handle.name)
        if not self.statements.end():
            raise self.statements.two_threads()

    def close(self) -> None:
        """Give the connection back, unless a statement has changed settings of its session."""
        self._handle.detach()
        connection, statements = self._connection, self.statements
        sound = connection.open and self._over and not self._awaited
        sound = sound and connection.get_autocommit() == self._autocommit
        sound = sound and statements.end()
        if isinstance(self._resource.pool, Pool):  # an engine resets its sessions itself
            sound = sound and not statements.change_session
        if sound:
            self._handle.close_cursors()
        statements.release()
        self._resource.pool.give(connection, broken=not sound)

    def abort(self) -> None:
        """End the session, so that a call that waits for it fails."""
        self._resource.end_session(self._connection)

    def discard(self, *, prepared: bool) -> None:  # noqa: ARG002 - the session ends either way
        """Close the connection; the server rolls back what is not prepared."""
        self._handle.detach()
        self.statements.release()
        self._resource.pool.give(self._connection, broken=True)


class _Statements(Uncopied):
    """The statements of the application on the connection of a branch.

    Those of a second thread are refused: PyMySQL would give one the answer to the other's, or to
    the end of the branch.

    Attributes:
        change_session: whether one may have changed settings of the session.
    """

    __slots__ = ("_connection", "_name", "_user", "change_session")

    def __init__(self, connection: Connection, name: str) -> None:
        self.change_session = False
        self._connection = weakref.ref(connection)
        self._name = name
        self._user: dict[None, int] = {}
        """The thread whose statement is at work, or `_NOBODY`; `setdefault` is one step."""

    def watch(self) -> None:
        """Have the connection run the statements of its cursors here."""
        connection: Any = self._connection()
        connection.query = self._query

    def end(self) -> bool:
        """Refuse all further ones; return False if one of another thread is at work."""
        if self._user.setdefault(None, _NOBODY) not in (_NOBODY, threading.get_ident()):
            return False
        self._user[None] = _NOBODY
        return True

    def release(self) -> None:
        """Leave the connection to others."""
        vars(self._connection()).pop("query", None)

    def two_threads(self) -> TransactionUsageError:
        """Return the error for a second thread."""
        return TransactionUsageError(
            f"two threads use the connection of {self._name!r} at the same time",
            advice="Use a transaction in one thread at a time, or begin one in each thread",
        )

    def _query(self, statement: str | bytes, unbuffered: bool = False) -> Any:
        this_thread = threading.get_ident()
        user = self._user.setdefault(None, this_thread)
        if user != this_thread:
            raise branch_is_over(self._name) if user == _NOBODY else self.two_threads()
        try:
            text = statement if isinstance(statement, str) else statement.decode("latin-1")
            self.change_session = self.change_session or _CHANGES_SESSION.match(text) is not None
            connection: Any = self._connection()
            kind: Any = type(connection)
            return kind.query(connection, statement, unbuffered)
        finally:
            del self._user[None]
