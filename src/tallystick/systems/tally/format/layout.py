"""The files of the native log, and the group header: encode and decode.

In: field values. Out: bytes, and back. Pure functions, no I/O. All integers are little-endian, as
in Arrow; sizes and offsets are in bytes, times in microseconds since 1970-01-01 UTC. The
specification with a hex example is ``docs/formats/tally.md``.

    directory   lock, control.tally, <segment number, 16 digits>.tally, spare-<n>
    control     block | zeros to 4096 | the block again | zeros to 8192
    segment     header | zeros to 4096 | the header again | zeros to 8192 | groups ... | index
    group       header | columns | bodies | zeros to the sector | the header again

Each structure stands twice, in two sectors, and ends with a CRC-32 (zlib's) of all its bytes
before. The CRC of a group's payload is in its header, so nothing is outside a checksum.
Control block and segment header are in `tallystick.systems.tally.format.headers`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from tallystick.errors import UnsupportedFormatError
from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes
from tallystick.storage.segments import Naming

SYSTEM_NAME: Final = "tally"

VERSION: Final = 1
COPY_OFFSET: Final = 4096
"""Where the second copy of a control block and of a segment header stands."""
DATA_OFFSET: Final = 8192
"""Where the first group of a segment stands; also the size of the control file."""
SECTOR_SIZE: Final = 512
"""Default sector size: a group is padded to it, so no write touches another group's sector."""
SECTOR_SIZES: Final = (512, 1024, 2048, 4096)
SEGMENT_SIZE: Final = 16 << 20
"""Default size of a segment file."""
SEGMENT_SIZE_MIN: Final = 16 << 10
LSN_FIRST: Final = 1
"""Number of a log's first record; records are numbered without gaps."""
IDENTITY_SIZE: Final = 16

CONTROL_NAME: Final = "control.tally"
LOCK_NAME: Final = "lock"
SUFFIX: Final = ".tally"
NAMING: Final = Naming("", SUFFIX, 16)
"""Names of segments: their number in 16 digits."""
_ARCHIVED: Final = re.compile(rf"([0-9a-f]{{32}})-([0-9]{{16,}}{re.escape(SUFFIX)})")
SPARE_PREFIX: Final = "spare-"
"""Files made ahead of need, or waiting to be recycled; nothing in them is believed."""

GROUP_MAGIC: Final = b"\x89TLYG\r\n\x1a"

LOG_TAG_SIZE: Final = 8
"""First bytes of the log identity, which each group repeats."""
NONCE_SIZE: Final = 12

_CRC = struct.Struct("<I")
# magic, version, flags, length; segment, offset, first LSN; count, columns, stored, raw; time,
# durable LSN; crc of the payload, chain; nonce, shard, log tag; zeros; crc of the above
_GROUP = struct.Struct("<8sHHI QQQ IIII qQ II 12sI8s 20s")
HEADER_SIZE: Final = _GROUP.size + _CRC.size
"""Bytes of one copy of a group header."""

# Offsets of the fields of a group header that the compiled kernels read.
VERSION_AT: Final = 8
LENGTH_AT: Final = 12
SEGMENT_AT: Final = 16
OFFSET_AT: Final = 24
LSN_AT: Final = 32
COUNT_AT: Final = 40
COLUMNS_AT: Final = 44
STORED_AT: Final = 48
RAW_AT: Final = 52
TIME_AT: Final = 56
PAYLOAD_CRC_AT: Final = 72
CHAIN_AT: Final = 76
TAG_AT: Final = 96
CHECKSUM_AT: Final = HEADER_SIZE - _CRC.size

NUMBER_MAX: Final = (1 << 63) - 1
"""Largest LSN and segment number, as Arrow's columns are signed; a larger one is damage."""
COUNT_MAX: Final = (1 << 31) - 2
LENGTH_MAX: Final = (1 << 31) - 1

# Flags of a group.
INDEX: Final = 1
"""Holds no record but the index of a sealed segment; it ends where the file ends."""
ZLIB: Final = 2
ZSTD: Final = 4
AES_GCM: Final = 8
PACKED: Final = ZLIB | ZSTD | AES_GCM
"""The payload is stored in another form: its records have no places of their own in the file."""
KNOWN_FLAGS: Final = INDEX | PACKED

