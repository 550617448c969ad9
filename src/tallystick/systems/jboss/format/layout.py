"""Bytes <-> headers and records of the circular journal, all generations; pure functions, no I/O.

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
generation ``hash``, which is ours, it is the CRC-32 of all bytes before it. `SHAPES` holds what
sets the generations apart. Source: the page ``docs/formats/jboss.md``, sections 1 to 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tallystick.storage.crc import crc32

SYSTEM_NAME: Final = "jboss"

I4 = struct.Struct(">i")
U4 = struct.Struct(">I")
I8 = struct.Struct(">q")
TWO_I4 = struct.Struct(">ii")
STAMP = struct.Struct(">bi")
"""Type and file id: the first 5 bytes of every record."""
FORMAT_HEADER = struct.Struct(">iiq")
"""Format version, user version, file id: the header from HornetQ 2.1 on."""

STAMP_SIZE = 5
CHECK_SIZE = 4
RECORD_SIZE_MIN = 17
FILE_ID_MASK = 0x7FFFFFFF
HASH_FORMAT = 0x7461_0002
"""Format version of files whose records end with a hash; readers of versions 1 and 2 refuse it."""
FILL_J = 0x4A
FILL_ZERO = 0x00
FILE_SIZE_MIN = 1024
CONTROL_FILE = "journal-rename-control.ctr"


class Name(IntEnum):
    """Record types by name. The numbers are the bytes on disk from g1c on."""

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


WITH_BODY = frozenset({Name.EVENT, Name.ADD, Name.UPDATE, Name.ADD_TX, Name.UPDATE_TX})
IN_TRANSACTION = frozenset(
    {Name.ADD_TX, Name.UPDATE_TX, Name.DELETE_TX, Name.PREPARE, Name.COMMIT, Name.ROLLBACK}
)
ELEMENTS = frozenset({Name.ADD_TX, Name.UPDATE_TX, Name.DELETE_TX})
OF_RECORD = WITH_BODY | {Name.DELETE, Name.DELETE_TX}


@dataclass(frozen=True, slots=True)
class Shape:
    """What sets the records of one generation apart. Sizes in bytes.

    ``swapped``: DELETE is 15 and DELETE_TX 16 on disk. ``pairs``: commit and prepare list
    (file id, count) pairs instead of one count. ``extra``: prepare carries extra data.
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

    def type_byte(self, name: Name) -> int:
        """The byte on disk of a record type."""
        if self.swapped and name in (Name.DELETE, Name.DELETE_TX):
            return Name.DELETE if name is Name.DELETE_TX else Name.DELETE_TX
        return int(name)

    def type_name(self, byte: int) -> Name:
        """The record type of a byte on disk; raises `ValueError` for other bytes."""
        return Name(self.type_byte(Name(byte)))

    @property
    def fields_at(self) -> int:
        """Offset in the record of the first field behind file id and compact count."""
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
    """The header of a journal file; g1 files have an id and nothing else."""

    file_id: int
    format_version: int = 0
    user_version: int = 0

    @property
    def stamp(self) -> int:
        """The file id as records carry it."""
        return self.file_id & FILE_ID_MASK if self.format_version else self.file_id


@dataclass(frozen=True, slots=True)
class Item:
    """One decoded record. ``offset`` and ``length`` are bytes in its file.

    ``count`` is the number that commit and prepare carry from g1d on, ``pairs`` their
    (file id, count) list before. ``body`` is the record's body, for DELETE_TX its own one,
    for PREPARE None (``extra`` holds its data).
    """

    offset: int
    length: int
    name: Name
    file_id: int
    compact_count: int | None = None
    transaction: int | None = None
    record_id: int | None = None
    user_type: int | None = None
    body: bytes | None = None
    count: int | None = None
    pairs: tuple[tuple[int, int], ...] | None = None
    extra: bytes | None = None


# -- encode -------------------------------------------------------------------------------


def encode_header(shape: Shape, file_id: int, user_version: int = 0) -> bytes:
    """The file header of a generation."""
    if shape.header_size == I4.size:
        return I4.pack(file_id)
    return FORMAT_HEADER.pack(shape.format_version, user_version, file_id)


def encode(shape: Shape, item: Item) -> bytes:
    """The bytes of a record; ``offset`` and ``length`` of the item are not looked at."""
    fields = b"".join(_fields(shape, item))
    compact = bytes([(item.compact_count or 0) & 0xFF]) if shape.compact else b""
    head = STAMP.pack(shape.type_byte(item.name), item.file_id) + compact + fields
    return head + check_of(shape, head)


