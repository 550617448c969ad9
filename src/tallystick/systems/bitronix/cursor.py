"""How the real cursors read a file: 2.1.4 here, the 3.0 line in `cursor_paged.py`.

In: the bytes of a file. Out: what the original's cursor says call by call: `Accepted`,
`Refused` (an exception that ``skipCorruptedLogs`` skips), and last a `Stop`. Exception classes,
messages, 32-bit arithmetic and the places where reading resumes are the originals'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.systems.bitronix.layout import (
    COUNT,
    CURRENT_POSITION_HEADER,
    END_RECORD,
    HEADER_LENGTH,
    NAME_LENGTH,
    signed32,
)
from tallystick.systems.bitronix.record import TransactionLogRecord, unique_names

EOF = "java.io.EOFException"
NEGATIVE_SIZE = "java.lang.NegativeArraySizeException"


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
    """A ``CorruptedTransactionLogException``; reading resumes at ``next_offset``."""

    offset: int
    message: str
    next_offset: int


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


def corrupted(place: int, detail: str) -> str:
    """The message of a ``CorruptedTransactionLogException``."""
    return f"corrupted log found at position {place}{detail}"


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
    by at least eight bytes.
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

    def step(self) -> Event:
        """One call of the original: the next record, a complaint, or the end."""
        start = self.place
        if start >= self._end:
            return Stop(None, start, start)
        try:
            return Accepted(start, self._read())
        except CorruptedError as error:
            return Refused(start, corrupted(start, str(error)), self.place)
        except UncheckedError as stop:
            return Stop(stop.error, start, self.place)

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
            raise CorruptedError(" (no record terminator found)")
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
