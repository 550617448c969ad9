"""One transaction of a journal: its records count once it has committed, or not at all.

In: records of one transaction. Out: elements of it in the log, and its end. The records are handed
to the engine at once and do not wait; `JournalTransaction` blocks until an end is durable,
`AsyncJournalTransaction` awaits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Self

from tallystick.arguments import integer
from tallystick.errors import (
    LogClosedError,
    LogWriteError,
    RecordIdError,
    TransactionUsageError,
)
from tallystick.records import Xid
from tallystick.roles import RECORD_ID_MAX, RECORD_ID_MIN, JournalEngine, Ticket
from tallystick.roles.branches import refuse_in_branch
from tallystick.roles.record_ids import (
    ADD,
    DELETE,
    UPDATE,
    IdChange,
    TransactionIds,
    id_error,
    note_change,
    own_refusal,
    rolled_back_error,
)
from tallystick.services.journal.ids import JournalIds
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import OwnedLock, WaitRefusedError
from tallystick.storage.signals import starts_unchecked, uninterrupted


class Phase(StrEnum):
    """State of a journal transaction."""

    ACTIVE = "active"
    PREPARED = "prepared"
    ENDED = "ended"


_ACTIVE, _PREPARED, _ENDED = Phase.ACTIVE, Phase.PREPARED, Phase.ENDED
"""Named without a call, as a member of an enum is not: no other thread runs meanwhile."""


class BaseJournalTransaction(Uncopied):
    """Records that become live together; what both faces share.

    Args:
        engine: the engine of the journal.
        number: identifies the transaction in the log.
        ids: the ids of the journal; None if other processes share it: then their leader checks.
        order: the journal's lock, which keeps ``ids`` in the order of the log.
        left: gets the number of the transaction if nothing refers to it any more before its end.
    """

    _begun = False
    """A record of it may be in the log."""

    def __init__(
        self,
        engine: JournalEngine,
        number: int,
        ids: JournalIds | None,
        order: OwnedLock,
        left: list[int],
    ) -> None:
        self.number = number
        self._left = left
        self._phase = Phase.ACTIVE
        self.in_branch = False
        """It is a branch of a global transaction, which alone ends it."""
        self._engine = engine
        self._order = order
        self._ids = ids
        self._touched: TransactionIds = {}

    @starts_unchecked
    def __del__(self) -> None:
        # Nothing more is done here: this may run anywhere, also where the journal's lock is held.
        # And nothing is called: what a signal's handler raised in here would get lost.
        if self._begun and self._phase is _ACTIVE and not self.in_branch:
            left = self._left
            left += (self.number,)

    @property
    def prepared(self) -> bool:
        """True between `prepare` and the end."""
        return self._phase is Phase.PREPARED

    def append(self, body: bytes) -> None:
        """Append a plain record."""
        self._require_active()
        self._begun = True
        self._engine.append_in(self.number, body)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Add a record. Raises `RecordIdError` if a record of this id is live."""
        self._change(ADD, record_id, self._engine.add_in, body, user_type)

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Give one more body to a record that is live, or was added in this transaction."""
        self._change(UPDATE, record_id, self._engine.update_in, body, user_type)

    def delete(self, record_id: int) -> None:
        """Delete a record that is live, or was added in this transaction."""
        self._change(DELETE, record_id, self._engine.delete_in)

    def _change(
        self, change: IdChange, record_id: int, write: Callable[..., None], *arguments: object
    ) -> None:
        """Write the change of a record, the arguments of which the engine checks."""
        self._require_active()
        record_id = id_of(record_id)
        with uninterrupted:
            self._check(change, record_id)
            self._begun = True
            write(self.number, record_id, *arguments)
            note_change(self._touched, change, record_id)

    def _check(self, change: IdChange, record_id: int) -> None:
        """Refuse at the call what this process knows to be wrong; the rest shows at the end.

        So it waits for no lock and no file: a task calls it on its event loop.
        """
        refusal, ids = own_refusal(self._touched, change, record_id), self._ids
        if refusal is None and record_id not in self._touched and ids is not None:
            refusal = None if ids.doubted else ids.refusal(change, record_id)
        if refusal is not None:
            raise id_error(refusal, record_id)
        if change is ADD and self._engine.deletes_last and record_id in self._touched:
            raise RecordIdError(
                f"record {record_id} was deleted in this transaction, and the format of this log "
                "applies the deletes of a transaction last",
                advice="Add it in the next transaction",
            )

    # -- ends ---------------------------------------------------------------------------

    def _submit_prepare(self, extra: bytes, xid: Xid | None) -> Ticket:
        refuse_in_branch(self.in_branch)
        self._require_active()
        with uninterrupted, self._order:
            if self._ids is not None:
                self._ids.learn_if_doubted()
            with self._becoming(_PREPARED):
                self._check_all()
                ticket = self._engine.prepare(self.number, extra, xid)
                if self._ids is not None:
                    self._ids.prepare(self.number, self._touched)
        return ticket

    def _submit_commit(self) -> Ticket:
        return self._submit_end(self._engine.commit, commit=True)

    def _roll_back_unwaited(self) -> None:
        """Roll back an active one without a wait: what has no commit record is rolled back.

        It holds no ids that others see, and so the journal's lock is not needed. One that a worker
        thread is ending, for a task that was cancelled since, is left to that.
        """
        refuse_in_branch(self.in_branch)
        with uninterrupted, suppress(LogClosedError):  # closed, or of the parent of a forked child
            if self._phase is not _ACTIVE:
                return
            self._phase = _ENDED  # first, with no call before it: that thread looks at it, too
            try:
                self._engine.rollback(self.number)
            except LogWriteError:  # no room for it yet
                self._phase = _ACTIVE
                raise

    def _submit_rollback(self) -> Ticket:
        return self._submit_end(self._engine.rollback, commit=False)

    def _submit_end(self, end: Callable[[int], Ticket], *, commit: bool) -> Ticket:
        refuse_in_branch(self.in_branch)
        ids, prepared = self._ids, self._phase is Phase.PREPARED
        with uninterrupted, self._order:
            if ids is not None:
                ids.learn_if_doubted()
            settled = prepared and ids is not None and self.number not in ids.prepared
            if settled:
                raise self._has_ended()
            with self._becoming(_ENDED):
                if commit and not prepared:
                    self._check_all()
                ticket = end(self.number)
                if ids is not None:
                    ids.end(self.number, commit=commit)
                    if commit and not prepared:
                        ids.commit(self._touched)
        return ticket

    @contextmanager
    def _becoming(self, phase: Phase) -> Iterator[None]:
        """Set the phase of one that has not ended, for the block and after it, unless that fails.

        At once, with no call between: a cancelled task may roll it back now, which takes no lock.
        """
        before = self._phase
        if before is _ENDED:
            raise self._has_ended()
        self._phase = phase
        try:
            yield
        except BaseException:
            self._phase = before
            raise

    def _has_ended(self) -> TransactionUsageError:
        return TransactionUsageError(f"transaction {self.number} has ended")

    def _check_all(self) -> None:
        """Check all ids, with the journal's lock held; see `_refused`."""
        found = self._ids.first_refusal(self._touched) if self._ids is not None else None
        if found is not None:
            place, refusal = found
            raise id_error(refusal, list(self._touched)[place], place=place)

    @contextmanager
    def _ending(self, *, prepared: bool = False) -> Iterator[None]:
        """Wait in the block for the end: if that is refused, roll back, or stay prepared.

        A transaction that was ``prepared`` before stays so: it may be ended again.
        """
        try:
            yield
        except WaitRefusedError:  # what was submitted is with the log
            if self.prepared and not prepared:  # a promise that nobody was given
                self._submit_rollback()
            raise
        except (RecordIdError, LogWriteError) as error:
            if prepared:
                self._phase = Phase.PREPARED
                raise
            self._phase = Phase.ENDED
            self._engine.rollback(self.number)  # no wait: without a commit record it is, anyway
            if isinstance(error, RecordIdError):
                raise rolled_back_error(error, self._touched) from None
            raise

    def _require_active(self) -> None:
        if self._phase is not Phase.ACTIVE:
            raise TransactionUsageError(f"transaction {self.number} is {self._phase.value}")