def encode_body(
    shape: Shape,
    name: Name,
    transaction: int | None,
    record_id: int,
    user_type: int,
    body: bytes,
) -> bytearray:
    """The bytes of a record with a body, but for the file id and a hash, which are left 0 and the
    size: the short way for the live log."""
    size = len(body)
    if transaction is None:
        one = _HEADS_1[shape.compact]
        head = one.pack(name, 0, record_id, size, user_type)
        return bytearray(head + body + I4.pack(one.size + size + CHECK_SIZE))
    two = _HEADS_2[shape.compact]
    head = two.pack(name, 0, transaction, record_id, size, user_type)
    return bytearray(head + body + I4.pack(two.size + size + CHECK_SIZE))


# Everything before a body, without and with a transaction; by compact count, of which there is one
# or none and which is 0. The types are the same in all generations.
_HEADS_1 = struct.Struct(">biqib"), struct.Struct(">bixqib")
_HEADS_2 = struct.Struct(">biqqib"), struct.Struct(">bixqqib")


def check_of(shape: Shape, head: bytes) -> bytes:
    """The last four bytes of a record whose other bytes are ``head``."""
    return U4.pack(crc32(head)) if shape.hashed else I4.pack(len(head) + CHECK_SIZE)


def _fields(shape: Shape, item: Item) -> list[bytes]:
    parts = [] if item.transaction is None else [I8.pack(item.transaction)]
    if item.record_id is not None:
        parts.append(I8.pack(item.record_id))
    if item.name in WITH_BODY:
        body = item.body or b""
        parts += [I4.pack(len(body)), struct.pack(">b", item.user_type or 0), body]
    elif item.name is Name.DELETE_TX and shape.delete_body:
        body = item.body or b""
        parts += [I4.pack(len(body)), body]
    elif item.name in (Name.COMMIT, Name.PREPARE):
        parts += _ending(shape, item)
    return parts


def _ending(shape: Shape, item: Item) -> list[bytes]:
    extra = item.extra or b""
    with_extra = item.name is Name.PREPARE and shape.extra
    length = [I4.pack(len(extra))] if with_extra else []
    data = [extra] if with_extra else []
    if not shape.pairs:
        return [I4.pack(item.count or 0), *length, *data]
    pairs = item.pairs or ()
    return [*length, I4.pack(len(pairs)), *data, *(TWO_I4.pack(*pair) for pair in pairs)]


# -- decode -------------------------------------------------------------------------------


def decode_header(shape: Shape, data: bytes | memoryview) -> FileHeader:
    """The header at the start of ``data``, which must hold ``shape.header_size`` bytes."""
    if shape.header_size == I4.size:
        return FileHeader(I4.unpack_from(data)[0])
    version, user, file_id = FORMAT_HEADER.unpack_from(data)
    return FileHeader(file_id, version, user)


def decode(shape: Shape, data: bytes | memoryview, offset: int, size: int) -> Item:
    """The healthy record of ``size`` bytes at ``offset``, as `tallystick.systems.jboss.read.scan`
    found it."""
    name = shape.type_name(data[offset])
    at = offset + shape.fields_at
    compact = struct.unpack_from(">b", data, offset + STAMP_SIZE)[0] if shape.compact else None
    transaction = record_id = user_type = body = None
    if name in IN_TRANSACTION:
        transaction = I8.unpack_from(data, at)[0]
        at += I8.size
    if name in OF_RECORD:
        record_id = I8.unpack_from(data, at)[0]
        at += I8.size
    end = offset + size - CHECK_SIZE
    if name in WITH_BODY:
        user_type = struct.unpack_from(">b", data, at + I4.size)[0]
        body = bytes(data[at + I4.size + 1 : end])
    elif name is Name.DELETE_TX:
        body = bytes(data[at + I4.size : end]) if shape.delete_body else b""
    count, pairs, extra = _decode_ending(shape, name, data, at, end)
    return Item(
        offset,
        size,
        name,
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
    shape: Shape, name: Name, data: bytes | memoryview, at: int, end: int
) -> _Ending:
    """Count, pairs and extra data of a commit or prepare whose fields start at ``at``."""
    if name not in (Name.COMMIT, Name.PREPARE):
        return None, None, None
    with_extra = name is Name.PREPARE and shape.extra
    if not shape.pairs:
        count = I4.unpack_from(data, at)[0]
        return count, None, bytes(data[at + 2 * I4.size : end]) if with_extra else None
    extra_size = I4.unpack_from(data, at)[0] if with_extra else 0
    first = at + (2 if with_extra else 1) * I4.size + extra_size
    pairs = tuple((a, b) for a, b in TWO_I4.iter_unpack(bytes(data[first:end])))
    return None, pairs, bytes(data[first - extra_size : first]) if with_extra else None
