"""A global transaction for a thread, which waits for each of its steps.

In: calls of the application (enlist, commit, rollback, hooks). Out: the steps of
`global_transaction`, driven.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions.global_transaction import OPEN, GlobalTransaction, Status
from tallystick.services.transactions.steps import drive

__all__ = ["Status", "Transaction"]


class Transaction(GlobalTransaction):
    """A global transaction; a context manager that commits, or rolls back on an exception.

    ``transaction["name"]`` enlists the resource of that name at its first use and gives its
    handle. It belongs to the thread that began it until `suspend` and `resume` hand it over.
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        self._require_open("use a resource")
        if name not in self._branches:
            resource = self._joining(name)
            self._join(name, resource, resource.begin(self._manager.xids.branch(self.gtrid)))
        return self._branches[name].handle

    def enlist(self, name: str) -> Any:
        """Enlist a resource and give its handle. Raises `TransactionUsageError` if it is
        enlisted already; ``transaction[name]`` does not mind."""
        self._require_new(name)
        return self[name]

    def suspend(self) -> None:
        """Let go of the transaction, so that another thread may `resume` it."""
        self._require_open("suspend it", timed=False)
        self._owner = None

    def resume(self) -> None:
        """Take over a suspended transaction for this thread."""
        if self._owner is not None:
            raise TransactionUsageError(
                "the transaction is not suspended",
                advice="Call suspend() in the thread that works on it first",
            )
        self._owner = threading.get_ident()

    def commit(self) -> None:
        """Make it durable in every resource, or in none. Raises `RolledBackError`,
        `InDoubtError`, `HeuristicError`, `TransactionUsageError`."""
        self._run_hooks()
        drive(self._commit())

    def prepare(self) -> None:
        """The first phase alone, for a coordinator above this one: afterwards only `commit`
        or `rollback` is left, and either can be carried out. Raises `RolledBackError`."""
        self._run_hooks()
        drive(self._prepare())

    def rollback(self) -> None:
        """Undo everything in every resource."""
        drive(self._roll_back())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.status not in OPEN:
            return
        if error is None:
            self.commit()
        else:
            self.rollback()

    def _run_hooks(self) -> None:
        if not self._before or self.status is Status.PREPARED:
            return
        try:
            drive(self._call_hooks())
        except TransactionUsageError:
            raise
        except BaseException:
            drive(self._roll_back())
            raise
