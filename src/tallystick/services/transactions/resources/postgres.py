"""PostgreSQL through psycopg 3.

In: a connection string or function. Out: branches as prepared transactions, for threads and for
tasks, whose ids are spelled as psycopg's own `Xid` spells them (and pgjdbc), so that other
coordinators see the same branches. The work of a branch is written once, as steps; the faces differ
in how they wait. PREPARE TRANSACTION in a failed transaction is answered by a silent ROLLBACK, so
the command tag of the answer is read.

A statement of the application that ends the transaction, such as COMMIT, leaves no trace in the
connection if others follow. So a branch begins with a setting that lasts as long as its
transaction, and the request to prepare or commit fails on the server if the setting is gone:

    BEGIN; SET LOCAL tallystick.branch = 'gid'
    INSERT INTO tallystick_outcomes ...; PREPARE TRANSACTION 'gid'      one request, too

What the transaction has SET outlives it. Connections of an engine are reset by the engine as its
application wants; of others the request to prepare or commit does it, in statements that follow.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.reconcile.gid import format_gid, parse_gid
from tallystick.records import Xid
from tallystick.services.driver_errors import ErrorKind, kind_of
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceAnswer,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connection_resource import (
    OUTCOMES,
    ConnectionResource,
    DriverErrors,
    NoTableError,
    check_scheme,
    closed_by_application,
    ended_by_application,
    message_of,
    no_rows,
    shut_down,
    url_options,
)
from tallystick.services.transactions.resources.handle import branch_is_over
from tallystick.services.transactions.resources.pool import AsyncPool, Pool
from tallystick.services.transactions.steps import Steps, drive, follow
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading

try:
    import psycopg
    from psycopg import capabilities, generators, waiting
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import ExecStatus, TransactionStatus
    from psycopg.rows import tuple_row
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("psycopg", "postgres") from error

if TYPE_CHECKING:
    from psycopg.pq.abc import PGcancelConn, PGresult

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]

CONNECT_TIMEOUT_S = 10
"""Limit for connecting by a URL that has none."""

_INTERVAL_S = 0.1
"""Time between looks for signals while an answer is waited for."""

_LOCK_S = 1.0
"""Time between looks whether the lock of a connection is worth waiting for."""

_SCHEMA = "SELECT quote_ident(current_schema())"
_RIGHTS = (
    "SELECT bool_and(has_table_privilege(%(table)s, one)) "
    "FROM unnest(ARRAY['SELECT', 'INSERT', 'DELETE']) AS one"
)
_MADE_MEANWHILE = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DuplicateTable,
    psycopg.errors.DuplicateObject,
)
"""What ``IF NOT EXISTS`` raises where another session makes the same table at this moment."""
_COLUMNS = "(gtrid text, resource text, PRIMARY KEY (gtrid, resource))"
_IDENTITY = (
    "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "FROM pg_control_system()"
)
_PREPARED = "PREPARE TRANSACTION"
_MARK = "tallystick.branch"
_ENDED = "tallystick.ended_by_application"
"""A setting that does not exist; asking for it lets a request fail."""
_FAILED = "a statement failed, so the server only rolls back"
_WROTE_NOTHING = b"SELECT pg_current_xact_id_if_assigned() IS NULL"
_SAME_USER = "format('(current_user, session_user) = (%L, %L)', current_user, session_user)"
_ALL = (
    "SELECT 'RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; "
    f"SELECT pg_advisory_unlock_all(), ' || {_SAME_USER}"
)
"""Asks for the statements that reset a session.

