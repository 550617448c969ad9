"""The two files of a live journal: appending, syncing, changing files.

In: records in order, never from two threads at once. Out: bytes in the file in use at its
*position*, then the new position, as the original writes them; and a change of files when it is
full, which carries over everything that is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tallystick.errors import LogFormatError
from tallystick.storage.files import File, FileSystem
from tallystick.storage.fork import Uncopied
from tallystick.systems.bitronix.format import layout
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.carry_over import CarriedRecords
from tallystick.systems.bitronix.live.encoder import Entry

UNSYNCED_MAX = 1 << 16
"""Bytes that a live journal leaves unsynced at most: how far back a crash can tear it."""
LOCK_BYTES = 4
"""Size of the lock: it covers the format id, as the original's does."""


class JournalFile(Uncopied):
    """One file of the pair, open and locked; its length is fixed.

    Raises:
        LogLockedError: another process has the file open for writing.
        LogFormatError: the file is shorter than its header.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self.closed = False
        self._file: File = fs.open(path)
        try:
            self._lock = self._file.lock_range(0, LOCK_BYTES)
            self.length = self._file.size()
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def _read_header(self) -> layout.FileHeader:
        header = layout.FileHeader.decode(self._file.pread(layout.HEADER_LENGTH, 0))
        if header is None:
            raise LogFormatError(
                "too short for a journal file",
                file=self.path,
                expected=f"at least {layout.HEADER_LENGTH} bytes",
                found=f"{self._file.size()} bytes",
                advice="Put the file back from a backup; both parts belong together",
            )
        return header

    @property
    def position(self) -> int:
        """The offset of the next record."""
        return self.header.position

    @property
    def timestamp(self) -> int:
        """The timestamp in the header, in ms."""
        return self.header.timestamp

    @property
    def free_bytes(self) -> int:
        """Bytes after the position.

        What is written must be shorter: 2.1.4 never uses the last byte.
        """
        return self.length - self.position

    def append(self, data: bytes) -> None:
        """Write records, then the position after them; not synced."""
        self._file.pwrite(data, self.position)
        # After the record, as the original: a crash in between leaves a whole record that does not
        # count.
        self.set_position(self.position + len(data))

    def set_position(self, position: int) -> None:
        """Write the position into the header; not synced."""
        self._file.pwrite(position.to_bytes(8, "big"), layout.CURRENT_POSITION_HEADER)
        self.header = layout.FileHeader(self.timestamp, self.header.state, position)

    def set_timestamp(self, timestamp: int) -> None:
        """Write the timestamp (ms) into the header; not synced."""
        self._file.pwrite(timestamp.to_bytes(8, "big", signed=True), layout.TIMESTAMP_HEADER)
        self.header = layout.FileHeader(timestamp, self.header.state, self.position)

    def set_state(self, state: int) -> None:
        """Write the state into the header; not synced."""
        self._file.pwrite(state.to_bytes(1, "big", signed=True), layout.STATE_HEADER)
        self.header = layout.FileHeader(self.timestamp, state, self.position)

    def empty(self, length: int) -> None:
        """Count no record, durably, in a file of at least ``length`` bytes."""
        self._file.allocate(length)
        self.length = self._file.size()
        self.set_position(layout.HEADER_LENGTH)
        self._file.datasync()

    def wipe(self) -> None:
        """Write zeros after the header.

        A write that a crash loses then leaves zeros and no older record. The position must be at
        the start, durably, before.
        """
        self._file.pwrite(bytes(self.length - layout.HEADER_LENGTH), layout.HEADER_LENGTH)

    def datasync(self) -> None:
        """Make durable what was written."""
        self._file.datasync()

    def read(self) -> bytes:
        """Return all bytes of the file."""
        return self._file.pread(self._file.size(), 0)

    def close(self) -> None:
        """Release the lock and the file; write nothing."""
        self.closed = True
        self._lock.release()
        self._file.close()


def create_file(fs: FileSystem, path: str, timestamp: int, length: int, records: bytes) -> None:
    """Create a file with these records, durable except for its name."""
    file = fs.create(path)
    try:
        file.allocate(length)
        header = layout.FileHeader(timestamp, position=layout.HEADER_LENGTH + len(records))
        file.pwrite(header.encode() + records, 0)
        file.datasync()
    finally:
        file.close()


class FilePair:
    """The file in use and the passive one; called by the group writer, one thread at a time.

    ``now`` is the journal's clock in ms. With ``forced`` false `sync` does not sync what was
    appended.
    """

    def __init__(
        self,
        active: JournalFile,
        passive: JournalFile,
        open_records: Iterable[TransactionLogRecord],
        now: Callable[[], int],
        *,
        forced: bool,
    ) -> None:
        self.active, self.passive = active, passive
        self._now = now
        self._forced = forced
        self._lsn = 0
        self._unsynced = 0
        self._written = CarriedRecords()
        for record in open_records:
            self._written.apply(record)

    def write(self, entries: list[Entry]) -> Sequence[int]:
        """Append a group of records; everything that goes to one file in one write."""
        pending: list[bytes] = []
        free = self.active.free_bytes
        written = self._written
        for record, data in entries:
            # Before it is known whether it fits: the copies in a new file depend on it.
            written.apply(record)
            free -= len(data)
            if free <= 0:
                self._append(b"".join(pending))
                self._swap(record)
                pending, free = [], self.active.free_bytes - len(data)
            pending.append(data)
        self._append(b"".join(pending))
        first, self._lsn = self._lsn + 1, self._lsn + len(entries)
        return range(first, self._lsn + 1)

    def _append(self, data: bytes) -> None:
        if not data:
            return
        if self._unsynced + len(data) > UNSYNCED_MAX:
            self.sync()
        self.active.append(data)
        self._unsynced += len(data)

    def sync(self) -> None:
        """Make durable what was written; with ``forced`` false do nothing."""
        if self._forced:
            self.active.datasync()
        self._unsynced = 0

    def _swap(self, record: TransactionLogRecord) -> None:
        """Change files before ``record``, which is applied already, is written.

        Each step is durable before the next one relies on it: the passive file is empty before
        it is wiped, the copies are there before its timestamp makes it the file in use.
        """
        self.sync()
        passive = self.passive
        passive.empty(self.active.length)
        passive.wipe()
        replaced = record.gtrid if record.status == layout.COMMITTING else None
        copies = self._written.copies(record.time, record.sequence_number, but=replaced)
        passive.append(b"".join(copies))
        passive.datasync()
        now = self._now()
        # Greater than the other file's, even if the clock went back; and than any offset in a file,
        # so that a reader does not take it for the defect of 2.1.3 and 2.1.4.
        passive.set_timestamp(max(now, self.active.timestamp + 1, passive.length + 1))
        passive.set_state(layout.UNCLEAN_LOG_STATE)
        passive.datasync()
        self.active, self.passive = passive, self.active

    def mark_clean(self) -> None:
        """Set both states to clean, durably."""
        for file in (self.active, self.passive):
            file.set_state(layout.CLEAN_LOG_STATE)
            file.datasync()

    def close(self) -> None:
        """Release both files; write nothing."""
        self.active.close()
        self.passive.close()
