"""The bytes of a Bitronix journal file: constants, file header, statuses, gtrids; no I/O.

All numbers are big-endian and signed. A file is a header of 21 bytes, records end to end from
offset 21 up to the *position* in the header, and after that bytes without meaning. Source:
``docs/formats/bitronix.md``; the 2.1 and the 3.0 line write the same bytes. The parts of a record
are defined here, its encoding and decoding are in `record.py`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Self

SYSTEM_NAME: Final = "bitronix"
FORMAT_NAME: Final = "Btnx (2.1 and 3.0)"

DEFAULT_NAMES: Final = ("btm1.tlog", "btm2.tlog")
"""The names of both files, where the settings of the manager give none."""
FORMAT_ID = 0x42746E78
"""``Btnx``: the first four bytes of a file, and the format id of every XA id."""
END_RECORD = 0x786E7442
"""``xntB``: the last four bytes of a record."""
END_MARKER = struct.pack(">i", END_RECORD)

# -- file header -----------------------------------------------------------------------------

HEADER = struct.Struct(">iqbq")
"""Format id, timestamp (ms, clock of the writer), state, position (offset in bytes)."""
FORMAT_ID_HEADER = 0
TIMESTAMP_HEADER = 4
STATE_HEADER = 12
CURRENT_POSITION_HEADER = 13
HEADER_LENGTH = 21
CLEAN_LOG_STATE = 0
UNCLEAN_LOG_STATE = -1
MEGABYTE = 1 << 20
WALL_CLOCK_MIN = 1_000_000_000_000
"""Times above this are ms since 1970 (2001 and later); a machine up that long is 31 years."""

# -- record ----------------------------------------------------------------------------------

RECORD_HEAD = struct.Struct(">iiiqiIb")
"""Status, record length L, header length, time (ms), sequence number, CRC, gtrid length."""
CRC_HEAD = struct.Struct(">iiiqi")
"""The fields of the head that the CRC covers: all but the CRC itself and the gtrid length."""
LENGTH_OFFSET = 4
HEADER_LENGTH_OFFSET = 8
TIME_OFFSET = 12
SEQUENCE_OFFSET = 20
CRC_OFFSET = CRC_HEAD.size
GTRID_SIZE_OFFSET = 28
GTRID_OFFSET = RECORD_HEAD.size
COUNT = struct.Struct(">i")
NAME_LENGTH = struct.Struct(">h")
RECORD_HEADER_LENGTH = 28
LENGTH_OUTSIDE = 8
"""Bytes of a record that L does not count: status and L itself."""
LENGTH_FIXED = 29
"""L of a record without gtrid and names."""
RECORD_MIN = LENGTH_OUTSIDE + LENGTH_FIXED
LARGEST_FOR_PAGE = 8184
"""Largest L that the 3.0 line reads."""
STATUS_MIN, STATUS_MAX = -(1 << 31), (1 << 31) - 1
GTRID_MAX = 127
NAME_MAX = 32767
NAMES_MAX = (1 << 31) - 1
GTRID_TAIL = struct.Struct(">qi")
"""Time (ms) and sequence number after the server id of a gtrid."""

# -- status: the numbers of javax.transaction.Status -----------------------------------------

ACTIVE, MARKED_ROLLBACK, PREPARED, COMMITTED, ROLLEDBACK = range(5)
UNKNOWN, NO_TRANSACTION, PREPARING, COMMITTING, ROLLING_BACK = range(5, 10)
STATUS_NAMES = (
    "ACTIVE",
    "MARKED_ROLLBACK",
    "PREPARED",
    "COMMITTED",
    "ROLLEDBACK",
    "UNKNOWN",
    "NO_TRANSACTION",
    "PREPARING",
    "COMMITTING",
    "ROLLING_BACK",
)
CLOSING = frozenset({COMMITTED, ROLLEDBACK, UNKNOWN})
"""The statuses that remove names from an open COMMITTING record."""


def status_name(status: int) -> str:
    """Return the name of a status; any other number as the original prints it."""
    if 0 <= status < len(STATUS_NAMES):
        return STATUS_NAMES[status]
    return f"!incorrect status ({status})!"


def state_name(state: int) -> str:
    """Return the name of a header state; any other number as the original prints it."""
    known = {CLEAN_LOG_STATE: "CLEAN_LOG_STATE", UNCLEAN_LOG_STATE: "UNCLEAN_LOG_STATE"}
    return known.get(state, f"!invalid state ({state})!")


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first 21 bytes of a file.

    Attributes:
        timestamp: in ms of the writer's clock; the file with the greater one is in use.
        state: `CLEAN_LOG_STATE` or `UNCLEAN_LOG_STATE`.
        position: offset of the next record.
        format_id: `FORMAT_ID` in a valid file.
    """

    timestamp: int
    state: int = CLEAN_LOG_STATE
    position: int = HEADER_LENGTH
    format_id: int = FORMAT_ID

    def encode(self) -> bytes:
        """Return the 21 bytes of the header."""
        return HEADER.pack(self.format_id, self.timestamp, self.state, self.position)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self | None:
        """Return the header at the start of ``data``; None if there are fewer than 21 bytes."""
        if len(data) < HEADER_LENGTH:
            return None
        format_id, timestamp, state, position = HEADER.unpack_from(data)
        return cls(timestamp, state, position, format_id)


@dataclass(frozen=True, slots=True)
class GtridParts:
    """The parts of a gtrid; each is None where the bytes are too few.

    Attributes:
        server_id: Latin-1 text.
        time: in ms.
        sequence: a counter of the process that made the gtrid.
    """

    server_id: str | None
    time: int | None
    sequence: int | None


def split_gtrid(gtrid: bytes) -> GtridParts:
    """Return server id, time and sequence number of a gtrid, read from its end."""
    size = len(gtrid)
    sequence = int.from_bytes(gtrid[-4:], "big", signed=True) if size >= 4 else None
    time = GTRID_TAIL.unpack_from(gtrid, size - 12)[0] if size >= 12 else None
    server_id = gtrid[:-12].decode("latin-1") if size > 12 else None
    return GtridParts(server_id, time, sequence)


def make_gtrid(server_id: str, time: int, sequence: int) -> bytes:
    """Return a gtrid (or bqual) as the coordinator builds it: at most 51 bytes of server id."""
    return server_id.encode("ascii", "replace")[:51] + GTRID_TAIL.pack(time, sequence)


def sequence_number(count: int) -> int:
    """Return the signed 32-bit number that the ``count``-th record of a process has."""
    return (count + (1 << 31)) % (1 << 32) - (1 << 31)


def signed32(number: int) -> int:
    """Return the low 32 bits of ``number`` as Java's int."""
    return ((number & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
