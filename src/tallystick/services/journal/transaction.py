"""One transaction of a journal: its records count once it has committed, or not at all.

In: records of one transaction. Out: elements of it in the log, and its end. The records are handed
to the engine at once and do not wait; `JournalTransaction` blocks until an end is durable,
`AsyncJournalTransaction` awaits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Self

from tallystick.errors import TransactionUsageError
from tallystick.records import Xid
from tallystick.roles import JournalEngine, SharedJournalEngine, Ticket
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading


class Phase(StrEnum):
    """State of a journal transaction."""

    ACTIVE = "active"
    PREPARED = "prepared"
    ENDED = "ended"


class BaseJournalTransaction(Uncopied):
    """Records that become live together; what both faces share.

    Args:
        engine: the engine of the journal.
        number: identifies the transaction in the log.
        ids: the live ids of the journal, changed when the transaction commits.
        order: the journal's lock, which keeps ``ids`` in the order of the log.
        shared: the engine again if other processes share the journal. Then ``ids`` is empty, and
            the ids are checked when the transaction is prepared or committed.
    """

    def __init__(
        self,
        engine: JournalEngine,
        number: int,
        ids: set[int],
        order: threading.Lock,
        shared: SharedJournalEngine | None = None,
    ) -> None:
        self._shared = shared
        self._wanted: dict[int, bool] = {}
        self.number = number
        self._phase = Phase.ACTIVE
        self._engine = engine
        self._order = order
        self._ids = ids
        self._added: set[int] = set()
        self._deleted: set[int] = set()

    def append(self, body: bytes) -> None:
        """Append a plain record."""
        self._require_active()
        self._engine.append_in(self.number, body)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Add a record. Raises `TransactionUsageError` if a record of this id is live."""
        self._require_active()
        with self._order:
            known = record_id in self._ids and record_id not in self._deleted
            wanted = self._wanted.get(record_id, False) and record_id not in self._deleted
            if known or wanted or record_id in self._added:
                raise TransactionUsageError(f"record {record_id} exists")
            if self._shared is not None and record_id not in self._deleted:
                self._wanted.setdefault(record_id, False)
            self._engine.add_in(self.number, record_id, body, user_type)
            self._added.add(record_id)
            self._deleted.discard(record_id)

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Give one more body to a record that is live, or was added in this transaction."""
        self._require_active()
        with self._order:
            self._require_record(record_id)
            self._engine.update_in(self.number, record_id, body, user_type)

    def delete(self, record_id: int) -> None:
        """Delete a record that is live, or was added in this transaction."""
        self._require_active()
        with self._order:
            self._require_record(record_id)
            self._engine.delete_in(self.number, record_id)
            self._added.discard(record_id)
            self._deleted.add(record_id)

    # -- ends ---------------------------------------------------------------------------

    def _check_ids(self) -> None:
        """Ask the processes that share the journal for the ids; roll back if one is wrong."""
        if self._shared is None or self._phase is not Phase.ACTIVE or not self._wanted:
            return
        wrong = self._shared.wrong_id(self._wanted)
        if wrong is not None:
            self._submit_rollback()
            why = "there is no record" if self._wanted[wrong] else "there is already a record"
            raise TransactionUsageError(f"{why} {wrong}; the transaction was rolled back")

    def _submit_prepare(self, extra: bytes, xid: Xid | None) -> Ticket:
        self._require_active()
        ticket = self._engine.prepare(self.number, extra, xid)
        self._phase = Phase.PREPARED
        return ticket

    def _submit_commit(self) -> Ticket:
        return self._submit_end(self._engine.commit, commit=True)

    def _submit_rollback(self) -> Ticket:
        return self._submit_end(self._engine.rollback, commit=False)

    def _submit_end(self, end: Callable[[int], Ticket], *, commit: bool) -> Ticket:
        if self._phase is Phase.ENDED:
            raise TransactionUsageError(f"transaction {self.number} has ended")
        with self._order:
            ticket = end(self.number)
            if commit and self._shared is None:
                self._ids.difference_update(self._deleted)
                self._ids.update(self._added)
        self._phase = Phase.ENDED
        return ticket

    def _require_active(self) -> None:
        if self._phase is not Phase.ACTIVE:
            raise TransactionUsageError(f"transaction {self.number} is {self._phase.value}")

    def _require_record(self, record_id: int) -> None:
        live = record_id in self._ids and record_id not in self._deleted
        if self._shared is not None and record_id not in self._deleted | self._added:
            live = self._wanted.setdefault(record_id, True)
        if not live and record_id not in self._added:
            raise TransactionUsageError(f"there is no record {record_id}")


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
        """
        self._check_ids()
        return self._submit_prepare(extra, xid).wait()

    def commit(self) -> int:
        """Make its records live, durably; returns the LSN of the commit record."""
        self._check_ids()
        return self._submit_commit().wait()

    def rollback(self) -> int:
        """Give its records up, durably; returns the LSN of the rollback record."""
        return self._submit_rollback().wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._phase is not Phase.ACTIVE:
            return
        if kind is None:
            self.commit()
        else:
            self._submit_rollback()  # needs no wait: what has no commit record is rolled back


class AsyncJournalTransaction(BaseJournalTransaction):
    """A transaction as an asynchronous context manager; see `JournalTransaction`."""

    async def _check_ids_in_thread(self) -> None:
        if self._shared is not None:
            await asyncio.to_thread(self._check_ids)

    async def prepare(self, extra: bytes = b"", xid: Xid | None = None) -> int:
        """Promise durably that it can commit; see `JournalTransaction.prepare`."""
        await self._check_ids_in_thread()
        return await self._submit_prepare(extra, xid)

    async def commit(self) -> int:
        """Make its records live, durably; returns the LSN of the commit record."""
        await self._check_ids_in_thread()
        return await self._submit_commit()

    async def rollback(self) -> int:
        """Give its records up, durably; returns the LSN of the rollback record."""
        return await self._submit_rollback()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._phase is not Phase.ACTIVE:
            return
        if kind is None:
            await self.commit()
        else:
            self._submit_rollback()  # needs no wait: what has no commit record is rolled back
