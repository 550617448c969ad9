"""One transaction of a journal: its records count once it has committed, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum

from tallystick.errors import TransactionUsageError
from tallystick.records import Xid
from tallystick.roles import JournalEngine, Ticket


class Phase(StrEnum):
    """Where a journal transaction stands."""

    ACTIVE = "active"
    PREPARED = "prepared"
    ENDED = "ended"


class JournalTransaction:
    """Records that become live together. ``number`` identifies it in the log.

    Its calls do not wait; `end_commit`, `end_prepare` and `end_rollback` return tickets, and the
    faces of the journal wait for them.
    """

    def __init__(
        self, engine: JournalEngine, number: int, ids: set[int], order: threading.Lock
    ) -> None:
        self.number = number
        self.phase = Phase.ACTIVE
        self._engine = engine
        self._order = order
        self._ids = ids
        self._added: set[int] = set()
        self._deleted: set[int] = set()

    def append(self, body: bytes) -> None:
        """A plain record."""
        self._require(Phase.ACTIVE)
        self._engine.append_in(self.number, body)

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> None:
        """A record with an id that does not live."""
        self._require(Phase.ACTIVE)
        with self._order:
            known = record_id in self._ids and record_id not in self._deleted
            if known or record_id in self._added:
                raise TransactionUsageError(f"record {record_id} exists")
            self._engine.add_in(self.number, record_id, body, user_type)
            self._added.add(record_id)
            self._deleted.discard(record_id)

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> None:
        """One more body for a record that lives, or was added in this transaction."""
        self._require(Phase.ACTIVE)
        with self._order:
            self._require_record(record_id)
            self._engine.update_in(self.number, record_id, body, user_type)

    def delete(self, record_id: int) -> None:
        """End the life of a record."""
        self._require(Phase.ACTIVE)
        with self._order:
            self._require_record(record_id)
            self._engine.delete_in(self.number, record_id)
            self._added.discard(record_id)
            self._deleted.add(record_id)

    # -- ends ---------------------------------------------------------------------------

    def end_prepare(self, extra: bytes = b"", xid: Xid | None = None) -> Ticket:
        """Promise that it can commit; after that it survives a restart, in doubt."""
        self._require(Phase.ACTIVE)
        ticket = self._engine.prepare(self.number, extra, xid)
        self.phase = Phase.PREPARED
        return ticket

    def end_commit(self) -> Ticket:
        """Make its records live."""

        def known() -> None:
            self._ids.difference_update(self._deleted)
            self._ids.update(self._added)

        return self._end(self._engine.commit, known)

    def end_rollback(self) -> Ticket:
        """Give its records up."""
        return self._end(self._engine.rollback, lambda: None)

    def _end(self, how: Callable[[int], Ticket], known: Callable[[], None]) -> Ticket:
        if self.phase is Phase.ENDED:
            raise TransactionUsageError(f"transaction {self.number} has ended")
        with self._order:
            ticket = how(self.number)
            known()
        self.phase = Phase.ENDED
        return ticket

    def _require(self, phase: Phase) -> None:
        if self.phase is not phase:
            raise TransactionUsageError(f"transaction {self.number} is {self.phase.value}")

    def _require_record(self, record_id: int) -> None:
        lives = record_id in self._ids and record_id not in self._deleted
        if not lives and record_id not in self._added:
            raise TransactionUsageError(f"there is no record {record_id}")
