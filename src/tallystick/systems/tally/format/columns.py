"""Encode and decode the payload of a group: columns in Arrow's memory layout, then the bodies.

In: records. Out: buffers, and back. Pure functions, no I/O, no third-party package. Each column
starts at a multiple of 8 from the start of the payload and is filled up with zeros; a reader with
Arrow wraps all of them as they are (`tallystick.systems.tally.columns.batches`).

    column             present      bytes, n = number of records
    codes              CODES        n x uint8; else all have the code in bits 16-23 of ``columns``
    offsets            always       (n + 1) x int32 into the bodies
    transactions       TRANSACTIONS n x int64
      their validity   .._NULLS     bitmap, least significant bit first, a 1 for "has one"
    keys               KEYS         n x int64: record id, page, row key, number
      their validity   .._NULLS     bitmap
    user types         USER_TYPES   n x int8
    gtrids             GTRIDS       (n + 1) x int32, then that many bytes; empty means none
    bodies             always       to the end of the payload
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeAlias

from tallystick.errors import CorruptLogError, RecordTooLargeError
from tallystick.storage.files import Bytes
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import LENGTH_MAX

CODES: Final = 1
TRANSACTIONS: Final = 2
TRANSACTION_NULLS: Final = 4
KEYS: Final = 8
KEY_NULLS: Final = 16
USER_TYPES: Final = 32
GTRIDS: Final = 64
CODE_SHIFT: Final = 16
"""Place of the code of all records in the column bits."""
PLAIN: Final = Code.APPEND << CODE_SHIFT
"""Columns of a group of plain records outside of transactions."""
TRANSACTION_ROWS: Final = CODES | TRANSACTIONS | KEYS | KEY_NULLS
"""Columns of records that all have a transaction, and most of them a key."""

KEY_MIN: Final = -(1 << 63)
KEY_MAX: Final = (1 << 63) - 1
"""Limits of keys and of transactions: their columns are signed, 8 bytes wide."""
TRANSACTION_MAX: Final = KEY_MAX - 1
"""Greatest number of a transaction: there is always a next one."""
USER_TYPE_MIN: Final = -(1 << 7)
USER_TYPE_MAX: Final = (1 << 7) - 1
GTRID_MAX: Final = (1 << 8) - 1
"""Bytes of a gtrid and of a bqual at most: where they stand in bodies, their length is one byte."""

_PADDING = tuple(bytes(size) for size in range(8))
ONE_OFFSET = struct.Struct("<ii")
"""The offsets of one body: 0, and its length."""


class UnplacedRecord(NamedTuple):
    """A record that has no place in the log yet; ``code`` is a `Code`."""

    code: int
    body: bytes = b""
    transaction: int | None = None
    key: int | None = None
    user_type: int = 0
    gtrid: bytes = b""


Fields: TypeAlias = tuple[int, bytes, int | None, int | None, int, bytes]
"""The fields of an `UnplacedRecord`, which is one of these."""


class Row(NamedTuple):
    """A record at its place in the log; ``time_us`` is that of its group."""

    lsn: int
    segment: int
    time_us: int
    record: UnplacedRecord


class GroupPayload(NamedTuple):
    """Encoded columns and bodies of a group.

    Attributes:
        columns: the column bits of the group header.
        buffers: the bytes, in order.
        size: number of bytes.
        crc: checksum of the bytes, where it is known already.
    """

    columns: int
    buffers: Sequence[Bytes]
    size: int
    crc: int | None = None


# -- encode -------------------------------------------------------------------------------


def encode_plain(code: int, bodies: Sequence[bytes]) -> GroupPayload:
    """Encode records of one code that have nothing but a body.

    Raises:
        RecordTooLargeError: the bodies are too large for one group.
    """
    if len(bodies) == 1:
        size = len(bodies[0])
        return GroupPayload(
            code << CODE_SHIFT, (ONE_OFFSET.pack(0, _fitting(size)), *bodies), 8 + size
        )
    offsets = _offsets(bodies)
    return _payload(code << CODE_SHIFT, [offsets, b"".join(bodies)])


def encode_records(records: Sequence[Fields]) -> GroupPayload:
    """Encode any records.

    Raises:
        RecordTooLargeError: the bodies are too large for one group.
    """
    codes, bodies, transactions, keys, user_types, gtrids = zip(*records, strict=True)
    columns = 0
    parts: list[bytes] = []
    if codes.count(codes[0]) != len(codes):
        columns |= CODES
        parts.append(bytes(codes))
    else:
        columns |= codes[0] << CODE_SHIFT
    parts.append(_offsets(bodies))
    columns |= _numbers(transactions, TRANSACTIONS, TRANSACTION_NULLS, parts)
    columns |= _numbers(keys, KEYS, KEY_NULLS, parts)
    if any(user_types):
        columns |= USER_TYPES
        parts.append(struct.pack(f"<{len(user_types)}b", *user_types))
    if any(gtrids):
        columns |= GTRIDS
        parts += (_offsets(gtrids), b"".join(gtrids))
    parts.append(b"".join(bodies))
    return _payload(columns, parts)


def encode_columns(
    codes: Sequence[int],
    ends: Sequence[int],
    transactions: Sequence[int],
    keys: Sequence[int],
    keyed: int,
    bodies: Sequence[bytes],
) -> GroupPayload:
    """Encode records of several codes that all have a transaction, and most of them a key.

    Args:
        codes: of each record.
        ends: 0, and the end of each record's body in the joined bodies.
        transactions: of each record.
        keys: of each record, 0 for one without.
        keyed: a bit for each record, least significant bit first, a 1 for one with a key.
        bodies: all bodies, in any pieces.

    Raises:
        RecordTooLargeError: the bodies are too large for one group.
    """
    count = len(codes)
    size = _fitting(ends[-1])
    form = transaction_form(count)
    bitmap = keyed.to_bytes(-(-count // 8), "little")
    columns = form.pack(bytes(codes), *ends, *transactions, *keys, bitmap)
    return GroupPayload(TRANSACTION_ROWS, (columns, b"".join(bodies)), form.size + size)


@lru_cache(maxsize=256)
def transaction_form(count: int) -> struct.Struct:
    """Return the columns of so many records of `TRANSACTION_ROWS`, each padded to 8 bytes.

    They are packed from the codes, all ends, transactions and keys, and the bitmap of the keys.
    """
    bitmap, offsets = -(-count // 8), 4 * (count + 1)
    return struct.Struct(
        f"<{count}s{-count % 8}x{count + 1}i{-offsets % 8}x{2 * count}q{bitmap}s{-bitmap % 8}x"
    )


def _payload(columns: int, parts: list[bytes]) -> GroupPayload:
    """Join the parts, each but the last one padded to a multiple of 8."""
    buffers: list[Bytes] = []
    for part in parts[:-1]:
        buffers += (part, _PADDING[-len(part) % 8])
    buffers.append(parts[-1])
    return GroupPayload(columns, buffers, sum(map(len, buffers)))


def _offsets(values: Sequence[bytes]) -> bytes:
    ends = list(accumulate(map(len, values), initial=0))
    _fitting(ends[-1])
    return struct.pack(f"<{len(ends)}i", *ends)


def _fitting(size: int) -> int:
    if size > LENGTH_MAX:
        raise RecordTooLargeError(
            "a group of records is too large",
            expected=f"at most {LENGTH_MAX} bytes",
            found=f"{size} bytes",
        )
    return size


def _numbers(values: Sequence[int | None], present: int, nulls: int, parts: list[bytes]) -> int:
    """Append a nullable column to ``parts``; return its bits."""
    if None not in values:
        parts.append(struct.pack(f"<{len(values)}q", *values))
        return present
    if values.count(None) == len(values):
        return 0
    parts.append(struct.pack(f"<{len(values)}q", *[value or 0 for value in values]))
    text = "".join(["0" if value is None else "1" for value in reversed(values)])
    parts.append(int(text, 2).to_bytes(-(-len(values) // 8), "little"))
    return present | nulls


# -- decode -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """Where each column of a group lies in its payload: offsets of first bytes, -1 for none."""

    data: Bytes
    count: int
    bits: int
    codes: int
    offsets: int
    transactions: int
    transaction_validity: int
    keys: int
    key_validity: int
    user_types: int
    gtrid_offsets: int
    gtrids: int
    bodies: int

    @property
    def code(self) -> int:
        """The code of all records if there is no column of codes."""
        return (self.bits >> CODE_SHIFT) & 0xFF

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The offsets of the bodies, ``count + 1`` numbers relative to ``bodies``."""
        return _unpack(self.data, self.offsets, self.count + 1, "i")

    def records(self) -> Iterator[UnplacedRecord]:
        """Yield the records.

        Raises:
            CorruptLogError: offsets of bodies or gtrids do not rise.
        """
        count = self.count
        _require_rising(self.ends, len(self.data) - self.bodies)
        codes = self.data[self.codes :] if self.codes >= 0 else bytes([self.code]) * count
        types = (
            _unpack(self.data, self.user_types, count, "b")
            if self.user_types >= 0
            else (0,) * count
        )
        rows = zip(
            codes[:count],
            _slices(self.data, self.bodies, self.ends),
            _nullable(self.data, self.transactions, self.transaction_validity, count),
            _nullable(self.data, self.keys, self.key_validity, count),
            types,
            self._gtrids(),
            strict=True,
        )
        return (UnplacedRecord(*row) for row in rows)

    def _gtrids(self) -> Iterator[bytes]:
        if self.gtrids < 0:
            return iter((b"",) * self.count)
        ends = _unpack(self.data, self.gtrid_offsets, self.count + 1, "i")
        _require_rising(ends, ends[-1])
        return _slices(self.data, self.gtrids, ends)


