"""Find whole records, and the ends of damaged ones, from any offset of a file.

In: the bytes of a file. Out: offsets and records. The work is bounded, so that no content makes a
walk over damage slower than linear.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.storage.zeros import first_nonzero, is_zero
from tallystick.systems.bitronix.format.layout import (
    END_MARKER,
    LENGTH_FIXED,
    LENGTH_OUTSIDE,
    RECORD_HEADER_LENGTH,
    RECORD_MIN,
)
from tallystick.systems.bitronix.format.record import TransactionLogRecord, decode_record

_RECORD_SIGN = RECORD_HEADER_LENGTH.to_bytes(4, "big")
_SIGN_OFFSET = 8
_SEARCH_WORK = 64
"""Bytes that a search may decode per byte of the file, before it gives up."""

_WINDOW_MIN, _WINDOW_MAX = 1 << 8, 1 << 16
"""Bytes that are searched at a time, more and more: where hits are near, little is looked at."""


class RecordSearch:
    """Finds whole records from any offset, with a bound on the work for the whole file.

    Args:
        data: the bytes of the file.
        size: how many of them are searched; None for all.
    """

    def __init__(self, data: memoryview, size: int | None = None) -> None:
        self._data = data
        self._budget = _SEARCH_WORK * (len(data) if size is None else size)
        self._last: tuple[int, int, int | None] | None = None
        """The last search: from, up to, and what it found."""

    @property
    def exhausted(self) -> bool:
        """True once it has given up."""
        return self._budget <= 0

    def next_record(self, begin: int, end: int) -> int | None:
        """Return the offset of the next whole record that starts in ``begin <= offset < end``."""
        if self._last is not None:
            searched, up_to, found = self._last
            if searched <= begin and up_to == end and (found is None or begin <= found):
                return found
        found = self._find_record(begin, end)
        self._last = (begin, end, found)
        return found

    def _find_record(self, begin: int, end: int) -> int | None:
        place = begin
        while self._budget > 0:
            sign = find(self._data, _RECORD_SIGN, place + _SIGN_OFFSET, end)
            if sign < 0:
                return None
            start = sign - _SIGN_OFFSET
            length = int.from_bytes(self._data[start + 4 : start + 8], "big")
            if start + length + LENGTH_OUTSIDE <= len(self._data):
                self._budget -= length + RECORD_MIN
                if decode_record(self._data, start, len(self._data)) is not None:
                    return start
            place = start + 1
        return None

    def passes(self, size: int, count: int) -> bool:
        """Return whether the search may find ``count`` records of ``size`` bytes in a row.

        The search then goes on after them, with as much work done as for each of them alone.
        """
        work = size + count * (RECORD_MIN - LENGTH_OUTSIDE)
        if self._budget <= work:
            return False
        self._budget -= work
        return True

    def last_records(self, begin: int, end: int) -> Iterator[TransactionLogRecord]:
        """Yield whole records that follow each other, the last that starts before ``end`` first."""
        place, follower = end + len(_RECORD_SIGN) + _SIGN_OFFSET, None
        while self._budget > 0:
            sign = find_last(self._data, _RECORD_SIGN, begin + _SIGN_OFFSET, place)
            if sign < 0:
                return
            start = sign - _SIGN_OFFSET
            record = decode_record(self._data, start, len(self._data))
            if record is not None and start < end:
                if follower not in (None, start + record.size):
                    return
                follower = start
                yield record
            self._budget -= RECORD_MIN
            place = sign + len(_RECORD_SIGN) - 1

    def damaged_end(self, begin: int, limit: int) -> tuple[int, bool]:
        """Return the end of a damaged record, and whether an end marker stands there."""
        length = int.from_bytes(self._data[begin + 4 : begin + 8], "big", signed=True)
        by_length = begin + length + LENGTH_OUTSIDE
        fits = length >= LENGTH_FIXED and by_length <= limit
        if fits and self._data[by_length - 4 : by_length] == END_MARKER:
            return by_length, True
        marker = find(self._data, END_MARKER, begin + RECORD_MIN - len(END_MARKER), limit)
        return (limit, False) if marker < 0 else (marker + len(END_MARKER), True)


def find(data: memoryview, wanted: bytes, begin: int, end: int) -> int:
    """Return the first offset in ``data[begin:end]`` of bytes that are not all zero, else -1.

    Unlike the search of a mapped file it goes over zeros, most of a new log file, at memory speed.
    """
    size = _WINDOW_MIN
    while begin <= end - len(wanted):
        stop = min(begin + size + len(wanted) - 1, end)
        if (at := bytes(data[begin:stop]).find(wanted)) >= 0:
            return begin + at
        begin = max(begin + size, first_nonzero(data, begin, end) - len(wanted) + 1)
        size = min(2 * size, _WINDOW_MAX)
    return -1


def find_last(data: memoryview, wanted: bytes, begin: int, end: int) -> int:
    """Return the last offset in ``data[begin:end]`` of bytes that are not all zero, else -1."""
    size = _WINDOW_MIN
    while begin <= end - len(wanted):
        start = max(end - size - len(wanted) + 1, begin)
        if not is_zero(data, start, end) and (at := bytes(data[start:end]).rfind(wanted)) >= 0:
            return start + at
        end -= size
        size = min(2 * size, _WINDOW_MAX)
    return -1
