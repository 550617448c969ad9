"""SQLAlchemy engines and sessions.

In: an engine. Out: the resource of its dialect over the engine's own connections, whose
handle is a SQLAlchemy `Connection` (``sqlalchemy.orm.Session(bind=handle)`` works on it). The
two-phase support of the dialects is not used: it records no decision, and its id is random.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.records import Xid
from tallystick.services.driver_errors import refused_by
from tallystick.services.transactions.deadlines import Call
from tallystick.services.transactions.resource import (
    Branch,
    BranchRolledBack,
    Resource,
    ResourceUnreachable,
    Vote,
    abort,
    discard,
    send_commit,
    send_prepare,
)
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import time
from tallystick.storage.signals import interrupt_in, uninterrupted

try:
    import sqlalchemy
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("sqlalchemy", "sql") from error


_Begun = TypeVar("_Begun")

CONNECT_TIMEOUT_S = 30.0
"""Limit for connecting by an engine without a queue of connections, whose limit it would be."""

_GRACE_S = 1.0
"""The pool of the engine may say first that it has none."""

ROLLED_BACK = (
    "a rollback of SQLAlchemy undoes the whole transaction; "
    "begin_nested() makes one that undoes a part"
)
"""Why a branch that SQLAlchemy has rolled back cannot commit."""


def from_engine(name: str, engine: Any) -> Resource:
    """Return the resource for an engine.

    Raises:
        TransactionUsageError: its dialect has none, or it is not a `sqlalchemy.Engine`.
    """
    if not isinstance(engine, sqlalchemy.Engine):
        raise TransactionUsageError(
            f"{type(engine).__name__} cannot be a resource",
            expected="a sqlalchemy.Engine",
            advice="An AsyncEngine needs one for recovery beside it: see AsyncDatabase",
        )
    return SqlAlchemyResource(name, engine, _native(name, engine))


def _native(name: str, engine: sqlalchemy.Engine) -> Any:
    """Return the resource of the engine's dialect, over the engine's connections."""
    dialect = f"{engine.dialect.name}+{engine.dialect.driver}"
    native: Any
    if engine.dialect.is_async:
        raise TransactionUsageError(
            f"{dialect} of {name!r} is asynchronous", expected="an engine of create_engine()"
        )
    if dialect == "postgresql+psycopg":
        from tallystick.services.transactions.resources import postgres

        native = postgres.PostgresResource(name, _connects_itself)
        native.pool = EnginePool(engine, postgres.alive)
    elif dialect in ("mysql+pymysql", "mariadb+pymysql"):
        from tallystick.services.transactions.resources import mysql

        native = mysql.MySqlResource(name, _connects_itself)
        native.pool = EnginePool(engine, mysql.alive, mysql.set_autocommit)
    elif dialect == "sqlite+pysqlite" and engine.url.database not in (None, "", ":memory:"):
        from tallystick.services.transactions.resources import sqlite

        native = sqlite.SqliteResource(name, str(engine.url.database))
        native.pool = EnginePool(engine, lambda _: True, sqlite.set_up_for_recovery)
    else:
        raise TransactionUsageError(
            f"no two-phase commit through {dialect}",
            expected="postgresql+psycopg, mysql+pymysql, mariadb+pymysql or sqlite+pysqlite"
            " (a file)",
        )
    return native


def _connects_itself() -> Any:
    raise AssertionError("the engine makes the connections")  # `pool` is replaced before its use


class EnginePool(Uncopied):
    """The connections of an engine: its pool, its events, its settings.

    Branches use the engine's own pool, within its bounds. Recovery uses a second one that is made
    alike: it must work while transactions that wait for it hold all connections of the first.

    Args:
        engine: makes the connections.
        alive: returns whether the server answers on a connection of the driver.
        set_up: is called with each connection that is lent to recovery.
    """

    def __init__(
        self,
        engine: sqlalchemy.Engine,
        alive: Callable[[Any], bool],
        set_up: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._alive = alive
        self._set_up = set_up
        self._for_recovery = engine.pool.recreate()
        self._out: dict[int, sqlalchemy.PoolProxiedConnection] = {}

    def begin(self, start: Callable[[Any], _Begun]) -> _Begun:
        """Call ``start`` with a connection of the driver; see `Pool.begin`."""
        with uninterrupted:
            return self.check_out(lambda proxied: start(proxied.driver_connection))

    def check_out(self, start: Callable[[sqlalchemy.PoolProxiedConnection], _Begun]) -> _Begun:
        """Call ``start`` with a connection of the engine's pool, until one is alive.

        In an uninterrupted block a signal may interrupt what takes time.

        Raises:
            ResourceUnreachable: the pool has none in time, the ``pool_timeout`` of the engine.
        """
        handled = sys.exception()
        while True:
            proxied = uninterrupted.interruptible(_connect_in_time, self._engine.pool)
            raw = proxied.driver_connection
            self._out[id(raw)] = proxied
            try:
                return uninterrupted.interruptible(start, proxied)
            except BaseException as error:
                self.give(raw, broken=True)
                interrupted = interrupt_in(error, handled) is not None
                if interrupted or not self._was_idle_too_long(error, raw):
                    raise

    def _was_idle_too_long(self, error: BaseException, raw: Any) -> bool:
        """Return True if a connection is dead; the next one is another, or a new one."""
        driver = self._engine.dialect.loaded_dbapi.Error
        return isinstance(error, driver) and self._engine.dialect.is_disconnect(error, raw, None)

    @contextlib.contextmanager
    def borrow(self) -> Iterator[Any]:
        """Lend a connection of the driver for a block; see `Pool.borrow`."""
        proxied = _connect_in_time(self._for_recovery)
        while not self._alive(proxied.driver_connection):
            proxied.invalidate()
            proxied = _connect_in_time(self._for_recovery)
        try:
            self._set_up(proxied.driver_connection)
            yield proxied.driver_connection
        except BaseException:
            proxied.invalidate()
            raise
        finally:
            proxied.close()

    def give(self, connection: Any, *, broken: bool = False) -> None:
        """Take a connection back into the engine's pool; a broken one is closed."""
        proxied = self._out.pop(id(connection))
        if broken and proxied.is_valid:
            proxied.invalidate()
        proxied.close()

    def close(self) -> None:
        """Close the connections of recovery; the engine belongs to the application."""
        self._for_recovery.dispose()


