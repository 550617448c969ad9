"""What resources that are reached over connections have in common.

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


class Reachable:
    """A block in which an error of the driver says nothing of the branch: it becomes
    `ResourceUnreachable`. One object serves every block of its room."""

    __slots__ = ("_errors",)

    def __init__(self, *errors: type[Exception]) -> None:
        self._errors = errors

    def answer(self, error: BaseException) -> ResourceAnswer:
        """What the error is for the coordinator."""
        return ResourceUnreachable(told(error))

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and isinstance(error, self._errors):
            raise self.answer(error) from error


class ConnectedResource(ABC, Generic[_Connection]):
    """A database under its unique name, over pooled connections."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], _Connection],
        reachable: Reachable,
        alive: Callable[[_Connection], bool] = lambda _: True,
    ) -> None:
        self.name = name
        self.pool: Pool[_Connection] = Pool(connect, alive)
        self._reachable = reachable

    def begin(self, xid: Xid) -> Branch:
        """A branch on a connection of its own."""
        with self._reachable:
            return self.pool.begin(lambda connection: self.start(connection, xid))

    @abstractmethod
    def start(self, connection: _Connection, xid: Xid) -> Branch:
        """Begin the branch on the server. Raises the driver's errors."""

    def close(self) -> None:
        self.pool.close()


def told(error: BaseException) -> str:
    """What a driver's error says, without its number."""
    arguments: tuple[Any, ...] = error.args
    return str(arguments[-1] if arguments else error).strip()


def closed_by_application(name: str) -> TransactionUsageError:
    """What to raise at the commit of a branch whose connection the application has closed."""
    return TransactionUsageError(
        f"the connection of {name!r} was closed",
        advice="Leave it open: the transaction manager takes it back when the transaction ends",
    )
