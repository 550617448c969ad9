"""One journal record: encode, decode, checksum, text form; pure functions, no I/O.

Byte order and sizes are defined in `layout.py`. The CRC does not cover the bytes on disk: the
original rebuilds the record and computes the CRC from that (names in sorted order, each once).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as counter
from time import time_ns
from typing import Self

from tallystick.errors import RecordTooLargeError
from tallystick.storage.crc import crc32
from tallystick.systems.bitronix.format.layout import (
    COUNT,
    CRC_HEAD,
    END_MARKER,
    END_RECORD,
    GTRID_MAX,
    GTRID_OFFSET,
    LENGTH_FIXED,
    LENGTH_OUTSIDE,
    NAME_LENGTH,
    NAME_MAX,
    RECORD_HEAD,
    RECORD_HEADER_LENGTH,
    RECORD_MIN,
    sequence_number,
    signed32,
    status_name,
)

_RECORDS = counter()
"""Numbers the new records of this process."""


@dataclass(frozen=True, slots=True)
class TransactionLogRecord:
    """One record, with all its fields as they are on disk; `create` makes a new one.

    Names are a sorted set; ``crc32`` is unsigned here, signed in messages. ``record_length`` (L)
    counts the bytes after itself, ``header_length`` is 28, ``time`` is in ms of the writer's clock,
    ``sequence_number`` a counter of its process.
    """

    status: int
    record_length: int
    header_length: int
    time: int
    sequence_number: int
    crc32: int
    gtrid: bytes
    unique_names: tuple[str, ...]
    end_record: int = END_RECORD

    @classmethod
    def create(
        cls,
        status: int,
        gtrid: bytes,
        unique_names: Collection[str],
        time: int | None = None,
        sequence: int | None = None,
    ) -> Self:
        """Return a new record with its length and CRC computed.

        Args:
            status: a number of ``javax.transaction.Status``.
            gtrid: at most 127 bytes.
            unique_names: the names of the resources, ASCII.
            time: in ms; None is now, since 1970.
            sequence: the sequence number; None is the next one of this process.

        Raises:
            RecordTooLargeError: a gtrid above 127 bytes, a name above 32767, or a name that is not
                ASCII: the original writes all three and cannot read them back.
        """
        names = tuple(sorted(set(unique_names)))
        refuse_unreadable(gtrid, names)
        time = time_ns() // 1_000_000 if time is None else time
        sequence = sequence_number(next(_RECORDS)) if sequence is None else sequence
        rest = _rest(gtrid, names, END_RECORD)
        length = LENGTH_FIXED - COUNT.size - len(END_MARKER) + len(rest)
        head = CRC_HEAD.pack(status, length, RECORD_HEADER_LENGTH, time, sequence)
        crc = crc32(rest, crc32(head))
        return cls(status, length, RECORD_HEADER_LENGTH, time, sequence, crc, gtrid, names)

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return self.record_length + LENGTH_OUTSIDE

    @property
    def exact_length(self) -> int:
        """L computed from gtrid and names, as every real writer stores it and 3.0 computes it."""
        names = sum(NAME_LENGTH.size + len(name) for name in self.unique_names)
        return LENGTH_FIXED + len(self.gtrid) + names

    @property
    def is_exact(self) -> bool:
        """True if L is `exact_length`."""
        return self.record_length == self.exact_length

    def calculate_crc32(self) -> int:
        """Return the CRC-32 of the record as the original rebuilds it.

        Names are in sorted order, each character above 7F is ``?``; the CRC and the gtrid length
        byte are left out.
        """
        head = CRC_HEAD.pack(
            self.status,
            self.record_length,
            self.header_length,
            self.time,
            self.sequence_number,
        )
        return crc32(_rest(self.gtrid, self.unique_names, self.end_record), crc32(head))

    def is_crc32_correct(self) -> bool:
        """Return whether the stored CRC is that of the record."""
        return self.calculate_crc32() == self.crc32

    def encode(self) -> bytes:
        """Return the bytes on disk."""
        head = RECORD_HEAD.pack(
            self.status,
            self.record_length,
            self.header_length,
            self.time,
            self.sequence_number,
            self.crc32,
            len(self.gtrid),
        )
        return head + _rest(self.gtrid, self.unique_names, self.end_record)

    def __str__(self) -> str:
        """Return the text form of the original, and after it the field that it leaves out."""
        return (
            f"a Bitronix TransactionLogRecord with status={status_name(self.status)}, "
            f"recordLength={self.record_length}, headerLength={self.header_length}, "
            f"time={self.time}, sequenceNumber={self.sequence_number}, "
            f"crc32={signed32(self.crc32)}, gtrid={self.gtrid.hex().upper()}, "
            f"uniqueNames={','.join(self.unique_names)}, endRecord={signed32(self.end_record)}"
        )


def java_ascii(raw: bytes) -> str:
    """Return bytes as Java's US-ASCII decoder reads them: U+FFFD for each byte above 7F."""
    return raw.decode("ascii") if raw.isascii() else "".join(map(_ascii_or_replacement, raw))


