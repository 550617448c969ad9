"""Sessions of SQLAlchemy's ORM in branches.

In: the name of a resource that is an engine, and a transaction. Out: a `Session` that is flushed
before the transaction commits. Its work is a savepoint of the branch: its rollback undoes its work
and nothing else, its commit keeps that for the transaction, and ORM events come at their times:
``before_commit`` before the first phase, ``after_commit`` after the second.

``twophase=True`` of a session is refused: SQLAlchemy would prepare each database and commit one
after the other without a record of the decision, so a stop in between leaves some of them prepared
for ever. Here the transaction manager prepares, decides and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from tallystick.errors import MissingExtraError, TransactionUsageError
from tallystick.services.transactions.transaction import Status
from tallystick.storage.fork import Uncopied

try:
    import sqlalchemy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("sqlalchemy", "sql") from error

_Session = TypeVar("_Session", bound=Session)


class _Hooks(Protocol):
    """The part of both faces of a transaction that is needed here."""

    def before_commit(self, hook: Any) -> None:
        """Call a hook when commit begins."""
        ...

    def after_completion(self, hook: Any) -> None:
        """Call a hook with the final status."""
        ...


class _Transaction(_Hooks, Protocol):
    """The part of a `Transaction` that is needed here."""

    def connection(self, name: str, kind: type[sqlalchemy.Connection]) -> sqlalchemy.Connection:
        """Return the handle of a resource."""
        ...


class _AsyncTransaction(_Hooks, Protocol):
    """The part of an `AsyncTransaction` that is needed here."""

    async def connection(self, name: str, kind: type[AsyncConnection]) -> AsyncConnection:
        """Return the handle of a resource."""
        ...


class SessionFactory(Uncopied, Generic[_Session]):
    """Makes sessions in the branch of one resource: ``session = sessions(transaction)``.

    The session is open until the transaction ends; then it is closed, and its objects are detached.

    Args:
        resource: the name of a resource that is an engine.
        session: the class of the sessions.
        options: of that class, but for ``bind``, ``binds``, ``twophase`` and
            ``join_transaction_mode``.

    Raises:
        TransactionUsageError: one of those options.
    """

    @overload
    def __init__(self: SessionFactory[Session], resource: str, **options: Any) -> None: ...

    @overload
    def __init__(self, resource: str, session: type[_Session], **options: Any) -> None: ...

    def __init__(self, resource: str, session: type[Session] = Session, **options: Any) -> None:
        _refuse(options)
        self.resource = resource
        self._session = cast(type[_Session], session)
        self._options = options

    def __repr__(self) -> str:
        return f"SessionFactory({self.resource!r}, {self._session.__name__})"

    def __call__(self, transaction: _Transaction) -> _Session:
        """Return a new session in the transaction's branch.

        Raises:
            TransactionUsageError: the resource is no engine, or the transaction has ended.
        """
        connection = transaction.connection(self.resource, sqlalchemy.Connection)
        session = self._session(
            bind=connection, join_transaction_mode="create_savepoint", **self._options
        )
        transaction.before_commit(_tie(transaction, session))
        return session


class AsyncSessionFactory(Uncopied):
    """Makes sessions for tasks: ``session = await sessions(transaction)``. See `SessionFactory`.

    Args:
        resource: the name of a resource that is an `AsyncDatabase`.
        options: of `AsyncSession`, but for those that `SessionFactory` refuses.

    Raises:
        TransactionUsageError: one of those options.
    """

    def __init__(self, resource: str, **options: Any) -> None:
        _refuse(options)
        self.resource = resource
        self._options = options

    def __repr__(self) -> str:
        return f"AsyncSessionFactory({self.resource!r})"

    async def __call__(self, transaction: _AsyncTransaction) -> AsyncSession:
        """Return a new session in the transaction's branch.

        Raises:
            TransactionUsageError: the resource is no such engine, or the transaction has ended.
        """
        connection = await transaction.connection(self.resource, AsyncConnection)
        session = AsyncSession(
            connection, join_transaction_mode="create_savepoint", **self._options
        )
        flush = _tie(transaction, session.sync_session)
        transaction.before_commit(lambda: session.run_sync(lambda _: flush()))
        return session


def _tie(transaction: _Hooks, session: Session) -> Callable[[], None]:
    """Let a session end with a transaction; return the call that flushes it at commit."""
    open_work: list[bool] = []

    def flush() -> None:
        if session.in_transaction():
            if not session.is_active:  # a flush has failed, which undid all of its work
                session.connection()  # raises the error of SQLAlchemy that says so
            session.dispatch.before_commit(session)
            session.flush()
            open_work.append(True)

    def end(status: Status) -> None:
        if open_work and status is Status.COMMITTED:
            session.dispatch.after_commit(session)
        elif status is Status.ROLLED_BACK and session.in_transaction():
            session.dispatch.after_rollback(session)
        session.close()

    transaction.after_completion(end)
    return flush


def _refuse(options: Mapping[str, Any]) -> None:
    refused = {"bind", "binds", "twophase", "join_transaction_mode"} & set(options)
    if refused:
        raise TransactionUsageError(
            f"a session of a branch takes no {', '.join(sorted(refused))}",
            advice="The transaction manager binds it, and runs two-phase commit itself",
        )