They are the parts of DISCARD ALL that may follow another statement in a request. They leave what
psycopg prepared, and the role: only the one that prepared a branch may commit it. A session of
another user than before is closed: the last column tells.
"""
_SETTINGS_ALONE = "SELECT 'RESET ALL'"
_MADE = (
    "SELECT concat_ws('; ', 'SELECT ' || "
    "string_agg(format('set_config(%L, %L, false)', name, value), ', '), "
    "CASE WHEN NOT EXISTS (SELECT FROM pg_listening_channels()) THEN 'UNLISTEN *' END, "
    "CASE WHEN NOT EXISTS (SELECT FROM pg_cursors WHERE is_holdable) THEN 'CLOSE ALL' END, "
    "CASE WHEN NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_my_temp_schema()) "
    "THEN 'DISCARD TEMP' END, 'SELECT ' || CASE WHEN NOT EXISTS (SELECT FROM pg_locks "
    "WHERE locktype = 'advisory' AND pid = pg_backend_pid()) THEN 'pg_advisory_unlock_all(), ' "
    f"ELSE '' END || {_SAME_USER}) FROM ("
    "SELECT name, current_setting(name, true) AS value FROM unnest(ARRAY['search_path', "
    "'TimeZone', 'DateStyle', 'IntervalStyle', 'application_name', 'statement_timeout', "
    "'lock_timeout', 'idle_in_transaction_session_timeout', 'default_transaction_isolation', "
    "'default_transaction_read_only', 'default_transaction_deferrable', 'row_security', "
    "'synchronous_commit', 'work_mem', 'jit', 'client_min_messages']) AS name) AS new "
    "WHERE value IS NOT NULL"
)
"""Asks for the statements that set again what transactions change.

