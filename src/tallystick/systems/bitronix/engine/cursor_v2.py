"""The cursor of 2.1.4: how it reads a file.

In: the bytes of a file. Out: what the original's cursor reports call by call: `Accepted`, `Refused`
(an exception that ``skipCorruptedLogs`` skips), and last a `Stop`. Exception classes, messages,
32-bit arithmetic and the offsets where reading resumes are the original's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tallystick.systems.bitronix.engine.events import (
    EOF,
    NEGATIVE_SIZE,
    NO_TERMINATOR,
    Accepted,
    CorruptedError,
    Event,
    JavaError,
    Refused,
    Stop,
    UncheckedError,
    crc_mismatch,
    names_too_long,
)
from tallystick.systems.bitronix.format.layout import (
    COUNT,
    CURRENT_POSITION_HEADER,
    END_RECORD,
    HEADER_LENGTH,
    NAME_LENGTH,
    signed32,
)
from tallystick.systems.bitronix.format.record import (
    TransactionLogRecord,
    decode_record,
    unique_names,
)
from tallystick.systems.bitronix.runs.pieces import Runs

_GROUP = struct.Struct(">iii")
"""The fields that a refusal of 2.1.4 consumes if L skips nothing: status, L, not the end marker."""
_NO_SKIP_MIN, _NO_SKIP_MAX = -(1 << 31) + 4, 4
"""Bounds of such an L: L - 4 as Java's int is not above zero, so nothing is skipped."""
_DECODED_LENGTH_MAX = 8192
"""Largest L of a record that is decoded as a whole; bounds the work for each step."""


class RandomAccessCursor:
    """The cursor of 2.1.4: a file pointer, an end read once, and no check of the file's length.

    ``place`` is the file pointer between two calls. A cursor may start at any offset, to see where
    the original would resume. Linear in the counted range: each refusal moves on by at least eight
    bytes, and a run of equal refusals that zeros cause is one event.
    """

    def __init__(self, data: memoryview, place: int = HEADER_LENGTH) -> None:
        self._data = data
        self.place = place
        self._end = 0
        if len(data) >= HEADER_LENGTH:
            position = data[CURRENT_POSITION_HEADER:HEADER_LENGTH]
            self._end = int.from_bytes(position, "big", signed=True)

    def events(self, runs: Runs | None = None) -> Iterator[Event]:
        """Yield every event of the cursor, a `Stop` last; with ``runs`` chunks among them."""
        if len(self._data) < HEADER_LENGTH:
            yield Stop(JavaError(EOF), None, None)
            return
        end = min(self._end, len(self._data))
        while True:
            while runs is not None and (chunk := runs.chunk(self.place, end)) is not None:
                self.place = chunk.end
                yield chunk
            event = self.step()
            yield event
            if isinstance(event, Stop):
                return

    def step(self, limit: int | None = None) -> Event:
        """Return the event of one call of the original: a record, a refusal, or the end.

        A refusal that repeats at once stands for all calls that begin below ``limit``.
        """
        start = self.place
        if start >= self._end:
            return Stop(None, start, start)
        try:
            return Accepted(start, self._whole() or self._read())
        except CorruptedError as error:
            resumed, detail = self.place, str(error)
            # Then it has consumed status, L and four bytes that are no end marker, and skipped
            # nothing.
            alike = detail == NO_TERMINATOR and resumed == start + _GROUP.size
            times = 1 + (self._skip_equal_refusals(limit) if alike else 0)
            return Refused(start, start, detail, resumed, times)
        except UncheckedError as stop:
            return Stop(stop.error, start, self.place)

    def _skip_equal_refusals(self, limit: int | None) -> int:
        """Move over the groups that give the same refusal again; return their number."""
        groups = (min(self._end, len(self._data)) - self.place) // _GROUP.size
        if limit is not None:
            groups = min(groups, -((self.place - limit) // _GROUP.size))
        view = self._data[self.place : self.place + max(groups, 0) * _GROUP.size]
        times = 0
        for _, length, marker in _GROUP.iter_unpack(view):
            if not _NO_SKIP_MIN <= length <= _NO_SKIP_MAX or marker == END_RECORD:
                break
            times += 1
        self.place += times * _GROUP.size
        return times

    def _whole(self) -> TransactionLogRecord | None:
        """Return the record here if every real writer leaves it so; None if `_read` must decide."""
        start = self.place
        length = int.from_bytes(self._data[start + 4 : start + 8], "big")
        if length > _DECODED_LENGTH_MAX:
            return None
        record = decode_record(self._data, start, min(self._end, len(self._data)))
        if record is None or not record.is_exact:
            return None
        self.place += record.size
        return record

    def _read(self) -> TransactionLogRecord:
        status = self._number(4)
        length = self._number(4)
        body = self.place
        record_end = self._find_terminator(length)
        self.place = body
        head = self._number(4), self._number(8), self._number(4), self._number(4) & 0xFFFFFFFF
        gtrid_size = self._number(1)
        if 21 + gtrid_size > length:
            self.place = record_end
            raise CorruptedError(" (GTRID size too long)")
        gtrid = self._array(gtrid_size)
        names = self._names(length, 25 + gtrid_size, record_end)
        record = TransactionLogRecord(
            status, length, *head, gtrid, unique_names(names), self._number(4)
        )
        calculated = record.calculate_crc32()
        if calculated != record.crc32:
            self.place = record_end
            raise CorruptedError(crc_mismatch(record.crc32, calculated))
        return record

    def _find_terminator(self, length: int) -> int:
        """Skip to where L places the end marker; return the offset after it."""
        # Java's int: an L near the least number wraps to a large one.
        self._skip(signed32(length - 4))
        if self.place + 4 > self._end:
            self._skip(4)
            raise CorruptedError(
                f" (record terminator outside of file bounds: {self.place} of {self._end}, "
                f"recordLength: {length})"
            )
        if self._number(4) != END_RECORD:
            raise CorruptedError(NO_TERMINATOR)
        return self.place

    def _names(self, length: int, used: int, record_end: int) -> list[bytes]:
        names: list[bytes] = []
        count = self._number(COUNT.size)
        while len(names) < count:
            size = self._number(NAME_LENGTH.size)
            used += NAME_LENGTH.size + size
            if used > length:
                self.place = record_end
                raise CorruptedError(names_too_long(len(names) + 1, count, size, used, length))
            names.append(self._array(size))
        return names

    def _skip(self, count: int) -> None:
        """Move forward by ``count``, never beyond the physical end."""
        if count > 0:
            self.place = min(self.place + count, len(self._data))

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def _array(self, size: int) -> bytes:
        if size < 0:
            raise UncheckedError(JavaError(NEGATIVE_SIZE, str(size)))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        place, end = self.place, self.place + size
        self.place = min(end, len(self._data))
        if end > len(self._data):
            raise UncheckedError(JavaError(EOF))
        return bytes(self._data[place:end])
