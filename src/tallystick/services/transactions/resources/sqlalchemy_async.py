"""SQLAlchemy's asynchronous engines.

In: an `AsyncEngine`, and an ordinary engine of the same database for recovery. Out: a resource
whose branches for tasks have an `AsyncConnection` of the first as their handle; an `AsyncSession`
can be bound to it. Branches for threads, recovery and outcome rows use the second.

An asynchronous driver belongs to one event loop, and recovery runs in threads, at times when no
loop runs; so an `AsyncEngine` alone cannot be a resource.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.reconcile.gid import format_gid
from tallystick.records import Xid
from tallystick.services.driver_errors import ErrorKind, kind_of
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    ResourceUnreachable,
    Vote,
)
from tallystick.services.transactions.resources.connection_resource import (
    ended_by_application,
    message_of,
)
from tallystick.services.transactions.resources.sqlalchemy import (
    ROLLED_BACK,
    EnginePool,
    Protected,
    from_engine,
    refusals_of,
)
from tallystick.storage.fork import Uncopied

try:
    import sqlalchemy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
    from sqlalchemy.util import greenlet_spawn
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("sqlalchemy", "sql") from error


class AsyncDatabase(Uncopied):
    """An asynchronous engine as a resource, with an ordinary one for recovery.

    Args:
        engine: for the branches of tasks; its driver is asyncpg, psycopg, aiomysql or asyncmy.
        recovery: for everything else; its driver is psycopg or PyMySQL.
    """

    def __init__(self, engine: AsyncEngine, *, recovery: sqlalchemy.Engine) -> None:
        self.engine = engine
        self.recovery = recovery

    def as_resource(self, name: str) -> AsyncEngineResource:
        """Return the resource under its unique name.

        Raises:
            TransactionUsageError: a driver cannot take part, or the two are of different kinds.
        """
        return AsyncEngineResource(name, self.engine, self.recovery)


class AsyncEngineResource(Uncopied):
    """A database with both engines; see `AsyncDatabase`."""

    def __init__(self, name: str, engine: AsyncEngine, recovery: sqlalchemy.Engine) -> None:
        driver = engine.dialect.driver
        kind = {"asyncpg": "postgresql", "psycopg": "postgresql"} | dict.fromkeys(
            ("aiomysql", "asyncmy"), "mysql"
        )
        self.name = name
        self._sync = cast(Any, from_engine(name, recovery))
        if kind.get(driver) != self._sync.dialect:
            raise TransactionUsageError(
                f"{driver} and {recovery.dialect.driver} cannot share the resource {name!r}",
                expected="asyncpg or psycopg with psycopg, aiomysql or asyncmy with PyMySQL",
            )
        self.engine = engine
        self._pool = EnginePool(engine.sync_engine, lambda _: True)
        self._isolation: str | None = None

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._sync, attribute)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    async def begin_async(self, xid: Xid) -> AsyncEngineBranch:
        """Begin a branch for a task."""
        if self._sync.keeps_rows:
            await asyncio.to_thread(self._sync.prepare_for_rows)
        while True:
            try:
                return await greenlet_spawn(self._begin, xid)
            except _IdleTooLongError:
                continue
            except sqlalchemy.exc.DBAPIError as error:
                raise ResourceUnreachable(str(error)) from error
            except OSError as error:
                raise ResourceUnreachable(str(error)) from error

    def _begin(self, xid: Xid) -> AsyncEngineBranch:
        """Begin on a connection of the pool, in a greenlet."""

        def start(proxied: sqlalchemy.PoolProxiedConnection) -> AsyncEngineBranch:
            used = proxied.info.setdefault("tallystick", set())
            try:
                branch = self._start(proxied, xid)
            except ResourceUnreachable as answer:
                if used:
                    raise _IdleTooLongError from answer
                raise
            used.add("before")
            return branch

        return self._pool.check_out(start)

    def _start(self, proxied: sqlalchemy.PoolProxiedConnection, xid: Xid) -> AsyncEngineBranch:
        protected = Protected(proxied)
        connection = sqlalchemy.Connection(
            self.engine.sync_engine,
            cast(sqlalchemy.PoolProxiedConnection, protected),
            _allow_revalidate=False,
        )
        if connection.in_transaction():  # listeners of engine_connect have run statements
            connection.commit()
        inner = self._driver_branch(proxied, xid)
        sqlalchemy.util.await_only(inner.start())
        protected.is_branch = True
        if not connection.in_transaction():
            connection.begin()
        return AsyncEngineBranch(self, inner, connection, protected, xid)

    def _driver_branch(self, proxied: sqlalchemy.PoolProxiedConnection, xid: Xid) -> Any:
        """Return the branch of the driver, not begun yet."""
        raw: Any = proxied.driver_connection
        driver, native = self.engine.dialect.driver, self._sync
        if driver == "asyncpg":
            adapted: Any = proxied.dbapi_connection
            if self._isolation is None:
                dialect = self.engine.sync_engine.dialect
                self._isolation = dialect.get_isolation_level(adapted)
                adapted.rollback()
            begin = f"BEGIN ISOLATION LEVEL {self._isolation}"
            return _AsyncpgBranch(native, adapted, xid, begin)
        if driver == "psycopg":
            from tallystick.services.transactions.resources.postgres import AsyncPostgresBranch

            return _PsycopgBranch(AsyncPostgresBranch, native, raw, xid)
        errors = self.engine.sync_engine.dialect.loaded_dbapi.Error
        return _MySqlBranch(native, proxied.dbapi_connection, xid, errors)

    def give(self, connection: Any, *, broken: bool) -> None:
        """Take a connection back, in a greenlet unless it is broken."""
        self._pool.give(connection, broken=broken)

    def close(self) -> None:
        """Close the connections of recovery; the engines belong to the application."""
        self._sync.close()


class _IdleTooLongError(Exception):
    """A connection of the pool is dead; the next one is another, or a new one."""


class AsyncEngineBranch:
    """A branch of a driver whose handle is an `AsyncConnection` over the same connection."""

    def __init__(
        self,
        resource: AsyncEngineResource,
        inner: Any,
        connection: sqlalchemy.Connection,
        protected: Protected,
        xid: Xid,
    ) -> None:
        self.xid = xid
        self._resource = resource
        self._inner = inner
        self._connection = connection
        self._protected = protected
        self._loop = asyncio.get_running_loop()
        self._handle = AsyncConnection(resource.engine, connection)

    @property
    def handle(self) -> AsyncConnection:
        """The connection of the asynchronous engine."""
        return self._handle

    async def prepare(self) -> Vote:
        """Prepare, unless the application has rolled it back."""
        await self._refuse_rolled_back()
        with refusals_of(self._resource.engine.sync_engine):
            vote: Vote = await self._inner.prepare()
        return vote

    async def commit(self) -> None:
        """Commit what was prepared."""
        await self._inner.commit()

    async def commit_one_phase(self) -> None:
        """Commit without prepare, unless the application has rolled it back."""
        await self._refuse_rolled_back()
        with refusals_of(self._resource.engine.sync_engine):
            await self._inner.commit_one_phase()

    async def rollback(self) -> None:
        """Roll back."""
        await self._inner.rollback()

    async def _refuse_rolled_back(self) -> None:
        if self._protected.rolled_back:
            await self._inner.rollback()
            raise BranchRolledBack(ROLLED_BACK)

    async def close(self) -> None:
        """Close the SQLAlchemy connection and give the driver's back."""
        broken = not self._inner.release()

        def release() -> None:
            try:
                self._connection.close()
            finally:
                self._resource.give(self._inner.raw, broken=broken)

        await greenlet_spawn(release)

    def abort(self) -> None:
        """End the session, so that a call that waits for it fails."""
        with suppress(RuntimeError):  # its event loop is closed
            self._loop.call_soon_threadsafe(self._inner.end_session)

    def discard(self, *, prepared: bool) -> None:  # noqa: ARG002 - the session ends either way
        """Close the connection; the server rolls back what is not prepared."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(
                lambda: self._resource.give(self._inner.raw, broken=True)
            )


class _PsycopgBranch:
    """The branch of psycopg's own resource."""

    def __init__(self, kind: Any, native: Any, raw: Any, xid: Xid) -> None:
        self.raw = raw
        self._native = native
        self._sound = False
        self._branch: Any = kind(native, raw, xid, self._take_back)
        self.prepare, self.commit = self._branch.prepare, self._branch.commit
        self.commit_one_phase = self._branch.commit_one_phase
        self.rollback, self.end_session = self._branch.rollback, self._branch.abort

    async def start(self) -> None:
        """Begin the transaction on the server."""
        from tallystick.services.transactions.resources.postgres import driver_errors
        from tallystick.services.transactions.steps import follow

        with driver_errors, self._native.watch(self.raw):  # psycopg is slow to give up
            await follow(self._branch.start())

    def _take_back(self, _: object, *, broken: bool) -> None:
        self._sound = not broken

    def release(self) -> bool:
        """Let go of the connection; return True if it can be used again."""
        self._branch._give_back()
        return self._sound