What the session had when it was new (a channel that it listens to, a temporary table) is left
alone. After RESET ALL settings of an extension or the application itself would be lost that a
function of the application has made: no view of the server lists them.
"""
_NO_SESSION = psycopg.pq.PGconn()
"""What connections of branches that are over have for a session."""
_BACKEND = "SELECT pg_backend_pid()"
_WITHOUT_AUTOCOMMIT = (
    'Connect with autocommit=False; an engine without isolation_level="AUTOCOMMIT"'
)
_FACTORIES = ("row_factory", "cursor_factory", "server_cursor_factory", "prepare_threshold")
_factories_of = attrgetter(*_FACTORIES)


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


class PostgresResource(ConnectionResource[Connection]):
    """A PostgreSQL database.

    Args:
        name: the unique name.
        connect: makes a connection that is not in autocommit mode.
        connect_async: makes one for tasks; without it their branches run in worker threads.
        detect_read_only: ask before each prepare whether the branch wrote anything (one more round
            trip); branches that did not are committed at once and vote "read only".
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        *,
        connect_async: Callable[[], Awaitable[AsyncConnection]] | None = None,
        detect_read_only: bool = False,
    ) -> None:
        super().__init__(name, connect, driver_errors, alive)
        self.quoted_name = text_literal(name)
        self.detect_read_only = detect_read_only
        self.begin_async = None if connect_async is None else self._begin_async
        self._tasks = None if connect_async is None else AsyncPool(connect_async, _finish)
        self.ask_reset = _MADE
        """Asks a new session for the statements that make it again what it is."""
        self.resets: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()
        """The answers."""

    @classmethod
    def from_url(cls, name: str, url: str) -> PostgresResource:
        """Return the database of a libpq connection string or URL, with libpq's options.

        Beside them: ``prepare_threshold``, psycopg's, a number or ``none``; and ``reset``: ``all``,
        or ``settings`` to reset nothing else after a transaction. Without ``prepare_threshold``
        psycopg prepares no statements behind a pooler: the next one may go to another server
        session.

        Raises:
            ValueError: libpq cannot read it.
        """
        check_scheme(name, url, "psycopg")
        plain, own = _own_options(name, url.replace("postgresql+psycopg://", "postgresql://", 1))
        try:
            limit = conninfo_to_dict(plain).get("connect_timeout", CONNECT_TIMEOUT_S)
            address = make_conninfo(plain, connect_timeout=limit)
        except psycopg.Error as error:
            raise ValueError("not a connection string of libpq") from error

        def connect() -> Connection:
            connection = psycopg.connect(address)
            if "prepare_threshold" in own:
                connection.prepare_threshold = own["prepare_threshold"]
            elif is_pooled(connection, execute(connection, _BACKEND)):
                connection.prepare_threshold = None
            return connection

        async def connect_async() -> AsyncConnection:
            connection = await psycopg.AsyncConnection.connect(address)
            if "prepare_threshold" in own:
                connection.prepare_threshold = own["prepare_threshold"]
                return connection
            connection.pgconn.send_query(_BACKEND.encode("ascii"))
            *_, result = await connection.wait(generators.execute(connection.pgconn))
            if is_pooled(connection, result):
                connection.prepare_threshold = None
            return connection

        made = cls(name, connect, connect_async=connect_async)
        made.ask_reset = own.get("reset", _ALL)
        return made

    def start(self, connection: Connection, xid: Xid) -> PostgresBranch:
        """Begin the transaction on the server."""
        self._refuse_autocommit(connection)
        branch = PostgresBranch(self, connection, xid, self.pool.give)
        drive(branch.start())
        return branch

    async def _begin_async(self, xid: Xid) -> AsyncPostgresBranch:
        """Begin a branch for a task."""
        assert self._tasks is not None
        if not self._prepared_for_rows:
            await asyncio.to_thread(self.prepare_for_rows)
        give = self._tasks.give

        async def start(connection: AsyncConnection) -> AsyncPostgresBranch:
            self._refuse_autocommit(connection)
            branch = AsyncPostgresBranch(self, connection, xid, give)
            with self.watch(connection):
                await follow(branch.start())
            return branch

        with driver_errors:
            return await self._tasks.begin(start)

    dialect = "postgresql"
    keeps_rows = True

    def make_table(self, connection: Connection) -> str:
        """Return the table of outcome rows, in the first schema of the search path."""
        try:
            (schema,) = _query(connection, _SCHEMA).fetchone() or (None,)
            if schema is None:
                raise NoTableError("the search path names no schema that is there")
            table = f"{schema}.{OUTCOMES}"
            query = "SELECT to_regclass(%s) IS NOT NULL"
            (there,) = _query(connection, query, (table,)).fetchone() or (False,)
            if not there:
                with suppress(*_MADE_MEANWHILE):  # made by another at this moment
                    _query(connection, f"CREATE TABLE IF NOT EXISTS {table} {_COLUMNS}")
                    connection.commit()
                connection.rollback()
            (allowed,) = _query(connection, _RIGHTS, {"table": table}).fetchone() or (False,)
            if not allowed:
                raise NoTableError(f"the user lacks rights to {table}")
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as no:
            raise NoTableError(message_of(no)) from no
        finally:
            connection.rollback()
        return table

    def outcomes(self) -> Sequence[bytes]:
        """List the global ids of all outcome rows."""
        return self.outcomes_of(self.name)

    def outcomes_of(self, name: str) -> Sequence[bytes]:
        """List the global ids of the outcome rows of a resource of this database."""
        self.prepare_for_rows(again=True)
        if self.outcome_table is None:
            return []
        # Without parameters: psycopg would take a '%' in the name of a schema for one.
        query = f"SELECT gtrid FROM {self.outcome_table} WHERE resource = {text_literal(name)}"
        with self.lend() as connection:
            rows = _query(connection, query).fetchall()
            connection.rollback()
        return [bytes.fromhex(gtrid) for (gtrid,) in rows]

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Delete outcome rows."""
        if self.outcome_table is None or not gtrids:
            return
        array = ",".join(gtrid.hex() for gtrid in gtrids)
        rows = f"gtrid = ANY('{{{array}}}') AND resource = {self.quoted_name}"
        with self.lend() as connection:
            _query(connection, f"DELETE FROM {self.outcome_table} WHERE {rows}")
            connection.commit()

    def identity(self) -> str | None:
        """Return the identifier of the cluster and the oid of the database."""
        with self.lend() as connection:
            try:
                found = _query(connection, _IDENTITY).fetchone()
            except psycopg.errors.InsufficientPrivilege:
                return None
            finally:
                connection.rollback()
        assert found is not None
        return f"PostgreSQL cluster {found[0]}, database {found[1]}"

    def _refuse_autocommit(self, connection: Connection | AsyncConnection) -> None:
        if connection.autocommit:
            raise TransactionUsageError(
                f"the connections of {self.name!r} are in autocommit mode",
                advice=_WITHOUT_AUTOCOMMIT,
            )

    def renew(self, connection: Any) -> Any:
        """Return another connection of the same session, and end this one.

        A handle that outlives its branch, or a cursor of it, would write in the next branch.
        """
        kind: Any = type(connection)
        fresh = kind(connection.pgconn)  # its notices come here from now on
        vars(fresh).update(vars(connection))
        if (reset := self.resets.pop(connection, None)) is not None:
            self.resets[fresh] = reset
        connection.pgconn = _NO_SESSION
        connection.__class__ = _over(kind, self.name)
        return fresh

    def end_session(self, connection: Connection | AsyncConnection) -> None:
        """Have the server cancel what it does, without waiting for it, and end the session."""
        pgconn = connection.pgconn
        with suppress(psycopg.Error, OSError):
            # An older libpq would stop all threads while it waits.
            if (
                pgconn.transaction_status == TransactionStatus.ACTIVE
                and capabilities.has_cancel_safe()
            ):
                cancel = pgconn.cancel_conn()
                start_thread(threading.Thread(target=_cancel, args=(cancel,), daemon=True))
        with suppress(psycopg.Error):
            shut_down(pgconn.socket)

    def close(self) -> None:
        """Close idle connections, those of tasks included."""
        super().close()
        if self._tasks is not None:
            self._tasks.close()

    def in_doubt(self) -> Sequence[Xid]:
        """List the prepared transactions of this database whose ids are XA ids."""
        query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        with self.lend() as connection:
            rows = _query(connection, query).fetchall()
            connection.rollback()
        return [xid for (gid,) in rows if (xid := parse_gid(gid)) is not None]

    def commit(self, xid: Xid) -> None:
        """Commit a branch found in doubt."""
        self._settle("COMMIT PREPARED", xid)

    def rollback(self, xid: Xid) -> None:
        """Roll back a branch found in doubt."""
        self._settle("ROLLBACK PREPARED", xid)

    def _settle(self, verb: str, xid: Xid) -> None:
        with self.lend() as connection:
            command_tag(execute(connection, f"{verb} '{format_gid(xid)}'"))

    def preflight(self) -> Sequence[Problem]:
        """Check that the server accepts PREPARE TRANSACTION."""
        with self.lend() as connection:
            row = _query(connection, "SHOW max_prepared_transactions").fetchone()
            (reads_only,) = _query(connection, "SHOW transaction_read_only").fetchone()
            connection.rollback()
            pooled = is_pooled(connection, execute(connection, _BACKEND))
            threshold = connection.prepare_threshold
            autocommit = connection.autocommit
        self.prepare_for_rows(again=True)
        problems = []
        if autocommit:
            problems.append(
                Problem(
                    self.name,
                    "the connections are in autocommit mode: no transaction can begin on them",
                    _WITHOUT_AUTOCOMMIT,
                )
            )
        if pooled and threshold is not None:
            problems.append(
                Problem(
                    self.name,
                    "the connections go through a pooler, and psycopg prepares statements on them: "
                    "in transaction mode they fail now and then",
                    "prepare_threshold=none in the URL, or prepare_threshold=None for psycopg",
                )
            )
        if reads_only == "on":
            problems.append(
                Problem(
                    self.name,
                    "the server takes no changes: a standby, or read-only by default",
                    "Give the address of the primary, or RESET default_transaction_read_only",
                )
            )
        if self.outcome_table is None:
            problems.append(no_rows(self.name, self.no_table))
        if row is None or int(row[0]) == 0:
            problems.append(
                Problem(
                    self.name,
                    "max_prepared_transactions is 0: the server refuses PREPARE TRANSACTION",
                    "Set it to at least max_connections in postgresql.conf and restart the server",
                )
            )
        return problems


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
        resource: PostgresResource,
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
            mark = f"SELECT current_setting('{_MARK}', true) IS DISTINCT FROM '{self._gid}'"
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
                return _wait(connection)
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


def execute(connection: Connection, command: str) -> PGresult:
    """Run one command by libpq's simple protocol and return its answer.

    Not by ``tpc_prepare`` and ``tpc_commit``: psycopg does not read the tag, and making the
    command there costs more time than its round trip.
    """
    connection.pgconn.send_query(command.encode("ascii"))
    return _wait(connection)[-1]


@cache
def _over(kind: type[Any], name: str) -> type[Any]:
    """Return the class of connections whose branch is over: their calls are refused."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise branch_is_over(name)

    return type(kind.__name__, (kind,), {"cursor": refuse, "wait": refuse})


