"""A journal as a resource of a transaction manager: a database and a queue, both or neither.

In: branches of global transactions, of threads and of tasks. Out: journal transactions, prepared
with the XA id both as the log's own columns and as extra data in the form that Artemis gives it,
bqual first:

    4 format id, 4 length, bqual, 4 length, gtrid     big-endian
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol, TypeVar

from tallystick.records import Kind, Xid
from tallystick.roles import JournalEngine, Ticket
from tallystick.services.journal.outcomes import Outcomes
from tallystick.services.journal.transaction import (
    AsyncJournalTransaction,
    BaseJournalTransaction,
    JournalTransaction,
)
from tallystick.services.transactions.resource import BranchRolledBack, BranchUnknown, Vote
from tallystick.services.transactions.resources.embedded import (
    BranchOfStore,
    EmbeddedBranch,
    EmbeddedResource,
    store_errors,
)
from tallystick.services.transactions.resources.thread_branch import in_thread
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL

_NUMBER = struct.Struct(">i")
_ENDS = (Kind.COMMIT, Kind.ROLLBACK)
_Transaction = TypeVar("_Transaction", bound=BaseJournalTransaction)


class Begin(Protocol):
    """How a resource begins transactions of its journal."""

    def __call__(self, face: type[_Transaction], /) -> _Transaction:
        """Begin a journal transaction of the class ``face``."""
        ...


class Settle(Protocol):
    """How a resource ends transactions of its journal that are in doubt."""

    def __call__(self, number: int, /, *, commit: bool) -> Ticket:
        """Commit or roll back the prepared transaction of this number."""
        ...


class JournalResource(EmbeddedResource):
    """A journal under its unique name.

    Args:
        name: the name of the resource.
        begin: begins a transaction of the journal.
        settle: ends one of its transactions in doubt.
        engine: the open log of the journal.
        folder: its directory.
        fs: the file system of that.
    """

    def __init__(
        self,
        name: str,
        begin: Begin,
        settle: Settle,
        engine: JournalEngine,
        folder: str,
        fs: FileSystem = LOCAL,
    ) -> None:
        super().__init__(name)
        self._begin = begin
        self._settle = settle
        self._engine = engine
        self._outcomes = Outcomes(folder, fs)
        # Its own: what the application runs in others may wait for a lock that a commit releases.
        self._workers = ThreadPoolExecutor(1, "tallystick-outcomes")

    def begin(self, xid: Xid) -> JournalBranch:
        """Begin a branch for a thread."""
        with store_errors():
            return JournalBranch(self._begin(JournalTransaction), xid, self)

    async def begin_async(self, xid: Xid) -> AsyncJournalBranch:
        """Begin a branch for a task, which awaits the journal's group commit."""
        with store_errors():
            return AsyncJournalBranch(self._begin(AsyncJournalTransaction), xid, self)

    def note_commit(self, xid: Xid) -> None:
        """Note a branch that is about to be committed, which proves it afterwards."""
        with store_errors():
            self._outcomes.add(xid.gtrid)

    async def note_commit_async(self, xid: Xid) -> None:
        """Note as `note_commit` does, in a worker thread: another one may sync the file now."""
        await in_thread(self._workers, lambda: self.note_commit(xid))

    async def forget_commit_async(self, xid: Xid) -> None:
        """Take back what `note_commit` has noted, in the same way."""
        await in_thread(self._workers, lambda: self.forget_outcomes([xid.gtrid]))

    def column(self, xid: Xid) -> Xid | None:
        """Return the id for the log's own columns; None if its format has none."""
        return xid if self._engine.identity else None

    def identity(self) -> str:
        """Return the identity in the log's control file; else the one beside the log."""
        with store_errors():
            return f"journal {self._engine.identity or self._outcomes.identity()}"

    def outcomes(self) -> Sequence[bytes]:
        """List the global ids of branches that have committed, or are in doubt."""
        with store_errors():
            return self._outcomes.all()

    def committed_in_log(self, gtrids: Collection[bytes]) -> Collection[bytes]:
        """Return those of the global ids whose branches have committed, as the log says.

        For what a power cut has taken from the file of outcomes. The whole log is read.
        """
        prepared: dict[int | None, bytes] = {}
        committed: set[bytes] = set()
        with store_errors():
            for record in self._engine.records():
                if record.kind is Kind.PREPARE:
                    xid = decode_xid(record.attributes.get("extra", b""))
                    if xid is not None and xid.gtrid in gtrids:
                        prepared[record.transaction] = xid.gtrid
                elif record.transaction in prepared and record.kind in _ENDS:
                    gtrid = prepared.pop(record.transaction)
                    if record.kind is Kind.COMMIT:
                        committed.add(gtrid)
        return committed

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Remove global ids from the file of outcomes."""
        if gtrids:
            with store_errors():
                self._outcomes.forget(gtrids)

    def in_doubt(self) -> Sequence[Xid]:
        """Read the ids of prepared branches; what has ended is durable before."""
        return list(self._prepared())

    def commit(self, xid: Xid) -> None:
        """Commit a branch found in doubt."""
        self._end(xid, commit=True)

    def rollback(self, xid: Xid) -> None:
        """Roll back a branch found in doubt."""
        self._end(xid, commit=False)

    def _prepared(self) -> dict[Xid, int]:
        """Return the numbers of prepared transactions by the ids of their branches."""
        with store_errors():
            self._engine.flush()
            found = self._engine.in_doubt()
        known = ((decode_xid(extra), number) for number, extra in found.items())
        return {xid: number for xid, number in known if xid is not None}

    def _end(self, xid: Xid, *, commit: bool) -> None:
        found = self._prepared().get(xid)
        if found is None:
            raise BranchUnknown("the journal knows no such branch")
        if commit:
            self.note_commit(xid)
        with store_errors():
            self._settle(found, commit=commit).wait()


class JournalBranch(EmbeddedBranch):
    """One branch: a transaction of the journal."""

    def __init__(
        self, transaction: JournalTransaction, xid: Xid, resource: JournalResource
    ) -> None:
        super().__init__(transaction, xid)
        self._transaction = transaction
        self._resource = resource

    @property
    def handle(self) -> JournalTransaction:
        """The transaction."""
        return self._transaction

    def prepare(self) -> Vote:
        """Prepare the transaction under the branch's id."""
        with self._preparing():
            self._transaction.prepare(encode_xid(self.xid), self._resource.column(self.xid))
        return Vote.PREPARED

    def commit(self) -> None:
        """Commit the transaction, which is prepared."""
        self._resource.note_commit(self.xid)
        try:
            super().commit()
        except BranchUnknown:  # somebody has settled it, and perhaps not so
            self._resource.forget_outcomes([self.xid.gtrid])
            raise


