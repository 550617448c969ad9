"""The role of the log of a `tallystick.Journal`: a record journal and more.

In: bodies, with or without ids and transactions. Out: tickets, and the records again, by LSN or
time, also while they are being written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tallystick.records import NumberedRecord, Xid
from tallystick.roles.record_journal import PreparedTransaction, RecordJournal
from tallystick.roles.ticket import Ticket
from tallystick.storage.group.counters import GroupCounters


class TailPosition(Protocol):
    """A position in a log that moves on with it."""

    @property
    def segment(self) -> int:
        """Return the number of the segment that the position stands in."""
        ...

    def read(self) -> Iterator[NumberedRecord]:
        """Yield the records that became durable since the last call."""
        ...

    def close(self) -> None:
        """Give the position up; the log may then retire its segments."""
        ...


class JournalEngine(RecordJournal, Protocol):
    """A `RecordJournal` with plain records, replay, and reclaiming of files."""

    @property
    def identity(self) -> str:
        """Return the random name of the log, hexadecimal; empty if the format has none."""
        ...

    def append(self, body: bytes, /) -> Ticket:
        """Record a plain body, which has no id."""
        ...

    def append_durably(self, body: bytes, /) -> int:
        """Record a plain body; it is durable when this returns its LSN."""
        ...

    def append_in(self, transaction: int, body: bytes) -> None:
        """Record a plain body in a transaction, without forcing."""
        ...

    def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Record plain bodies; all are durable when this returns their LSNs."""
        ...

    def prepare(self, transaction: int, extra: bytes = b"", xid: Xid | None = None) -> Ticket:
        """Record that a transaction can commit.

        Args:
            transaction: Its number.
            extra: Bytes that come back with `prepared`.
            xid: The branch's XA id, if it is one of a global transaction.

        Returns:
            The promise that this and the transaction's records are durable.
        """
        ...

    def in_doubt(self) -> Mapping[int, bytes]:
        """Return the extra data of each prepared transaction, by number; reads no bodies."""
        ...

    def live_ids(self) -> set[int]:
        """Return the ids of live records."""
        ...

    @property
    def ids_doubted(self) -> bool:
        """Whether changes of ids are refused until `learn_ids` is called.

        One was refused for lack of room after it had been submitted, and later ones may have been
        checked against it.
        """
        ...

    def learn_ids(self) -> tuple[set[int], Sequence[PreparedTransaction]]:
        """Return live ids and prepared transactions, for changes of ids to be checked against.

        The caller submits no other change meanwhile.
        """
        ...

    def next_transaction(self) -> int:
        """Return a number above that of every transaction so far."""
        ...

    def records(
        self, *, from_lsn: int = 0, from_time_us: int | None = None
    ) -> Iterator[NumberedRecord]:
        """Yield every record that is durable now, in log order.

        Args:
            from_lsn: Lowest LSN.
            from_time_us: Earliest time, in microseconds since 1970-01-01 UTC.
        """
        ...

    def backup(self, target: str, progress: Callable[[int, int], object] | None = None) -> None:
        """Copy the log as of now to the folder ``target``, durably, while it is written.

        Args:
            target: A folder that is absent or empty.
            progress: Called with the bytes copied so far and the bytes in all.
        """
        ...

    def tail(self, from_lsn: int) -> TailPosition:
        """Return a position that begins at an LSN and follows the log."""
        ...

    def reclaim(self, checkpoint_lsn: int = 0) -> int:
        """Free the files that no live record and no reader needs; return their number.

        Plain records below ``checkpoint_lsn`` are not needed any more.
        """
        ...

    def compact(self, *, force: bool = False) -> int:
        """Carry live records forward so that their files can go; return the number of files freed.

        Does nothing if it is not due, unless ``force`` is set.
        """
        ...

    def flush(self) -> None:
        """Return when everything recorded so far is durable."""
        ...

    @property
    def next_lsn(self) -> int:
        """Return the LSN that the next record gets."""
        ...

    @property
    def counters(self) -> GroupCounters:
        """Return what the group writer has counted."""
        ...


class SharedJournalEngine(JournalEngine, Protocol):
    """A journal that other processes write, too: no process knows the live ids by itself.

    The tickets of `add`, `update`, `delete`, `prepare` and `commit` raise `RecordIdError` where the
    rules of `tallystick.roles.record_ids` refuse it; of a transaction, that is to be rolled back.
    """

    def new_transaction(self) -> int:
        """Return a number for a transaction that no process has used.

        It waits for the leader at the first call, unless `reserve_transactions` has before.
        """
        ...

    def reserve_transactions(self) -> None:
        """Have numbers ready for transactions that event loops begin."""
        ...
