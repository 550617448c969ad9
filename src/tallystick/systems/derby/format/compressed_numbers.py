"""Derby's encodings: compressed numbers, objects with format ids, and a cursor that reads them.

In: values, or bytes. Out: bytes, or values. Every read is checked against the end of the bytes
and raises `LogFormatError` with the place. Source: docs/formats/derby.md, "Numbers and objects".
"""

from __future__ import annotations

import re

from tallystick.errors import LogFormatError
from tallystick.records import Xid
from tallystick.systems.derby.format.layout import (
    GLOBAL_ID,
    LOG_COUNTER,
    NULL,
    TRANSACTION_ID,
    make_instant,
    split_instant,
)

_CHARACTER = re.compile(rb"[\x00-\x7f]|[\xc0-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}", re.DOTALL)
_MODIFIED_UTF_8 = re.compile(rb"(?:" + _CHARACTER.pattern + rb")*")

# -- encode --------------------------------------------------------------------------------------


def compressed_int(value: int) -> bytes:
    """Return the shortest form of a number from 0 to 2^31-1: 1, 2 or 4 bytes."""
    if value <= 0x3F:
        return value.to_bytes(1)
    if value <= 0x3FFF:
        return (0x4000 | value).to_bytes(2)
    return (0x80000000 | value).to_bytes(4)


def compressed_long(value: int) -> bytes:
    """Return the shortest form of a number from 0 to 2^63-1: 2, 4 or 8 bytes."""
    if value <= 0x3FFF:
        return value.to_bytes(2)
    if value <= 0x3FFFFFFF:
        return (0x40000000 | value).to_bytes(4)
    return (1 << 63 | value).to_bytes(8)


def format_id(number: int) -> bytes:
    """Return the two bytes in front of an object."""
    return number.to_bytes(2)


_NULL = format_id(NULL)


def encode_global_id(xid: Xid | None) -> bytes:
    """Return a global id object; the null object for None."""
    if xid is None:
        return _NULL
    parts = b"".join(len(part).to_bytes(1) + part for part in (xid.gtrid, xid.bqual))
    return format_id(GLOBAL_ID) + xid.format_id.to_bytes(4, signed=True) + parts


def encode_counter(instant: int | None) -> bytes:
    """Return a log counter object; the null object for None."""
    if instant is None:
        return _NULL
    file, position = split_instant(instant)
    return format_id(LOG_COUNTER) + compressed_long(file) + compressed_long(position)


# -- decode --------------------------------------------------------------------------------------


class Cursor:
    """Reads Derby's encodings from bytes; every read is checked against their end."""

    __slots__ = ("data", "place")

    def __init__(self, data: bytes | memoryview, place: int = 0) -> None:
        self.data = data
        self.place = place

    @property
    def left(self) -> int:
        """Number of bytes that are left."""
        return len(self.data) - self.place

    def take(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        if size < 0 or size > self.left:
            raise LogFormatError(
                "record body ends early",
                offset=self.place,
                expected=f"{size} bytes",
                found=f"{self.left} bytes",
            )
        self.place += size
        return bytes(self.data[self.place - size : self.place])

    def uint(self, size: int) -> int:
        """Read an unsigned number of ``size`` bytes."""
        return int.from_bytes(self.take(size))

    def sint(self, size: int) -> int:
        """Read a signed number of ``size`` bytes."""
        return int.from_bytes(self.take(size), signed=True)

    def compressed_int(self) -> int:
        """Read a number of 1, 2 or 4 bytes; its first two bits give the size."""
        first = self.uint(1)
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.uint(1)
        return (first & 0x7F) << 24 | self.uint(3)

    def compressed_long(self) -> int:
        """Read a number of 2, 4 or 8 bytes; its first two bits give the size."""
        first = self.uint(2)
        if first < 0x4000:
            return first
        if first < 0x8000:
            return (first & 0x3FFF) << 16 | self.uint(2)
        return (first & 0x7FFF) << 48 | self.uint(6)

    def utf(self) -> str:
        """Read a text: its length in two bytes, then modified UTF-8, which may be overlong."""
        raw = self.take(self.uint(2))
        if not _MODIFIED_UTF_8.fullmatch(raw):
            raise LogFormatError("no modified UTF-8", offset=self.place, found=raw.hex())
        return "".join(chr(_character(one)) for one in _CHARACTER.findall(raw))

    def expect(self, number: int, what: str) -> None:
        """Read a format id that must be ``number``, that of ``what``."""
        if (found := self.uint(2)) != number:
            raise LogFormatError(
                f"no {what}", offset=self.place - 2, expected=str(number), found=str(found)
            )

    def check_count(self, count: int, size_min: int, what: str) -> None:
        """Refuse ``count`` items of at least ``size_min`` bytes that cannot fit what is left."""
        if count * size_min > self.left:
            raise LogFormatError(
                f"more {what} can hold",
                offset=self.place,
                expected=f"at most {self.left // size_min}",
                found=str(count),
            )

    def transaction(self) -> int | None:
        """Read a transaction id object; None for the null object."""
        if self.null():
            return None
        self.expect(TRANSACTION_ID, "transaction id")
        return self.compressed_long()

    def global_id(self) -> Xid | None:
        """Read a global id object; None for the null object."""
        if self.null():
            return None
        self.expect(GLOBAL_ID, "global transaction id")
        number = self.sint(4)
        return Xid(number, self._part(), self._part())

    def counter(self) -> int | None:
        """Read a log counter object as an instant; None for the null object."""
        if self.null():
            return None
        self.expect(LOG_COUNTER, "log counter")
        file = self.compressed_long()
        return make_instant(file, self.compressed_long())

    def null(self) -> bool:
        """Read the null object if it is next; returns whether it is."""
        if self.data[self.place : self.place + len(_NULL)] != _NULL:
            return False
        self.place += len(_NULL)
        return True

    def _part(self) -> bytes:
        """Read a part as the engine does: of any length, and zeros for what is cut off."""
        size = self.uint(1)
        return self.take(min(size, self.left)).ljust(size, b"\0")


def _character(raw: bytes) -> int:
    """Return the UTF-16 unit in one, two or three bytes."""
    unit = raw[0] & (0x7F >> (len(raw) if len(raw) > 1 else 0))
    for byte in raw[1:]:
        unit = unit << 6 | byte & 0x3F
    return unit
