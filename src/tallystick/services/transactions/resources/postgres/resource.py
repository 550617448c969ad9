"""A database of PostgreSQL: its connections, outcome rows and branches in doubt.

In: a connection string or function. Out: branches, and what recovery asks for.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
from psycopg import capabilities, generators, waiting
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from tallystick.errors import TransactionUsageError
from tallystick.reconcile.gid import format_gid, parse_gid
from tallystick.records import Xid
from tallystick.services.transactions.resource import Problem, ResourceUnreachable
from tallystick.services.transactions.resources.connection_resource import (
    OUTCOMES,
    ConnectionResource,
    NoTableError,
    check_scheme,
    message_of,
    no_primary,
    no_rows,
    shut_down,
    url_options,
)
from tallystick.services.transactions.resources.handle import branch_is_over
from tallystick.services.transactions.resources.pool import AsyncPool
from tallystick.services.transactions.resources.postgres.branches import (
    AsyncPostgresBranch,
    PostgresBranch,
)
from tallystick.services.transactions.resources.postgres.requests import (
    INTERVAL_S,
    AsyncConnection,
    Connection,
    alive,
    command_tag,
    driver_errors,
    execute,
    is_pooled,
    run_query,
    text_literal,
)
from tallystick.services.transactions.steps import drive, follow
from tallystick.storage.opening import start_thread
from tallystick.storage.scheduling import threading

if TYPE_CHECKING:
    from psycopg.pq.abc import PGcancelConn


CONNECT_TIMEOUT_S = 10
"""Limit for connecting by a URL that has none."""

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
        self.resets: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()

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
            (schema,) = run_query(connection, _SCHEMA).fetchone() or (None,)
            if schema is None:
                raise NoTableError("the search path names no schema that is there")
            table = f"{schema}.{OUTCOMES}"
            query = "SELECT to_regclass(%s) IS NOT NULL"
            (there,) = run_query(connection, query, (table,)).fetchone() or (False,)
            if not there:
                with suppress(*_MADE_MEANWHILE):  # made by another at this moment
                    run_query(connection, f"CREATE TABLE IF NOT EXISTS {table} {_COLUMNS}")
                    connection.commit()
                connection.rollback()
            (allowed,) = run_query(connection, _RIGHTS, {"table": table}).fetchone() or (False,)
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
            rows = run_query(connection, query).fetchall()
            connection.rollback()
        return [bytes.fromhex(gtrid) for (gtrid,) in rows]

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Delete outcome rows."""
        if self.outcome_table is None or not gtrids:
            return
        array = ",".join(gtrid.hex() for gtrid in gtrids)
        rows = f"gtrid = ANY('{{{array}}}') AND resource = {self.quoted_name}"
        with self.lend() as connection:
            run_query(connection, f"DELETE FROM {self.outcome_table} WHERE {rows}")
            connection.commit()

    def identity(self) -> str | None:
        """Return the identifier of the cluster and the oid of the database."""
        with self.lend() as connection:
            try:
                found = run_query(connection, _IDENTITY).fetchone()
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
        """List the prepared transactions of this database whose ids are XA ids.

        A standby lists none of those that its primary has, and is taken for a server that is away.
        """
        query = (
            "SELECT NULL WHERE pg_is_in_recovery() UNION ALL "
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        )
        with self.lend() as connection:
            rows = run_query(connection, query).fetchall()
            connection.rollback()
        if (None,) in rows:
            raise ResourceUnreachable(no_primary("a standby"))
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
            row = run_query(connection, "SHOW max_prepared_transactions").fetchone()
            (reads_only,) = run_query(connection, "SHOW transaction_read_only").fetchone()
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


@cache
def _over(kind: type[Any], name: str) -> type[Any]:
    """Return the class of connections whose branch is over: their calls are refused."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise branch_is_over(name)

    return type(kind.__name__, (kind,), {"cursor": refuse, "wait": refuse})


def _cancel(request: PGcancelConn) -> None:
    with suppress(psycopg.Error):
        request.start()
        waiting.wait_conn(generators.cancel(request), INTERVAL_S, CONNECT_TIMEOUT_S)


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


def _finish(connection: AsyncConnection) -> None:
    """Close without waiting: the server notices."""
    connection.pgconn.finish()
