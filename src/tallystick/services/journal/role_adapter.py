"""A journal over any `RecordJournal`: what a historic log can do of it.

In: a record journal of a historic system. Out: a `JournalEngine`. Plain records become records with
ids of the engine's own. What the format has no means for (LSNs to replay or follow from, plain
records to give up) raises `UnsupportedFormatError`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from tallystick.errors import UnsupportedFormatError
from tallystick.reading.discovery import discover
from tallystick.records import Record, Xid
from tallystick.roles import RecordJournal, TailPosition, Ticket
from tallystick.storage.group.counters import GroupCounters
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import system


class RoleEngine:
    """See `tallystick.roles.JournalEngine`."""

    def __init__(self, path: str, role: RecordJournal) -> None:
        self._path = path
        self._role = role
        self._lock = threading.Lock()
        self.add, self.update, self.delete = role.add, role.update, role.delete
        self.add_in, self.update_in, self.delete_in = role.add_in, role.update_in, role.delete_in
        self.commit, self.rollback = role.commit, role.rollback
        self.live_records, self.prepared, self.close = (
            role.live_records,
            role.prepared,
            role.close,
        )
        # Ids must never come twice, also after restarts: the clock, and what lives, see to that.
        self._last_id = max([time.time_ns() // 1000, *self.live_ids()])
        self._last_transaction = self._last_id
        self._counters = GroupCounters()

    def _new_id(self) -> int:
        with self._lock:
            self._last_id += 1
            return self._last_id

    def append(self, body: bytes) -> Ticket:
        return self._role.add(self._new_id(), body)

    def append_durably(self, body: bytes) -> int:
        return self.append(body).wait()

    def append_in(self, transaction: int, body: bytes) -> None:
        self._role.add_in(transaction, self._new_id(), body)

    def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        tickets = [self.append(body) for body in bodies]
        return [ticket.wait() for ticket in tickets]

    def prepare(self, transaction: int, extra: bytes = b"", xid: Xid | None = None) -> Ticket:
        if xid is not None:
            raise self._unsupported("an Xid; put it into extra")
        return self._role.prepare(transaction, extra)

    def live_ids(self) -> set[int]:
        return {one.record_id for one in self._role.live_records()}

    def next_transaction(self) -> int:
        return self._last_transaction + 1

    def records(self, *, from_lsn: int = 0, from_time_us: int | None = None) -> Iterator[Record]:
        if from_lsn or from_time_us is not None:
            raise self._unsupported("LSNs or times to replay from")
        for log in discover(self._path).logs:
            yield from system(log.system).read(log, ReadOptions()).records()

    def tail(self, from_lsn: int) -> TailPosition:
        raise self._unsupported(f"LSNs to follow from, such as {from_lsn}")

    def reclaim(self, checkpoint_lsn: int = 0) -> int:
        """The format frees its files by itself; nothing can be given up by LSN."""
        del checkpoint_lsn
        return 0

    def compact(self, *, force: bool = False) -> int:
        """The system compacts by its own rules."""
        del force
        return 0

    def flush(self) -> None:
        """Every call of a record journal that matters has a ticket of its own."""

    @property
    def next_lsn(self) -> int:
        raise self._unsupported("LSNs")

    @property
    def counters(self) -> GroupCounters:
        return self._counters

    def _unsupported(self, what: str) -> UnsupportedFormatError:
        return UnsupportedFormatError(
            f"this log format has no {what}", file=self._path, advice='Use system="tally"'
        )
