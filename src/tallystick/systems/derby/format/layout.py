"""Constants and structures of Derby's log: control file, file header, record envelope.

In: bytes or values. Out: values or bytes. All numbers are big-endian; all positions and lengths
are bytes. Decoding raises `LogFormatError` with the offset in the bytes given. Source:
docs/formats/derby.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from tallystick.errors import LogFormatError
from tallystick.storage.crc import crc32
from tallystick.storage.mapped import let_go

SYSTEM_NAME: Final = "derby"
SEGMENT: Final = "seg0"
"""The folder of the containers' files in that of a database."""

# -- format ids: two bytes in front of every object ----------------------------------------------

FORMAT_ID_SIZE = 2
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
CONTROL_READ = 29
"""Bytes of it that the engine reads, up to the flags."""
FLAG_BETA = 1
FLAG_DURABILITY_TEST = 2

# -- log file ------------------------------------------------------------------------------------

HEADER = struct.Struct(">iiqq")
"""format id, obsolete version, file number, instant of the end of the previous file."""
HEADER_SIZE = HEADER.size
HEADER_CHECKED_SIZE = 16
LENGTH = struct.Struct(">i")
INSTANT = struct.Struct(">q")
PREFIX = struct.Struct(">iq")
"""body length, instant."""
LOG_RECORD_FIXED_OVERHEAD_SIZE = PREFIX.size + LENGTH.size
END_MARKER = 0
"""The length that ends a log file."""
INSTANT_MAX = TRANSACTION_MAX = (1 << 63) - 1
POSITION_MAX = 0x0FFFFFFF
POSITION_MASK = 0x7FFFFFFF
"""The bits of an instant that hold the position."""
FILE_NUMBER_MAX = 0x7FFFFFFF
"""The largest file number of which instants are positive."""

# -- checksum record -----------------------------------------------------------------------------

CHECKSUM_OPERATION = 453
CHECKSUM_CRC32 = 1
CHECKSUM = struct.Struct(">biq")
"""algorithm, length of the data after the record, CRC-32 of it."""
CHECKSUM_HEAD = bytes.fromhex("0081 4900 0000 01c5")
CHECKSUM_BODY_SIZE = len(CHECKSUM_HEAD) + CHECKSUM.size
CHECKSUM_RECORD_SIZE = CHECKSUM_BODY_SIZE + LOG_RECORD_FIXED_OVERHEAD_SIZE


class Group(IntFlag):
    """The group bits of a log record: the compressed int after its format id."""

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
    """Return the log sequence number of a place: its file in the upper 32 bits, then position."""
    return file << 32 | position


def split_instant(instant: int) -> tuple[int, int]:
    """Return file number and position of an instant."""
    return instant >> 32, instant & POSITION_MASK


def instant_text(instant: int) -> str:
    """Return the instant as the engine prints it, ``(file,position)``."""
    return "({},{})".format(*split_instant(instant))


# -- encode --------------------------------------------------------------------------------------


def encode_record(instant: int, body: bytes) -> bytes:
    """Return a whole record: length, instant, body, length again."""
    return PREFIX.pack(len(body), instant) + body + LENGTH.pack(len(body))


def encode_checksum_body(data_length: int, crc: int) -> bytes:
    """Return the body of a checksum record over the ``data_length`` bytes that follow it."""
    return CHECKSUM_HEAD + CHECKSUM.pack(CHECKSUM_CRC32, data_length, crc)


def encode_header(number: int, previous: int) -> bytes:
    """Return the header of log file ``number``.

    ``previous`` is the instant of the end of the file before, 0 for none.
    """
    return HEADER.pack(LOG_FILE, OBSOLETE_VERSION, number, previous)


@dataclass(frozen=True, slots=True)
class Control:
    """The content of a control file; ``checkpoint`` is an instant, 0 for none."""

    checkpoint: int
    major: int = 10
    minor: int = 14
    build: int = -1
    flags: int = 0

    @property
    def version(self) -> str:
        """Major and minor version of the store."""
        return f"{self.major}.{self.minor}"


def encode_control(control: Control) -> bytes:
    """Return the 48 bytes of a control file."""
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
    """Decode a control file of at least 48 bytes; raises `LogFormatError`."""
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
    """The header of a log file, unchecked."""

    format_id: int
    obsolete: int
    number: int
    previous: int


def decode_header(data: bytes | memoryview) -> Header:
    """Decode the first 24 bytes of a log file; raises `LogFormatError` if there are fewer."""
    if len(data) < HEADER_SIZE:
        raise LogFormatError(
            "log file header cut short", expected=f"{HEADER_SIZE} bytes", found=str(len(data))
        )
    return Header(*HEADER.unpack_from(data))


@dataclass(frozen=True, slots=True)
class Envelope:
    """The place of a record in its file and the numbers around its body.

    ``position`` is the offset of the leading length.
    """

    position: int
    length: int
    instant: int
    trailing: int

    @property
    def body(self) -> int:
        """Offset of the body."""
        return self.position + PREFIX.size

    @property
    def end(self) -> int:
        """Offset after the trailing length."""
        return self.position + self.length + LOG_RECORD_FIXED_OVERHEAD_SIZE


def read_envelope(data: memoryview, position: int) -> Envelope | None:
    """Return the envelope at ``position``; None unless its length is positive and fits the file."""
    if position + LOG_RECORD_FIXED_OVERHEAD_SIZE > len(data):
        return None
    length, instant = PREFIX.unpack_from(data, position)
    if length <= 0 or position + length + LOG_RECORD_FIXED_OVERHEAD_SIZE > len(data):
        return None
    trailing = LENGTH.unpack_from(data, position + PREFIX.size + length)[0]
    return Envelope(position, length, instant, trailing)


_WINDOW = 1 << 20


def is_record_at(data: memoryview, number: int, place: int) -> bool:
    """Return whether a whole record is here: its own instant, and equal lengths around the body."""
    if int.from_bytes(data[place + LENGTH.size : place + PREFIX.size]) != make_instant(
        number, place
    ):
        return False
    envelope = read_envelope(data, place)
    return envelope is not None and envelope.trailing == envelope.length


def find_record(data: memoryview, number: int, position: int) -> int | None:
    """Return the first offset from ``position`` on of a whole record of file ``number``."""
    if is_record_at(data, number, position):
        return position
    # The upper half of each record's instant is the number of its file: four bytes to search for in
    # C, and only where they are found is Python asked.
    high = number.to_bytes(4)
    for start in range(position, len(data), _WINDOW):
        # A copy, as a memoryview has no `find`; a window at a time, as a file may be large. Windows
        # overlap, so that none cuts a number in two.
        window = bytes(data[start : start + _WINDOW + LOG_RECORD_FIXED_OVERHEAD_SIZE])
        hit = window.find(high)
        while hit >= 0:
            place = start + hit - LENGTH.size
            if place >= position and is_record_at(data, number, place):
                return place
            hit = window.find(high, hit + 1)
        let_go(data, start)
    return None
