"""How the real cursors read a file: 2.1.4 here, the 3.0 line in `cursor_paged.py`.

In: the bytes of a file. Out: what the original's cursor says call by call: `Accepted`,
`Refused` (an exception that ``skipCorruptedLogs`` skips), and last a `Stop`. Exception classes,
messages, 32-bit arithmetic and the places where reading resumes are the originals'.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

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

EOF = "java.io.EOFException"
NEGATIVE_SIZE = "java.lang.NegativeArraySizeException"
NO_TERMINATOR = " (no record terminator found)"

_GROUP = struct.Struct(">iii")
"""What a complaint of 2.1.4 takes where L leads nowhere: status, L, not the end marker."""
_NOWHERE_MIN, _NOWHERE_MAX = -(1 << 31) + 4, 4
"""Such an L: L - 4 as Java's int is not above zero, so nothing is skipped."""
_LENGTH_AT_ONCE_MAX = 8192
"""Largest L of a record that is decoded at one go; bounds the work for each step."""


@dataclass(frozen=True, slots=True)
class JavaError:
    """An exception by its class and its message (None where Java has null)."""

    java_class: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A record, as the cursor's caller gets it."""

    offset: int
    record: TransactionLogRecord


@dataclass(frozen=True, slots=True)
class Refused:
    """A ``CorruptedTransactionLogException``; reading resumes at ``next_offset``.

    ``place`` and ``detail`` make its message. ``times`` stands for as many complaints in a row,
    ``stride`` bytes apart and different only in their places; this is the first of them.
    """

    offset: int
    place: int
    detail: str
    next_offset: int
    times: int = 1

    @property
    def message(self) -> str:
        return f"corrupted log found at position {self.place}{self.detail}"

    @property
    def stride(self) -> int:
        return self.next_offset - self.offset

    def single(self, number: int) -> Refused:
        """One of them, counted from 0."""
        by = number * self.stride
        return replace(
            self,
            offset=self.offset + by,
            place=self.place + by,
            next_offset=self.next_offset + by,
            times=1,
        )


@dataclass(frozen=True, slots=True)
class Stop:
    """The end: of the counted range (no error), or by an error that is not skipped.

    The offsets are None where the cursor could not even be made; ``hangs`` says that it
    would go on and on.
    """

    error: JavaError | None
    offset: int | None
    end_offset: int | None
    hangs: bool = False


Event = Accepted | Refused | Stop


def singles(events: Iterable[Event]) -> Iterator[Event]:
    """The events with each complaint that stands for many told as many."""
    for event in events:
        if isinstance(event, Refused) and event.times > 1:
            yield from (event.single(number) for number in range(event.times))
        else:
            yield event


def crc_mismatch(recorded: int, calculated: int) -> str:
    """The last part of its message for a bad CRC."""
    return f"(invalid CRC, recorded: {signed32(recorded)}, calculated: {signed32(calculated)})"


class UncheckedError(Exception):
    """Carries a Java exception out of the reading of one record."""

    def __init__(self, error: JavaError) -> None:
        super().__init__(error.java_class)
        self.error = error


class CorruptedError(Exception):
    """Carries the end of a message out of the reading of one record."""


class RandomAccessCursor:
    """The cursor of 2.1.4: a file pointer, an end read once, and no look at the file's length.

    ``place`` is the file pointer between two calls. A cursor may be put on any place, to see
    where the original would find itself. Linear in the counted range: each complaint moves on
    by at least eight bytes, and a run of those that zeros cause is told as one.
    """

    def __init__(self, data: memoryview, place: int = HEADER_LENGTH) -> None:
        self._data = data
        self.place = place
        self._end = 0
        if len(data) >= HEADER_LENGTH:
            position = data[CURRENT_POSITION_HEADER:HEADER_LENGTH]
            self._end = int.from_bytes(position, "big", signed=True)

    def events(self) -> Iterator[Event]:
        """Everything the cursor says, a `Stop` last."""
        if len(self._data) < HEADER_LENGTH:
            yield Stop(JavaError(EOF), None, None)
            return
        while True:
            event = self.step()
            yield event
            if isinstance(event, Stop):
                return

    def step(self, limit: int | None = None) -> Event:
        """One call of the original: the next record, a complaint, or the end.

        A complaint that repeats at once stands for all calls that begin below ``limit``.
        """
        start = self.place
        if start >= self._end:
            return Stop(None, start, start)
        try:
            return Accepted(start, self._whole() or self._read())
        except CorruptedError as error:
            behind, detail = self.place, str(error)
            alike = detail == NO_TERMINATOR and behind == start + _GROUP.size
            times = 1 + (self._skip_alike(limit) if alike else 0)
            return Refused(start, start, detail, behind, times)
        except UncheckedError as stop:
            return Stop(stop.error, start, self.place)

    def _skip_alike(self, limit: int | None) -> int:
        """Move over the groups that give the same complaint again; returns their number."""
        room = (min(self._end, len(self._data)) - self.place) // _GROUP.size
        if limit is not None:
            room = min(room, -((self.place - limit) // _GROUP.size))
        view = self._data[self.place : self.place + max(room, 0) * _GROUP.size]
        times = 0
        for _, length, marker in _GROUP.iter_unpack(view):
            if not _NOWHERE_MIN <= length <= _NOWHERE_MAX or marker == END_RECORD:
                break
            times += 1
        self.place += times * _GROUP.size
        return times

    def _whole(self) -> TransactionLogRecord | None:
        """The record here, as every real writer leaves it; None if it needs a closer look."""
        start = self.place
        length = int.from_bytes(self._data[start + 4 : start + 8], "big")
        if length > _LENGTH_AT_ONCE_MAX:
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
        behind = self._find_terminator(length)
        self.place = body
        header_length, time = self._number(4), self._number(8)
        sequence, stored_crc = self._number(4), self._number(4)
        gtrid_size = self._number(1)
        if 21 + gtrid_size > length:
            self.place = behind
            raise CorruptedError(" (GTRID size too long)")
        gtrid = self._array(gtrid_size)
        names = self._names(length, 25 + gtrid_size, behind)
        record = TransactionLogRecord(
            status,
            length,
            header_length,
            time,
            sequence,
            stored_crc & 0xFFFFFFFF,
            gtrid,
            unique_names(names),
            self._number(4),
        )
        calculated = record.calculate_crc32()
        if calculated != record.crc32:
            self.place = behind
            raise CorruptedError(crc_mismatch(record.crc32, calculated))
        return record

    def _find_terminator(self, length: int) -> int:
        """Skip to where L says that the end marker is; returns the place behind it."""
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

    def _names(self, length: int, used: int, behind: int) -> list[bytes]:
        names: list[bytes] = []
        count = self._number(COUNT.size)
        while len(names) < count:
            size = self._number(NAME_LENGTH.size)
            used += NAME_LENGTH.size + size
            if used > length:
                self.place = behind
                raise CorruptedError(
                    f" (unique names too long, {len(names) + 1} out of {count}, length: {size}, "
                    f"currentReadCount: {used}, recordLength: {length})"
                )
            names.append(self._array(size))
        return names

    def _skip(self, count: int) -> None:
        """Forward only, and never beyond the physical end."""
        if count > 0:
            self.place = min(self.place + count, len(self._data))

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def _array(self, size: int) -> bytes:
        if size < 0:
            raise UncheckedError(JavaError(NEGATIVE_SIZE, str(size)))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        place, behind = self.place, self.place + size
        self.place = min(behind, len(self._data))
        if behind > len(self._data):
            raise UncheckedError(JavaError(EOF))
        return bytes(self._data[place:behind])
