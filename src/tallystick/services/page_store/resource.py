"""A page store as a resource of a transaction manager.

In: branches of global transactions. Out: sessions of the store; a branch is prepared under its
`branch_name`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tallystick.errors import TallystickError
from tallystick.records import Xid
from tallystick.roles import InDoubt, branch_name, branch_of
from tallystick.services.page_store.transactions import Session
from tallystick.services.transactions.resource import BranchRolledBack, BranchUnknown, Vote
from tallystick.services.transactions.resources.embedded import (
    EmbeddedBranch,
    EmbeddedResource,
    store_errors,
)


class TwoPhaseStore(Protocol):
    """The calls of a `PageStore` that a resource needs."""

    def begin(self) -> Session:
        """Begin a transaction."""
        ...

    def in_doubt(self) -> Sequence[InDoubt]:
        """Return prepared transactions."""
        ...

    def settle(self, name: str, *, commit: bool) -> None:
        """Decide a prepared transaction. Raises `KeyError` for an unknown name."""
        ...


class PageStoreResource(EmbeddedResource):
    """A store under its unique name."""

    def __init__(self, name: str, store: TwoPhaseStore) -> None:
        super().__init__(name)
        self._store = store

    def begin(self, xid: Xid) -> PageStoreBranch:
        """Begin a branch."""
        with store_errors():
            return PageStoreBranch(self._store.begin(), xid)

    def in_doubt(self) -> Sequence[Xid]:
        """Return the branches that are prepared in the store."""
        with store_errors():
            found = [branch_of(one.name) for one in self._store.in_doubt()]
        return [xid for xid in found if xid is not None]

    def commit(self, xid: Xid) -> None:
        """Commit a prepared branch. Raises `BranchUnknown`."""
        self._settle(xid, commit=True)

    def rollback(self, xid: Xid) -> None:
        """Roll a prepared branch back. Raises `BranchUnknown`."""
        self._settle(xid, commit=False)

    def _settle(self, xid: Xid, *, commit: bool) -> None:
        try:
            with store_errors():
                self._store.settle(branch_name(xid), commit=commit)
        except KeyError:
            raise BranchUnknown("the store knows no such branch") from None


class PageStoreBranch(EmbeddedBranch):
    """A branch: one session of the store."""

    def __init__(self, session: Session, xid: Xid) -> None:
        super().__init__(session, xid)
        self._session = session

    @property
    def handle(self) -> Session:
        """The session that the application works with."""
        return self._session

    def prepare(self) -> Vote:
        """Prepare the session under the branch's name; roll back if it changed nothing."""
        if not self._session.changes:
            self.rollback()
            return Vote.READ_ONLY
        try:
            self._session.prepare(branch_name(self.xid))
        except TallystickError as error:
            raise BranchRolledBack(str(error)) from error
        return Vote.PREPARED
