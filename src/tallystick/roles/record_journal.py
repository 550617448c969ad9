"""The role of a journal of records by id.

In: adds, updates and deletes, in and out of transactions. Out: what is live, what is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.roles.ticket import Ticket


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A live record of a journal. ``user_type`` (-128..127) belongs to the application."""

    record_id: int
    user_type: int
    body: bytes
    update: bool = False


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A journal transaction in doubt: its records, deleted ids and the extra data (an Xid)."""

    transaction: int
    records: tuple[JournalRecord, ...]
    deletes: tuple[int, ...]
    extra: bytes


class RecordJournal(Protocol):
    """A journal of records by id, in and out of transactions. Ids are 64-bit and not reused."""

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket: ...

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket: ...

    def delete(self, record_id: int) -> Ticket: ...

    def add_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None: ...

    def update_in(
        self, transaction: int, record_id: int, body: bytes, user_type: int = 0
    ) -> None: ...

    def delete_in(self, transaction: int, record_id: int, body: bytes = b"") -> None: ...

    def prepare(self, transaction: int, extra: bytes = b"") -> Ticket: ...

    def commit(self, transaction: int) -> Ticket: ...

    def rollback(self, transaction: int) -> Ticket: ...

    def live_records(self) -> Iterator[JournalRecord]:
        """Adds and updates of live ids, in log order."""
        ...

    def prepared(self) -> Sequence[PreparedTransaction]: ...

    def close(self) -> None: ...