def unique_names(raw: Iterable[bytes]) -> tuple[str, ...]:
    """Return names as the original holds them: decoded, each once, sorted."""
    return tuple(sorted({java_ascii(name) for name in raw}))


def decode_record(data: bytes | memoryview, offset: int, end: int) -> TransactionLogRecord | None:
    """Return the record at ``offset`` if it lies below ``end`` and is whole, else None.

    Whole is what 2.1.4 accepts: L leads to an end marker, gtrid and names stay inside L, the
    CRC is that of the rebuilt record. Linear in the bytes of the record.
    """
    if offset + RECORD_MIN > end:
        return None
    status, length, header, time, sequence, stored_crc, size = RECORD_HEAD.unpack_from(data, offset)
    last = offset + length + LENGTH_OUTSIDE
    if length < LENGTH_FIXED or last > end or data[last - 4 : last] != END_MARKER or size < 0:
        return None
    raw = bytes(data[offset:last])
    names = _decode_names(raw, GTRID_OFFSET + size)
    if names is None:
        return None
    found, tail = names
    record = TransactionLogRecord(
        status,
        length,
        header,
        time,
        sequence,
        stored_crc,
        raw[GTRID_OFFSET : GTRID_OFFSET + size],
        unique_names(found),
        COUNT.unpack_from(raw, tail)[0],
    )
    if tail == len(raw) - COUNT.size and found == [one.encode() for one in record.unique_names]:
        # As every real writer leaves it: the rebuilt record is the bytes on disk.
        return (
            record if crc32(raw[GTRID_OFFSET:], crc32(raw[: CRC_HEAD.size])) == stored_crc else None
        )
    return record if record.is_crc32_correct() else None


def _decode_names(raw: bytes, place: int) -> tuple[list[bytes], int] | None:
    """Return the names whose count is at ``place``, and the offset after them; None if cut."""
    last = len(raw) - len(END_MARKER)
    if place + COUNT.size > last:
        return None
    (count,) = COUNT.unpack_from(raw, place)
    place += COUNT.size
    names: list[bytes] = []
    for _ in range(count):
        if place + NAME_LENGTH.size > last:
            return None
        (size,) = NAME_LENGTH.unpack_from(raw, place)
        begin, place = place + NAME_LENGTH.size, place + NAME_LENGTH.size + size
        if size < 0 or place > last:
            return None
        names.append(raw[begin:place])
    return names, place


@lru_cache(maxsize=1024)
def stored_names(stored: bytes) -> tuple[str, ...]:
    """Return the names of a plain record from their count on; cached, as a program has few sets."""
    decoded = _decode_names(stored + END_MARKER, 0)
    assert decoded is not None  # the walk has checked them
    return tuple(name.decode("ascii") for name in decoded[0])


def _rest(gtrid: bytes, names: Collection[str], end_record: int) -> bytes:
    """Return what follows the gtrid length byte."""
    return gtrid + encode_names(names, end_record)


def encode_names(names: Collection[str], end_record: int) -> bytes:
    """Return what follows the gtrid: the count of names, the names, and the end marker."""
    parts = [COUNT.pack(len(names))]
    for name in names:
        raw = name.encode("ascii", "replace")
        parts += (NAME_LENGTH.pack(len(raw)), raw)
    parts.append(COUNT.pack(end_record))
    return b"".join(parts)


def _ascii_or_replacement(byte: int) -> str:
    return chr(byte) if byte < 0x80 else "�"


def refuse_unreadable(gtrid: bytes, names: Iterable[str]) -> None:
    """Raise `RecordTooLargeError` for what the originals write and cannot read back."""
    if len(gtrid) > GTRID_MAX:
        raise RecordTooLargeError(
            "the gtrid is too long", expected=f"at most {GTRID_MAX} bytes", found=str(len(gtrid))
        )
    for name in names:
        if len(name) > NAME_MAX:
            raise RecordTooLargeError(
                "a resource name is too long",
                expected=f"at most {NAME_MAX} characters",
                found=str(len(name)),
            )
        if not name.isascii():
            raise RecordTooLargeError(
                "a resource name is not ASCII",
                expected="ASCII, which is all that the format reads back",
                found=repr(name),
                advice="Give the resource an ASCII name",
            )
