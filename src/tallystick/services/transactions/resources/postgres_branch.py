"""Branches of PostgreSQL, for threads and for tasks.

In: a connection of psycopg 3 and an id. Out: the branch's work as steps, written once: commands
whose answers tell what became of the transaction. The two faces differ in how they wait.
PREPARE TRANSACTION in a failed transaction is answered by a silent ROLLBACK, so the tag of the
answer is read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus, TransactionStatus

from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    ResourceAnswer,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connection_resource import (
    Reachable,
    closed_by_application,
    told,
)
from tallystick.services.transactions.resources.gid import format_gid
from tallystick.services.transactions.steps import Steps, drive, follow

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]

_LOST_CLASSES = ("08", "57")
"""SQLSTATE classes that say the connection or the server is going away."""

_PREPARED = "PREPARE TRANSACTION"
_FAILED = "a statement failed, so the server only rolls back"
_WROTE_NOTHING = "SELECT pg_current_xact_id_if_assigned() IS NULL"


class Refusals(Reachable):
    """A block in which a server's refusal means that it has rolled back: `BranchRolledBack`."""

    __slots__ = ()

    def answer(self, error: BaseException) -> ResourceAnswer:
        state = getattr(error, "sqlstate", None)
        if state is None or state[:2] in _LOST_CLASSES:
            return super().answer(error)
        return BranchRolledBack(told(error))


reachable = Reachable(psycopg.Error)
refusals = Refusals(psycopg.DatabaseError)


class PostgresWork:
    """A connection with a two-phase transaction, and what ends it, as steps.

    To psycopg it stays one until the end, so that ``commit`` and the like are refused. ``give``
    takes the connection back.
    """

    __slots__ = (
        "_connection",
        "_gid",
        "_give",
        "_name",
        "_over",
        "_prepared",
        "_read",
        "_sent",
        "xid",
    )

    def __init__(
        self,
        name: str,
        connection: Connection | AsyncConnection,
        xid: Xid,
        give: Callable[..., None],
        *,
        detect_read_only: bool,
    ) -> None:
        self.xid = xid
        self._name = name
        self._connection = connection
        self._give = give
        self._read = detect_read_only
        self._gid = format_gid(xid)
        self._sent = False
        self._prepared: bool | None = False
        """None from the question to the answer."""
        self._over = False

    def send_prepare(self) -> bool:
        return not self._read and self._send(_PREPARED)

    def send_commit(self) -> bool:
        return self._send("COMMIT PREPARED")

    def _send(self, verb: str) -> bool:
        with suppress(psycopg.Error):  # the call that waits finds it out
            self._connection.pgconn.send_query(f"{verb} '{self._gid}'".encode("ascii"))
            self._sent = True
            self._prepared = self._prepared or None
        return self._sent

    def _prepare(self) -> Steps[Vote]:
        if self._connection.closed:
            raise closed_by_application(self._name)
        with reachable, refusals:
            if self._read and (yield from self._wrote_nothing()):
                yield self._connection.tpc_commit
                self._over = True
                return Vote.READ_ONLY
            self._prepared = None
            tag = yield from self._run(_PREPARED)
        self._prepared = tag == _PREPARED
        if not self._prepared:
            raise BranchRolledBack(f"{_FAILED}: it answered PREPARE TRANSACTION with {tag}")
        return Vote.PREPARED

    def _wrote_nothing(self) -> Steps[bool]:
        if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            return False
        result = yield partial(self._answer, _WROTE_NOTHING)
        return bool(result.get_value(0, 0) == b"t")

    def _commit(self) -> Steps[None]:
        self._over = True
        with reachable:
            yield from self._run("COMMIT PREPARED")

    def _commit_one_phase(self) -> Steps[None]:
        if self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            raise BranchRolledBack(_FAILED)
        self._over = True
        with reachable, refusals:
            yield self._connection.tpc_commit

    def _rollback(self) -> Steps[None]:
        if self._over:
            return
        if self._connection.closed:
            if self._prepared is not False:
                raise ResourceUnreachable("the connection was lost at prepare")
            return  # the server rolls back with the connection
        with reachable:
            if self._sent:
                with suppress(BranchRolledBack):
                    yield from self._prepare()
            self._over = True
            if self._prepared is not False and self._at_rest():
                with suppress(BranchUnknown):  # refused to prepare, or ended by recovery
                    yield from self._run("ROLLBACK PREPARED")
            else:
                self._prepared = False
                yield self._connection.tpc_rollback

    def _close(self) -> Steps[None]:
        sound = self._over and self._at_rest()
        if sound and self._prepared is not False:
            yield self._connection.tpc_commit  # sends nothing: psycopg, too, lets go of it
        self._give(self._connection, broken=not sound)

    def _at_rest(self) -> bool:
        return self._connection.pgconn.transaction_status == TransactionStatus.IDLE

    def _run(self, verb: str) -> Steps[str]:
        """The tag of a command about this branch, which may have been sent before."""
        command = None if self._sent else f"{verb} '{self._gid}'"
        self._sent = False
        result = yield partial(self._answer, command)
        return tag_of(result)

    def _answer(self, command: str | None) -> Any:
        """The server's answer to a command, or to what was sent; to be awaited, for tasks."""
        raise NotImplementedError


