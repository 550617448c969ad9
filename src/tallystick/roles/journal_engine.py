"""The role of the log under a `tallystick.Journal`: a record journal and more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tallystick.records import Record, Xid
from tallystick.roles.record_journal import RecordJournal
from tallystick.roles.ticket import Ticket
from tallystick.storage.group.counters import GroupCounters


class TailPosition(Protocol):
    """A position in a log that moves on with it."""

    @property
    def segment(self) -> int: ...

    def read(self) -> Iterator[Record]:
        """The records that became durable since the last call."""
        ...

    def close(self) -> None: ...


class JournalEngine(RecordJournal, Protocol):
    """A `RecordJournal` with plain records, replay, and care for its files."""

    def append(self, body: bytes) -> Ticket: ...

    def append_durably(self, body: bytes) -> int:
        """Durable when it returns the LSN."""
        ...

    def append_in(self, transaction: int, body: bytes) -> None: ...

    def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Durable when it returns the LSNs."""
        ...

    def prepare(self, transaction: int, extra: bytes = b"", xid: Xid | None = None) -> Ticket: ...

    def live_ids(self) -> set[int]: ...

    def next_transaction(self) -> int: ...

    def records(
        self, *, from_lsn: int = 0, from_time_us: int | None = None
    ) -> Iterator[Record]: ...

    def tail(self, from_lsn: int) -> TailPosition: ...

    def reclaim(self, checkpoint_lsn: int = 0) -> int: ...

    def compact(self, *, force: bool = False) -> int: ...

    def flush(self) -> None: ...

    @property
    def next_lsn(self) -> int: ...

    @property
    def counters(self) -> GroupCounters: ...
