"""The role of a journal of records by id.

In: adds, updates and deletes, in and out of transactions. Out: the live records, and the prepared
transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from tallystick.records import Xid
from tallystick.roles.ticket import Ticket

RECORD_ID_MIN, RECORD_ID_MAX = -(1 << 63), (1 << 63) - 1
"""Ids of records are signed, 8 bytes wide, in every journal."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A live record of a journal. ``user_type`` (-128..127) belongs to the application."""

    record_id: int
    user_type: int
    body: bytes
    update: bool = False

    def __str__(self) -> str:
        kind = "update" if self.update else "record"
        return f"{kind} of id {self.record_id}, type {self.user_type}, {len(self.body):,} bytes"


class StepKind(StrEnum):
    """What a transaction does with one record."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    APPEND = "append"
    """A plain record, which has no id."""


@dataclass(frozen=True, slots=True)
class JournalStep:
    """One record of a transaction; ``record_id`` is None for a plain one."""

    kind: StepKind
    record_id: int | None
    user_type: int
    body: bytes


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A journal transaction in doubt.

    Attributes:
        transaction: its number.
        records: its adds and updates.
        deletes: the ids that it deletes.
        extra: the extra data of its prepare.
        xid: the id of the branch, where the log, or the extra data, has one.
        steps: all of its records, in the order in which they take effect.
    """

    transaction: int
    records: tuple[JournalRecord, ...]
    deletes: tuple[int, ...]
    extra: bytes
    xid: Xid | None = None
    steps: tuple[JournalStep, ...] = ()

    def __str__(self) -> str:
        name = "" if self.xid is None else f", branch {self.xid}"
        counts = f"{len(self.records):,} records, {len(self.deletes):,} deletes"
        return f"transaction {self.transaction} is in doubt: {counts}{name}"


@runtime_checkable
class HoldsPlainRecords(Protocol):
    """A `RecordJournal` that holds records without ids, too."""

    def append(self, body: bytes) -> Ticket:
        """Append a plain record."""
        ...

    def append_in(self, transaction: int, body: bytes) -> None:
        """Append a plain record in a transaction."""
        ...

    def plain_records(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and body of plain records, those of open transactions aside, in order."""
        ...


class RecordJournal(Protocol):
    """A journal of records by id, in and out of transactions.

    Ids are 64-bit; `tallystick.roles.record_ids` has their rules, which the caller keeps. What a
    transaction's methods (``*_in``) record is durable with its `prepare` or `commit`, and takes
    effect with `commit`.
    """

    @property
    def deletes_last(self) -> bool:
        """Return whether the deletes of a transaction take effect after its adds and updates."""
        ...

    def check_size(self, size: int) -> None:
        """Raise `RecordTooLargeError` if no record can have a body of ``size`` bytes."""
        ...

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        """Add a record; ``user_type`` (-128..127) belongs to the application."""
        ...

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket:
        """Record a new body for an id."""
        ...

    def delete(self, record_id: int) -> Ticket:
        """Delete the record of an id."""
        ...

    def add_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Add a record in a transaction."""
        ...

    def update_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Record a new body for an id in a transaction."""
        ...

    def delete_in(self, transaction: int, record_id: int, body: bytes = b"") -> None:
        """Delete the record of an id in a transaction; ``body`` is kept with it."""
        ...

    def prepare(self, transaction: int, extra: bytes = b"", xid: Xid | None = None) -> Ticket:
        """Record that a transaction can commit; ``extra`` and ``xid`` come back with `prepared`.

        A log that keeps an Xid as the extra data takes no other extra data with it.
        """
        ...

    def commit(self, transaction: int) -> Ticket:
        """Commit a transaction, prepared or not."""
        ...

    def rollback(self, transaction: int) -> Ticket:
        """Roll a transaction back, prepared or not."""
        ...

    def live_records(self) -> Iterator[JournalRecord]:
        """Yield adds and updates of live ids; those of an id in the order of their effect."""
        ...

    def prepared(self) -> Sequence[PreparedTransaction]:
        """Return the transactions in doubt."""
        ...

    def close(self) -> None:
        """Make everything durable and release the log."""
        ...