def decode_columns(data: Bytes, count: int, bits: int) -> Columns:
    """Return the places of the columns of ``count`` records with these column bits.

    Only the lengths are verified; `Columns.records` and the Arrow reader verify the rest.

    Raises:
        CorruptLogError: the columns do not fit ``data``.
    """
    place, size, bitmap = 0, len(data), -(-count // 8)

    def take(bytes_: int, *, present: bool = True) -> int:
        nonlocal place
        if not present:
            return -1
        start = place
        place += bytes_ + -bytes_ % 8
        if start + bytes_ > size:
            raise _unfit(f"a column of {bytes_} bytes", f"{size - start} bytes")
        return start

    codes = take(count, present=bool(bits & CODES))
    offsets = take(4 * (count + 1))
    transactions = take(8 * count, present=bool(bits & TRANSACTIONS))
    transaction_validity = take(bitmap, present=bool(bits & TRANSACTION_NULLS))
    keys = take(8 * count, present=bool(bits & KEYS))
    key_validity = take(bitmap, present=bool(bits & KEY_NULLS))
    user_types = take(count, present=bool(bits & USER_TYPES))
    gtrid_offsets = take(4 * (count + 1), present=bool(bits & GTRIDS))
    gtrids = -1
    if gtrid_offsets >= 0:
        (total,) = _unpack(data, gtrid_offsets + 4 * count, 1, "i")
        # Negative where the payload is damaged, which is found when records are asked for.
        gtrids = take(max(total, 0))
    (end,) = _unpack(data, offsets + 4 * count, 1, "i")
    if place + end != size:
        raise _unfit(f"{size - place} bytes of bodies", f"{end} bytes")
    return Columns(
        data, count, bits, codes, offsets, transactions, transaction_validity, keys,
        key_validity, user_types, gtrid_offsets, gtrids, place,
    )  # fmt: skip


def _unpack(data: Bytes, place: int, count: int, form: str) -> tuple[int, ...]:
    return struct.unpack_from(f"<{count}{form}", data, place)


def _slices(data: Bytes, start: int, ends: Sequence[int]) -> Iterator[bytes]:
    return (bytes(data[start + first : start + last]) for first, last in pairwise(ends))


def _nullable(data: Bytes, place: int, validity: int, count: int) -> Sequence[int | None]:
    if place < 0:
        return (None,) * count
    values = _unpack(data, place, count, "q")
    if validity < 0:
        return values
    bits = int.from_bytes(data[validity : validity - -count // 8], "little")
    marks = f"{bits:0{count}b}"[::-1]
    return tuple(value if mark == "1" else None for value, mark in zip(values, marks, strict=False))


def _require_rising(ends: Sequence[int], size: int) -> None:
    if ends[0] != 0 or any(a > b for a, b in pairwise(ends)):
        raise _unfit("offsets that rise from 0", "others")
    if ends[-1] > size:
        raise _unfit(f"offsets up to {size}", str(ends[-1]))


def _unfit(expected: str, found: str) -> CorruptLogError:
    return CorruptLogError("the columns of a group do not fit", expected=expected, found=found)
