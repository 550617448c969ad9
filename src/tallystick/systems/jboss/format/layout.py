"""Bytes <-> headers and records of the circular journal, in all generations.

All integers are big-endian and signed: ``i1``, ``i4``, ``i8`` below are 1, 4 and 8 bytes.

    file header   g1   file id i4                                        4 bytes
                  g2+  format version i4, user version i4, file id i8   16 bytes
    record        type i1, file id i4 (the low 31 bits), [g3: compact count i1], fields, check i4
    ADD, UPDATE         record id i8, body length i4, user type i1, body   (EVENT alike)
    ADD_TX, UPDATE_TX   transaction i8, record id i8, body length i4, user type i1, body
    DELETE              record id i8
    DELETE_TX           transaction i8, record id i8, [g1c on: body length i4, body]
    COMMIT    g1a-g1c   transaction i8, n i4, n x (file id i4, count i4)
              g1d on    transaction i8, count i4
    PREPARE   g1a       as COMMIT
              g1b, g1c  transaction i8, extra length i4, n i4, extra, n x (file id i4, count i4)
              g1d on    transaction i8, count i4, extra length i4, extra
    ROLLBACK            transaction i8

The check is the size of the whole record in bytes, type and check included; in the
generation ``hash``, Tallystick's own, it is the CRC-32 of all bytes before it. `SHAPES` holds the
differences between generations. Source: ``docs/formats/jboss.md``, sections 1 to 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tallystick.storage.crc import crc32
from tallystick.storage.zeros import first_other

SYSTEM_NAME: Final = "jboss"

I4 = struct.Struct(">i")
U4 = struct.Struct(">I")
I8 = struct.Struct(">q")
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
"""Limits of ids and of transactions."""
USER_TYPE_MIN, USER_TYPE_MAX = -(1 << 7), (1 << 7) - 1
TWO_I4 = struct.Struct(">ii")
STAMP = struct.Struct(">bi")
"""Type and file id: the first 5 bytes of every record."""
FORMAT_HEADER = struct.Struct(">iiq")
"""Format version, user version, file id: the header from HornetQ 2.1 on."""

# Sizes in bytes.
STAMP_SIZE = 5
ID_SIZE = 8
"""A record id or a transaction."""
COUNT_SIZE = 4
"""A count, or the length of a body or of extra data."""
USER_TYPE_SIZE = 1
PAIR_SIZE = 8
CHECK_SIZE = 4
RECORD_SIZE_MIN = STAMP_SIZE + ID_SIZE + CHECK_SIZE
"""DELETE and ROLLBACK without a compact count; every other record has these fields, too."""
FILE_SIZE_MIN = 1024
FILE_SIZE_MAX = (1 << 31) - 1
"""The original counts bytes of a file in an int."""

FILE_ID_MASK = 0x7FFFFFFF
"""The bits of a file id that its records carry."""
HASH_FORMAT = 0x7461_0002
"""Format version of files whose records end with a hash; readers of versions 1 and 2 refuse it."""
FILL_J = 0x4A
FILL_ZERO = 0x00
FILL = bytes([FILL_J, FILL_ZERO])
"""The bytes that new files are filled with: ``J`` until HornetQ, 0 in Artemis."""

CONTROL_FILE = "journal-rename-control.ctr"


class RecordType(IntEnum):
    """The types of records. The numbers are the bytes on disk from g1c on."""

    EVENT = 10
    ADD = 11
    UPDATE = 12
    ADD_TX = 13
    UPDATE_TX = 14
    DELETE_TX = 15
    DELETE = 16
    PREPARE = 17
    COMMIT = 18
    ROLLBACK = 19


# The same as plain numbers, for kernels and hot loops.
EVENT, ADD, UPDATE, ADD_TX, UPDATE_TX, DELETE_TX, DELETE, PREPARE, COMMIT, ROLLBACK = map(
    int, RecordType
)

WITH_BODY = frozenset(
    {RecordType.EVENT, RecordType.ADD, RecordType.UPDATE, RecordType.ADD_TX, RecordType.UPDATE_TX}
)
IN_TRANSACTION = frozenset(
    {
        RecordType.ADD_TX,
        RecordType.UPDATE_TX,
        RecordType.DELETE_TX,
        RecordType.PREPARE,
        RecordType.COMMIT,
        RecordType.ROLLBACK,
    }
)
ELEMENTS = frozenset({RecordType.ADD_TX, RecordType.UPDATE_TX, RecordType.DELETE_TX})
RAISING_TYPES = WITH_BODY - {RecordType.EVENT}
"""Types of records whose ids raise the maximum from g1d on."""
OF_RECORD = WITH_BODY | {RecordType.DELETE, RecordType.DELETE_TX}


@dataclass(frozen=True, slots=True)
class Shape:
    """The differences between the records of one generation and another.

    Attributes:
        name: the key in `SHAPES`.
        header_size: bytes of the file header.
        format_version: the first number of the header; 0 in headers without one.
        compact: bytes of the compact count, 0 or 1.
        swapped: DELETE is 15 and DELETE_TX 16 on disk.
        delete_body: DELETE_TX has a body.
        pairs: commit and prepare list (file id, count) pairs instead of one count.
        extra: prepare carries extra data.
        events: EVENT is a record type.
        hashed: the check is a CRC-32 instead of the size.
    """

    name: str
    header_size: int
    format_version: int = 0
    compact: int = 0
    swapped: bool = False
    delete_body: bool = True
    pairs: bool = False
    extra: bool = True
    events: bool = False
    hashed: bool = False

    def type_byte(self, kind: RecordType) -> int:
        """Return the byte on disk of a record type."""
        if self.swapped and kind in (RecordType.DELETE, RecordType.DELETE_TX):
            kind = RecordType.DELETE if kind is RecordType.DELETE_TX else RecordType.DELETE_TX
        return int(kind)  # of a type of its own, kernels would be compiled once more

    def record_type(self, byte: int) -> RecordType:
        """Return the record type of a byte on disk.

        Raises:
            ValueError: the byte is no record type.
        """
        kind = RecordType(byte)
        return RecordType(self.type_byte(kind)) if self.swapped else kind

    @property
    def fields_at(self) -> int:
        """Offset in a record of the first field after file id and compact count."""
        return STAMP_SIZE + self.compact


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("g1a", 4, swapped=True, delete_body=False, pairs=True, extra=False),
        Shape("g1b", 4, swapped=True, delete_body=False, pairs=True),
        Shape("g1c", 4, pairs=True),
        Shape("g1d", 4),
        Shape("g2", 16, format_version=1),
        Shape("g3", 16, format_version=2, compact=1, events=True),
        Shape("hash", 16, format_version=HASH_FORMAT, compact=1, events=True, hashed=True),
    )
}


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The header of a journal file; g1 files have only an id."""

    file_id: int
    format_version: int = 0
    user_version: int = 0

    @property
    def stamp(self) -> int:
        """The file id as the records of the file carry it."""
        return self.file_id & FILE_ID_MASK if self.format_version else self.file_id