def _wait(connection: Connection) -> list[PGresult]:
    """Wait for the answers to a command; a signal can interrupt it."""
    pgconn = connection.pgconn
    results: list[PGresult] = waiting.wait(generators.execute(pgconn), pgconn.socket, _INTERVAL_S)
    return results


def _cancel(request: PGcancelConn) -> None:
    with suppress(psycopg.Error):
        request.start()
        waiting.wait_conn(generators.cancel(request), _INTERVAL_S, CONNECT_TIMEOUT_S)


def _query(connection: Connection, query: str, parameters: Any = None) -> Any:
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


def _own_options(name: str, url: str) -> tuple[str, dict[str, Any]]:
    """Return a URL without the options that are not libpq's, and those."""
    place, _, query = url.partition("?")
    parts = query.split("&") if query else []
    ours = [one for one in parts if one.partition("=")[0] in _OWN_OPTIONS]
    rest = "&".join(one for one in parts if one not in ours)
    return f"{place}?{rest}" if rest else place, url_options(
        name, f"?{'&'.join(ours)}", _OWN_OPTIONS
    )


def _threshold(text: str) -> int | None:
    return None if text.lower() == "none" else int(text)


def _reset_of(text: str) -> str:
    try:
        return {"all": _ALL, "settings": _SETTINGS_ALONE}[text.lower()]
    except KeyError as error:
        raise ValueError(text) from error


