"""Derby's log, bytes <-> structures: control file, file header, envelopes, record bodies.

All numbers are big-endian; all positions and lengths are bytes. Source: docs/formats/derby.md.
Nothing here opens a file. Decoding raises `LogFormatError` with the offset inside the bytes given.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from tallystick.errors import LogFormatError
from tallystick.storage.crc import crc32

SYSTEM_NAME: Final = "derby"

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
