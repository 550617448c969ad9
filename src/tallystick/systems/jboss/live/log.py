"""The live circular journal: records by id, in and out of transactions, in a ring of files.

In: the calls of the original (`append_add_record` ... `append_rollback_record`, `compact`), from
any number of threads and tasks. Out: files that the original loads, and tickets that are done
once a record is durable.

    with CircularJournal("journal") as journal:
        journal.append_add_record(1, user_type=0, body=b"first").wait()

Generations: ``g1a`` (August 2008, commits list (file, count) pairs) and ``g3`` (today's
Artemis, format 2). With ``checksum="hash"`` records end with a CRC-32 instead of their size; the
files carry a format version of their own, which every other reader refuses.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.errors import LogWriteError, TransactionUsageError
from tallystick.storage.group.ticket import GroupTicket
from tallystick.systems.jboss.format.layout import Item, Name
from tallystick.systems.jboss.live.appending import AppendingJournal, Front
from tallystick.systems.jboss.live.compaction import compact
from tallystick.systems.jboss.live.opening import live_contents
from tallystick.systems.jboss.live.placement import Entry
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.jboss.read.replay import Open

__all__ = ["CircularJournal", "JournalSettings"]


class CircularJournal(AppendingJournal):
    """A journal that is open: one per folder, used by any number of threads and tasks.

    Raises `LogLockedError` if it is open elsewhere, `UnsupportedFormatError` and
    `CorruptLogError` as `tallystick.systems.jboss.live.opening.recover` does.
    """

    # -- records outside transactions -----------------------------------------------------

    def append_add_record(self, record_id: int, user_type: int, body: bytes) -> GroupTicket[Entry]:
        """Add a record; an id is used once."""
        entry = self._entry(Name.ADD, None, record_id, user_type, body)
        with self._lock:
            self._ids.add(record_id)
            return self._submit(entry)

    def append_update_record(
        self, record_id: int, user_type: int, body: bytes
    ) -> GroupTicket[Entry]:
        """Add to a live record. Raises `LogWriteError` if no record has the id."""
        entry = self._entry(Name.UPDATE, None, record_id, user_type, body)
        with self._lock:
            self._check_known(record_id)
            return self._submit(entry)

    def append_delete_record(self, record_id: int) -> GroupTicket[Entry]:
        """End a live record. Raises `LogWriteError` if no record has the id."""
        entry = self._bare(Item(0, 0, Name.DELETE, 0, 0, record_id=record_id))
        with self._lock:
            self._check_known(record_id)
            self._ids.discard(record_id)
            return self._submit(entry)

    # -- transactions -----------------------------------------------------------------------

    def append_add_record_transactional(
        self, transaction: int, record_id: int, user_type: int, body: bytes
    ) -> GroupTicket[Entry]:
        """Add a record once the transaction commits."""
        entry = self._entry(Name.ADD_TX, transaction, record_id, user_type, body)
        return self._element(entry, transaction)

    def append_update_record_transactional(
        self, transaction: int, record_id: int, user_type: int, body: bytes
    ) -> GroupTicket[Entry]:
        """Add to a record once the transaction commits."""
        entry = self._entry(Name.UPDATE_TX, transaction, record_id, user_type, body)
        return self._element(entry, transaction)

    def append_delete_record_transactional(
        self, transaction: int, record_id: int, body: bytes = b""
    ) -> GroupTicket[Entry]:
        """End a record once the transaction commits. In g1a the body is not stored."""
        entry = self._bare(Item(0, 0, Name.DELETE_TX, 0, 0, transaction, record_id, body=body))
        return self._element(entry, transaction)

    def append_prepare_record(self, transaction: int, extra: bytes = b"") -> GroupTicket[Entry]:
        """Promise to commit or roll back as told; ``extra`` (an Xid) is not stored in g1a."""
        entry = self._bare(Item(0, 0, Name.PREPARE, 0, 0, transaction, extra=extra))
        with self._lock:
            if self._shape.pairs:
                self._check_open(transaction)
            self._front(transaction).prepared = True
            return self._submit(entry)

    def append_commit_record(self, transaction: int) -> GroupTicket[Entry]:
        """Make the transaction count. Raises `TransactionUsageError` if it is not open."""
        with self._lock:
            self._check_open(transaction)
            one = self._open.pop(transaction)
            self._ids.update(one.added)
            self._ids.difference_update(one.deleted)
            return self._submit(self._bare(Item(0, 0, Name.COMMIT, 0, 0, transaction)))

    def append_rollback_record(self, transaction: int) -> GroupTicket[Entry]:
        """Drop the transaction. Raises `TransactionUsageError` if it is not open."""
        with self._lock:
            self._check_open(transaction)
            del self._open[transaction]
            return self._submit(self._bare(Item(0, 0, Name.ROLLBACK, 0, 0, transaction)))

    # -- the ring ---------------------------------------------------------------------------

    def force_move_next_file(self) -> None:
        """Go on to the next file now."""
        with self._quiet():
            self._ring.move(self._placer.books)

    def check_and_reclaim_files(self) -> None:
        """Use again, or delete, files that may go."""
        with self._quiet():
            self._ring.reclaim(self._placer.books)

    def needs_compaction(self) -> bool:
        """True if live bytes are a small part of many files, by the settings."""
        with self._writer.exclusive():
            files = len(self._ring.data)
            limit = files * self.settings.file_size * self.settings.compact_percentage // 100
            return files > self.settings.compact_min_files and self._placer.books.live_bytes < limit

    def compact(self) -> None:
        """Copy the live records to new files and drop the old ones (not in g1a).

        Raises `UnsupportedFormatError` in g1a, whose loaders know no control file.
        """
        with self._lock, self._quiet():
            self._placer.books = compact(self._ring, self._placer.books)

    def files(self) -> list[tuple[str, int]]:
        """(name, file id) of every file, in order of ids."""
        with self._writer.exclusive():
            ring = self._ring
            every = [*ring.data, ring.current, *ring.opened, *ring.free]
            return sorted(((file.name, file.file_id) for file in every), key=lambda one: one[1])

    def open_transactions(self) -> Sequence[int]:
        """Numbers of transactions that have not ended."""
        with self._lock:
            return list(self._open)

    def contents(self) -> tuple[dict[int, list[Item]], list[Open]]:
        """Live records by id and transactions in doubt, read from the files."""
        with self._quiet():
            return live_contents(self._ring)

    # -- inside -----------------------------------------------------------------------------

    def _element(self, entry: Entry, transaction: int) -> GroupTicket[Entry]:
        with self._lock:
            one = self._front(transaction)
            if one.prepared:
                raise TransactionUsageError(f"transaction {transaction} is prepared")
            (one.deleted if entry.name is Name.DELETE_TX else one.added).append(entry.record_id)
            return self._submit(entry, sync=False)

    def _front(self, transaction: int) -> Front:
        """The open transaction of that number, begun if there is none."""
        if transaction in self._stale:
            # Records of an earlier transaction of this number are still in the files.
            self._stale.discard(transaction)
            self._submit(self._bare(Item(0, 0, Name.ROLLBACK, 0, 0, transaction)))
        return self._open.setdefault(transaction, Front([], []))

    def _check_known(self, record_id: int) -> None:
        if record_id not in self._ids:
            raise LogWriteError(f"no live record has id {record_id}", file=self.folder)

    def _check_open(self, transaction: int) -> None:
        if transaction not in self._open:
            raise TransactionUsageError(f"transaction {transaction} is not open")
