"""Derby's log, bytes <-> structures: control file, file header, envelopes, record bodies.

All numbers are big-endian; all positions and lengths are bytes. Source: docs/formats/derby.md.
Nothing here opens a file. Decoding raises `LogFormatError` with the offset inside the bytes given.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag

from tallystick.errors import LogFormatError
from tallystick.records import Xid
from tallystick.storage.crc import crc32

# -- format ids: two bytes in front of every object ----------------------------------------------

NULL = 0
LOGICAL_UNDO_BTREE = 95
LOG_FILE = 128
LOG_RECORD = 129
LOG_COUNTER = 130
TRANSACTION_ID = 147
TRANSACTION_ENTRY = 261
TRANSACTION_TABLE = 262
GLOBAL_ID = 328
OBSOLETE_VERSION = 9

# -- control file: 48 bytes, twice ---------------------------------------------------------------

CONTROL_NAMES = ("log.ctrl", "logmirror.ctrl")
CONTROL = struct.Struct(">iiqiiiB3xq")
"""format id, obsolete version, checkpoint instant, major, minor, build, flags, spare."""
CONTROL_CRC = struct.Struct(">q")
CONTROL_SIZE = CONTROL.size + CONTROL_CRC.size
CONTROL_SIZE_MIN = 16
FLAG_BETA = 1
FLAG_DURABILITY_TEST = 2

# -- log file ------------------------------------------------------------------------------------

HEADER = struct.Struct(">iiqq")
"""format id, obsolete version, file number, instant of the end of the previous file."""
HEADER_SIZE = HEADER.size
HEADER_CHECKED_SIZE = 16
LENGTH = struct.Struct(">i")
PREFIX = struct.Struct(">iq")
"""body length, instant."""
OVERHEAD = PREFIX.size + LENGTH.size
END_MARKER = bytes(4)
POSITION_MAX = 0x0FFFFFFF
GLOBAL_ID_PART_MAX = 64

# -- checksum record -----------------------------------------------------------------------------

CHECKSUM_OPERATION = 453
CHECKSUM_CRC32 = 1
CHECKSUM = struct.Struct(">biq")
"""algorithm, length of the data behind the record, CRC-32 of it."""
CHECKSUM_HEAD = bytes.fromhex("0081 4900 0000 01c5")
CHECKSUM_BODY_SIZE = len(CHECKSUM_HEAD) + CHECKSUM.size
CHECKSUM_RECORD_SIZE = CHECKSUM_BODY_SIZE + OVERHEAD


class Group(IntFlag):
    """What a log record is for: the compressed int behind its format id."""

    FIRST = 0x001
    LAST = 0x002
    COMPENSATION = 0x004
    BI_LOG = 0x008
    COMMIT = 0x010
    ABORT = 0x020
    PREPARE = 0x040
    XA_NEEDLOCK = 0x080
    RAWSTORE = 0x100
    FILE_RESOURCE = 0x400
    CHECKSUM = 0x800


def make_instant(file: int, position: int) -> int:
    """The log sequence number of a place: file number above, position below."""
    return file << 32 | position


def split_instant(instant: int) -> tuple[int, int]:
    """(file number, position) of an instant."""
    return instant >> 32, instant & 0x7FFFFFFF


def instant_text(instant: int) -> str:
    """The engine's own spelling, ``(file,position)``."""
    return "({},{})".format(*split_instant(instant))


# -- encode --------------------------------------------------------------------------------------


def compressed_int(value: int) -> bytes:
    """The shortest form of a number from 0 to 2^31-1: 1, 2 or 4 bytes."""
    if value <= 0x3F:
        return value.to_bytes(1)
    if value <= 0x3FFF:
        return (0x4000 | value).to_bytes(2)
    return (0x80000000 | value).to_bytes(4)


def compressed_long(value: int) -> bytes:
    """The shortest form of a number from 0 to 2^63-1: 2, 4 or 8 bytes."""
    if value <= 0x3FFF:
        return value.to_bytes(2)
    if value <= 0x3FFFFFFF:
        return (0x40000000 | value).to_bytes(4)
    return (1 << 63 | value).to_bytes(8)


def format_id(number: int) -> bytes:
    """The two bytes in front of an object."""
    return number.to_bytes(2)


def encode_record(instant: int, body: bytes) -> bytes:
    """A whole record: length, instant, body, length again."""
    return PREFIX.pack(len(body), instant) + body + LENGTH.pack(len(body))


def encode_checksum_body(data_length: int, crc: int) -> bytes:
    """The body of a checksum record over ``data_length`` bytes behind it."""
    return CHECKSUM_HEAD + CHECKSUM.pack(CHECKSUM_CRC32, data_length, crc)


def encode_header(number: int, previous: int) -> bytes:
    """The header of log file ``number``; ``previous`` is the end of the file before, 0 for none."""
    return HEADER.pack(LOG_FILE, OBSOLETE_VERSION, number, previous)


@dataclass(frozen=True, slots=True)
class Control:
    """What a control file says; ``checkpoint`` is an instant, 0 for none."""

    checkpoint: int
    major: int = 10
    minor: int = 14
    build: int = -1
    flags: int = 0


def encode_control(control: Control) -> bytes:
    """The 48 bytes of a control file."""
    head = CONTROL.pack(
        LOG_FILE,
        OBSOLETE_VERSION,
        control.checkpoint,
        control.major,
        control.minor,
        control.build,
        control.flags,
        0,
    )
    return head + CONTROL_CRC.pack(crc32(head))


# -- decode --------------------------------------------------------------------------------------


