"""The heads of the native log's files: control block and segment header. Pure functions, no I/O.

In: field values. Out: bytes, and back. Both are blocks of 512 bytes that end with a CRC-32 (zlib's)
of all their bytes before, and stand twice, in two sectors: `tallystick.systems.tally.format.layout`
has the plan of the files.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes
from tallystick.systems.tally.format.layout import (
    COPY_OFFSET,
    DATA_OFFSET,
    LENGTH_MAX,
    LOG_TAG_SIZE,
    SECTOR_SIZE,
    SECTOR_SIZES,
    VERSION,
    require_version,
)

CONTROL_MAGIC: Final = b"\x89TLYC\r\n\x1a"
SEGMENT_MAGIC: Final = b"\x89TLYS\r\n\x1a"

_BLOCK_SIZE = 512
_CRC = struct.Struct("<I")
_CRC_END = _BLOCK_SIZE - _CRC.size

# magic, version, flags, sector size, log identity, segment size, generation, first segment kept,
# newest segment, checkpoint LSN, durable LSN, next transaction, next key, created, shard, shards
_CONTROL = struct.Struct("<8sHHI16s QQQQQQQQq II")
# magic, version, flags, sector size, log identity, segment number, first LSN, segment size,
# created, predecessor: number, end, last LSN; chain, shard
_SEGMENT = struct.Struct("<8sHHI16s QQQq QQQ II")


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
        return self.identity[:LOG_TAG_SIZE]


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

    @property
    def tag(self) -> bytes:
        """What each group carries of the identity."""
        return self.identity[:LOG_TAG_SIZE]

    def checksum(self) -> int:
        """The chain value of the segment's first group."""
        return int(_CRC.unpack_from(encode_segment_header(self), _CRC_END)[0])


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
    require_version(fields[1])
    return fields[3:]


def _possible(sector_size: int, segment_size: int) -> bool:
    return sector_size in SECTOR_SIZES and DATA_OFFSET < segment_size <= LENGTH_MAX