class _AsyncpgBranch:
    """A transaction of asyncpg, by requests of the simple protocol.

    ``adapted`` is SQLAlchemy's connection over that of asyncpg. It begins no transaction of its own
    until `release`.
    """

    def __init__(self, native: Any, adapted: Any, xid: Xid, begin: str) -> None:
        self.raw = adapted.driver_connection
        self._adapted = adapted
        self._native = native
        self._xid = xid
        self._gid = format_gid(xid)
        self._begin = begin
        self._prepare_sent = self._over = False

    async def start(self) -> None:
        """Begin the transaction on the server."""
        from tallystick.services.transactions.resources.postgres import beginning

        self._adapted.autocommit = True
        await self._run(beginning(self._gid, self._begin))

    async def prepare(self) -> Vote:
        """Run PREPARE TRANSACTION and verify its answer."""
        self._require_transaction()
        self._prepare_sent = True
        tag = await self._end("PREPARE TRANSACTION")
        if tag != "PREPARE TRANSACTION":
            raise BranchRolledBack(f"the server answered PREPARE TRANSACTION with {tag}")
        return Vote.PREPARED

    async def commit(self) -> None:
        """Run COMMIT PREPARED."""
        self._over = True
        await self._run(f"COMMIT PREPARED '{self._gid}'")

    async def commit_one_phase(self) -> None:
        """Run COMMIT."""
        self._require_transaction()
        self._over = True
        tag = await self._end("COMMIT")
        if tag != "COMMIT":
            raise BranchRolledBack(f"the server answered COMMIT with {tag}")

    async def rollback(self) -> None:
        """Run ROLLBACK or ROLLBACK PREPARED."""
        if self._over:
            return
        if self.raw.is_closed():
            if self._prepare_sent:
                raise ResourceUnreachable("the connection was lost at prepare")
            return
        if self._prepare_sent and not self.raw.is_in_transaction():
            with suppress(BranchUnknown):
                await self._run(f"ROLLBACK PREPARED '{self._gid}'")
        else:
            is_ended = not self.raw.is_in_transaction()
            await self._run("ROLLBACK")
            if is_ended:
                self._over = True
                raise ended_by_application(self._native.name)
        self._over = True

    def release(self) -> bool:
        """Let go of the connection; return True if it can be used again."""
        self._adapted.autocommit = False  # which means: as its engine has set it
        return self._over and not self.raw.is_closed() and not self.raw.is_in_transaction()

    def end_session(self) -> None:
        """End the session without waiting."""
        self.raw.terminate()

    def _as_engine_raises(self, error: Exception) -> Exception:
        """Return the error that SQLAlchemy's connection makes of one of asyncpg."""
        try:
            self._adapted._handle_exception(error)
        except Exception as adapted:
            return adapted
        return error

    def _require_transaction(self) -> None:
        if not self.raw.is_closed() and not self.raw.is_in_transaction():
            raise ended_by_application(self._native.name)

    async def _end(self, verb: str) -> str:
        from tallystick.services.transactions.resources.postgres import ending

        request = ending(self._native, self._xid, self._gid, verb, with_row=True)
        return await self._run(request, ends=True)

    async def _run(self, request: str, *, ends: bool = False) -> str:
        """Run a request and return the tag of its last command.

        Args:
            request: the statements.
            ends: whether a refusal means that the branch is rolled back.
        """
        import asyncpg

        from tallystick.services.transactions.resources.postgres import was_ended

        try:
            # Not while another task's statement is at work.
            async with self._adapted._execute_mutex:
                return cast(str, await self.raw.execute(request))
        except asyncpg.PostgresError as error:
            if was_ended(error):
                raise ended_by_application(self._native.name) from error
            if error.sqlstate == "42704":
                raise BranchUnknown(message_of(error)) from error
            if ends and error.sqlstate and kind_of(error) is not ErrorKind.LOST:
                raise BranchRolledBack(message_of(error)) from self._as_engine_raises(error)
            raise ResourceUnreachable(message_of(error)) from error
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise ResourceUnreachable(str(error)) from error


