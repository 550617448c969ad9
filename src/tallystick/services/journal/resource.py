"""A journal as a resource of a transaction manager: a database and a queue, both or neither.

In: branches of global transactions, of threads and of tasks. Out: journal transactions, prepared
with the XA id both as the log's own columns and as extra data in the form that Artemis gives it,
bqual first:

    4 format id, 4 length, bqual, 4 length, gtrid     big-endian
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tallystick.errors import LogWriteError
from tallystick.records import Xid
from tallystick.services.journal.aio import AsyncTransaction
from tallystick.services.transactions.resource import BranchRolledBack, BranchUnknown, Vote
from tallystick.services.transactions.resources.embedded import (
    EmbeddedBranch,
    EmbeddedResource,
    answers,
)

if TYPE_CHECKING:
    from tallystick.services.journal.threads import Journal, Transaction

_NUMBER = struct.Struct(">i")


class JournalResource(EmbeddedResource):
    """A journal under its unique name."""

    def __init__(self, name: str, journal: Journal) -> None:
        super().__init__(name)
        self._journal = journal

    def begin(self, xid: Xid) -> JournalBranch:
        with answers():
            return JournalBranch(self._journal.transaction(), xid)

    def in_doubt(self) -> Sequence[Xid]:
        return list(self._prepared())

    def commit(self, xid: Xid) -> None:
        self._settle(xid, self._journal.commit_prepared)

    def rollback(self, xid: Xid) -> None:
        self._settle(xid, self._journal.rollback_prepared)

    def _prepared(self) -> dict[Xid, int]:
        with answers():
            waiting = self._journal.prepared()
        known = ((decode_xid(one.extra), one.transaction) for one in waiting)
        return {xid: number for xid, number in known if xid is not None}

    def _settle(self, xid: Xid, end: Callable[[int], object]) -> None:
        number = self._prepared().get(xid)
        if number is None:
            raise BranchUnknown("the journal knows no such branch")
        with answers():
            end(number)

    async def begin_async(self, xid: Xid) -> AsyncJournalBranch:
        """A branch for a task, which awaits the journal's group commit."""
        with answers():
            return AsyncJournalBranch(AsyncTransaction(self._journal._begin()), xid)


class JournalBranch(EmbeddedBranch):
    """One branch: a transaction of the journal."""

    def __init__(self, transaction: Transaction, xid: Xid) -> None:
        super().__init__(transaction, xid)
        self._transaction = transaction

    @property
    def handle(self) -> Transaction:
        return self._transaction

    def prepare(self) -> Vote:
        try:
            with answers():
                self._transaction.prepare(encode_xid(self.xid), self.xid)
        except LogWriteError as error:
            raise BranchRolledBack(str(error)) from error
        return Vote.PREPARED


class AsyncJournalBranch:
    """One branch of a task: a transaction of the journal, whose ends are awaited."""

    def __init__(self, transaction: AsyncTransaction, xid: Xid) -> None:
        self.xid = xid
        self._transaction = transaction
        self._over = False

    @property
    def handle(self) -> AsyncTransaction:
        return self._transaction

    async def prepare(self) -> Vote:
        try:
            with answers():
                await self._transaction.prepare(encode_xid(self.xid), self.xid)
        except LogWriteError as error:
            raise BranchRolledBack(str(error)) from error
        return Vote.PREPARED

    async def commit(self) -> None:
        self._over = True
        with answers():
            await self._transaction.commit()

    async def commit_one_phase(self) -> None:
        await self.commit()

    async def rollback(self) -> None:
        if not self._over:
            self._over = True
            with answers():
                await self._transaction.rollback()

    async def close(self) -> None:
        """The transaction has ended, or is in doubt with its journal."""


def encode_xid(xid: Xid) -> bytes:
    """The id as extra data of a prepare."""
    return b"".join(
        (
            _NUMBER.pack(xid.format_id),
            _NUMBER.pack(len(xid.bqual)),
            xid.bqual,
            _NUMBER.pack(len(xid.gtrid)),
            xid.gtrid,
        )
    )


def decode_xid(extra: bytes) -> Xid | None:
    """The id in extra data; None if it holds none."""
    try:
        (format_id,) = _NUMBER.unpack_from(extra, 0)
        (bqual_length,) = _NUMBER.unpack_from(extra, 4)
        (gtrid_length,) = _NUMBER.unpack_from(extra, 8 + bqual_length)
    except struct.error:
        return None
    bqual, gtrid = extra[8 : 8 + bqual_length], extra[12 + bqual_length :]
    if bqual_length < 0 or len(gtrid) != gtrid_length:
        return None
    return Xid(format_id, gtrid, bqual)