def _connect_in_time(pool: sqlalchemy.Pool) -> sqlalchemy.PoolProxiedConnection:
    """Connect in a thread of its own: a driver may wait for ever for a server that hangs.

    Not in an event loop, where a task can be given up; nor if there is no more to do than to take a
    connection out of a queue.
    """
    if isinstance(pool, sqlalchemy.AsyncAdaptedQueuePool) or _gives_at_once(pool):
        return _connect(pool)
    seconds = pool.timeout() if isinstance(pool, sqlalchemy.QueuePool) else CONNECT_TIMEOUT_S
    call = Call(partial(contextvars.copy_context().run, _connect, pool))
    try:
        return call.result(time.monotonic() + seconds + _GRACE_S)
    except BaseException as error:
        # It would stay out of its pool for as long as this error is known to anybody.
        call.give_up(lambda late: late.invalidate())
        if not isinstance(error, TimeoutError):
            raise
        raise ResourceUnreachable(f"no connection within {seconds:g} s") from error


def _gives_at_once(pool: sqlalchemy.Pool) -> bool:
    """Return True if the next connection of a pool is there, and is not asked anything."""
    if not isinstance(pool, sqlalchemy.QueuePool):
        return isinstance(pool, sqlalchemy.StaticPool | sqlalchemy.SingletonThreadPool)
    idle = tuple(getattr(pool._pool, "queue", ()))
    return bool(idle) and not (
        pool._pre_ping
        or pool._recycle >= 0
        or any(
            one.dbapi_connection is None or one.starttime <= pool._invalidate_time for one in idle
        )
    )


def _connect(pool: sqlalchemy.Pool) -> sqlalchemy.PoolProxiedConnection:
    try:
        return pool.connect()
    except sqlalchemy.exc.TimeoutError as error:
        raise ResourceUnreachable(str(error)) from error


class SqlAlchemyResource(Uncopied):
    """A database of an engine; everything but the handle is that of the native resource.

    For tasks its branches run in worker threads.
    """

    begin_async = None

    def __init__(self, name: str, engine: sqlalchemy.Engine, inner: Any) -> None:
        self.name = name
        self._inner = inner
        self._engine = engine

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def begin(self, xid: Xid) -> Branch:
        """Begin a branch of the native resource under a SQLAlchemy connection."""
        inner = self._inner
        if inner.keeps_rows:
            inner.prepare_for_rows()
        with inner.errors:
            try:
                return cast(Branch, inner.pool.check_out(lambda proxied: self._start(proxied, xid)))
            except sqlalchemy.exc.DBAPIError as error:
                raise ResourceUnreachable(str(error)) from error

    def _start(self, proxied: sqlalchemy.PoolProxiedConnection, xid: Xid) -> SqlAlchemyBranch:
        protected = Protected(proxied)
        # Without revalidation: on another connection the application would leave the branch.
        connection = sqlalchemy.Connection(
            self._engine,
            cast(sqlalchemy.PoolProxiedConnection, protected),
            _allow_revalidate=False,
        )
        if connection.in_transaction():  # listeners of engine_connect have run statements
            connection.commit()
        raw: Any = proxied.driver_connection
        level: int | None = None
        # A session joins a transaction that runs: its commit and its close leave it alone.
        if (
            self._engine.dialect.name == "sqlite"
        ):  # the listener for "begin" that is usual begins it
            from tallystick.services.transactions.resources.sqlite import set_up
            from tallystick.services.transactions.resources.sqlite_session import refuse_end

            (level,) = raw.execute("PRAGMA synchronous").fetchone()
            set_up(raw)
            connection.begin()
        with self._inner.watch(raw):
            inner = self._inner.start(raw, xid)
        if level is not None:
            inner.synchronous = level
        protected.is_branch = True
        if level is not None:
            sqlalchemy.event.listen(
                connection,
                "before_cursor_execute",
                lambda *given: refuse_end(self.name, given[2]),
            )
        if not connection.in_transaction():
            connection.begin()
        return SqlAlchemyBranch(inner, connection, protected)


