"""Bytes of the native log: control block, segment header, group header. Pure functions, no I/O.

In: field values. Out: bytes, and back. All integers are little-endian, as in Arrow; sizes and
offsets are in bytes, times in microseconds since 1970-01-01 UTC. The specification with a hex
example is ``docs/formats/tally.md``.

    directory   lock, control.tally, <segment number, 16 digits>.tally, spare-<n>
    control     block | zeros to 4096 | the block again | zeros to 8192
    segment     header | zeros to 4096 | the header again | zeros to 8192 | groups ... | index
    group       header | columns | bodies | zeros to the sector | the header again

Each structure stands twice, in two sectors, and ends with a CRC-32 (zlib's) of all its bytes
before. The CRC of a group's inner bytes is in its header, so nothing is outside a checksum.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, Final

from tallystick.errors import UnsupportedFormatError
from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes
from tallystick.storage.segments import Naming

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
SPARE_PREFIX: Final = "spare-"
"""Files made ahead of need, or waiting to be recycled; nothing in them is believed."""

CONTROL_MAGIC: Final = b"\x89TLYC\r\n\x1a"
SEGMENT_MAGIC: Final = b"\x89TLYS\r\n\x1a"
GROUP_MAGIC: Final = b"\x89TLYG\r\n\x1a"

_BLOCK_SIZE = 512
_CRC = struct.Struct("<I")
_CRC_END = _BLOCK_SIZE - _CRC.size

# magic, version, flags, sector size, log identity, segment size, generation, first segment kept,
# newest segment, checkpoint LSN, durable LSN, next transaction, next key, created, shard, shards
_CONTROL = struct.Struct("<8sHHI16s QQQQQQQQq II")
# magic, version, flags, sector size, log identity, segment number, first LSN, segment size,
# created, predecessor: number, end, last LSN; chain, shard
_SEGMENT = struct.Struct("<8sHHI16s QQQq QQQ II")
# magic, version, flags, length; segment, offset, first LSN; count, columns, stored, raw; time,
# durable LSN; crc of the inner bytes, chain; nonce, shard, log tag; zeros; crc of the above
_GROUP = struct.Struct("<8sHHI QQQ IIII qQ II 12sI8s 20s")
HEADER_SIZE: Final = _GROUP.size + _CRC.size
"""Bytes of one copy of a group header."""
COUNT_MAX: Final = (1 << 31) - 2
LENGTH_MAX: Final = (1 << 31) - 1

# Flags of a group.
INDEX: Final = 1
"""Holds no record but the index of a sealed segment; it ends where the file ends."""
ZLIB: Final = 2
ZSTD: Final = 4
AES_GCM: Final = 8
KNOWN_FLAGS: Final = INDEX | ZLIB | ZSTD | AES_GCM

assert HEADER_SIZE == 128


@dataclass(frozen=True, slots=True)
class Control:
    """What a directory says of its log.

    ``identity`` is a random name of 16 bytes. Segments from ``first_segment`` to
    ``last_segment`` must exist; ``durable_lsn`` was durable when this was written;
    ``checkpoint_lsn`` is the record that recovery may start from. ``next_transaction`` and
    ``next_key`` are lower bounds for numbers never used. ``generation`` counts the rewrites.
    """

    identity: bytes
    segment_size: int
    sector_size: int = SECTOR_SIZE
    generation: int = 1
    first_segment: int = 1
    last_segment: int = 1
    checkpoint_lsn: int = 0
    durable_lsn: int = 0
    next_transaction: int = 1
    next_key: int = 1
    created_us: int = 0
    shard: int = 0
    shards: int = 1

    @property
    def tag(self) -> bytes:
        """What each group carries of the identity."""
        return self.identity[:8]


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The head of a segment. ``number`` is the recycling stamp.

    ``previous_end`` is the offset behind the predecessor's last group, ``previous_lsn`` the
    last LSN in it, and ``chain`` the checksum of that group's header. Number 0: no predecessor.
    """

    identity: bytes
    number: int
    first_lsn: int
    size: int
    sector_size: int = SECTOR_SIZE
    created_us: int = 0
    previous: int = 0
    previous_end: int = 0
    previous_lsn: int = 0
    chain: int = 0
    shard: int = 0

    def checksum(self) -> int:
        """The chain value of the segment's first group."""
        return int(_CRC.unpack_from(encode_segment_header(self), _CRC_END)[0])


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """The head of a group.

    ``length`` is the whole group, both headers included; ``stored`` the bytes of columns and
    bodies as they are in the file, ``raw`` the same before compression and encryption.
    ``columns`` says which columns there are (`tallystick.systems.tally.columns`).
    ``chain`` is the checksum of the previous group's header. ``checksum`` is this one's.
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
    inner_crc: int
    chain: int
    tag: bytes
    nonce: bytes = bytes(12)
    shard: int = 0
    checksum: int = 0

    @property
    def end(self) -> int:
        """Offset of the first byte behind the group."""
        return self.offset + self.length

    @property
    def last_lsn(self) -> int:
        """LSN of its last record; one less than ``first_lsn`` if it has none."""
        return self.first_lsn + self.count - 1


def round_up(size: int, sector_size: int) -> int:
    """The least multiple of ``sector_size`` that is not less than ``size``."""
    return -(-size // sector_size) * sector_size


def group_length(stored: int, sector_size: int) -> int:
    """Bytes that a group takes in the file for ``stored`` bytes of columns and bodies."""
    return round_up(stored + 2 * HEADER_SIZE, sector_size)


def segment_name(number: int) -> str:
    """The file name of a segment."""
    return NAMING.name(number)


def segment_number(name: str) -> int | None:
    """The number in a segment's file name, None for any other name."""
    return NAMING.number(name)


# -- encode -------------------------------------------------------------------------------