def decode_control(data: bytes | memoryview) -> Control:
    """A control file of any length from 48 bytes. Raises `LogFormatError`."""
    if len(data) < CONTROL_SIZE:
        raise LogFormatError(
            "control file too short", expected=f"{CONTROL_SIZE} bytes", found=str(len(data))
        )
    stored = CONTROL_CRC.unpack(data[-CONTROL_CRC.size :])[0]
    if stored != (actual := crc32(data[: -CONTROL_CRC.size])):
        raise LogFormatError(
            "control file checksum differs", expected=f"{actual:08x}", found=f"{stored:08x}"
        )
    fields = CONTROL.unpack_from(data)
    if fields[0] != LOG_FILE:
        raise LogFormatError("no control file", offset=0, expected="128", found=str(fields[0]))
    return Control(*fields[2:7])


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a log file as it stands, checked or not."""

    format_id: int
    obsolete: int
    number: int
    previous: int


def decode_header(data: bytes | memoryview) -> Header:
    """The first 24 bytes of a log file. Raises `LogFormatError` if there are fewer."""
    if len(data) < HEADER_SIZE:
        raise LogFormatError(
            "log file header cut short", expected=f"{HEADER_SIZE} bytes", found=str(len(data))
        )
    return Header(*HEADER.unpack_from(data))


class Cursor:
    """Reads Derby's encodings from bytes; every read is checked against their end."""

    __slots__ = ("data", "place")

    def __init__(self, data: bytes | memoryview, place: int = 0) -> None:
        self.data = data
        self.place = place

    @property
    def left(self) -> int:
        return len(self.data) - self.place

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
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
        return int.from_bytes(self.take(size))

    def sint(self, size: int) -> int:
        return int.from_bytes(self.take(size), signed=True)

    def compressed_int(self) -> int:
        """1, 2 or 4 bytes, told by the first two bits."""
        first = self.uint(1)
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.uint(1)
        return (first & 0x7F) << 24 | self.uint(3)

    def compressed_long(self) -> int:
        """2, 4 or 8 bytes, told by the first two bits."""
        first = self.uint(2)
        if first < 0x4000:
            return first
        if first < 0x8000:
            return (first & 0x3FFF) << 16 | self.uint(2)
        return (first & 0x7FFF) << 48 | self.uint(6)

    def utf(self) -> str:
        """Two-byte length and modified UTF-8."""
        raw = self.take(self.uint(2))
        try:
            return raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise LogFormatError("no modified UTF-8", offset=self.place, found=raw.hex()) from error

    def expect(self, number: int, what: str) -> None:
        """The format id of an object that must be there."""
        if (found := self.uint(2)) != number:
            raise LogFormatError(
                f"no {what}", offset=self.place - 2, expected=str(number), found=str(found)
            )

    def transaction(self) -> int | None:
        """A transaction id object, None for null."""
        if self.data[self.place : self.place + 2] == bytes(2):
            self.place += 2
            return None
        self.expect(TRANSACTION_ID, "transaction id")
        return self.compressed_long()

    def global_id(self) -> Xid | None:
        """A global id object, None for null."""
        if self.data[self.place : self.place + 2] == bytes(2):
            self.place += 2
            return None
        self.expect(GLOBAL_ID, "global transaction id")
        number = self.sint(4)
        return Xid(number, self._part(), self._part())

    def _part(self) -> bytes:
        size = self.uint(1)
        if size > GLOBAL_ID_PART_MAX:
            raise LogFormatError(
                "global id too long",
                offset=self.place - 1,
                expected=f"at most {GLOBAL_ID_PART_MAX} bytes",
                found=str(size),
            )
        return self.take(size)

    def counter(self) -> int | None:
        """A log counter object as an instant, None for null."""
        if self.data[self.place : self.place + 2] == bytes(2):
            self.place += 2
            return None
        self.expect(LOG_COUNTER, "log counter")
        file = self.compressed_long()
        return make_instant(file, self.compressed_long())


@dataclass(frozen=True, slots=True)
class Envelope:
    """Where a record lies and what surrounds it. ``position`` is that of the length field."""

    position: int
    length: int
    instant: int
    trailing: int

    @property
    def body(self) -> int:
        return self.position + PREFIX.size

    @property
    def end(self) -> int:
        return self.position + self.length + OVERHEAD


def read_envelope(data: memoryview, position: int) -> Envelope | None:
    """The envelope at ``position`` if a positive length says that it lies within the file."""
    if position + OVERHEAD > len(data):
        return None
    length, instant = PREFIX.unpack_from(data, position)
    if length <= 0 or position + length + OVERHEAD > len(data):
        return None
    trailing = LENGTH.unpack_from(data, position + PREFIX.size + length)[0]
    return Envelope(position, length, instant, trailing)


_WINDOW = 1 << 20


def stands_at(data: memoryview, number: int, place: int) -> bool:
    """True if a whole record stands here: own instant, the same length before and behind."""
    if int.from_bytes(data[place + 4 : place + 12]) != make_instant(number, place):
        return False
    envelope = read_envelope(data, place)
    return envelope is not None and envelope.trailing == envelope.length


def find_record(data: memoryview, number: int, position: int) -> int | None:
    """The first place at or behind ``position`` where a whole record of file ``number`` stands."""
    high = number.to_bytes(4)
    for start in range(position, len(data), _WINDOW):
        window = bytes(data[start : start + _WINDOW + OVERHEAD])
        hit = window.find(high)
        while hit >= 0:
            place = start + hit - LENGTH.size
            if place >= position and stands_at(data, number, place):
                return place
            hit = window.find(high, hit + 1)
    return None