class Protected:
    """A pooled connection whose branch only the coordinator can commit, roll back or close.

    Attributes:
        is_branch: whether a branch has begun on it.
        rolled_back: whether the application has asked for a rollback: then the branch may only
            roll back.
    """

    def __init__(self, proxied: sqlalchemy.PoolProxiedConnection) -> None:
        self._proxied = proxied
        self.is_branch = False
        self.rolled_back = False

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._proxied, attribute)

    def commit(self) -> None:
        """Do nothing: the transaction manager commits."""
        if not self.is_branch:
            self._proxied.commit()

    def rollback(self) -> None:
        """Mark the branch: the transaction manager rolls back."""
        if self.is_branch:
            self.rolled_back = True
        else:
            self._proxied.rollback()

    def close(self) -> None:
        """Do nothing: the branch gives the connection back."""

    def _close_special(self, transaction_reset: bool = False) -> None:
        """Do nothing: SQLAlchemy closes in this way once it has rolled back."""


@contextlib.contextmanager
def refusals_of(engine: sqlalchemy.Engine) -> Iterator[None]:
    """Have a refusal be caused by the error that the engine would raise, not by the driver's."""
    try:
        yield
    except BranchRolledBack as answer:
        own = refused_by(answer)
        if own is None:
            raise
        dialect = engine.dialect
        error = sqlalchemy.exc.DBAPIError.instance(
            "COMMIT", None, own, dialect.loaded_dbapi.Error, dialect=dialect
        )
        raise BranchRolledBack(answer.message) from error


class SqlAlchemyBranch:
    """A native branch whose handle is a SQLAlchemy connection over the same DB-API one."""

    def __init__(self, inner: Any, connection: sqlalchemy.Connection, protected: Protected) -> None:
        self.xid: Xid = inner.xid
        self._inner = inner
        self._connection = connection
        self._protected = protected
        self._prepared = False

    @property
    def handle(self) -> sqlalchemy.Connection:
        """The SQLAlchemy connection."""
        return self._connection

    def send_prepare(self) -> bool:
        """Send the request of `prepare`."""
        return not self._protected.rolled_back and send_prepare(self._inner)

    def send_commit(self) -> bool:
        """Send the request of `commit`."""
        return send_commit(self._inner)

    def prepare(self) -> Vote:
        """Prepare the native branch, unless the application has rolled it back."""
        self._refuse_rolled_back()
        with refusals_of(self._connection.engine):
            vote: Vote = self._inner.prepare()
        self._prepared = True
        return vote

    def commit(self) -> None:
        """Commit the native branch; one that was not prepared may have been rolled back."""
        if not self._prepared:
            self._refuse_rolled_back()
        with refusals_of(self._connection.engine):
            self._inner.commit()

    def commit_one_phase(self) -> None:
        """Commit the native branch without prepare."""
        self._refuse_rolled_back()
        with refusals_of(self._connection.engine):
            self._inner.commit_one_phase()

    def _refuse_rolled_back(self) -> None:
        if self._protected.rolled_back:
            self._inner.rollback()
            raise BranchRolledBack(ROLLED_BACK)

    def rollback(self) -> None:
        """Roll the native branch back."""
        self._inner.rollback()

    def abort(self) -> None:
        """End the session, so that a call that waits for it fails."""
        abort(self._inner)

    def discard(self, *, prepared: bool) -> None:
        """Release the native branch."""
        discard(self._inner, prepared=prepared)

    def close(self) -> None:
        """Close the SQLAlchemy connection and the native branch."""
        try:
            self._connection.close()
        finally:
            self._inner.close()
