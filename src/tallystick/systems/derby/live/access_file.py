"""Derby's buffered log writer: three buffers, a checksum record in front of each.

In: encoded record bodies, in log order. Out: the sequence of file writes that the engine makes,
byte for byte. One buffer is *current*, the others are *free* or *dirty*. A checksum record takes
the first bytes of its group and is filled in when the buffer becomes dirty.

`LogAccessFile` has every member of the description under its name: docs/documents.md.
Source: docs/formats/derby.md, section "Groups".
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tallystick.errors import LogFullError, LogWriteError
from tallystick.storage.crc import crc32
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import (
    CHECKSUM_BODY_SIZE,
    INSTANT,
    LENGTH,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    PREFIX,
    encode_checksum_body,
    encode_record,
    make_instant,
)

LOG_NUMBER_LOG_BUFFERS = 3
BUFFER_SIZE = 32_768
WRITE_ATTEMPTS = 6
SYNC_ATTEMPTS = 21
SYNC_PAUSE_S = 0.2
_NOT_RESERVED = -1
"""In place of the instant of a group's checksum record, until its place is reserved."""

Bytes = bytes | bytearray | memoryview


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
    return LOG_RECORD_FIXED_OVERHEAD_SIZE + -(-CHECKSUM_BODY_SIZE // block) * block


class LogBuffer:
    """One buffer; the next record goes to ``position``, the first one went to ``reserved``.

    ``parts`` are the records; in a dirty buffer they are everything that is to be written.
    """

    __slots__ = ("parts", "position", "reserved", "size")

    def __init__(self, size: int, reserved: int) -> None:
        self.parts: list[bytes] = []
        self.size = size
        self.reserved = reserved
        self.position = reserved

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


class LogAccessFile(Uncopied):
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
        final: write nothing after a write that failed for the last time: it would get the place of
            what is missing. The engine's writer goes on.

    Attributes:
        mon_num_writes_to_log: file writes that succeeded. The engine counts over all its logs, and
            in debug builds only; this is the count of one file.
        mon_num_bytes_to_log: bytes of these writes.
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
        final: bool = False,
    ) -> None:
        self._file = file
        self.position = position
        self._cipher = cipher
        self._in_parts = in_parts
        self._write_attempts = write_attempts
        self._sync_attempts = sync_attempts
        self._pause = pause
        self.checksum_size = checksum_record_size(cipher) if checksums else 0
        buffers = [
            LogBuffer(buffer_size, self.checksum_size) for _ in range(LOG_NUMBER_LOG_BUFFERS)
        ]
        self.current = buffers[0]
        self.free: deque[LogBuffer] = deque(buffers[1:])
        self.dirty: deque[LogBuffer] = deque()
        self._lists = threading.Condition()
        self._flushing = False
        self._writing = threading.Lock()
        self._final = final
        self._failed: OSError | None = None
        self._checksum_instant = _NOT_RESERVED
        self.mon_num_writes_to_log = 0
        self.mon_num_bytes_to_log = 0

    # -- appending --------------------------------------------------------------------------

    def reserve_space_for_checksum(
        self, length: int, log_file_number: int, current_position: int
    ) -> int:
        """Reserve the place of a checksum record, if the next record begins a group.

        Call it before every record. The buffer is switched if it cannot hold the record.

        Args:
            length: bytes of the record's body.
            log_file_number: number of the log file.
            current_position: the log's current end in that file; the checksum record's place.

        Returns:
            The bytes that the checksum record takes before the record, 0 if none comes.
        """
        current = self.current
        if current.position != current.reserved:
            if current.position + length + LOG_RECORD_FIXED_OVERHEAD_SIZE <= current.size:
                return 0
            self.switch_log_buffer()
        self._checksum_instant = make_instant(log_file_number, current_position)
        return self.checksum_size

    def write_log_record(
        self,
        length: int,
        instant: int,
        data: Bytes,
        data_offset: int = 0,
        optional_data: Bytes = b"",
        optional_data_offset: int = 0,
        optional_data_length: int = 0,
    ) -> None:
        """Buffer a record; one that no buffer can hold is written to the file directly.

        The file gets the bytes of ``write_int(length)``, ``write_long(instant)``, `write` of the
        data, `write` of the optional data, ``write_int(length)``.

        Args:
            length: bytes of the body: data and optional data.
            instant: the record's own place.
            data: its bytes from ``data_offset`` on are the data, as many as ``length`` leaves.
            data_offset: offset in ``data``.
            optional_data: its bytes from ``optional_data_offset`` on are the optional data.
            optional_data_offset: offset in ``optional_data``.
            optional_data_length: bytes of the optional data.

        Raises:
            LogWriteError: a length or an offset is outside its array, the length is 0 (which
                ends a log), or no space was reserved. Nothing is written.
        """
        if length < 1:
            raise LogWriteError("XSLB6: a record of length 0 is refused", found=str(length))
        part, size = data, length - optional_data_length
        if type(part) is not bytes or data_offset or size != len(part):
            part = _slice(data, data_offset, size)
        optional = b""
        if optional_data_length:
            optional = _slice(optional_data, optional_data_offset, optional_data_length)
        parts = PREFIX.pack(length, instant), part, optional, LENGTH.pack(length)
        current = self.current
        end = current.position + length + LOG_RECORD_FIXED_OVERHEAD_SIZE
        if end <= current.size:
            if current.position == current.reserved:
                self._require_reserved()
            current.parts += parts
            current.position = end
        else:
            self._direct_write(parts)

    def write_int(self, number: int) -> None:
        """Buffer a signed number of 4 bytes; raises as `write`."""
        self._put(_packed(LENGTH, number))

    def write_long(self, number: int) -> None:
        """Buffer a signed number of 8 bytes; raises as `write`."""
        self._put(_packed(INSTANT, number))

    def write(self, data: int | Bytes, offset: int = 0, length: int | None = None) -> None:
        """Buffer one byte, or a part of an array.

        Args:
            data: a number, of which the lowest 8 bits are written, or an array.
            offset: where the part begins.
            length: bytes of the part; None is all from ``offset`` on.

        Raises:
            LogWriteError: the part is outside its array, the current buffer cannot hold it, or no
                space was reserved. Nothing is buffered.
        """
        if isinstance(data, int):
            self._put((data & 0xFF).to_bytes(1))
        else:
            self._put(_slice(data, offset, len(data) - offset if length is None else length))

    def _put(self, data: bytes) -> None:
        current = self.current
        if len(data) > current.bytes_free:
            raise LogWriteError(
                "the current buffer cannot hold the bytes",
                expected=f"at most {current.bytes_free} bytes",
                found=str(len(data)),
                advice="Write a large record with write_log_record",
            )
        self._require_reserved()
        current.parts.append(data)
        current.position += len(data)

    def _require_reserved(self) -> None:
        if self._checksum_instant == _NOT_RESERVED and self.checksum_size:
            raise LogWriteError(
                "the group has no place for its checksum record",
                advice="Call reserve_space_for_checksum before each record",
            )

    def _direct_write(self, parts: tuple[bytes, ...]) -> None:
        """Write a record that fits no buffer, after all that was buffered before it."""
        self._require_reserved()
        if self.checksum_size and not self.current.empty:
            raise LogWriteError(
                "the record is longer than the space that was reserved",
                expected=f"at most {self.current.bytes_free} bytes",
                found=str(sum(map(len, parts))),
            )
        # What was buffered before it comes first: a record stands where its instant says.
        self.flush_log_access_file()
        record = b"".join(parts)
        checksum = self._checksum_record(record)
        head, data, optional, tail = parts
        if self._in_parts:
            pieces = [checksum + head, data, *([optional] if optional else []), tail]
        else:
            pieces = [checksum + record]
        for piece in pieces:
            self._write(piece)

    def _checksum_record(self, group: bytes) -> bytes:
        """Return the checksum record of a group; the next group must reserve its own place."""
        if not self.checksum_size:
            return b""
        # Its place was fixed before the first record of the group, whose checksum is known only
        # now.
        instant, self._checksum_instant = self._checksum_instant, _NOT_RESERVED
        body = encode_checksum_body(len(group), crc32(group))
        if self._cipher is not None:
            body = self._cipher.encrypt(
                body.ljust(self.checksum_size - LOG_RECORD_FIXED_OVERHEAD_SIZE, b"\0")
            )
        return encode_record(instant, body)

    # -- flushing ---------------------------------------------------------------------------

    def switch_log_buffer(self) -> None:
        """Make the current buffer dirty and a free one current, unless it is empty."""
        with self._lists:
            if self.current.empty:
                return
            self._seal(self.current)
            self.dirty.append(self.current)
            # All three are dirty: the oldest has to be written before anything else can be
            # buffered.
            starved = not self.free
        if starved:
            self.flush_dirty_buffers()
        with self._lists:
            self.current = self.free.popleft()
            self.current.clear()

    def _seal(self, buffer: LogBuffer) -> None:
        group = b"".join(buffer.parts)
        buffer.parts = [self._checksum_record(group), group]

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
        # As the engine: a bound, so that this thread does not write for the others for ever.
        while written < wanted or written <= LOG_NUMBER_LOG_BUFFERS:
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

    def write_end_marker(self, marker: int) -> None:
        """Flush, then write the number of 4 bytes that ends a file; no checksum covers it.

        Args:
            marker: `END_MARKER`, or a number that a reader takes for the length of a record.

        Raises:
            LogWriteError: it is no signed number of 4 bytes. Nothing is written.
        """
        packed = _packed(LENGTH, marker)
        self.flush_log_access_file()
        self._write(packed)

    def _write(self, data: bytes) -> None:
        """Write to the file; every attempt writes the same bytes to the same place."""
        with self._writing:
            if self._failed is not None:
                raise OSError(*self._failed.args) from self._failed
            for attempt in range(self._write_attempts):
                try:
                    self._file.pwrite(data, self.position)
                except OSError as error:
                    if attempt + 1 == self._write_attempts:
                        self._failed = error if self._final else None
                        raise
                else:
                    self.position += len(data)
                    self.mon_num_writes_to_log += 1
                    self.mon_num_bytes_to_log += len(data)
                    return

    # -- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close."""
        self.flush_log_access_file()
        self._file.close()

    def corrupt(self) -> None:
        """Close without writing what is buffered."""
        self._file.close()


def _slice(data: Bytes, offset: int, length: int) -> bytes:
    """Return a copy of ``length`` bytes from ``offset``; raises `LogWriteError` outside."""
    if offset < 0 or length < 0 or offset + length > len(data):
        raise LogWriteError(
            "offset and length are outside the array",
            expected=f"a part of {len(data)} bytes",
            found=f"{length} bytes from {offset}",
        )
    return bytes(data[offset : offset + length])


def _packed(form: struct.Struct, number: int) -> bytes:
    try:
        return form.pack(number)
    except struct.error as error:
        raise LogWriteError(f"no signed number of {form.size} bytes", found=str(number)) from error
