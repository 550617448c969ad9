"""The native log as the engine of a `tallystick.services.journal.Journal`.

In: the calls of `tallystick.roles.JournalEngine`. Out: records and tickets.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from tallystick.arguments import bodies_of, integer, settings_of
from tallystick.records import NumberedRecord
from tallystick.roles import PreparedTransaction, Ticket
from tallystick.storage.files import FileSystem
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.columns import Row, UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import NUMBER_MAX, segment_name
from tallystick.systems.tally.format.sealing import KeyProvider
from tallystick.systems.tally.live.backup import Progress
from tallystick.systems.tally.live.compaction import compact, compaction_due
from tallystick.systems.tally.live.items import columnar, transaction_number
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.read_back import groups_from, rows_from
from tallystick.systems.tally.live.roles.base import AnyLog
from tallystick.systems.tally.live.roles.record_journal import TallyRecordJournal
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tallystick.systems.tally.live.tail import Tail
from tallystick.systems.tally.read.claim import Claim
from tallystick.systems.tally.read.records import records_of

_SAMPLE: Final = 1000
"""Bodies from whose sizes the size of all bodies is estimated."""


def open_journal(
    path: str,
    *,
    settings: Settings | Mapping[str, Any] | None = None,
    key: KeyProvider | None = None,
    fs: FileSystem = LOCAL,
    shared: bool = False,
) -> TallyJournal:
    """Create or recover the log at ``path``; raises as `TallyLog` does.

    ``settings`` may be a mapping of the names of `Settings`; with ``shared`` other processes may
    have the log open, too: see `SharedTallyLog`.
    """
    settings = settings_of(settings, Settings)
    claim = Claim(TallyJournal.role)
    if shared:
        return SharedTallyJournal(
            SharedTallyLog(path, settings=settings, key=key, fs=fs, claim=claim)
        )
    return TallyJournal(TallyLog(path, settings=settings, key=key, fs=fs, claim=claim))


class TallyJournal(TallyRecordJournal):
    """A record journal with plain records, replay by LSN or time, and compaction."""

    def __init__(self, log: AnyLog | str, *, fs: FileSystem = LOCAL) -> None:
        super().__init__(log, fs=fs)
        self.append = self.log.append
        self.append_durably = self.log.append_durably

    def _end(self, transaction: int) -> None:
        # The journal hands out the numbers itself; a transaction may end without any record.
        number = transaction_number(transaction)
        self._open.discard(number)
        self._prepared.discard(number)

    def append_in(self, transaction: int, body: bytes) -> None:
        """Append a plain record in a transaction."""
        self._element(UnplacedRecord(Code.APPEND, body, transaction))

    def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Append plain records; return their LSNs when all are durable.

        Groups form while the ones before are written, no more than three at a time.
        """
        bodies = bodies_of(bodies)
        some = bodies[:_SAMPLE]
        self.log.reserve_ahead(len(bodies) * sum(map(len, some)) // max(len(some), 1))
        written: list[range] = []
        waiting: deque[tuple[Ticket, int]] = deque()
        for block in columnar(bodies, self.log.capacity, self.log.check_size):
            if len(waiting) == 2:
                written.append(_awaited(*waiting.popleft()))
            ticket = self.log.submit(block)
            ticket.start_flush()
            waiting.append((ticket, block.record_count))
        return _joined([*written, *(_awaited(*one) for one in waiting)])

    def records(
        self, *, from_lsn: int = 0, from_time_us: int | None = None
    ) -> Iterator[NumberedRecord]:
        """Yield every record that is durable now, from an LSN or a time (microseconds) on.

        Its segments are kept until the generator ends.
        """
        self.log.flush()
        with self.log.hold(self.log.first_segment):
            for header, stored in groups_from(self.log, lsn=from_lsn, time_us=from_time_us):
                path = posixpath.join(self.log.path, segment_name(header.segment))
                for record in records_of(path, stored, header, self.log.key, salvaged=False):
                    wanted = from_time_us is None or header.time_us >= from_time_us
                    if wanted and record.sequence >= from_lsn:
                        yield record

    def plain_records(self) -> Iterator[tuple[int, bytes]]:
        """Yield LSN and body of plain records, in order, without those not committed.

        Memory grows with the plain records that were committed in transactions.
        """
        log = self.log
        log.flush()
        with log.hold(log.first_segment):
            committed = set(_committed_plain(row for row in rows_from(log)))
            for row in rows_from(log):
                counts = row.record.transaction is None or row.lsn in committed
                if row.record.code == Code.APPEND and counts:
                    yield row.lsn, row.record.body

    def backup(self, target: str, progress: Progress | None = None) -> None:
        """Copy the log as of now to a new folder; see `TallyLog.backup`."""
        self.log.backup(target, progress)

    def tail(self, from_lsn: int) -> Tail:
        """Return a position that follows the records as they become durable."""
        log = self.log
        return Tail(
            log.path, from_lsn=from_lsn, fs=log.fs, key=log.key,
            durable=lambda: log.durable_lsn, hold=log.hold,
        )  # fmt: skip

    def live_ids(self) -> set[int]:
        """Return the ids of live records."""
        with self.log.state() as state:
            return set(state.live)

    @property
    def ids_doubted(self) -> bool:
        """Whether a change of ids was refused after it had been submitted."""
        return self.log.refusals.doubts_ids

    def learn_ids(self) -> tuple[set[int], Sequence[PreparedTransaction]]:
        """Return live ids and prepared transactions, for changes of ids to be checked against."""
        refusals = self.log.refusals
        refusals.keeps_ids = True
        known = self.live_ids(), self.prepared()
        refusals.trust()
        return known

    def next_transaction(self) -> int:
        """Return a lower bound for numbers of transactions that were never used."""
        with self.log.state() as state:
            return state.next_transaction

    def reclaim(self, checkpoint_lsn: int = 0) -> int:
        """Free segments that are not needed; return their number."""
        freed = self.log.reclaim(integer(checkpoint_lsn, "lsn", 0, NUMBER_MAX))
        return freed if isinstance(freed, int) else len(freed)

    def compact(self, *, force: bool = False) -> int:
        """Compact if it is due; return the number of segments freed."""
        if isinstance(self.log, SharedTallyLog):
            return self.log.compact(force=force)
        if not force and not compaction_due(self.log):
            return 0
        return len(compact(self.log))

    def flush(self) -> None:
        """Make everything submitted so far durable."""
        self.log.flush()

    @property
    def next_lsn(self) -> int:
        """LSN of the next record that will be written."""
        return self.log.next_lsn

    @property
    def counters(self) -> GroupCounters:
        """Groups, records, bytes, syncs."""
        return self.log.counters


class SharedTallyJournal(TallyJournal):
    """The journal of a log that other processes write, too; see `SharedJournalEngine`."""

    log: SharedTallyLog

    def _prepared_before(self) -> set[int]:
        return set()

    def append_many(self, bodies: Sequence[bytes]) -> Sequence[int]:
        """Append plain records; return their LSNs when all are durable."""
        bodies = bodies_of(bodies)
        self.log.check_size(max(map(len, bodies), default=0))
        tickets = [self.log.append(body) for body in bodies]
        return [ticket.wait() for ticket in tickets]

    def new_transaction(self) -> int:
        """Return a number for a transaction that no process has used."""
        return self.log.new_transaction()

    def reserve_transactions(self) -> None:
        """Have numbers ready for transactions that event loops begin."""
        self.log.reserve_transactions()


def _committed_plain(rows: Iterator[Row]) -> Iterator[int]:
    """Yield the LSNs of the plain records of transactions that have committed."""
    plain: dict[int, list[int]] = {}
    for row in rows:
        number, code = row.record.transaction, row.record.code
        if number is None:
            continue
        if code == Code.APPEND:
            plain.setdefault(number, []).append(row.lsn)
        elif code in (Code.COMMIT, Code.ROLLBACK):
            lsns = plain.pop(number, [])
            yield from lsns if code == Code.COMMIT else ()


def _awaited(ticket: Ticket, records: int) -> range:
    """Wait until a block is durable; return its LSNs."""
    first = ticket.wait()
    return range(first, first + records)


def _joined(parts: Sequence[range]) -> Sequence[int]:
    """Return the LSNs of all parts: one range, unless other callers wrote in between."""
    whole = range(parts[0].start, parts[-1].stop) if parts else range(0)
    return whole if len(whole) == sum(map(len, parts)) else list(chain.from_iterable(parts))
