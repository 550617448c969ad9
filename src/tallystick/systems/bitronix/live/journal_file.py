"""One of the two files of a live journal: its header, its lock, and appending to it.

In: encoded records. Out: bytes at *position*, then the new position, as the original writes
them; the caller decides when to sync.
"""

from __future__ import annotations

from tallystick.errors import LogFormatError
from tallystick.storage.files import File, FileSystem
from tallystick.systems.bitronix.format.layout import (
    CURRENT_POSITION_HEADER,
    HEADER_LENGTH,
    STATE_HEADER,
    TIMESTAMP_HEADER,
    FileHeader,
)

LOCK_BYTES = 4
"""The lock covers the format id, as the original's does."""


class JournalFile:
    """An open, locked file. ``length`` is fixed; ``position`` is where the next record goes."""

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

    def _read_header(self) -> FileHeader:
        header = FileHeader.decode(self._file.pread(HEADER_LENGTH, 0))
        if header is None:
            raise LogFormatError(
                "too short for a journal file",
                file=self.path,
                expected=f"at least {HEADER_LENGTH} bytes",
                found=f"{self._file.size()} bytes",
                advice="Put the file back from a backup; both parts belong together",
            )
        return header

    @property
    def position(self) -> int:
        return self.header.position

    @property
    def timestamp(self) -> int:
        return self.header.timestamp

    @property
    def room(self) -> int:
        """Bytes behind the position. As 2.1.4 sees it, the last one is never used: what is
        written must be shorter."""
        return self.length - self.position

    def append(self, data: bytes) -> None:
        """Write records, then the position behind them; not synced."""
        self._file.pwrite(data, self.position)
        self.set_position(self.position + len(data))

    def set_position(self, position: int) -> None:
        self._file.pwrite(position.to_bytes(8, "big"), CURRENT_POSITION_HEADER)
        self.header = FileHeader(self.timestamp, self.header.state, position)

    def set_timestamp(self, timestamp: int) -> None:
        self._file.pwrite(timestamp.to_bytes(8, "big", signed=True), TIMESTAMP_HEADER)
        self.header = FileHeader(timestamp, self.header.state, self.position)

    def set_state(self, state: int) -> None:
        self._file.pwrite(state.to_bytes(1, "big", signed=True), STATE_HEADER)
        self.header = FileHeader(self.timestamp, state, self.position)

    def empty(self, length: int) -> None:
        """Count nothing, durably, in a file of at least ``length`` bytes."""
        self._file.allocate(length)
        self.length = self._file.size()
        self.set_position(HEADER_LENGTH)
        self._file.datasync()

    def wipe(self) -> None:
        """Zeros behind the header, so that a write that is lost in a crash leaves zeros and no
        older record. The position must be at the start, durably, before."""
        self._file.pwrite(bytes(self.length - HEADER_LENGTH), HEADER_LENGTH)

    def datasync(self) -> None:
        self._file.datasync()

    def read(self) -> bytes:
        """All bytes of the file."""
        return self._file.pread(self._file.size(), 0)

    def close(self) -> None:
        """Release the lock and the file; nothing is written."""
        self.closed = True
        self._lock.release()
        self._file.close()


def create_file(fs: FileSystem, path: str, timestamp: int, length: int, records: bytes) -> None:
    """A new file with these records, durable but for its name."""
    file = fs.create(path)
    try:
        file.allocate(length)
        header = FileHeader(timestamp, position=HEADER_LENGTH + len(records))
        file.pwrite(header.encode() + records, 0)
        file.datasync()
    finally:
        file.close()
