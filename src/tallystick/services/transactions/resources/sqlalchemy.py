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
    BranchRolledBack,
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def begin(self, xid: Xid) -> Branch:
        """Begin a branch of the native resource under a SQLAlchemy connection."""
        inner = self._inner.begin(xid)
        protected = self._next.raw = _ProtectedConnection(inner.raw)
        try:
            connection = self._engine.connect()
            # A session joins a transaction that runs: its commit and its close leave it alone.
            connection.begin()
            return SqlAlchemyBranch(inner, connection, protected)
        except sqlalchemy.exc.DBAPIError as error:
            inner.rollback()
            inner.close()
            raise ResourceUnreachable(str(error)) from error


class _ProtectedConnection:
    """A DB-API connection that only the coordinator can commit, roll back or close.

    ``rolled_back`` is whether the application has asked for a rollback: then the branch may only
    roll back.
    """

    def __init__(self, raw: Any) -> None:
        object.__setattr__(self, "_raw", raw)
        object.__setattr__(self, "rolled_back", False)

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
        """Mark the branch: the transaction manager rolls back."""
        object.__setattr__(self, "rolled_back", True)

    def forget_rollback(self) -> None:
        """Take back the mark: SQLAlchemy rolls back when it meets a connection."""
        object.__setattr__(self, "rolled_back", False)

    def close(self) -> None:
        """Do nothing: the native resource keeps the connection."""


class SqlAlchemyBranch:
    """A native branch whose handle is a SQLAlchemy connection over the same DB-API one."""

    def __init__(
        self, inner: Any, connection: sqlalchemy.Connection, protected: _ProtectedConnection
    ) -> None:
        self.xid: Xid = inner.xid
        self._inner = inner
        self._connection = connection
        self._protected = protected
        protected.forget_rollback()
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
        vote: Vote = self._inner.prepare()
        self._prepared = True
        return vote

    def commit(self) -> None:
        """Commit the native branch; one that was not prepared may have been rolled back."""
        if not self._prepared:
            self._refuse_rolled_back()
        self._inner.commit()

    def commit_one_phase(self) -> None:
        """Commit the native branch without prepare."""
        self._refuse_rolled_back()
        self._inner.commit_one_phase()

    def _refuse_rolled_back(self) -> None:
        if self._protected.rolled_back:
            self._inner.rollback()
            raise BranchRolledBack(
                "a rollback of SQLAlchemy undoes the whole transaction; "
                "begin_nested() makes one that undoes a part"
            )

    def rollback(self) -> None:
        """Roll the native branch back."""
        self._inner.rollback()

    def close(self) -> None:
        """Close the SQLAlchemy connection and the native branch."""
        self._connection.close()
        self._inner.close()