@dataclass(frozen=True, slots=True)
class Item:
    """One decoded record, or one to encode.

    Attributes:
        offset: offset in its file, in bytes.
        length: size of the whole record, in bytes.
        type: the record type.
        file_id: the low 31 bits of the id of its file.
        compact_count: how often the record was copied by compactions; None before g3.
        body: the body; None for records without one. DELETE_TX has a body of its own.
        count: elements of the transaction, in commit and prepare from g1d on.
        pairs: (file id, elements) in commit and prepare before g1d.
        extra: extra data of a prepare.
    """

    offset: int
    length: int
    type: RecordType
    file_id: int
    compact_count: int | None = None
    transaction: int | None = None
    record_id: int | None = None
    user_type: int | None = None
    body: bytes | None = None
    count: int | None = None
    pairs: tuple[tuple[int, int], ...] | None = None
    extra: bytes | None = None


Contents = tuple[int, int, bytes]
"""What a record says of itself: its id, user type and body."""


def is_filled(data: memoryview, begin: int, end: int) -> bool:
    """Return whether a range is fill, one byte over and over; true of an empty one."""
    return any(first_other(data, begin, end, bytes([one])) == end for one in FILL)


def contents_of(item: Item) -> Contents:
    """Return the contents of a record; 0 and an empty body for what it does not have."""
    return item.record_id or 0, item.user_type or 0, item.body or b""


# -- encode -------------------------------------------------------------------------------


def encode_header(shape: Shape, file_id: int, user_version: int = 0) -> bytes:
    """Return the file header of a generation."""
    if shape.header_size == I4.size:
        return I4.pack(file_id)
    return FORMAT_HEADER.pack(shape.format_version, user_version, file_id)


def encode(shape: Shape, item: Item) -> bytes:
    """Return the bytes of a record; ``offset`` and ``length`` of the item do not matter."""
    fields = b"".join(_fields(shape, item))
    compact = bytes([(item.compact_count or 0) & 0xFF]) if shape.compact else b""
    head = STAMP.pack(shape.type_byte(item.type), item.file_id) + compact + fields
    return head + check_of(shape, head)