class PostgresBranch(PostgresWork):
    """One branch of a thread."""

    __slots__ = ()

    _connection: Connection

    @property
    def raw(self) -> Connection:
        """The driver's connection, for a room that wraps it."""
        return self._connection

    @property
    def handle(self) -> Connection:
        return self._connection

    def prepare(self) -> Vote:
        return drive(self._prepare())

    def commit(self) -> None:
        drive(self._commit())

    def commit_one_phase(self) -> None:
        drive(self._commit_one_phase())

    def rollback(self) -> None:
        drive(self._rollback())

    def close(self) -> None:
        drive(self._close())

    def _answer(self, command: str | None) -> PGresult:
        if command is not None:
            return execute(self._connection, command)
        results: list[PGresult] = self._connection.wait(generators.execute(self._connection.pgconn))
        return results[0]


class AsyncPostgresBranch(PostgresWork):
    """One branch of a task."""

    __slots__ = ()

    _connection: AsyncConnection

    @property
    def handle(self) -> AsyncConnection:
        return self._connection

    async def prepare(self) -> Vote:
        return await follow(self._prepare())

    async def commit(self) -> None:
        await follow(self._commit())

    async def commit_one_phase(self) -> None:
        await follow(self._commit_one_phase())

    async def rollback(self) -> None:
        await follow(self._rollback())

    async def close(self) -> None:
        await follow(self._close())

    def _send(self, verb: str) -> bool:
        # Not while another task's statement is at work.
        return not self._connection.lock.locked() and super()._send(verb)

    async def _answer(self, command: str | None) -> PGresult:
        connection = self._connection
        async with connection.lock:
            if command is not None:
                connection.pgconn.send_query(command.encode("ascii"))
            results: list[PGresult] = await connection.wait(generators.execute(connection.pgconn))
        return results[0]


def execute(connection: Connection, command: str) -> PGresult:
    """The answer to one command, by libpq's simple protocol.

    Not by ``tpc_prepare`` and ``tpc_commit``: psycopg does not look at the tag, and makes
    the command anew at a price above that of its round trip.
    """
    return connection.pgconn.exec_(command.encode("ascii"))


def tag_of(result: PGresult) -> str:
    """The tag of an answer. Raises `BranchUnknown`, or the driver's error."""
    if result.status == ExecStatus.COMMAND_OK:
        return (result.command_status or b"").decode("ascii")
    error = psycopg.errors.error_from_result(result)
    if isinstance(error, psycopg.errors.UndefinedObject):
        raise BranchUnknown(told(error)) from error
    raise error