def id_of(record_id: object) -> int:
    """Return the id of a record. Raises `TypeError` or `ValueError` for what is none."""
    return integer(record_id, "record_id", RECORD_ID_MIN, RECORD_ID_MAX)


class JournalTransaction(BaseJournalTransaction):
    """A transaction as a context manager: commits at the end, rolls back on an exception.

    Once prepared, leaving the block does nothing: the transaction is in doubt until `commit` or
    `rollback`, here or after a restart by `Journal.commit_prepared`.
    """

    def prepare(self, extra: bytes = b"", xid: Xid | None = None) -> int:
        """Promise durably that it can commit.

        Args:
            extra: bytes that are stored with the prepare record.
            xid: the XA id of the branch; only the native log has a place for it.

        Returns:
            The LSN of the prepare record.

        Raises:
            RecordIdError: an id was taken, deleted or held meanwhile; it was rolled back.
        """
        with self._ending():
            return self._submit_prepare(extra, xid).wait()

    def commit(self) -> int:
        """Make its records live, durably; returns the LSN of the commit record.

        Raises:
            RecordIdError: an id was taken, deleted or held meanwhile; it was rolled back.
        """
        with self._ending(prepared=self.prepared):
            return self._submit_commit().wait()

    def rollback(self) -> int:
        """Give its records up, durably; returns the LSN of the rollback record.

        Raises:
            LogFullError: there is no room for that record. It is rolled back all the same, unless
                it was prepared.
        """
        prepared, ticket = self.prepared, self._submit_rollback()
        with self._ending(prepared=prepared):
            return ticket.wait()

    def __enter__(self) -> Self:
        refuse_in_branch(self.in_branch)
        return self

    @starts_unchecked
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._ending():
            with uninterrupted:
                if self._phase is not Phase.ACTIVE:
                    return
                if kind is not None:
                    self._roll_back_unwaited()
                    return
                ticket = self._submit_commit()
            ticket.wait()


