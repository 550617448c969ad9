"""What both faces of a journal share: checks, order, tickets. Nothing here waits.

In: calls of `Journal` or `AsyncJournal`. Out: tickets of the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from typing import Any

from tallystick.errors import TransactionUsageError
from tallystick.records import Record
from tallystick.roles import JournalEngine, JournalRecord, PreparedTransaction, Ticket
from tallystick.services.journal.engine import open_engine
from tallystick.services.journal.transaction import JournalTransaction
from tallystick.storage.group.counters import GroupCounters


class Face:
    """A journal without waiting. ``system`` names the log format; ``options`` go to its engine
    (for tally: ``settings``, ``key``, ``fs``).

    Raises `LogLockedError` if the log is open elsewhere, `CorruptLogError` if acknowledged data
    is damaged.
    """

    def __init__(self, path: str | PathLike[str], *, system: str = "tally", **options: Any) -> None:
        self.path = fspath(path)
        self.system = system
        self._engine: JournalEngine = open_engine(system, self.path, **options)
        self._order = threading.Lock()  # ties the ids known here to the order of the log
        self._ids = self._engine.live_ids()
        self._in_doubt = {one.transaction for one in self._engine.prepared()}
        self._next_transaction = self._engine.next_transaction()
        self._closed = False

    def submit(self, body: bytes) -> Ticket:
        """Append a plain record; wait for the ticket, or await it."""
        return self._engine.append(body)

    def _add(self, record_id: int, body: bytes, user_type: int) -> Ticket:
        with self._order:
            if record_id in self._ids:
                raise TransactionUsageError(f"record {record_id} exists", file=self.path)
            ticket = self._engine.add(record_id, body, user_type)
            self._ids.add(record_id)
        return ticket

    def _update(self, record_id: int, body: bytes, user_type: int) -> Ticket:
        with self._order:
            self._require(record_id)
            return self._engine.update(record_id, body, user_type)

    def _delete(self, record_id: int) -> Ticket:
        with self._order:
            self._require(record_id)
            ticket = self._engine.delete(record_id)
            self._ids.remove(record_id)
        return ticket

    def _require(self, record_id: int) -> None:
        if record_id not in self._ids:
            raise TransactionUsageError(f"there is no record {record_id}", file=self.path)

    def _begin(self) -> JournalTransaction:
        with self._order:
            number = self._next_transaction
            self._next_transaction += 1
        return JournalTransaction(self._engine, number, self._ids, self._order)

    def _settle(self, transaction: int, *, commit: bool) -> Ticket:
        """End a transaction that an earlier owner of the log left prepared."""
        with self._order:
            if transaction not in self._in_doubt:
                raise TransactionUsageError(
                    f"transaction {transaction} is not in doubt", file=self.path
                )
            found = {one.transaction: one for one in self._engine.prepared()}[transaction]
            end = self._engine.commit if commit else self._engine.rollback
            ticket = end(transaction)
            self._in_doubt.remove(transaction)
            if commit:
                self._ids.update(one.record_id for one in found.records if not one.update)
                self._ids.difference_update(found.deletes)
        return ticket

    # -- reading ------------------------------------------------------------------------

    def live_records(self) -> Iterator[JournalRecord]:
        """Adds and updates of the ids that live, in log order; read from the files."""
        return self._engine.live_records()

    def prepared(self) -> Sequence[PreparedTransaction]:
        """Transactions in doubt: prepared and not ended."""
        return self._engine.prepared()

    def replay(self, from_lsn: int = 0, from_time: float | None = None) -> Iterator[Record]:
        """Every durable record from an LSN on, or from a time in seconds since 1970 on."""
        from_time_us = None if from_time is None else int(from_time * 1_000_000)
        return self._engine.records(from_lsn=from_lsn, from_time_us=from_time_us)

    @property
    def next_lsn(self) -> int:
        """LSN of the next record that will be written."""
        return self._engine.next_lsn

    @property
    def counters(self) -> GroupCounters:
        """Groups, records, bytes, syncs, seconds."""
        return self._engine.counters

    # -- files --------------------------------------------------------------------------

    def _checkpoint(self, lsn: int | None) -> int:
        return self._engine.reclaim(self._engine.next_lsn if lsn is None else lsn)

    def _append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        return self._engine.append_many(bodies)
