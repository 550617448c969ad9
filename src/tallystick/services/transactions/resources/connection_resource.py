"""The common part of resources that are reached over connections.

In: how to connect, how a branch begins on a connection, which errors the driver raises. Out:
branches over pooled connections, and those errors as the answer `ResourceUnreachable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

from tallystick.errors import TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    Branch,
    ResourceAnswer,
    ResourceUnreachable,
)
from tallystick.services.transactions.resources.pool import Closable, Pool

_Connection = TypeVar("_Connection", bound=Closable)


class DriverErrors:
    """A block in which an error of the driver becomes `ResourceUnreachable`.

    It is for errors that say nothing of the branch. One object serves any number of blocks.
    """

    __slots__ = ("_errors",)

    def __init__(self, *errors: type[Exception]) -> None:
        self._errors = errors

    def answer(self, error: BaseException) -> ResourceAnswer:
        """Return what the error means for the coordinator."""
        return ResourceUnreachable(message_of(error))

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and isinstance(error, self._errors):
            raise self.answer(error) from error


class ConnectionResource(ABC, Generic[_Connection]):
    """A database under its unique name, over pooled connections."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], _Connection],
        errors: DriverErrors,
        alive: Callable[[_Connection], bool] = lambda _: True,
    ) -> None:
        self.name = name
        self.pool: Pool[_Connection] = Pool(connect, alive)
        self._errors = errors

    def begin(self, xid: Xid) -> Branch:
        """Begin a branch on a connection of its own."""
        with self._errors:
            return self.pool.begin(lambda connection: self.start(connection, xid))

    @abstractmethod
    def start(self, connection: _Connection, xid: Xid) -> Branch:
        """Begin the branch on the server. Raises the driver's errors."""

    def close(self) -> None:
        """Close idle connections, and the others when they come back."""
        self.pool.close()


def message_of(error: BaseException) -> str:
    """Return the text of a driver's error, without its number."""
    arguments: tuple[Any, ...] = error.args
    return str(arguments[-1] if arguments else error).strip()


def closed_by_application(name: str) -> TransactionUsageError:
    """Return the error for a commit of a branch whose connection the application has closed."""
    return TransactionUsageError(
        f"the connection of {name!r} was closed",
        advice="Leave it open: the transaction manager takes it back when the transaction ends",
    )