assert HEADER_SIZE == 128


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """The head of a group.

    Attributes:
        flags: `INDEX`, `ZLIB`, `ZSTD`, `AES_GCM`.
        length: bytes of the whole group, both headers included.
        segment: segment number.
        offset: offset of the group in the segment.
        first_lsn: LSN of the first record.
        count: number of records.
        columns: which columns there are (`tallystick.systems.tally.format.columns`).
        stored: bytes of the payload as it is in the file.
        raw: bytes of the payload before compression and encryption.
        time_us: time, never before that of an earlier group.
        durable_lsn: highest LSN known durable when this was written.
        payload_crc: checksum of everything between the two headers.
        chain: checksum of the previous group's header.
        tag: first bytes of the log identity.
        nonce: nonce of the encryption.
        shard: number of the shard.
        checksum: checksum of this header.
    """

    flags: int
    length: int
    segment: int
    offset: int
    first_lsn: int
    count: int
    columns: int
    stored: int
    raw: int
    time_us: int
    durable_lsn: int
    payload_crc: int
    chain: int
    tag: bytes
    nonce: bytes = bytes(NONCE_SIZE)
    shard: int = 0
    checksum: int = 0

    @property
    def end(self) -> int:
        """Offset of the first byte after the group."""
        return self.offset + self.length

    @property
    def last_lsn(self) -> int:
        """LSN of its last record; one less than ``first_lsn`` if there is none."""
        return self.first_lsn + self.count - 1


def round_up(size: int, sector_size: int) -> int:
    """Return the least multiple of ``sector_size`` that is not less than ``size``."""
    return -(-size // sector_size) * sector_size


def group_length(stored: int, sector_size: int) -> int:
    """Return the bytes that a group with a stored payload of ``stored`` bytes takes in the file."""
    return round_up(stored + 2 * HEADER_SIZE, sector_size)


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return NAMING.name(number)


def segment_number(name: str) -> int | None:
    """Return the number in a segment's file name; None for any other name."""
    return NAMING.number(name)


def archive_name(identity: bytes, name: str) -> str:
    """Return the name of a segment file outside of its log: with the log's identity before it."""
    return f"{identity.hex()}-{name}"


def archived_as(name: str) -> tuple[str, str] | None:
    """Return the identity of the log, in hex, and the segment's own name; None if it has neither.

    ``name`` is without a packing suffix.
    """
    found = _ARCHIVED.fullmatch(name)
    return (found[1], found[2]) if found is not None else None


# -- encode -------------------------------------------------------------------------------


def encode_group_header(header: GroupHeader) -> bytes:
    """Encode one copy of a group's header, `HEADER_SIZE` bytes; ``header.checksum`` is not used."""
    return pack_group_header(
        header.flags, header.length, header.segment, header.offset, header.first_lsn,
        header.count, header.columns, header.stored, header.raw, header.time_us,
        header.durable_lsn, header.payload_crc, header.chain, header.nonce, header.shard,
        header.tag,
    )  # fmt: skip


def pack_group_header(*fields: int | bytes) -> bytes:
    """Encode one copy of a group's header from its fields, flags to tag, in order of the bytes."""
    packed = _GROUP.pack(GROUP_MAGIC, VERSION, *fields, b"")
    return packed + _CRC.pack(crc32(packed))


def header_checksum(encoded: Bytes) -> int:
    """Return the checksum in an encoded group header: the next group's chain value."""
    return int(_CRC.unpack_from(encoded, CHECKSUM_AT)[0])


def authenticated(header: GroupHeader) -> bytes:
    """Return what encryption authenticates of a header: all of it but the checksums."""
    encoded = encode_group_header(header)
    return encoded[:PAYLOAD_CRC_AT] + bytes(_CRC.size) + encoded[CHAIN_AT : -_CRC.size]


# -- decode -------------------------------------------------------------------------------


def decode_group_header(data: Bytes, offset: int) -> GroupHeader | None:
    """Return the copy of a group header at ``offset``; None if it is not whole.

    A whole header is also consistent in itself: its lengths and counts fit each other. The caller
    checks its place.

    Raises:
        UnsupportedFormatError: it is whole and of a later version.
    """
    if offset < 0 or offset + HEADER_SIZE > len(data):
        return None
    fields = _GROUP.unpack_from(data, offset)
    if fields[0] != GROUP_MAGIC:
        return None
    (checksum,) = _CRC.unpack_from(data, offset + _GROUP.size)
    if checksum != crc32(data[offset : offset + _GROUP.size]):
        return None
    require_version(fields[1])
    (_, _, flags, length, segment, place, lsn, count, columns, stored, raw) = fields[:11]
    (time_us, durable, payload_crc, chain, nonce, shard, tag, _) = fields[11:]
    if stored + 2 * HEADER_SIZE > length or count > COUNT_MAX or lsn + count > NUMBER_MAX:
        return None
    return GroupHeader(
        flags, length, segment, place, lsn, count, columns, stored, raw, time_us, durable,
        payload_crc, chain, tag, nonce, shard, checksum,
    )  # fmt: skip


def require_version(version: int) -> None:
    """Check the version of a structure.

    Raises:
        UnsupportedFormatError: it is another one.
    """
    if version != VERSION:
        raise UnsupportedFormatError(
            "a log of a later format",
            expected=f"version {VERSION}",
            found=f"version {version}",
            advice="Read it with a newer Tallystick",
        )