class AsyncJournalBranch(BranchOfStore):
    """One branch of a task: a transaction of the journal, whose ends are awaited."""

    def __init__(
        self, transaction: AsyncJournalTransaction, xid: Xid, resource: JournalResource
    ) -> None:
        super().__init__(transaction, xid)
        self._transaction = transaction
        self._resource = resource

    @property
    def handle(self) -> AsyncJournalTransaction:
        """The transaction."""
        return self._transaction

    async def prepare(self) -> Vote:
        """Prepare the transaction under the branch's id."""
        with self._preparing():
            await self._transaction.prepare(encode_xid(self.xid), self._resource.column(self.xid))
        return Vote.PREPARED

    async def commit(self) -> None:
        """Commit the transaction, which is prepared."""
        await self._resource.note_commit_async(self.xid)
        try:
            await self.commit_one_phase()
        except BranchUnknown:  # somebody has settled it, and perhaps not so
            await self._resource.forget_commit_async(self.xid)
            raise

    async def commit_one_phase(self) -> None:
        """Commit the transaction without prepare."""
        with self._ending():
            await self._transaction.commit()

    async def rollback(self) -> None:
        """Roll the transaction back unless it has ended."""
        if not self._over:
            with suppress(BranchRolledBack), self._ending():  # there is no room to log that
                await self._transaction.rollback()

    async def close(self) -> None:
        """Do nothing: the transaction has ended, or is in doubt with its journal."""


def encode_xid(xid: Xid) -> bytes:
    """Return the id as extra data of a prepare record."""
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
    """Return the id in extra data; None if it holds none."""
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
