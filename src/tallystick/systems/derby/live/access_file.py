"""Derby's buffered log writer: three buffers, a checksum record in front of each.

In: encoded record bodies, in log order. Out: the sequence of file writes that the engine makes,
byte for byte. One buffer is *current*, the others are *free* or *dirty*. A checksum record takes
the first bytes of its group and is filled in when the buffer becomes dirty.

`LogAccessFile` keeps the document's names: reserve_space_for_checksum, write_log_record,
switch_log_buffer, flush_dirty_buffers, flush_log_access_file, sync_log_access_file,
write_end_marker, corrupt. Source: docs/formats/derby.md, section "The buffered writer".
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tallystick.errors import LogFullError
from tallystick.storage.crc import crc32
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import (
    CHECKSUM_BODY_SIZE,
    END_MARKER,
    LENGTH,
    OVERHEAD,
    PREFIX,
    encode_checksum_body,
    encode_record,
    make_instant,
)

BUFFERS = 3
BUFFER_SIZE = 32_768
WRITE_ATTEMPTS = 6
SYNC_ATTEMPTS = 21
SYNC_PAUSE_S = 0.2


class Target(Protocol):
    """The calls of a `tallystick.storage.files.File` that the writer makes."""

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of ``data`` at ``offset``."""
        ...

    def datasync(self) -> None:
        """Make what was written durable."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class WriteSynced:
    """A file whose every write is durable when it returns: the engine's default mode."""

    def __init__(self, file: Target) -> None:
        self._file = file

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:
        """Write durably."""
        self._file.pwrite(data, offset)
        self._file.datasync()

    def datasync(self) -> None:
        """Do nothing: every write was durable."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def checksum_record_size(cipher: LogCipher | None) -> int:
    """Return the bytes of a whole checksum record: 37, more if its body is padded to blocks."""
    block = cipher.block_size if cipher else 1
    return OVERHEAD + -(-CHECKSUM_BODY_SIZE // block) * block


class LogBuffer:
    """One buffer; the next record goes to ``position``, the first one went to ``reserved``.

    ``parts`` are the records; in a dirty buffer they are everything that is to be written.
    """

    __slots__ = ("instant", "parts", "position", "reserved", "size")

    def __init__(self, size: int, reserved: int) -> None:
        self.parts: list[bytes] = []
        self.size = size
        self.reserved = reserved
        self.position = reserved
        self.instant = 0

    @property
    def empty(self) -> bool:
        """True if it holds no record."""
        return self.position == self.reserved

    @property
    def bytes_free(self) -> int:
        """Bytes that are left."""
        return self.size - self.position

    def clear(self) -> None:
        """Drop what was written."""
        self.parts = []
        self.position = self.reserved


class LogAccessFile:
    """The writer of one log file.

    Call appends and switches under the log's lock; they do not wait while another thread is
    inside a file write.

    Args:
        file: the open log file.
        position: offset of its next byte.
        buffer_size: bytes of each buffer.
        checksums: False for a store from before 10.1.
        cipher: encrypts the checksum records.
        in_parts: write large records in parts, as versions before 10.4 did.
        write_attempts, sync_attempts: how often a failing call is made.
        pause: sleeps for so many seconds between attempts to sync.
    """

    def __init__(
        self,
        file: Target,
        position: int,
        *,
        buffer_size: int = BUFFER_SIZE,
        checksums: bool = True,
        cipher: LogCipher | None = None,
        in_parts: bool = False,
        write_attempts: int = WRITE_ATTEMPTS,
        sync_attempts: int = SYNC_ATTEMPTS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._file = file
        self.position = position
        self._cipher = cipher
        self._in_parts = in_parts
        self._write_attempts = write_attempts
        self._sync_attempts = sync_attempts
        self._pause = pause
        self.checksum_size = checksum_record_size(cipher) if checksums else 0
        buffers = [LogBuffer(buffer_size, self.checksum_size) for _ in range(BUFFERS)]
        self.current = buffers[0]
        self.free: deque[LogBuffer] = deque(buffers[1:])
        self.dirty: deque[LogBuffer] = deque()
        self._lists = threading.Condition()
        self._flushing = False
        self._writing = threading.Lock()

    # -- appending --------------------------------------------------------------------------

    def reserve_space_for_checksum(self, length: int, file_number: int, end: int) -> int:
        """Return the bytes that a checksum record takes before the next record of ``length``.

        Call it before every record with the log's current end, file number and position; the
        checksum record gets this instant.
        """
        current = self.current
        if current.position != current.reserved:
            if current.position + length + OVERHEAD <= current.size:
                return 0
            self.switch_log_buffer()
        self.current.instant = make_instant(file_number, end)
        return self.checksum_size

    def write_log_record(self, instant: int, data: bytes, optional: bytes = b"") -> None:
        """Buffer a record; one that no buffer can hold is written to the file directly."""
        length = len(data) + len(optional)
        parts = PREFIX.pack(length, instant), data, optional, LENGTH.pack(length)
        current = self.current
        end = current.position + length + OVERHEAD
        if end <= current.size:
            current.parts += parts
            current.position = end
        else:
            self._write_directly(*parts)

    def _write_directly(self, head: bytes, data: bytes, optional: bytes, tail: bytes) -> None:
        self.flush_dirty_buffers()
        record = b"".join((head, data, optional, tail))
        checksum = self._checksum_record(self.current.instant, record)
        if self._in_parts:
            pieces = [checksum + head, data, *([optional] if optional else []), tail]
        else:
            pieces = [checksum + record]
        for piece in pieces:
            self._write(piece)

    def _checksum_record(self, instant: int, group: bytes) -> bytes:
        if not self.checksum_size:
            return b""
        body = encode_checksum_body(len(group), crc32(group))
        if self._cipher is not None:
            body = self._cipher.encrypt(body.ljust(self.checksum_size - OVERHEAD, b"\0"))
        return encode_record(instant, body)

    # -- flushing ---------------------------------------------------------------------------

    def switch_log_buffer(self) -> None:
        """Make the current buffer dirty and a free one current, unless it is empty."""
        with self._lists:
            if self.current.empty:
                return
            self._seal(self.current)
            self.dirty.append(self.current)
            starved = not self.free
        if starved:
            self.flush_dirty_buffers()
        with self._lists:
            self.current = self.free.popleft()
            self.current.clear()

    def _seal(self, buffer: LogBuffer) -> None:
        group = b"".join(buffer.parts)
        buffer.parts = [self._checksum_record(buffer.instant, group), group]

    def flush_dirty_buffers(self) -> None:
        """Write the dirty buffers, one thread at a time; the current one stays as it is."""
        with self._lists:
            while self._flushing:
                self._lists.wait()
            self._flushing = True
            wanted = len(self.dirty)
        try:
            self._write_dirty(wanted)
        finally:
            with self._lists:
                self._flushing = False
                self._lists.notify_all()

    def _write_dirty(self, wanted: int) -> None:
        """Write ``wanted`` buffers, and a bounded number of those that became dirty meanwhile."""
        written = 0
        while written < wanted or written <= BUFFERS:
            with self._lists:
                if not self.dirty:
                    return
                buffer = self.dirty.popleft()
            self._write(b"".join(buffer.parts))
            with self._lists:
                self.free.append(buffer)
            written += 1

    def flush_log_access_file(self) -> None:
        """Write everything, the current buffer included."""
        self.switch_log_buffer()
        self.flush_dirty_buffers()

    def sync_log_access_file(self) -> None:
        """Make what was written durable; raises `LogFullError` after the last attempt."""
        with self._writing:
            for attempt in range(self._sync_attempts):
                try:
                    self._file.datasync()
                except OSError as error:
                    if attempt + 1 == self._sync_attempts:
                        raise LogFullError("XSLA4: the log cannot be synced") from error
                    self._pause(SYNC_PAUSE_S)
                else:
                    return

    def write_end_marker(self) -> None:
        """Flush, then write the zero length that ends a file; no checksum covers it."""
        self.flush_log_access_file()
        self._write(END_MARKER)

    def _write(self, data: bytes) -> None:
        """Write to the file; every attempt writes the same bytes to the same place."""
        with self._writing:
            for attempt in range(self._write_attempts):
                try:
                    self._file.pwrite(data, self.position)
                except OSError:
                    if attempt + 1 == self._write_attempts:
                        raise
                else:
                    self.position += len(data)
                    return

    # -- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close."""
        self.flush_log_access_file()
        self._file.close()

    def corrupt(self) -> None:
        """Close without writing what is buffered."""
        self._file.close()
