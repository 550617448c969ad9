"""The cursor of the 3.0 line: how it reads a file, through one page of 8192 bytes.

In: the bytes of a file. Out: the same events as `cursor_v2.RandomAccessCursor` gives. The page
keeps its old bytes when the file ends, offsets are a counter of their own, and what Java's buffer
refuses is an unchecked error that no setting skips.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tallystick.systems.bitronix.engine.events import (
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
    CURRENT_POSITION_HEADER,
    END_RECORD,
    HEADER_LENGTH,
    NAME_LENGTH,
    signed32,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord, unique_names
from tallystick.systems.bitronix.runs.pieces import Runs

if TYPE_CHECKING:
    from tallystick.systems.bitronix.runs.chunk import Chunk

PAGE_SIZE = 8192
REFILLS_AFTER_END_MAX = 4096
"""Refills of the page after the end of the file from which on the cursor counts as hanging."""

ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
INVALID_MARK = "java.nio.InvalidMarkException"
UNDERFLOW = "java.nio.BufferUnderflowException"


class _Page:
    """Java's heap buffer of 8192 bytes, its limit always the capacity, over a channel."""

    def __init__(self, data: memoryview) -> None:
        self._file = data
        self._read = CURRENT_POSITION_HEADER
        self._bytes = bytearray(PAGE_SIZE)
        self._mark = -1
        self.position = 0
        self.refills_after_end = 0
        self._fill(0)

    def refill(self) -> None:
        """Compact the page, read what the file still has, and rewind."""
        kept = PAGE_SIZE - self.position
        self._bytes[:kept] = self._bytes[self.position :]
        self._mark = -1
        self._fill(kept)

    @property
    def offset(self) -> int:
        """Where in the file the byte at the position stands, before the page has met its end."""
        return self._read - PAGE_SIZE + self.position

    def pass_over(self, chunk: Chunk) -> None:
        """Move over plain records at the position; far from the end of the file."""
        # A record is read by its first two fields; the page is filled again after them where what
        # follows would not fit.
        ends = chunk.columns["offsets"] + chunk.columns["lengths"] + (chunk.base + 8)
        start = self.offset - self.position
        while (number := int(ends.searchsorted(start + PAGE_SIZE, "right"))) < len(ends):
            start = chunk.base + int(chunk.columns["offsets"][number]) + 8
        self._read = start + PAGE_SIZE
        self._bytes[:] = self._file[start : self._read]
        self.position = chunk.end - start

    def _fill(self, place: int) -> None:
        piece = self._file[self._read : self._read + PAGE_SIZE - place]
        if not piece and place < PAGE_SIZE:
            self.refills_after_end += 1
        self._bytes[place : place + len(piece)] = piece
        self._read += len(piece)
        self.position = 0

    def move(self, position: int) -> None:
        """Set the position; errors as Java's ``Buffer.position``."""
        if position > PAGE_SIZE:
            message = f"newPosition > limit: ({position} > {PAGE_SIZE})"
            raise UncheckedError(JavaError(ILLEGAL_ARGUMENT, message))
        if position < 0:
            message = f"newPosition < 0: ({position} < 0)"
            raise UncheckedError(JavaError(ILLEGAL_ARGUMENT, message))
        if self._mark > position:
            self._mark = -1
        self.position = position

    def mark(self) -> None:
        """Remember the position."""
        self._mark = self.position

    def reset(self) -> None:
        """Return to the remembered position."""
        if self._mark < 0:
            raise UncheckedError(JavaError(INVALID_MARK))
        self.position = self._mark

    def number(self, size: int) -> int:
        """Return the signed number of ``size`` bytes at the position, and move after it."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def take(self, size: int) -> bytes:
        """Return ``size`` bytes from the position, and move after them."""
        if size < 0:
            raise UncheckedError(JavaError(NEGATIVE_SIZE, str(size)))
        if size > PAGE_SIZE - self.position:
            raise UncheckedError(JavaError(UNDERFLOW))
        self.position += size
        return bytes(self._bytes[self.position - size : self.position])


class PagedCursor:
    """The cursor of 3.0.0-SNAPSHOT. ``_place`` is its own count of bytes, not a file offset."""

    def __init__(self, data: memoryview) -> None:
        self._size = len(data)
        self._page = _Page(data)
        self._end = self._page.number(8)
        self._place = HEADER_LENGTH

    def events(self, runs: Runs | None = None) -> Iterator[Event]:
        """Yield every event of the cursor, a `Stop` last; with ``runs`` chunks among them."""
        while self._place < self._end:
            if runs is not None and (chunk := self._chunk(runs)) is not None:
                yield chunk
                continue
            start = self._place
            if self._page.refills_after_end > REFILLS_AFTER_END_MAX:
                yield Stop(None, start, self._place, hangs=True)
                return
            try:
                record = self._read()
            except CorruptedError as error:
                yield Refused(start, self._place, str(error), self._place)
            except UncheckedError as stop:
                yield Stop(stop.error, start, self._place)
                return
            else:
                yield Accepted(start, record)
        yield Stop(None, self._place, self._place)

    def _chunk(self, runs: Runs) -> Chunk | None:
        """Return the plain records here, which the 3.0 line accepts; None where there are none.

        The last ones of a file go record by record: there the page keeps bytes from before.
        """
        begin = self._page.offset
        # Its own count may be off the place in the file, so the end is as far as it believes to
        # have left.
        end = min(begin + self._end - self._place, self._size - 2 * PAGE_SIZE)
        chunk = runs.chunk(begin, end) if begin < end else None
        if chunk is not None:
            self._page.pass_over(chunk)
            self._place += chunk.end - begin
        return chunk

    def _read(self) -> TransactionLogRecord:
        page = self._page
        status, length = page.number(4), page.number(4)
        self._place += 8
        # Java's int: for a large L the sum is negative, and the page is not filled again.
        if signed32(page.position + length + 8) > PAGE_SIZE:
            page.refill()
        record_end = signed32(page.position + length)
        if self._place + length > self._end:
            self._refuse_outside(length)
        head = page.number(4), page.number(8), page.number(4), page.number(4) & 0xFFFFFFFF
        gtrid_size = page.number(1)
        self._place += 21
        self._check_terminator(record_end)
        if 21 + gtrid_size > length:
            page.move(record_end)
            raise CorruptedError(" (GTRID size too long)")
        gtrid = page.take(gtrid_size)
        self._place += gtrid_size
        found = self._names(length, 25 + gtrid_size, record_end)
        end_record = page.number(4)
        self._place += 4
        names = unique_names(found)
        record = TransactionLogRecord(status, length, *head, gtrid, names, end_record)
        return self._checked(record, record_end)

    def _checked(self, record: TransactionLogRecord, record_end: int) -> TransactionLogRecord:
        """Return the record with L as this line computes it, from gtrid and names."""
        rebuilt = replace(record, record_length=record.exact_length)
        calculated = rebuilt.calculate_crc32()
        if calculated != record.crc32:
            self._page.move(record_end)
            raise CorruptedError(crc_mismatch(record.crc32, calculated))
        return rebuilt

    def _refuse_outside(self, length: int) -> None:
        self._page.move(signed32(self._page.position + length))
        self._place += length
        # The original adds the two numbers as text.
        raise CorruptedError(
            f" (record terminator outside of file bounds: {self._place}{length} of {self._end}, "
            f"recordLength: {length})"
        )

    def _check_terminator(self, record_end: int) -> None:
        page = self._page
        page.mark()
        page.move(signed32(record_end - 4))
        end_code = page.number(4)
        page.reset()
        if end_code != END_RECORD:
            raise CorruptedError(NO_TERMINATOR)

    def _names(self, length: int, used: int, record_end: int) -> list[bytes]:
        page = self._page
        names: list[bytes] = []
        count = page.number(4)
        self._place += 4
        while len(names) < count:
            size = page.number(2)
            self._place += 2
            used += NAME_LENGTH.size + size
            if used > length:
                page.move(record_end)
                raise CorruptedError(names_too_long(len(names) + 1, count, size, used, length))
            names.append(page.take(size))
            self._place += size
        return names
