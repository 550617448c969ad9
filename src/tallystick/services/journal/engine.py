"""What a journal needs of a log, and how a system's log is found.

In: the name of a system. Out: its `JournalEngine`, found by the tables at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final, Protocol, cast

from tallystick.errors import UnsupportedFormatError
from tallystick.records import Record, Xid
from tallystick.services.roles import RecordJournal, Ticket
from tallystick.storage.counters import GroupCounters


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


ENGINES: Final = {"tally": "tallystick.systems.tally.journal:open_journal"}
"""Systems with an engine of their own."""
ROLES: Final = {"jboss": "tallystick.systems.jboss.role:JBossRecordJournal"}
"""Systems that are record journals, and carry a journal through that role."""


def open_engine(system: str, path: str, **options: Any) -> JournalEngine:
    """The journal engine of a system. Raises `UnsupportedFormatError` if it has none."""
    if system in ENGINES:
        return cast(JournalEngine, _named(ENGINES[system])(path, **options))
    if system in ROLES:
        from tallystick.services.journal.over_role import RoleEngine

        return RoleEngine(path, _named(ROLES[system])(path, **options))
    raise UnsupportedFormatError(
        f"{system} logs cannot carry a journal",
        expected=" or ".join((*ENGINES, *ROLES)),
        advice='Use system="tally"',
    )


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