_OWN_OPTIONS: dict[str, Callable[[str], Any]] = {
    "prepare_threshold": _threshold,
    "reset": _reset_of,
}
"""Options of a URL that are not libpq's."""


def text_literal(text: str) -> str:
    """Return a text as statements take it, whatever ``standard_conforming_strings`` is."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def encoded(connection: Connection | AsyncConnection, request: str) -> bytes:
    """Return a request as the session reads it."""
    return request.encode("ascii" if request.isascii() else connection.info.encoding)


def beginning(gid: str, begin: str = "BEGIN") -> str:
    """Return the request that begins the transaction of a branch, and marks it with its id."""
    return f"{begin}; SET LOCAL {_MARK} = '{gid}'"


def ending(resource: PostgresResource, xid: Xid, gid: str, verb: str, *, with_row: bool) -> str:
    """Return the request that ends the work of a branch, and fails in another transaction.

    Args:
        resource: the database.
        xid: the branch.
        gid: its id as the server has it.
        verb: ``PREPARE TRANSACTION`` or ``COMMIT``.
        with_row: store the outcome row, if there is a table for it.
    """
    mark = f"CASE current_setting('{_MARK}', true) WHEN '{gid}'"
    unbroken = f"{mark} THEN {resource.quoted_name} ELSE current_setting('{_ENDED}') END"
    command = verb if verb == "COMMIT" else f"{verb} '{gid}'"
    if with_row and resource.outcome_table is not None:
        row = f"'{xid.gtrid.hex()}', {unbroken}"
        return f"INSERT INTO {resource.outcome_table} VALUES ({row}); {command}"
    return f"SELECT {unbroken}; {command}"


def was_ended(error: BaseException) -> bool:
    """Return True for the error of such a request in another transaction."""
    return _ENDED in str(error)


def _finish(connection: AsyncConnection) -> None:
    """Close without waiting: the server notices."""
    connection.pgconn.finish()


def alive(connection: Connection) -> bool:
    """Return True if the server answers on the connection."""
    if connection.closed:
        return False
    try:
        return execute(connection, "").status == ExecStatus.EMPTY_QUERY
    except psycopg.Error:
        return False
