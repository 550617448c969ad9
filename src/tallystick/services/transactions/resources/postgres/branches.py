"""A branch as a prepared transaction of PostgreSQL, for threads and for tasks.

In: a connection of the resource and the id of the branch. Out: votes, and the connection when the
branch is over. The work is written once, as steps; the two faces differ in how they wait.

PREPARE TRANSACTION in a failed transaction is answered by a silent ROLLBACK, so the command tag of
the answer is read. What the transaction has SET outlives it. Connections of an engine are reset by
the engine as its application wants; of others the request to prepare or commit does it, in
statements that follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus, TransactionStatus

from tallystick.errors import TransactionUsageError
from tallystick.reconcile.gid import format_gid
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connection_resource import (
    closed_by_application,
    ended_by_application,
)
from tallystick.services.transactions.resources.pool import Pool
from tallystick.services.transactions.resources.postgres.requests import (
    MARK,
    AsyncConnection,
    Connection,
    Database,
    beginning,
    command_tag,
    driver_errors,
    encoded,
    ending,
    refusals,
    wait,
    was_ended,
)
from tallystick.services.transactions.steps import Steps, drive, follow

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

_LOCK_S = 1.0
"""Time between looks whether the lock of a connection is worth waiting for."""
_PREPARED = "PREPARE TRANSACTION"
_FAILED = "a statement failed, so the server only rolls back"
_WROTE_NOTHING = b"SELECT pg_current_xact_id_if_assigned() IS NULL"
_FACTORIES = ("row_factory", "cursor_factory", "server_cursor_factory", "prepare_threshold")
_factories_of = attrgetter(*_FACTORIES)


class BasePostgresBranch:
    """A connection with a two-phase transaction; what ends it, as steps.

    For psycopg the transaction is a two-phase one until the end, so that ``commit`` and the like
    are refused. ``give`` takes the connection back.
    """

    __slots__ = (
        "_aborted",
        "_connection",
        "_factories",
        "_gid",
        "_give",
        "_is_reset",
        "_over",
        "_prepared",
        "_reset",
        "_resource",
        "_sent",
        "_statements",
        "_was_asked",
        "xid",
    )

    def __init__(
        self,
        resource: Database,
        connection: Connection | AsyncConnection,
        xid: Xid,
        give: Callable[..., None],
    ) -> None:
        self.xid = xid
        self._resource = resource
        self._connection = connection
        self._give = give
        self._gid = format_gid(xid)
        self._factories = _factories_of(connection)
        self._reset = b""
        self._is_reset = True
        self._sent = False
        self._statements = 0
        """Their number in the last request, without those that reset the session."""
        self._prepared: bool | None = False
        """None from the request to prepare until its answer."""
        self._was_asked = False
        """Whether it was asked to prepare, which may have ended its transaction."""
        self._over = False
        self._aborted = False

    def start(self) -> Steps[None]:
        """Begin the transaction on the server, as psycopg would, and mark it.

        Not by ``tpc_begin``, which begins it with a request of its own.

        Raises:
            psycopg.Error: the server refuses.
        """
        connection = self._connection
        if connection.closed:
            raise psycopg.OperationalError("the connection is lost or closed")
        if not self._is_idle():
            raise TransactionUsageError(
                f"a new connection of {self._resource.name!r} is in a transaction already",
                advice="End it where the connection is made",
            )
        if isinstance(self._resource.pool, Pool):  # an engine resets its sessions itself
            yield from self._learn_reset()
        begin = connection._get_tx_start_command().decode("ascii")
        *_, result = yield from self._ask(beginning(self._gid, begin).encode("ascii"))
        command_tag(result)
        connection._tpc = self._gid, False  # type: ignore[assignment] # psycopg takes its text

    def _learn_reset(self) -> Steps[None]:
        """Learn how to reset the session, when it is new."""
        resource, connection = self._resource, self._connection
        if connection not in resource.resets:
            *_, result = yield from self._ask(resource.ask_reset.encode("ascii"))
            if result.status != ExecStatus.TUPLES_OK:
                raise psycopg.errors.error_from_result(result)
            resource.resets[connection] = result.get_value(0, 0) or b""
        self._reset = resource.resets[connection]

    def abort(self) -> None:
        """End the session, so that a call that waits for it fails."""
        self._aborted = True
        self._resource.end_session(self._connection)

    def discard(self, *, prepared: bool) -> None:  # noqa: ARG002 - the session ends either way
        """Close the connection; the server rolls back what is not prepared."""
        self._give(self._connection, broken=True)

    def send_prepare(self) -> bool:
        """Send PREPARE TRANSACTION, unless the branch may turn out to be read-only."""
        read_only = self._resource.detect_read_only
        return not (read_only or self._is_idle()) and self._send(_PREPARED)

    def send_commit(self) -> bool:
        """Send COMMIT PREPARED."""
        return self._send("COMMIT PREPARED")

    def _send(self, verb: str) -> bool:
        if self._connection.lock.locked():  # a statement of another thread or task is at work
            return False
        try:
            self._connection.pgconn.send_query(self._command(verb))
        except psycopg.Error:
            return self._sent  # the call that waits raises it again
        self._sent = True
        self._prepared = self._prepared or None
        return True

    def _prepare(self) -> Steps[Vote]:
        self._refuse_ended()
        self._was_asked = True
        with refusals:
            if self._resource.detect_read_only and (yield from self._wrote_nothing()):
                yield from self._run("COMMIT")
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
        *_, result = yield from self._ask(_WROTE_NOTHING)
        return bool(result.get_value(0, 0) == b"t")

    def _commit(self) -> Steps[None]:
        self._over = True
        with driver_errors:
            yield from self._run("COMMIT PREPARED")

    def _refuse_ended(self) -> None:
        """Raise `TransactionUsageError` if the application has ended the branch or its session."""
        if self._connection.closed:
            raise closed_by_application(self._resource.name)
        if not self._sent and self._is_idle():
            raise ended_by_application(self._resource.name)

    def _commit_one_phase(self) -> Steps[None]:
        self._refuse_ended()
        if self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            raise BranchRolledBack(_FAILED)
        self._over = True
        with refusals:
            tag = yield from self._run("COMMIT")
        if tag != "COMMIT":
            # The request for a transaction that failed meanwhile resets none.
            self._is_reset = False
            raise BranchRolledBack(f"{_FAILED}: it answered COMMIT with {tag}")

    def _rollback(self) -> Steps[None]:
        if self._over:
            return
        if self._connection.closed:
            if self._prepared is not False:
                raise ResourceUnreachable("the connection was lost at prepare")
            return  # the server rolls back with the connection
        with driver_errors:
            if self._sent:
                with suppress(BranchRolledBack):
                    yield from self._prepare()
            self._over = True
            if self._prepared is not False and self._is_idle():
                with suppress(BranchUnknown):  # refused to prepare, or ended by recovery
                    yield from self._run("ROLLBACK PREPARED")
            else:
                self._prepared = False
                yield from self._undo()

    def _give_back(self) -> None:
        # A block of `Connection.transaction` that was never left would count for whoever is next.
        nested = self._connection._num_transactions
        sound = self._over and self._is_idle() and self._is_reset and not nested
        if sound:
            self._connection._tpc = None
            if _factories_of(self._connection) != self._factories:
                for name, made in zip(_FACTORIES, self._factories, strict=True):
                    setattr(self._connection, name, made)
        connection = self._connection
        if sound and isinstance(self._resource.pool, Pool):  # an engine ends its own handles
            connection = self._resource.renew(connection)
        self._give(connection, broken=not sound)

    def _is_idle(self) -> bool:
        return self._connection.pgconn.transaction_status == TransactionStatus.IDLE

    def _run(self, verb: str) -> Steps[str]:
        """Run a command about this branch, unless it was sent before; return its tag."""
        command = None if self._sent else partial(self._command, verb)
        self._sent = False
        results = yield partial(self._answer, command)
        answer = results[: self._statements][-1]
        self._note_reset(results)
        try:
            return command_tag(answer)
        except psycopg.Error as error:
            if was_ended(error):
                raise ended_by_application(self._resource.name) from error
            raise

    def _undo(self) -> Steps[None]:
        """Run ROLLBACK. Locks, for one, outlive it, so the session is reset here, too.

        Raises `EndedByApplication` if it is not the transaction that the branch began, and that no
        command of the branch has ended: one that failed is rolled back by the server.
        """
        status = self._connection.pgconn.transaction_status
        asked = []
        if status == TransactionStatus.INTRANS and not self._was_asked:
            mark = f"SELECT current_setting('{MARK}', true) IS DISTINCT FROM '{self._gid}'"
            asked.append(mark.encode("ascii"))
        statements = [*asked, b"ROLLBACK"]
        self._statements = len(statements)
        reset = [self._reset] if self._reset else []
        results = yield from self._ask(b"; ".join([*statements, *reset]))
        self._note_reset(results)
        *told, undone = results[: self._statements]
        command_tag(undone)
        is_ended = status == TransactionStatus.IDLE and not self._was_asked
        if is_ended or any(one.get_value(0, 0) == b"t" for one in told):
            raise ended_by_application(self._resource.name)

    def _note_reset(self, results: list[PGresult]) -> None:
        """Take note of a reset that failed, or that found another user than before."""
        for one in results[self._statements :]:
            done = one.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
            if not done or (one.nfields and one.get_value(0, one.nfields - 1) == b"f"):
                self._is_reset = False

    def _command(self, verb: str) -> bytes:
        """Return the command.

        What ends the work of the branch fails if this is not the transaction that it began. PREPARE
        follows the outcome row, which is there if the branch commits.
        """
        self._statements = 1
        if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            command = verb if verb == "COMMIT" else f"{verb} '{self._gid}'"
            return command.encode("ascii")
        self._statements = 2
        with_row = verb == _PREPARED and not self._connection.read_only
        request = ending(self._resource, self.xid, self._gid, verb, with_row=with_row)
        reset = [self._reset] if self._reset else []
        return b"; ".join([encoded(self._connection, request), *reset])

    def _ask(self, command: bytes) -> Steps[list[PGresult]]:
        results: list[PGresult] = yield partial(self._answer, lambda: command)
        return results

    def _refuse_held(self, late: bool) -> None:
        """Raise `TransactionUsageError` if nothing will give the lock of the connection back.

        Once the session was ended a statement of another thread fails soon. What has kept the lock
        ``late``, for some time since then, is a generator of psycopg that nobody goes on with.
        """
        if late:
            raise TransactionUsageError(
                f"a COPY or a stream of rows of {self._resource.name!r} was left open",
                advice="Close it before the transaction ends: leave its block, or read all rows",
            )

    def _answer(self, command: Callable[[], bytes] | None) -> Any:
        """Return the answers to a command, or to the one sent before; awaitable for tasks.

        The command is made once no other thread or task is at work on the connection.
        """
        raise NotImplementedError


class PostgresBranch(BasePostgresBranch):
    """One branch of a thread."""

    __slots__ = ()

    _connection: Connection

    @property
    def raw(self) -> Connection:
        """The driver's connection."""
        return self._connection

    @property
    def handle(self) -> Connection:
        """The connection."""
        return self._connection

    def prepare(self) -> Vote:
        """Run PREPARE TRANSACTION and verify its answer."""
        return drive(self._prepare())

    def commit(self) -> None:
        """Run COMMIT PREPARED."""
        drive(self._commit())

    def commit_one_phase(self) -> None:
        """Run COMMIT."""
        drive(self._commit_one_phase())

    def rollback(self) -> None:
        """Run ROLLBACK or ROLLBACK PREPARED."""
        drive(self._rollback())

    def close(self) -> None:
        """Give the connection back."""
        self._give_back()

    def _answer(self, command: Callable[[], bytes] | None) -> list[PGresult]:
        connection = self._connection
        lock = connection.lock
        try:
            late = self._aborted
            while not lock.acquire(timeout=_LOCK_S):
                self._refuse_held(late)
                late = self._aborted
            try:
                if command is not None:
                    connection.pgconn.send_query(command())
                return wait(connection)
            finally:
                lock.release()
        except BaseException:  # Ctrl-C among them: whatever follows must not wait for the answer
            self.abort()
            raise