class _MySqlBranch:
    """An XA transaction of aiomysql or asyncmy; ``adapted`` is SQLAlchemy's connection over it."""

    def __init__(self, native: Any, adapted: Any, xid: Xid, errors: type[Exception]) -> None:
        from tallystick.reconcile.ids import literal

        self.raw = adapted.driver_connection
        self._lock: asyncio.Lock = adapted._execute_mutex
        self._native = native
        self._xid = xid
        self._literal = literal(xid)
        self._errors = errors, OSError, asyncio.IncompleteReadError
        self._ended = self._prepare_sent = self._over = self._lost = False

    async def start(self) -> None:
        """Begin the branch on the server."""
        await self._run("XA START")

    async def prepare(self) -> Vote:
        """Store the outcome row, run XA END and XA PREPARE."""
        from tallystick.services.transactions.resources.mysql import text_literal

        table = self._native.outcome_table
        try:
            if table is not None:
                row = f"'{self._xid.gtrid.hex()}', {text_literal(self._native.name)}"
                await self._run(f"INSERT INTO {table} VALUES ({row})", of_branch=False)
            await self._end()
            self._prepare_sent = True
            await self._run("XA PREPARE")
        except BranchUnknown as answer:
            raise ended_by_application(self._native.name) from answer
        return Vote.PREPARED

    async def commit(self) -> None:
        """Run XA COMMIT."""
        self._over = True
        await self._run("XA COMMIT")

    async def commit_one_phase(self) -> None:
        """Run XA END and XA COMMIT ... ONE PHASE."""
        try:
            await self._end()
        except BranchUnknown as answer:
            raise ended_by_application(self._native.name) from answer
        self._over = True
        await self._run("XA COMMIT", more=" ONE PHASE")

    async def rollback(self) -> None:
        """Run XA END and XA ROLLBACK, unless the branch has ended."""
        if self._over:
            return
        if self._lost:
            if self._prepare_sent:
                raise ResourceUnreachable("the connection was lost at prepare")
            return  # the server rolls back with the connection
        with suppress(BranchRolledBack, BranchUnknown):
            await self._end()
        self._over = True
        await self._run("XA ROLLBACK")

    def release(self) -> bool:
        """Let go of the connection; return True if it can be used again."""
        return self._over and not self._lost

    def end_session(self) -> None:
        """End the session without waiting."""
        self._lost = True
        self.raw.close()

    async def _end(self) -> None:
        if not self._ended:
            self._ended = True
            await self._run("XA END")

    async def _run(self, statement: str, *, of_branch: bool = True, more: str = "") -> None:
        from tallystick.services.transactions.resources.mysql import raise_meaning

        text = f"{statement} {self._literal}{more}" if of_branch else statement
        try:
            async with self._lock:  # another task's statement would get the answer to this one
                await self.raw.query(text)
        except self._errors as error:
            code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            self._lost = self._lost or not 1000 <= code < 2000  # the server's own errors
            try:
                raise_meaning(text, error)
            except self._errors:
                raise ResourceUnreachable(message_of(error)) from error
