"""A page store as a resource of a transaction manager.

In: branches of global transactions. Out: sessions of the store; a branch is prepared under its
`branch_name`, with a row in the table `OUTCOMES`, which is there if the branch has committed.
"""

from __future__ import annotations

import hashlib
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

OUTCOMES = "tallystick_outcomes"


class TwoPhaseStore(Protocol):
    """The calls of a `PageStore` that a resource needs."""

    @property
    def store_id(self) -> int:
        """A random number made with the store."""
        ...

    def begin(self, *, read_only: bool = False) -> Session:
        """Begin a transaction."""
        ...

    def create_table(self, name: str) -> None:
        """Create an empty table, unless it exists."""
        ...

    def tables(self) -> Sequence[str]:
        """Return the names of the tables."""
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
        self._has_table = False

    def begin(self, xid: Xid) -> PageStoreBranch:
        """Begin a branch."""
        with store_errors():
            if not self._has_table:
                self._store.create_table(OUTCOMES)
                self._has_table = True
            return PageStoreBranch(self._store.begin(), xid)

    def identity(self) -> str:
        """Return the number that the store was made with."""
        with store_errors():
            return f"page store {self._store.store_id:x}"

    def outcomes(self) -> Sequence[bytes]:
        """List the global ids of the outcome rows: of branches that have committed."""
        with store_errors():
            if OUTCOMES not in self._store.tables():
                return []
            with self._store.begin(read_only=True) as session:
                return [gtrid for _, gtrid in session.table(OUTCOMES).range()]

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Delete outcome rows."""
        if gtrids and not self._store.in_doubt():  # else the store is read-only
            with store_errors(), self._store.begin() as session:
                table = session.table(OUTCOMES)
                for gtrid in gtrids:
                    table.pop(_key(gtrid), None)

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
            self._session.table(OUTCOMES)[_key(self.xid.gtrid)] = self.xid.gtrid
            with self._preparing():
                self._session.prepare(branch_name(self.xid))
        except TallystickError as error:
            raise BranchRolledBack(str(error)) from error
        return Vote.PREPARED


def _key(gtrid: bytes) -> int:
    """Return the key of an outcome row: 63 bits, as of a hash."""
    return int.from_bytes(hashlib.blake2b(gtrid, digest_size=8).digest(), "big") >> 1
