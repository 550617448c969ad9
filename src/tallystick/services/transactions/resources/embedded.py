"""The common part of resources that live in this process: our own stores and journals.

In: a store that is open here. Out: those methods of a resource and a branch that need no more than
that. The store belongs to the application and is not closed with the transaction manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from tallystick.arguments import text
from tallystick.errors import (
    LogClosedError,
    LogPoisonedError,
    LogWriteError,
    RecordIdError,
    TransactionUsageError,
)
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceUnreachable,
)
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import WaitRefusedError
from tallystick.storage.signals import uninterrupted


class StoreTransaction(Protocol):
    """A transaction of such a store.

    While ``in_branch`` is true it refuses to be ended or prepared: its branch does that.
    """

    in_branch: bool

    def commit(self) -> object:
        """Commit it, prepared or not."""
        ...

    def rollback(self) -> object:
        """Roll it back, prepared or not."""
        ...

    @property
    def prepared(self) -> bool:
        """True after prepare."""
        ...


class EmbeddedResource(Uncopied):
    """A store under its unique name."""

    def __init__(self, name: str) -> None:
        self.name = text(name, "name")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def preflight(self) -> Sequence[Problem]:
        """Return no problems: there is nothing to set up."""
        return []

    def close(self) -> None:
        """Do nothing: the store belongs to the application."""


class BranchOfStore(Uncopied):
    """One branch: a transaction of the store, which nobody else may end meanwhile.

    What its ends have in common, awaited or not.
    """

    def __init__(self, transaction: StoreTransaction, xid: Xid) -> None:
        self.xid = xid
        self._store_transaction = transaction
        self._over = False
        transaction.in_branch = True

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Let the block end the transaction.

        Raises:
            BranchRolledBack: the store has refused its commit.
            BranchUnknown: it was prepared, and another caller has ended it.
            ResourceUnreachable: the store has refused the end of a prepared one, which stays so, or
                has refused to wait.
        """
        transaction = self._store_transaction
        prepared = transaction.prepared
        self._over = True
        transaction.in_branch = False
        with store_errors():
            try:
                yield
            except WaitRefusedError:  # it has ended: its commit is with the log
                raise
            except TransactionUsageError as error:
                if prepared:  # somebody has settled it by its name or number
                    raise BranchUnknown(f"the store knows no such branch: {error}") from error
                raise
            except LogWriteError as error:
                if not prepared:
                    raise BranchRolledBack(str(error)) from error
                self._over, transaction.in_branch = False, True
                raise

    @contextmanager
    def _preparing(self) -> Iterator[None]:
        """Let the block prepare the transaction; the application cannot end it afterwards.

        Raises:
            BranchRolledBack: the store has refused it.
        """
        self._store_transaction.in_branch = False
        try:
            with store_errors():
                try:
                    yield
                except LogWriteError as error:
                    raise BranchRolledBack(str(error)) from error
        finally:
            self._store_transaction.in_branch = True


class EmbeddedBranch(BranchOfStore):
    """A branch whose ends block."""

    def commit(self) -> None:
        """Commit what was prepared."""
        self._end(self._store_transaction.commit)

    def commit_one_phase(self) -> None:
        """Commit without prepare."""
        self._end(self._store_transaction.commit)

    def rollback(self) -> None:
        """Roll back unless the transaction has ended."""
        if not self._over:
            with suppress(BranchRolledBack):  # there is no room to log that
                self._end(self._store_transaction.rollback)

    def close(self) -> None:
        """Roll back if a signal has interrupted whatever was to end or prepare the transaction."""
        if not self._store_transaction.prepared:
            with suppress(TransactionUsageError):  # the application has ended it itself
                self.rollback()

    def _end(self, end: Callable[[], object]) -> None:
        with uninterrupted, self._ending():
            end()


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn the errors of a store into `ResourceUnreachable`, a refused id into a rollback.

    What became of the branch is known once the store is opened again, or has room.
    """
    try:
        yield
    except (LogClosedError, LogPoisonedError, LogWriteError, OSError) as error:
        raise ResourceUnreachable(str(error)) from error
    except RecordIdError as error:
        raise BranchRolledBack(str(error)) from error