def encode_body(
    shape: Shape,
    kind: RecordType,
    transaction: int | None,
    record_id: int,
    user_type: int,
    body: bytes,
) -> bytearray:
    """Return the bytes of a record with a body, before its file is known.

    The file id is 0, and the check is the size in every shape. The live log uses this shorter
    way.
    """
    size = len(body)
    if transaction is None:
        one = _HEADS_1[shape.compact]
        head = one.pack(kind, 0, record_id, size, user_type)
        return bytearray(head + body + I4.pack(one.size + size + CHECK_SIZE))
    two = _HEADS_2[shape.compact]
    head = two.pack(kind, 0, transaction, record_id, size, user_type)
    return bytearray(head + body + I4.pack(two.size + size + CHECK_SIZE))


# Everything before a body, without and with a transaction; by the size of the compact count, which
# is 0. The type bytes of these records are the same in all generations.
_HEADS_1 = struct.Struct(">biqib"), struct.Struct(">bixqib")
_HEADS_2 = struct.Struct(">biqqib"), struct.Struct(">bixqqib")


def check_of(shape: Shape, head: bytes) -> bytes:
    """Return the last four bytes of a record whose other bytes are ``head``."""
    return U4.pack(crc32(head)) if shape.hashed else I4.pack(len(head) + CHECK_SIZE)


def _fields(shape: Shape, item: Item) -> list[bytes]:
    parts = [] if item.transaction is None else [I8.pack(item.transaction)]
    if item.record_id is not None:
        parts.append(I8.pack(item.record_id))
    if item.type in WITH_BODY:
        body = item.body or b""
        parts += [I4.pack(len(body)), struct.pack(">b", item.user_type or 0), body]
    elif item.type is RecordType.DELETE_TX and shape.delete_body:
        body = item.body or b""
        parts += [I4.pack(len(body)), body]
    elif item.type in (RecordType.COMMIT, RecordType.PREPARE):
        parts += _ending(shape, item)
    return parts


def _ending(shape: Shape, item: Item) -> list[bytes]:
    extra = item.extra or b""
    with_extra = item.type is RecordType.PREPARE and shape.extra
    length = [I4.pack(len(extra))] if with_extra else []
    data = [extra] if with_extra else []
    if not shape.pairs:
        return [I4.pack(item.count or 0), *length, *data]
    pairs = item.pairs or ()
    return [*length, I4.pack(len(pairs)), *data, *(TWO_I4.pack(*pair) for pair in pairs)]


# -- decode -------------------------------------------------------------------------------


def decode_header(shape: Shape, data: bytes | memoryview) -> FileHeader:
    """Return the header at the start of ``data``, of at least ``shape.header_size`` bytes."""
    if shape.header_size == I4.size:
        return FileHeader(I4.unpack_from(data)[0])
    version, user, file_id = FORMAT_HEADER.unpack_from(data)
    return FileHeader(file_id, version, user)


def decode(shape: Shape, data: bytes | memoryview, offset: int, size: int) -> Item:
    """Return the valid record of ``size`` bytes at ``offset``."""
    kind = shape.record_type(data[offset])
    at = offset + shape.fields_at
    compact = struct.unpack_from(">b", data, offset + STAMP_SIZE)[0] if shape.compact else None
    transaction = record_id = user_type = body = None
    if kind in IN_TRANSACTION:
        transaction = I8.unpack_from(data, at)[0]
        at += I8.size
    if kind in OF_RECORD:
        record_id = I8.unpack_from(data, at)[0]
        at += I8.size
    end = offset + size - CHECK_SIZE
    if kind in WITH_BODY:
        user_type = struct.unpack_from(">b", data, at + I4.size)[0]
        body = bytes(data[at + I4.size + 1 : end])
    elif kind is RecordType.DELETE_TX:
        body = bytes(data[at + I4.size : end]) if shape.delete_body else b""
    count, pairs, extra = _decode_ending(shape, kind, data, at, end)
    return Item(
        offset,
        size,
        kind,
        I4.unpack_from(data, offset + 1)[0],
        compact,
        transaction,
        record_id,
        user_type,
        body,
        count,
        pairs,
        extra,
    )


_Ending = tuple[int | None, tuple[tuple[int, int], ...] | None, bytes | None]


def _decode_ending(
    shape: Shape, kind: RecordType, data: bytes | memoryview, at: int, end: int
) -> _Ending:
    """Return count, pairs and extra data of a commit or prepare whose fields start at ``at``."""
    if kind not in (RecordType.COMMIT, RecordType.PREPARE):
        return None, None, None
    with_extra = kind is RecordType.PREPARE and shape.extra
    if not shape.pairs:
        count = I4.unpack_from(data, at)[0]
        return count, None, bytes(data[at + 2 * I4.size : end]) if with_extra else None
    extra_size = I4.unpack_from(data, at)[0] if with_extra else 0
    first = at + (2 if with_extra else 1) * I4.size + extra_size
    pairs = tuple((a, b) for a, b in TWO_I4.iter_unpack(bytes(data[first:end])))
    return None, pairs, bytes(data[first - extra_size : first]) if with_extra else None
