"""The live journal: two files written in turn, as the original writes them.

In: statuses of global transactions with the names of their resources. Out: `Ticket`s for forced
records, and after a restart the decisions that are open. Methods have the original's names, in
Python's spelling; ``docs/systems/bitronix.md`` maps them and lists the improvements.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from functools import partial

from tallystick.arguments import bytes_of, integer
from tallystick.errors import CorruptLogError, LogFullError, RecordTooLargeError
from tallystick.storage.files import FileSystem, absolute
from tallystick.storage.fork import register_in_child
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import Closing, closes, closing_log, opens_log
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import uninterrupted
from tallystick.systems.bitronix.format.layout import (
    CLOSING,
    COMMITTED,
    COMMITTING,
    DEFAULT_NAMES,
    GTRID_MAX,
    HEADER_LENGTH,
    MEGABYTE,
    NO_TRANSACTION,
    RECORD_MIN,
    STATUS_MAX,
    STATUS_MIN,
    UNKNOWN,
    sequence_number,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.encoder import Entry, RecordEncoder
from tallystick.systems.bitronix.live.files import UNSYNCED_MAX, FilePair, JournalFile
from tallystick.systems.bitronix.live.opening import Settings, later_time, open_files
from tallystick.systems.bitronix.read.scan import CountedWalk

MAX_LOG_SIZE = 2 * MEGABYTE
FILTERED = frozenset({COMMITTING, COMMITTED, UNKNOWN})
"""Statuses that the status filter stores, besides whatever closes an open decision."""
CLOSING_SLACK = RECORD_MIN + GTRID_MAX
"""Bytes kept free so that a decision can be closed for some of its resources."""


def milliseconds(since_boot: bool) -> int:
    """Return the clock of 2.1.4 (since boot, as the JVM counts) or of the 3.0 line (since 1970)."""
    return (time.monotonic_ns() if since_boot else time.time_ns()) // 1_000_000


class DiskJournal(Closing):
    """A journal in the folder ``path``. Safe for threads; one owner at a time.

    Args:
        path: the folder; made if it does not exist.
        fs: the file system.
        names: the names of part 1 and part 2.
        max_log_size: bytes of each file, used only when they are made (the original takes whole
            megabytes, 2 by default).
        filter_log_status: store only COMMITTING, COMMITTED, UNKNOWN and what closes a decision.
        skip_corrupted_logs: open a damaged journal with the whole records that it has.
        forced_write_enabled: False never syncs a record.
        force_batching_enabled: False gives each forced record a sync of its own.
        boot_clock: write times as 2.1.4 does (True) or as the 3.0 line (False); by default as the
            journal has them, and new journals as the 3.0 line.

    Raises:
        CorruptLogError: records that may have been acknowledged are damaged, or a file is missing.
        LogFormatError: a file is shorter than its header.
        LogLockedError: another process has the journal open.
        UnsupportedFormatError: the folder holds another log.
        OSError: the operating system refuses.
    """

    @opens_log
    def __init__(
        self,
        path: str,
        *,
        fs: FileSystem = LOCAL,
        names: tuple[str, str] = DEFAULT_NAMES,
        max_log_size: int = MAX_LOG_SIZE,
        filter_log_status: bool = False,
        skip_corrupted_logs: bool = False,
        forced_write_enabled: bool = True,
        force_batching_enabled: bool = True,
        boot_clock: bool | None = None,
    ) -> None:
        self.path = path = absolute(path)
        self._filter = filter_log_status
        self._batching = force_batching_enabled
        # One forced record at a time where they are not batched, but what a finalizer forces.
        self._single = threading.RLock()
        # Ties numbers and state to the order of submits.
        self._mutex = OwnedLock(partial(nested_call_error, path))
        part1, part2 = (posixpath.join(path, name) for name in names)
        length = HEADER_LENGTH + max_log_size
        opened = open_files(
            Settings(fs, part1, part2, length, skip_corrupted_logs, milliseconds, boot_clock)
        )
        self._since_boot = opened.since_boot
        self._time, self._sequence = opened.last
        self._submitted = opened.carried
        self._encoder = RecordEncoder()
        open_records = opened.carried.records()
        self._files = FilePair(
            opened.active, opened.passive, open_records, self._now, forced=forced_write_enabled
        )
        self._writer: GroupWriter[Entry] = GroupWriter(
            self._files.write, self._files.sync, name=path, group_bytes=UNSYNCED_MAX // 2
        )
        self._forked = False
        register_in_child(self)

    # -- writing ---------------------------------------------------------------------------

    def log(self, status: int, gtrid: bytes, unique_names: Collection[str]) -> None:
        """Store a status, unforced: durable with the next forced record.

        Args:
            status: a number of ``javax.transaction.Status``.
            gtrid: at most 127 bytes.
            unique_names: the names of the resources, ASCII.

        Raises:
            RecordTooLargeError: the originals could not read the record back.
            LogFullError: open decisions leave no space.
            LogClosedError: the journal is closed.
            LogPoisonedError: an earlier write or sync failed.
        """
        gtrid = bytes_of(gtrid, "gtrid")
        if self._passes(status, gtrid):
            self._submit(status, gtrid, unique_names, sync=False)

    def log_forced(
        self, status: int, gtrid: bytes, unique_names: Collection[str]
    ) -> GroupTicket[Entry]:
        """Store a status and return a ticket for its durability; see `log`."""
        if self._batching:
            return self._submit(status, gtrid, unique_names, sync=True)
        with self._single:
            ticket = self._submit(status, gtrid, unique_names, sync=True)
            ticket.wait()
        return ticket

    def force(self) -> None:
        """Wait until everything stored so far is durable."""
        self._writer.flush()

    def _passes(self, status: int, gtrid: bytes) -> bool:
        if not self._filter or status in FILTERED:
            return True
        return status in CLOSING and self._submitted.decisions.get(gtrid) is not None

    def _submit(
        self, status: int, gtrid: bytes, names: Collection[str], *, sync: bool
    ) -> GroupTicket[Entry]:
        status = integer(status, "status", STATUS_MIN, STATUS_MAX)
        gtrid = bytes_of(gtrid, "gtrid")
        with uninterrupted, self._mutex:
            self._time = later_time(self._now(), self._time)
            number = sequence_number(self._sequence + 1)
            entry = self._encoder.encode(status, gtrid, names, self._time, number)
            record, data = entry
            self._require_space(record)
            ticket = self._writer.submit(entry, len(data), sync=sync)
            self._sequence += 1
            self._submitted.apply(record)
        return ticket

    def _require_space(self, record: TransactionLogRecord) -> None:
        """Raise unless all that is open fits into an empty file together with one record."""
        length = self.active.length
        # The bound first: it is one addition for each record, the exact size below goes through all
        # that is kept of a transaction.
        at_most = HEADER_LENGTH + self._submitted.size_with_max(record) + CLOSING_SLACK
        if at_most < length:
            return
        if HEADER_LENGTH + record.size >= length:
            raise RecordTooLargeError(
                "the record does not fit into a file of this journal",
                file=self.active.path,
                expected=f"fewer than {length - HEADER_LENGTH} bytes",
                found=f"{record.size} bytes",
            )
        needed = HEADER_LENGTH + self._submitted.size_with(record)
        if record.status not in CLOSING:
            needed += CLOSING_SLACK
        if needed >= length:
            raise LogFullError(
                "open decisions leave no space",
                file=self.active.path,
                expected=f"fewer than {length} bytes",
                found=f"{needed} bytes with this record",
                advice="Close open decisions, or make the journal anew with a larger max_log_size",
            )

    # -- reading ---------------------------------------------------------------------------

    def collect_dangling_records(self) -> Mapping[bytes, TransactionLogRecord]:
        """Return the decisions that are open, by gtrid, each with the names still to be closed."""
        with uninterrupted, self._mutex:
            return dict(sorted(self._submitted.decisions.items()))

    def dangling_record(self, gtrid: bytes) -> TransactionLogRecord | None:
        """Return the open decision of one gtrid; None if there is none."""
        return self._submitted.decisions.get(gtrid)

    def heuristic_records(self) -> Mapping[bytes, TransactionLogRecord]:
        """Return the UNKNOWN records that no `settle` has followed, by gtrid."""
        with uninterrupted, self._mutex:
            return dict(self._submitted.heuristics)

    def unsafe_read_records(
        self, *, include_invalid: bool = False
    ) -> Iterator[TransactionLogRecord]:
        """Yield all records of the file in use.

        Args:
            include_invalid: skip damage instead of raising.

        Raises:
            CorruptLogError: at damage.
        """
        self.force()
        with self._writer.exclusive():
            data = self.active.read()
        for span in CountedWalk(memoryview(data)).spans():
            if span.record is not None:
                yield span.record
            elif not include_invalid:
                raise CorruptLogError(span.reason, file=self.active.path, offset=span.offset)

    def migrate_to(self, other: DiskJournal) -> None:
        """Store every open decision in another journal too; this journal is not changed.

        Raises:
            ValueError: ``other`` is this journal.
        """
        if other is self:
            raise ValueError("cannot migrate a journal to itself")
        for record in self.collect_dangling_records().values():
            other.log(record.status, record.gtrid, record.unique_names)
        other.force()

    def settle(self, gtrid: bytes) -> GroupTicket[Entry]:
        """Close a heuristic outcome that an operator has resolved.

        Raises:
            KeyError: the gtrid has no heuristic outcome.
        """
        return self.log_forced(NO_TRANSACTION, gtrid, self.heuristic_records()[gtrid].unique_names)

    # -- closing ---------------------------------------------------------------------------

    @closes
    def close(self) -> None:
        """Force, mark both files clean, release them.

        A second call does nothing, nor does one in a forked child. A poisoned journal is released
        as it is; the next opening repairs it.
        """
        if self.active.closed or self._forked:
            return
        with closing_log(self.path):
            try:
                self._writer.close()
                if not self._writer.poisoned:
                    self._files.mark_clean()
            finally:
                self._files.close()

    def forked(self) -> None:
        """Leave the files to their parent in a forked child."""
        self._forked = True

    @property
    def counters(self) -> GroupCounters:
        """Groups, records, bytes and syncs so far."""
        return self._writer.counters

    @property
    def active(self) -> JournalFile:
        """The file in use."""
        return self._files.active

    def _now(self) -> int:
        return milliseconds(self._since_boot)
