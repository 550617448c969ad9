"""SQLAlchemy engines and sessions.

In: an engine. Out: the resource of its dialect over the engine's own connections, whose
handle is a SQLAlchemy `Connection` (``sqlalchemy.orm.Session(bind=handle)`` works on it). The
two-phase support of the dialects is not used: it records no decision, and its id is random.
"""

from __future__ import annotations

import threading
from typing import Any

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    Branch,
    Resource,
    ResourceUnreachable,
    Vote,
    send_commit,
    send_prepare,
)

try:
    import sqlalchemy
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("sqlalchemy", "sql") from error


def from_engine(name: str, engine: Any) -> Resource:
    """Return the resource for an engine.

    Raises:
        TransactionUsageError: its dialect has none, or it is not a `sqlalchemy.Engine`.
    """
    if not isinstance(engine, sqlalchemy.Engine):
        raise TransactionUsageError(
            f"{type(engine).__name__} cannot be a resource",
            expected="a sqlalchemy.Engine (an AsyncEngine has one as sync_engine)",
        )
    return SqlAlchemyResource(name, engine, _native(name, engine))


def _native(name: str, engine: sqlalchemy.Engine) -> Any:
    def connect() -> Any:
        return engine.dialect.connect(*arguments, **settings)

    arguments, settings = engine.dialect.create_connect_args(engine.url)
    dialect = f"{engine.dialect.name}+{engine.dialect.driver}"
    if dialect == "postgresql+psycopg":
        from tallystick.services.transactions.resources.postgres import PostgresResource

        return PostgresResource(name, connect)
    if dialect in ("mysql+pymysql", "mariadb+pymysql"):
        from tallystick.services.transactions.resources.mysql import MySqlResource

        return MySqlResource(name, connect)
    if dialect == "sqlite+pysqlite" and engine.url.database:
        from tallystick.services.transactions.resources.sqlite import SqliteResource

        return SqliteResource(name, engine.url.database)
    raise TransactionUsageError(
        f"no two-phase commit through {dialect}",
        expected="postgresql+psycopg, mysql+pymysql, mariadb+pymysql or sqlite+pysqlite (a file)",
    )


class SqlAlchemyResource:
    """A database of an engine; everything but the handle is that of the native resource.

    For tasks its branches run in worker threads.
    """

    begin_async = None

    def __init__(self, name: str, engine: sqlalchemy.Engine, inner: Any) -> None:
        self.name = name
        self._inner = inner
        self._next = threading.local()
        # A second engine of the same dialect: each "connect" of it is given a branch's connection.
        self._engine = sqlalchemy.create_engine(
            engine.url, creator=lambda: self._next.raw, poolclass=sqlalchemy.NullPool
        )

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)

    def begin(self, xid: Xid) -> Branch:
        """Begin a branch of the native resource under a SQLAlchemy connection."""
        inner = self._inner.begin(xid)
        self._next.raw = _ProtectedConnection(inner.raw)
        try:
            return SqlAlchemyBranch(inner, self._engine.connect())
        except sqlalchemy.exc.DBAPIError as error:
            inner.rollback()
            inner.close()
            raise ResourceUnreachable(str(error)) from error


class _ProtectedConnection:
    """A DB-API connection that only the coordinator can commit, roll back or close."""

    def __init__(self, raw: Any) -> None:
        object.__setattr__(self, "_raw", raw)

    # Dialects hand the connection to functions of the driver, which test its class.
    @property  # type: ignore[misc]  # where object has an attribute that can be set
    def __class__(self) -> type:
        return type(self._raw)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._raw, attribute)

    def __setattr__(self, attribute: str, value: Any) -> None:
        setattr(self._raw, attribute, value)

    def commit(self) -> None:
        """Do nothing: the transaction manager commits."""

    def rollback(self) -> None:
        """Do nothing: the transaction manager rolls back."""

    def close(self) -> None:
        """Do nothing: the native resource keeps the connection."""


class SqlAlchemyBranch:
    """A native branch whose handle is a SQLAlchemy connection over the same DB-API one."""

    def __init__(self, inner: Any, connection: sqlalchemy.Connection) -> None:
        self.xid: Xid = inner.xid
        self._inner = inner
        self._connection = connection

    @property
    def handle(self) -> sqlalchemy.Connection:
        """The SQLAlchemy connection."""
        return self._connection

    def send_prepare(self) -> bool:
        """Send the request of `prepare`."""
        return send_prepare(self._inner)

    def send_commit(self) -> bool:
        """Send the request of `commit`."""
        return send_commit(self._inner)

    def prepare(self) -> Vote:
        """Prepare the native branch."""
        vote: Vote = self._inner.prepare()
        return vote

    def commit(self) -> None:
        """Commit the native branch."""
        self._inner.commit()

    def commit_one_phase(self) -> None:
        """Commit the native branch without prepare."""
        self._inner.commit_one_phase()

    def rollback(self) -> None:
        """Roll the native branch back."""
        self._inner.rollback()

    def close(self) -> None:
        """Close the SQLAlchemy connection and the native branch."""
        self._connection.close()
        self._inner.close()
