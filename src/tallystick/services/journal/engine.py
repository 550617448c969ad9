"""The engine under a journal: the log system's own, or an adapter over its record journal.

In: the name of a system and the path of a log. Out: an open `JournalEngine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any, Protocol, runtime_checkable

from tallystick.arguments import DataClass, bodies_of
from tallystick.errors import UnsupportedFormatError
from tallystick.reading.discovery import discover
from tallystick.records import NumberedRecord, Xid
from tallystick.roles import (
    DoneTicket,
    JournalEngine,
    JournalRecord,
    PreparedTransaction,
    RecordJournal,
    Role,
    TailPosition,
    Ticket,
)
from tallystick.storage.files import FileSystem, Placed
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.local import LOCAL
from tallystick.storage.scheduling import threading, time
from tallystick.storage.source import as_unreadable
from tallystick.systems.folders import require_no_other
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import (
    NATIVE,
    open_journal_engine,
    role_class,
    system,
    systems_with,
)


def open_engine(
    name: str,
    path: str,
    *,
    shared: bool = False,
    settings: Mapping[str, Any] | DataClass | None = None,
    key: Callable[[], bytes] | None = None,
    fs: FileSystem = LOCAL,
) -> JournalEngine:
    """Open the journal engine of the system ``name`` on the log at ``path``.

    With ``shared`` it is a `tallystick.roles.SharedJournalEngine`.

    Raises:
        UnsupportedFormatError: the system has no journal, or its logs cannot be shared, or not be
            encrypted.
    """
    if name != NATIVE:
        for wanted, what in ((shared, "shared by processes"), (key is not None, "encrypted")):
            if wanted:
                raise UnsupportedFormatError(
                    f"{name} logs cannot be {what}", advice=f'Use system="{NATIVE}"'
                )
    require_no_other(path, fs, "")
    if name in (own := systems_with(Role.JOURNAL)):
        return open_journal_engine(path, name, shared=shared, settings=settings, key=key, fs=fs)
    if name in (historic := systems_with(Role.RECORD_JOURNAL)):
        made = role_class(Role.RECORD_JOURNAL, name)
        # A system may have no settings.
        role = made(path, fs=fs, **({} if settings is None else {"settings": settings}))
        try:
            return RecordJournalEngine(path, role)
        except BaseException:
            role.close()
            raise
    known = dict.fromkeys((*own, *historic))
    raise UnsupportedFormatError(
        f"{name} logs cannot carry a journal",
        expected=" or ".join(known),
        advice=f'Use system="{NATIVE}"',
    )


@runtime_checkable
class _Refusing(Protocol):
    """A `RecordJournal` that can refuse a record after it was submitted, and goes on."""

    @property
    def refused(self) -> int:
        """Return how many it has refused."""
        ...


class RecordJournalEngine(Uncopied):
    """A `JournalEngine` over any `RecordJournal`: what a historic log can do of it.

    Plain records become records with ids of the engine's own. What the format has no means for
    (LSNs to replay or follow from, plain records to give up) raises `UnsupportedFormatError`.
    """

    def __init__(self, path: str, role: RecordJournal) -> None:
        self._path = path
        self._role = role
        self._refused = 0
        self._lock = threading.Lock()
        self._learned: tuple[set[int], Sequence[PreparedTransaction]] | None
        self.add, self.update, self.delete = role.add, role.update, role.delete
        self.check_size, self.close = role.check_size, role.close
        self.deletes_last = role.deletes_last
        ids, prepared = self._learned = self.live_ids(), self.prepared()
        self._begun = {one.transaction for one in prepared}
        # An id must not be used twice, nor after a restart: it is above the clock, which may have
        # been set back, live ids and those in doubt.
        in_doubt = chain.from_iterable(
            (one.transaction, *(record.record_id for record in one.records)) for one in prepared
        )
        self._last_id = max([time.time_ns() // 1000, *ids, *in_doubt])
        self._last_transaction = self._last_id
        self._counters = GroupCounters()

    def _new_id(self) -> int:
        with self._lock:
            self._last_id += 1
            return self._last_id

    def live_records(self) -> Iterator[JournalRecord]:
        """Read adds and updates of live ids, as the role gives them."""
        with as_unreadable(self._path):
            return self._role.live_records()

    def prepared(self) -> Sequence[PreparedTransaction]:
        """Read the prepared transactions."""
        with as_unreadable(self._path):
            return self._role.prepared()

    def in_doubt(self) -> Mapping[int, bytes]:
        """Return the extra data of each prepared transaction, by number."""
        return {one.transaction: one.extra for one in self.prepared()}

    @property
    def identity(self) -> str:
        """Return nothing: the format has no identity of a log."""
        return ""

    def append(self, body: bytes) -> Ticket:
        """Add a record with a new id."""
        return self._role.add(self._new_id(), body)

    def append_durably(self, body: bytes) -> int:
        """Add a record with a new id and block until it is durable."""
        return self.append(body).wait()

    def append_in(self, transaction: int, body: bytes) -> None:
        """Add a record with a new id in a transaction."""
        self.add_in(transaction, self._new_id(), body)

    def add_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Add a record in a transaction."""
        self._role.add_in(transaction, record_id, body, user_type)
        self._begun.add(transaction)

    def update_in(self, transaction: int, record_id: int, body: bytes, user_type: int = 0) -> None:
        """Update a record in a transaction."""
        self._role.update_in(transaction, record_id, body, user_type)
        self._begun.add(transaction)

    def delete_in(self, transaction: int, record_id: int, body: bytes = b"") -> None:
        """Delete a record in a transaction."""
        self._role.delete_in(transaction, record_id, body)
        self._begun.add(transaction)

    def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Add records with new ids and block until all are durable."""
        bodies = bodies_of(bodies)
        self.check_size(max(map(len, bodies), default=0))
        tickets = [self.append(body) for body in bodies]
        return [ticket.wait() for ticket in tickets]

    def prepare(self, transaction: int, extra: bytes = b"", xid: Xid | None = None) -> Ticket:
        """Prepare a transaction; raise `UnsupportedFormatError` for an ``xid``."""
        if xid is not None:
            raise self._unsupported("Xid: put it into extra")
        ticket = self._role.prepare(transaction, extra)
        self._begun.add(transaction)
        return ticket

    def commit(self, transaction: int) -> Ticket:
        """Commit a transaction; one without records needs none of the log either."""
        return self._end(self._role.commit, transaction)

    def rollback(self, transaction: int) -> Ticket:
        """Roll a transaction back; one without records needs none of the log either."""
        return self._end(self._role.rollback, transaction)

    def _end(self, end: Callable[[int], Ticket], transaction: int) -> Ticket:
        if transaction not in self._begun:
            return DoneTicket()
        ticket = end(transaction)
        self._begun.discard(transaction)
        return ticket

    @property
    def ids_doubted(self) -> bool:
        """Whether a record was refused after it had been submitted."""
        return self._refused_so_far() != self._refused

    def _refused_so_far(self) -> int:
        return self._role.refused if isinstance(self._role, _Refusing) else 0

    def learn_ids(self) -> tuple[set[int], Sequence[PreparedTransaction]]:
        """Return live ids and prepared transactions."""
        self._refused = self._refused_so_far()
        learned, self._learned = self._learned, None  # at the opening they are as they were read
        return learned or (self.live_ids(), self.prepared())

    def live_ids(self) -> set[int]:
        """Return the ids of live records."""
        return {one.record_id for one in self.live_records()}

    def next_transaction(self) -> int:
        """Return a lower bound for transaction numbers that were never used."""
        return self._last_transaction + 1

    def records(
        self, *, from_lsn: int = 0, from_time_us: int | None = None
    ) -> Iterator[NumberedRecord]:
        """Read every record of the log, numbered from 1 on in the order in which they are read.

        Raises:
            UnsupportedFormatError: an LSN or a time to begin with; the format has none.
        """
        if from_lsn or from_time_us is not None:
            raise self._unsupported("LSNs or times to replay from")
        if isinstance(self._role, Placed):
            self._role.require_in_place()
        found = (system(log.system).read(log, ReadOptions()) for log in discover(self._path).logs)
        every = chain.from_iterable(reading.records() for reading in found)
        for number, record in enumerate(every, 1):
            known = {one.name: getattr(record, one.name) for one in fields(record)}
            yield NumberedRecord(**known | {"sequence": number, "body": record.body or b""})

    def backup(self, target: str, progress: Callable[[int, int], object] | None = None) -> None:
        """Raise `UnsupportedFormatError`: its files change in place while it is written."""
        del target, progress
        raise self._unsupported("backups while it is open; close it and copy its folder")

    def tail(self, from_lsn: int) -> TailPosition:
        """Raise `UnsupportedFormatError`: the format has no LSNs."""
        raise self._unsupported(f"LSNs to follow from, such as {from_lsn}")

    def reclaim(self, checkpoint_lsn: int = 0) -> int:
        """Do nothing: the format frees its files by itself, and has no LSNs to give up."""
        del checkpoint_lsn
        return 0

    def compact(self, *, force: bool = False) -> int:
        """Do nothing: the system compacts by its own rules."""
        del force
        return 0

    def flush(self) -> None:
        """Do nothing: every call of a record journal that has to be durable returns a ticket."""

    @property
    def next_lsn(self) -> int:
        """Raise `UnsupportedFormatError`: the format has no LSNs."""
        raise self._unsupported("LSNs")

    @property
    def counters(self) -> GroupCounters:
        """Counters that stay at zero."""
        return self._counters

    def _unsupported(self, what: str) -> UnsupportedFormatError:
        return UnsupportedFormatError(
            f"this log format has no {what}", file=self._path, advice='Use system="tally"'
        )
