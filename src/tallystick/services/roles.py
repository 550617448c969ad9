"""The roles a log can play, each a small protocol.

The historic system of a role and `tally` both implement it, and the same contract tests
run over every implementation. Everything that returns a `Ticket` is durable when the
ticket is done; everything else promises durability with the next forced record.

Errors common to all: `LogClosedError`, `LogPoisonedError` after a failed write or fsync,
`RecordTooLargeError`, and `CorruptLogError` when opening finds acknowledged data damaged.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from tallystick.records import State, Xid


@runtime_checkable
class Ticket(Protocol):
    """A promise of durability, to be waited for by a thread or awaited by a task."""

    def wait(self, timeout: float | None = None) -> int:
        """Block until durable; returns the log sequence number of the record. Raises
        `LogPoisonedError` if it will never be, `TimeoutError` after ``timeout`` seconds."""
        ...

    def done(self) -> bool:
        """True once `wait` would return or raise at once."""
        ...

    def __await__(self) -> Generator[object, None, int]: ...


# -- decision log -------------------------------------------------------------------------


class DecisionOutcome(StrEnum):
    """How a global transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    HEURISTIC = "heuristic"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision to commit that is not closed: the names still to be committed.

    ``time`` is in milliseconds of the log's clock, None where it has none.
    """

    gtrid: bytes
    resources: frozenset[str]
    time: int | None = None


class DecisionLog(Protocol):
    """A two-phase-commit coordinator's log. Presumed abort: only `decide` is forced."""

    def note(self, state: State, gtrid: bytes, resources: Collection[str]) -> None:
        """Record a status that decides nothing; a log that keeps no such notes ignores it."""
        ...

    def decide(self, gtrid: bytes, resources: Collection[str]) -> Ticket:
        """Record the decision to commit; decisions of concurrent callers share a group."""
        ...

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        """Record, without forcing, that these resources have ended so."""
        ...

    def open_decisions(self) -> Mapping[bytes, Decision]:
        """Decisions not closed for all of their resources, by gtrid."""
        ...

    def heuristics(self) -> Mapping[bytes, frozenset[str]]:
        """Heuristic outcomes that no operator has settled yet, by gtrid."""
        ...

    def settle(self, gtrid: bytes) -> Ticket:
        """Record durably that an operator has dealt with a heuristic outcome."""
        ...

    def close(self) -> None: ...


# -- record journal -----------------------------------------------------------------------


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


# -- undo/redo log ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A prepared transaction that no one has decided: its session and its name."""

    session: int
    name: str
    state: State = State.PREPARED


def branch_name(xid: Xid) -> str:
    """The name a branch is prepared under; bqual before gtrid, as H2 has it."""
    return f"XID_{xid.format_id}_{xid.bqual.hex()}_{xid.gtrid.hex()}"


def branch_of(name: str) -> Xid | None:
    """The branch behind a name; None if it is not one of these."""
    parts = name.split("_")
    if len(parts) != 4 or parts[0] != "XID":
        return None
    try:
        xid = Xid(int(parts[1]), bytes.fromhex(parts[3]), bytes.fromhex(parts[2]))
    except ValueError:
        return None
    known = -(1 << 31) <= xid.format_id < 1 << 31 and max(len(xid.gtrid), len(xid.bqual)) <= 64
    return xid if known else None


class RecoveryHandler(Protocol):
    """What recovery does to the store behind an undo/redo log."""

    def undo_page(self, page: int, image: bytes | None) -> None:
        """Put the page back to this image; None means it was empty."""
        ...

    def redo_add(self, table: int, key: int, row: bytes) -> None: ...

    def redo_remove(self, table: int, key: int) -> None: ...

    def redo_truncate(self, table: int) -> None: ...