class AsyncPostgresBranch(BasePostgresBranch):
    """One branch of a task."""

    __slots__ = ()

    _connection: AsyncConnection

    @property
    def handle(self) -> AsyncConnection:
        """The connection."""
        return self._connection

    async def prepare(self) -> Vote:
        """Run PREPARE TRANSACTION and verify its answer."""
        return await follow(self._prepare())

    async def commit(self) -> None:
        """Run COMMIT PREPARED."""
        await follow(self._commit())

    async def commit_one_phase(self) -> None:
        """Run COMMIT."""
        await follow(self._commit_one_phase())

    async def rollback(self) -> None:
        """Run ROLLBACK or ROLLBACK PREPARED."""
        await follow(self._rollback())

    async def close(self) -> None:
        """Give the connection back."""
        self._give_back()

    async def _answer(self, command: Callable[[], bytes] | None) -> list[PGresult]:
        connection = self._connection
        if connection.lock.locked():
            await self._wait_for_lock()
        async with connection.lock:
            if command is not None:
                connection.pgconn.send_query(command())
            results: list[PGresult] = await connection.wait(generators.execute(connection.pgconn))
        return results

    async def _wait_for_lock(self) -> None:
        lock, late = self._connection.lock, self._aborted
        while lock.locked():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOCK_S), lock:
                    return
            self._refuse_held(late)
            late = self._aborted
