"""A bridge to Zope's ``transaction`` package.

In: a transaction of a `TransactionManager` at work, and Zope's current one. Out: a data manager
that prepares durably when Zope asks for votes and decides when Zope finishes. Zope itself
records no decision: only the work of this data manager is atomic across crashes, so it sorts last,
and other data managers should be able to repeat their work.
"""

from __future__ import annotations

from typing import Any

from tallystick.errors import MissingExtraError
from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.transactions.transaction import Status, Transaction

try:
    import transaction as zope
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("transaction", "zope") from error


class DataManager:
    """Zope's `IDataManager` over one of our transactions."""

    def __init__(self, ours: Transaction, transaction_manager: Any) -> None:
        self.transaction_manager = transaction_manager
        self._ours = ours

    def abort(self, _transaction: Any) -> None:
        """Roll back before any vote."""
        self._rollback()

    def tpc_begin(self, _transaction: Any) -> None:
        """Do nothing: a branch begins with its first use."""

    def commit(self, _transaction: Any) -> None:
        """Do nothing: the work is in the branches already."""

    def tpc_vote(self, _transaction: Any) -> None:
        """Prepare all branches."""
        self._ours.prepare()

    def tpc_finish(self, _transaction: Any) -> None:
        """Commit all branches."""
        self._ours.commit()

    def tpc_abort(self, _transaction: Any) -> None:
        """Roll back after a vote against it."""
        self._rollback()

    def sortKey(self) -> str:  # noqa: N802 - the name is Zope's
        """Sort last: the vote of this data manager is durable, the votes of others are not."""
        return "~~tallystick"

    def _rollback(self) -> None:
        if self._ours.status in (Status.ACTIVE, Status.MARKED, Status.PREPARED):
            self._ours.rollback()


def join(manager: TransactionManager, transaction_manager: Any = zope.manager) -> Transaction:
    """Begin a transaction that ends with Zope's current one."""
    ours = manager.begin()
    transaction_manager.get().join(DataManager(ours, transaction_manager))
    return ours
