"""The live circular journal: records by id, in and out of transactions, in a ring of files.

In: the calls of the original (`append_add_record` ... `append_rollback_record`, `compact`), from
any number of threads and tasks. Out: files that the original loads, and tickets that are done
once a record is durable.

    with CircularJournal("journal") as journal:
        journal.append_add_record(1, user_type=0, body=b"first").wait()

Generations: ``g1a`` to ``g1c`` (2008, commits list (file, count) pairs), ``g1d``, ``g2`` (HornetQ
2.0 and 2.1) and ``g3`` (today's Artemis, format 2). With ``checksum="hash"`` records end with a
CRC-32 instead of their size; the files carry a format version of their own, which every other
reader refuses.

A `GroupWriter` does what the timed buffer of the original does: whoever waits writes for all
callers, and no timer runs unless ``delay`` is set. Commit, prepare and rollback records get their
file and their counts when the `Placer` places them, in the one thread that writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tallystick.arguments import bytes_of, integer
from tallystick.errors import LogWriteError, RecordTooLargeError, TransactionUsageError
from tallystick.storage.files import FileSystem, absolute
from tallystick.storage.group.counters import GroupCounters
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.group.ticket import GroupTicket
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.local import LOCAL
from tallystick.storage.opening import Closing, closes, lock_log, opens_log
from tallystick.storage.signals import uninterrupted
from tallystick.systems.folders import require_own
from tallystick.systems.jboss.format.layout import (
    LONG_MAX,
    LONG_MIN,
    SYSTEM_NAME,
    USER_TYPE_MAX,
    USER_TYPE_MIN,
    Item,
    RecordType,
    encode,
    encode_body,
)
from tallystick.systems.jboss.live.compaction import compact
from tallystick.systems.jboss.live.files import Ring
from tallystick.systems.jboss.live.opening import Recovered, live_contents, recover
from tallystick.systems.jboss.live.placement import Placer, UnplacedRecord
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.jboss.read.replay import OpenTransaction

__all__ = ["CircularJournal", "JournalSettings"]

LOCK_FILE = "journal.lock"
GROUP_BYTES = 501_760
"""490 KiB, the buffer of the original."""

_Ticket = GroupTicket[UnplacedRecord]


@dataclass(slots=True)
class PendingTransaction:
    """An open transaction as its callers see it: record ids that it adds and deletes."""

    added: list[int]
    deleted: list[int]
    prepared: bool = False


class CircularJournal(Closing):
    """An open journal: one per folder, used by any number of threads and tasks.

    Record ids and transactions are signed 64-bit numbers that the caller chooses; user types are
    -128..127. Every call raises `LogPoisonedError` after a write or sync has failed.

    Attributes:
        folder: the folder of the files.
        settings: the configuration.
        loaded: what opening found.
    """

    @opens_log
    def __init__(
        self,
        folder: str,
        settings: JournalSettings | None = None,
        *,
        fs: FileSystem = LOCAL,
        tolerate_damage: bool = False,
    ) -> None:
        """Lock, recover and open the journal; make one if there is none.

        Args:
            folder: the folder of the files; created if missing.
            settings: the configuration; must fit the files.
            fs: the file system.
            tolerate_damage: skip damaged records as the original loaders do.

        Raises:
            LogLockedError: the journal is open elsewhere.
            UnsupportedFormatError: a file has another format or user version, or the folder holds
                another log.
            CorruptLogError: a file before the last one is damaged.
            LogWriteError: the settings fit no generation.
        """
        self.folder = folder = absolute(folder)
        self.settings = settings or JournalSettings()
        ring_settings = self.settings.ring()
        require_own(folder, fs, SYSTEM_NAME, self.settings.usual_names)
        fs.mkdir(folder)
        self._folder_lock = lock_log(fs, f"{folder}/{LOCK_FILE}")
        self._ring = Ring(self._folder_lock.fs, folder, ring_settings)
        try:
            self.loaded = recover(self._ring, tolerate_damage=tolerate_damage)
            self._begin(self.loaded)
        except BaseException:
            self._ring.close()
            self._folder_lock.release()
            raise

    def _begin(self, loaded: Recovered) -> None:
        self._shape = self._ring.settings.shape
        self._placer = Placer(self._ring, loaded.counts)
        self._ids = set(loaded.live)
        self._refused = 0
        """Records that had been refused when the ids were learned."""
        self._closed = False
        self._record_max = self._ring.settings.whole_blocks(
            self._ring.settings.file_size - self._ring.settings.data_at
        )
        self._open = {one.transaction: _pending(one) for one in loaded.prepared}
        self._lock = OwnedLock(nested_call_error)
        self._abandoned: set[int] = set()
        """Numbers of transactions that a crash left open; their records are still in the files."""
        self._writer: GroupWriter[UnplacedRecord] = GroupWriter(
            self._placer.write,
            self._ring.sync,
            name=self.folder,
            group_bytes=GROUP_BYTES,
            delay=self.settings.delay,
        )
        # As HornetQ does from 2.2 on, whose compaction did not know such transactions otherwise.
        self._discard(loaded.discarded)

    def _discard(self, numbers: Sequence[int]) -> None:
        """End what a crash left open with rollbacks; before g3 only if a number is used again."""
        if not self._shape.compact:
            self._abandoned = set(numbers)
            for number in numbers:
                self._placer.counts.discard(number)
            return
        for number in numbers:
            self._submit(self._bodyless(Item(0, 0, RecordType.ROLLBACK, 0, 0, number)))
        self._writer.flush()

    # -- records outside transactions -----------------------------------------------------

    def append_add_record(self, record_id: int, user_type: int, body: bytes) -> _Ticket:
        """Add a record; an id must be used only once.

        Raises:
            RecordTooLargeError: it does not fit a file.
        """
        entry = self._with_body(RecordType.ADD, None, record_id, user_type, body)
        with uninterrupted, self._lock:
            self._ids.add(entry.record_id)
            return self._submit(entry)

    def check_size(self, size: int) -> None:
        """Check that a record outside of transactions with a body of ``size`` bytes fits in a file.

        Raises:
            RecordTooLargeError: it does not.
        """
        self._require_fits(size + len(encode_body(self._shape, RecordType.ADD, None, 0, 0, b"")))

    def append_update_record(self, record_id: int, user_type: int, body: bytes) -> _Ticket:
        """Add an update to a live record.

        Raises:
            LogWriteError: no live record has the id.
            RecordTooLargeError: it does not fit a file.
        """
        entry = self._with_body(RecordType.UPDATE, None, record_id, user_type, body)
        with uninterrupted, self._lock:
            self._check_live(entry.record_id)
            return self._submit(entry)

    def append_delete_record(self, record_id: int) -> _Ticket:
        """Delete a live record.

        Raises:
            LogWriteError: no live record has the id.
        """
        record_id = _number(record_id, "record_id")
        entry = self._bodyless(Item(0, 0, RecordType.DELETE, 0, 0, record_id=record_id))
        with uninterrupted, self._lock:
            self._check_live(entry.record_id)
            self._ids.discard(entry.record_id)
            return self._submit(entry)

    # -- transactions -----------------------------------------------------------------------

    def append_add_record_transactional(
        self, transaction: int, record_id: int, user_type: int, body: bytes
    ) -> _Ticket:
        """Add a record once the transaction commits; the first record begins the transaction.

        Raises:
            TransactionUsageError: the transaction is prepared.
            RecordTooLargeError: it does not fit a file.
        """
        entry = self._with_body(RecordType.ADD_TX, transaction, record_id, user_type, body)
        return self._element(entry)

    def append_update_record_transactional(
        self, transaction: int, record_id: int, user_type: int, body: bytes
    ) -> _Ticket:
        """Add an update to a record once the transaction commits.

        Raises:
            TransactionUsageError: the transaction is prepared.
            RecordTooLargeError: it does not fit a file.
        """
        entry = self._with_body(RecordType.UPDATE_TX, transaction, record_id, user_type, body)
        return self._element(entry)

    def append_delete_record_transactional(
        self, transaction: int, record_id: int, body: bytes = b""
    ) -> _Ticket:
        """Delete a record once the transaction commits; g1a does not store the body.

        Raises:
            TransactionUsageError: the transaction is prepared.
            RecordTooLargeError: it does not fit a file.
        """
        record_id, body = _number(record_id, "record_id"), bytes_of(body)
        transaction = _number(transaction, "transaction")
        item = Item(0, 0, RecordType.DELETE_TX, 0, 0, transaction, record_id, body=body)
        return self._element(self._bodyless(item))

    def append_prepare_record(self, transaction: int, extra: bytes = b"") -> _Ticket:
        """Prepare the transaction; ``extra`` is an Xid, which g1a does not store.

        Raises:
            TransactionUsageError: the transaction is not open; in g1a only.
            RecordTooLargeError: it does not fit a file.
        """
        transaction, extra = _number(transaction, "transaction"), bytes_of(extra, "extra")
        entry = self._bodyless(Item(0, 0, RecordType.PREPARE, 0, 0, transaction, extra=extra))
        with uninterrupted, self._lock:
            if self._shape.pairs:
                self._check_open(transaction)
            self._pending(transaction).prepared = True
            return self._submit(entry)

    def append_commit_record(self, transaction: int) -> _Ticket:
        """Commit the transaction.

        Raises:
            TransactionUsageError: the transaction is not open.
        """
        transaction = _number(transaction, "transaction")
        with uninterrupted, self._lock:
            self._check_open(transaction)
            one = self._open.pop(transaction)
            self._ids.update(one.added)
            self._ids.difference_update(one.deleted)
            return self._submit(self._bodyless(Item(0, 0, RecordType.COMMIT, 0, 0, transaction)))

    def append_rollback_record(self, transaction: int) -> _Ticket:
        """Roll the transaction back.

        Raises:
            TransactionUsageError: the transaction is not open.
        """
        transaction = _number(transaction, "transaction")
        with uninterrupted, self._lock:
            self._check_open(transaction)
            del self._open[transaction]
            return self._submit(self._bodyless(Item(0, 0, RecordType.ROLLBACK, 0, 0, transaction)))

    # -- files ------------------------------------------------------------------------------

    def force_move_next_file(self) -> None:
        """Begin the next file now."""
        with self._changing_files():
            self._ring.advance()

    def check_and_reclaim_files(self) -> None:
        """Reuse, or delete, files that may go."""
        with self._changing_files():
            self._ring.reclaim()

    def needs_compaction(self) -> bool:
        """Return whether live bytes are a small part of many files, by the settings."""
        with self._writer.exclusive():
            files = len(self._ring.data)
            live = self._placer.counts.live_bytes
            limit = files * self.settings.file_size * self.settings.compact_percentage // 100
            return files > self.settings.compact_min_files and live < limit

    def compact(self) -> None:
        """Copy the live records to new files and drop the old ones.

        Raises:
            UnsupportedFormatError: the generation is of 2008: its loaders know no control file.
            LogFullError: there is no space for the copies; nothing has changed.
            LogWriteError: the folder was moved.
        """
        self.require_in_place()
        with uninterrupted, self._lock, self._changing_files():
            self._placer.counts = compact(self._ring, self._placer.counts)

    def files(self) -> list[tuple[str, int]]:
        """Return (name, file id) of every file, in order of ids."""
        with self._writer.exclusive():
            ring = self._ring
            every = [*ring.data, ring.current, *ring.opened, *ring.free]
            return sorted(((file.name, file.file_id) for file in every), key=lambda one: one[1])

    # -- state ------------------------------------------------------------------------------

    def open_transactions(self) -> Sequence[int]:
        """Return the numbers of the transactions that have not ended."""
        with uninterrupted, self._lock:
            return list(self._open)

    def contents(self) -> tuple[dict[int, list[Item]], list[OpenTransaction]]:
        """Return live records by id and transactions in doubt, read from the files."""
        with self._flushed():
            live, in_doubt = live_contents(self._ring)
        return {key: [placed.item for placed in records] for key, records in live.items()}, in_doubt

    @property
    def refused(self) -> int:
        """Number of records that were refused after they had been submitted."""
        return self._writer.counted.refused

    @property
    def counters(self) -> GroupCounters:
        """The group writer's counts: groups, records, bytes, fsyncs."""
        return self._writer.counters

    def flush(self) -> None:
        """Return when everything appended so far is durable."""
        self._writer.flush()

    def require_in_place(self) -> None:
        """Check that the path still leads to the log; see `Placed.require_in_place`."""
        self._ring.fs.require_in_place()

    @closes
    def close(self) -> None:
        """Make everything durable and unlock the folder; a second call does nothing.

        Open transactions stay open in the files.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._writer.close()
        finally:
            self._ring.close()
            self._folder_lock.release()

    # -- inside -----------------------------------------------------------------------------

    @contextmanager
    def _flushed(self) -> Iterator[None]:
        """Flush, and keep the writer from running within the block."""
        self._writer.flush()
        with self._writer.exclusive():
            yield

    @contextmanager
    def _changing_files(self) -> Iterator[None]:
        """As `_flushed`, for what changes files: the journal ends if that fails.

        Its files are then not what it takes them for, until it is opened again.
        """
        with self._flushed():
            try:
                yield
            except OSError as error:
                raise self._writer.poison(error) from error

    def _submit(self, entry: UnplacedRecord, *, sync: bool = True) -> _Ticket:
        return self._writer.submit(entry, len(entry.raw), sync=sync)

    def _element(self, entry: UnplacedRecord) -> _Ticket:
        transaction = entry.transaction or 0
        with uninterrupted, self._lock:
            one = self._pending(transaction)
            if one.prepared:
                raise TransactionUsageError(f"transaction {transaction} is prepared")
            deleting = entry.type is RecordType.DELETE_TX
            (one.deleted if deleting else one.added).append(entry.record_id)
            return self._submit(entry, sync=False)

    def _pending(self, transaction: int) -> PendingTransaction:
        """Return the open transaction of that number, begun if there is none."""
        if transaction in self._abandoned:
            self._abandoned.discard(transaction)
            self._submit(self._bodyless(Item(0, 0, RecordType.ROLLBACK, 0, 0, transaction)))
        return self._open.setdefault(transaction, PendingTransaction([], []))

    def _with_body(
        self, kind: RecordType, transaction: int | None, record_id: int, user_type: int, body: bytes
    ) -> UnplacedRecord:
        record_id, body = _number(record_id, "record_id"), bytes_of(body)
        user_type = integer(user_type, "user_type", USER_TYPE_MIN, USER_TYPE_MAX)
        if transaction is not None:
            transaction = _number(transaction, "transaction")
        self._require_fits(len(body))  # first: the layout has no place for 2 GiB
        raw = encode_body(self._shape, kind, transaction, record_id, user_type, body)
        self._require_fits(len(raw))
        return UnplacedRecord(kind, transaction, record_id, raw)

    def _bodyless(self, item: Item) -> UnplacedRecord:
        self._require_fits(len(item.body or b"") + len(item.extra or b""))
        raw = bytearray(encode(self._shape, item))
        self._require_fits(len(raw))
        return UnplacedRecord(
            item.type, item.transaction, item.record_id or 0, raw, item.extra or b""
        )

    def _require_fits(self, size: int) -> None:
        if size > self._record_max:
            raise RecordTooLargeError(
                "the record is larger than a journal file can hold",
                file=self.folder,
                expected=f"at most {self._record_max} bytes",
                found=f"{size} bytes",
                advice="Split the body, or make the journal with a larger file_size",
            )

    def _check_live(self, record_id: int) -> None:
        if self._refused != self.refused:
            self._learn_ids()
        if record_id not in self._ids:
            raise LogWriteError(f"no live record has id {record_id}", file=self.folder)

    def _learn_ids(self) -> None:
        """Learn the live ids from the files: a change of them that was noted has been refused."""
        with suppress(LogWriteError):
            self._writer.flush()
        with self._writer.exclusive():
            self._refused = self.refused
            self._ids = set(live_contents(self._ring)[0])

    def _check_open(self, transaction: int) -> None:
        if transaction not in self._open:
            raise TransactionUsageError(f"transaction {transaction} is not open")


def _number(value: object, name: str) -> int:
    """Return an id, or the number of a transaction. Raises `TypeError` or `ValueError`."""
    return integer(value, name, LONG_MIN, LONG_MAX)


def _pending(one: OpenTransaction) -> PendingTransaction:
    added = [placed.item.record_id or 0 for placed in one.records]
    deleted = [placed.item.record_id or 0 for placed in one.deletes]
    return PendingTransaction(added, deleted, prepared=True)
