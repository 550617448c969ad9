"""What a journal needs of a log, and how a system's log is found.

In: the name of a system. Out: its `JournalEngine`. A system that can carry a journal has a module
``journal`` with a function ``open_journal(path, **options)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from tallystick.errors import UnsupportedFormatError
from tallystick.records import Record, Xid
from tallystick.services.roles import JournalRecord, PreparedTransaction, Ticket
from tallystick.storage.counters import GroupCounters


class TailPosition(Protocol):
    """A position in a log that moves on with it."""

    @property
    def segment(self) -> int: ...

    def read(self) -> Iterator[Record]:
        """The records that became durable since the last call."""
        ...

    def close(self) -> None: ...


class JournalEngine(Protocol):
    """A `RecordJournal` with plain records, replay, and care for its files."""

    def append(self, body: bytes) -> Ticket: ...

    def append_in(self, transaction: int, body: bytes) -> None: ...

    def append_many(self, bodies: Sequence[bytes]) -> range:
        """Durable when it returns the LSNs."""
        ...

    def add(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket: ...

    def update(self, record_id: int, body: bytes, user_type: int = 0) -> Ticket: ...

    def delete(self, record_id: int) -> Ticket: ...

    def add_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None: ...

    def update_in(
        self, transaction: int, record_id: int, body: bytes, user_type: int = 0
    ) -> None: ...

    def delete_in(self, transaction: int, record_id: int, body: bytes = b"") -> None: ...

    def prepare(self, transaction: int, extra: bytes = b"", xid: Xid | None = None) -> Ticket: ...

    def commit(self, transaction: int) -> Ticket: ...

    def rollback(self, transaction: int) -> Ticket: ...

    def live_records(self) -> Iterator[JournalRecord]: ...

    def live_ids(self) -> set[int]: ...

    def prepared(self) -> Sequence[PreparedTransaction]: ...

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

    def close(self) -> None: ...


def open_engine(system: str, path: str, **options: Any) -> JournalEngine:
    """The journal engine of a system. Raises `UnsupportedFormatError` if it has none."""
    name = f"tallystick.systems.{system}.journal"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise UnsupportedFormatError(
            f"{system} logs cannot carry a journal", advice='Use system="tally"'
        ) from error
    return cast(JournalEngine, module.open_journal(path, **options))