class UndoRedoLog(Protocol):
    """Undo images of pages once per section, redo of rows, in-doubt transactions."""

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Log the page's image as of the last checkpoint, unless this section has it."""
        ...

    def has_undo(self, page: int) -> bool:
        """True if this section holds an image of the page already."""
        ...

    def log_row(self, session: int, table: int, key: int, row: bytes | None) -> None:
        """Log an added row, or with None a removed one."""
        ...

    def log_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log changed rows by table and key, in order: as `log_row` for each, at less cost."""
        ...

    def log_truncate(self, session: int, table: int) -> None: ...

    def prepare_commit(self, session: int, name: str) -> Ticket:
        """Record that the session can commit. One whose name is a `branch_name` is a branch of
        a global transaction, which readers of the log then find."""
        ...

    def commit(self, session: int) -> Ticket: ...

    def rollback(self, session: int) -> Ticket:
        """End a session that is prepared, and alive, without its rows."""
        ...

    def flush(self) -> Ticket:
        """Everything logged so far; to be waited for before a page is written in place."""
        ...

    def checkpoint(self) -> int:
        """Start a new section once every changed page is written; returns its id."""
        ...

    def remove_until(self, section: int) -> None:
        """Free what lies before that section."""
        ...

    def recover(self, handler: RecoveryHandler) -> None:
        """All stages, in order; idempotent, and may be interrupted at any step."""
        ...

    def in_doubt(self) -> Sequence[InDoubt]: ...

    def settle(self, name: str, *, commit: bool) -> Ticket:
        """Decide an in-doubt transaction durably. Raises `KeyError` for an unknown name."""
        ...

    def close(self) -> None: ...


# -- persist log --------------------------------------------------------------------------


class OperationCode(StrEnum):
    """What an operation does to a row of its target."""

    OPAQUE = "opaque"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class Operation(NamedTuple):
    """One operation of a write-behind transaction, for one target or (None) for every one."""

    code: OperationCode
    collection: str
    key: bytes
    value: bytes | None = None
    target: str | None = None


class PersistEntry(NamedTuple):
    """A transaction that is persisting: what has to reach which targets.

    ``number`` grows in commit order and is never reused; ``time`` is in microseconds since
    1970-01-01 UTC; ``reference`` is the application's own key.
    """

    number: int
    targets: tuple[str, ...]
    operations: tuple[Operation, ...]
    reference: str = ""
    time: int = 0


class PersistTicket(Ticket, Protocol):
    """The promise that a transaction is persisting."""

    @property
    def finished(self) -> bool:
        """`done`, for somebody who does not want anything written for having asked."""
        ...


class PersistLog(Protocol):
    """Persisting and persisted, per transaction and target, and files that become redundant."""

    @property
    def identity(self) -> str | None:
        """The name that the log got when it was made, as 32 hexadecimal digits; None where the
        format has none."""
        ...

    @property
    def last_number(self) -> int:
        """The greatest number that any transaction ever got, or may have got; 0 if none did."""
        ...

    def persisting(
        self, targets: Sequence[str], operations: Iterable[Operation], reference: str = ""
    ) -> tuple[int, PersistTicket]:
        """Record a transaction; returns its number and the promise that it is durable."""
        ...

    def persisted(self, number: int, targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold it."""
        ...

    def persisted_all(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        """`persisted` for each of these transactions, at less cost."""
        ...

    def lowest_pending(self) -> int | None:
        """The smallest number that some target does not hold, as far as the log knows: a mark
        that is not durable does not count."""
        ...

    def discard(self, number: int) -> Ticket:
        """An operator's durable decision not to persist what is still pending."""
        ...

    def pending(self) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
        """Entries with the targets that do not hold them yet, by ascending number."""
        ...

    def sync(self) -> Ticket:
        """Everything recorded so far, persisted marks included."""
        ...

    def disposable(self) -> Sequence[str]:
        """Files that a disposer may take now, oldest first: redundant, as are all older ones,
        and the marks that made them so are durable."""
        ...

    def disposed(self, path: str) -> None:
        """A disposer has taken this file out of the log: forget it, durably."""
        ...

    def close(self) -> None: ...