def encode_control(control: Control) -> bytes:
    """One copy of the control block, 512 bytes."""
    return _sealed_block(
        _CONTROL.pack(
            CONTROL_MAGIC,
            VERSION,
            0,
            control.sector_size,
            control.identity,
            control.segment_size,
            control.generation,
            control.first_segment,
            control.last_segment,
            control.checkpoint_lsn,
            control.durable_lsn,
            control.next_transaction,
            control.next_key,
            control.created_us,
            control.shard,
            control.shards,
        )
    )


def encode_segment_header(header: SegmentHeader) -> bytes:
    """One copy of a segment's header, 512 bytes."""
    return _sealed_block(
        _SEGMENT.pack(
            SEGMENT_MAGIC,
            VERSION,
            0,
            header.sector_size,
            header.identity,
            header.number,
            header.first_lsn,
            header.size,
            header.created_us,
            header.previous,
            header.previous_end,
            header.previous_lsn,
            header.chain,
            header.shard,
        )
    )


def doubled(block: bytes) -> bytes:
    """Both copies of a block with the zeros between and behind, `DATA_OFFSET` bytes."""
    half = block.ljust(COPY_OFFSET, b"\0")
    return half + half


def encode_group_header(header: GroupHeader) -> bytes:
    """One copy of a group's header, `HEADER_SIZE` bytes; ``header.checksum`` is not used."""
    return pack_group_header(
        header.flags, header.length, header.segment, header.offset, header.first_lsn,
        header.count, header.columns, header.stored, header.raw, header.time_us,
        header.durable_lsn, header.inner_crc, header.chain, header.nonce, header.shard, header.tag,
    )  # fmt: skip


def pack_group_header(*fields: int | bytes) -> bytes:
    """The same from the fields in the order of the bytes, flags to tag: for the write path."""
    packed = _GROUP.pack(GROUP_MAGIC, VERSION, *fields, b"")
    return packed + _CRC.pack(crc32(packed))


def header_checksum(encoded: Bytes) -> int:
    """The checksum in an encoded group header: the next group's chain value."""
    return int(_CRC.unpack_from(encoded, HEADER_SIZE - _CRC.size)[0])


def authenticated(header: GroupHeader) -> bytes:
    """What encryption authenticates of a header: all of it but the checksums."""
    return encode_group_header(replace(header, inner_crc=0))[: -_CRC.size]


def _sealed_block(packed: bytes) -> bytes:
    body = packed.ljust(_CRC_END, b"\0")
    return body + _CRC.pack(crc32(body))


# -- decode -------------------------------------------------------------------------------


def decode_control(data: Bytes, offset: int = 0) -> Control | None:
    """The control block at ``offset``; None if it is not whole.

    Raises `UnsupportedFormatError` for a whole block of a later version.
    """
    values = _open_block(data, offset, _CONTROL, CONTROL_MAGIC)
    if values is None:
        return None
    sector, identity, segment_size, *rest = values
    control = Control(identity, segment_size, sector, *rest)
    return control if _possible(sector, segment_size) else None


def decode_segment_header(data: Bytes, offset: int = 0) -> SegmentHeader | None:
    """The segment header at ``offset``; None if it is not whole.

    Raises `UnsupportedFormatError` for a whole header of a later version.
    """
    values = _open_block(data, offset, _SEGMENT, SEGMENT_MAGIC)
    if values is None:
        return None
    sector, identity, number, first_lsn, size, created, *rest = values
    header = SegmentHeader(identity, number, first_lsn, size, sector, created, *rest)
    return header if _possible(sector, size) and number and first_lsn else None


def decode_group_header(data: Bytes, offset: int) -> GroupHeader | None:
    """The copy of a group header at ``offset``; None if it is not whole.

    A whole one is also consistent in itself: its lengths and counts fit each other. Where it
    stands is not looked at. Raises `UnsupportedFormatError` for a later version.
    """
    if offset < 0 or offset + HEADER_SIZE > len(data):
        return None
    fields = _GROUP.unpack_from(data, offset)
    if fields[0] != GROUP_MAGIC:
        return None
    (checksum,) = _CRC.unpack_from(data, offset + _GROUP.size)
    if checksum != crc32(data[offset : offset + _GROUP.size]):
        return None
    _require_version(fields[1])
    (_, _, flags, length, segment, place, lsn, count, columns, stored, raw) = fields[:11]
    (time_us, durable, inner_crc, chain, nonce, shard, tag, _) = fields[11:]
    if stored + 2 * HEADER_SIZE > length or count > COUNT_MAX:
        return None
    return GroupHeader(
        flags, length, segment, place, lsn, count, columns, stored, raw, time_us, durable,
        inner_crc, chain, tag, nonce, shard, checksum,
    )  # fmt: skip


def _open_block(
    data: Bytes, offset: int, form: struct.Struct, magic: bytes
) -> tuple[Any, ...] | None:
    """The fields of a doubled block behind its flags; None if it is not whole."""
    if offset + _BLOCK_SIZE > len(data):
        return None
    block = bytes(data[offset : offset + _BLOCK_SIZE])
    if not block.startswith(magic) or _CRC.unpack_from(block, _CRC_END)[0] != crc32(
        block[:_CRC_END]
    ):
        return None
    fields = form.unpack_from(block)
    _require_version(fields[1])
    return fields[3:]


def _possible(sector_size: int, segment_size: int) -> bool:
    return sector_size in SECTOR_SIZES and DATA_OFFSET < segment_size <= LENGTH_MAX


def _require_version(version: int) -> None:
    if version != VERSION:
        raise UnsupportedFormatError(
            "a log of a later format",
            expected=f"version {VERSION}",
            found=f"version {version}",
            advice="Read it with a newer Tallystick",
        )