async def submitted(
    submit: Callable[..., Ticket], ids: JournalIds | None, order: OwnedLock, *arguments: object
) -> Ticket:
    """Submit from an event loop: in a worker thread if files have to be read before.

    Args:
        submit: submits something with ``order`` held, and learns the ids anew where they are
            doubted; another thread may be at that now.
        ids: the ids of the journal; None if other processes share it.
        order: the journal's lock.
        arguments: those of ``submit``.
    """
    if order.locked() or (ids is not None and ids.doubted):
        return await asyncio.to_thread(submit, *arguments)
    return submit(*arguments)


class AsyncJournalTransaction(BaseJournalTransaction):
    """A transaction as an asynchronous context manager; see `JournalTransaction`."""

    async def _submitted(self, submit: Callable[..., Ticket], *arguments: object) -> Ticket:
        return await submitted(submit, self._ids, self._order, *arguments)

    async def prepare(self, extra: bytes = b"", xid: Xid | None = None) -> int:
        """Promise durably that it can commit; see `JournalTransaction.prepare`."""
        with self._ending():
            return await (await self._submitted(self._submit_prepare, extra, xid))

    async def commit(self) -> int:
        """Make its records live, durably; returns the LSN of the commit record."""
        with self._ending(prepared=self.prepared):
            return await (await self._submitted(self._submit_commit))

    async def rollback(self) -> int:
        """Give its records up, durably; see `JournalTransaction.rollback`."""
        prepared, ticket = self.prepared, await self._submitted(self._submit_rollback)
        with self._ending(prepared=prepared):
            return await ticket

    async def __aenter__(self) -> Self:
        refuse_in_branch(self.in_branch)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._phase is not Phase.ACTIVE:
            return
        if kind is None:
            await self.commit()
        else:
            self._roll_back_unwaited()
