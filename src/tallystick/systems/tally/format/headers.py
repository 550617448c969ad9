"""Encode and decode the heads of the native log's files: control block and segment header.

In: field values. Out: bytes, and back; pure functions, no I/O. Both are blocks of 512 bytes that
end with a CRC-32 (zlib's) of all their bytes before, and stand twice, in two sectors. The files are
drawn in `tallystick.systems.tally.format.layout`.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import Any, Final

from tallystick.roles import Role
from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes
from tallystick.systems.tally.format.layout import (
    COPY_OFFSET,
    DATA_OFFSET,
    LENGTH_MAX,
    LOG_TAG_SIZE,
    NUMBER_MAX,
    SECTOR_SIZE,
    SECTOR_SIZES,
    VERSION,
    require_version,
)

CONTROL_MAGIC: Final = b"\x89TLYC\r\n\x1a"
SEGMENT_MAGIC: Final = b"\x89TLYS\r\n\x1a"
UNFINISHED_BACKUP: Final = (CONTROL_MAGIC + b" a backup that was not finished\n").ljust(
    DATA_OFFSET, b"\0"
)
"""What the control file of a backup holds until everything else of it is durable."""
ROLES: Final = {
    1: Role.JOURNAL,
    2: Role.DECISION_LOG,
    3: Role.UNDO_REDO_LOG,
    4: Role.PERSIST_LOG,
}
"""The roles by their numbers in the control block; a record journal is a journal."""
OWNER_MAX: Final = 64
"""Bytes of the name of an owner, at most."""

_BLOCK_SIZE = 512
_CRC = struct.Struct("<I")
_CRC_END = _BLOCK_SIZE - _CRC.size

# magic, version, flags, sector size, log identity, segment size, generation, first segment kept,
# newest segment, checkpoint LSN, durable LSN, next transaction, next key, created, shard, shards,
# role, length of the owner, owner
_CONTROL = struct.Struct("<8sHHI16s QQQQQQQQq II HH64s")
# magic, version, flags, sector size, log identity, segment number, first LSN, segment size,
# created, predecessor: number, end, last LSN; chain, shard
_SEGMENT = struct.Struct("<8sHHI16s QQQq QQQ II")


@dataclass(frozen=True, slots=True)
class Control:
    """The control block of a log.

    Attributes:
        identity: random name of the log, 16 bytes.
        segment_size: bytes of a segment.
        sector_size: bytes of a sector.
        generation: number of rewrites.
        first_segment: the first segment that must exist.
        last_segment: the last segment that must exist.
        checkpoint_lsn: plain, undo and redo records below it are given up.
        durable_lsn: every record up to it was durable when this was written.
        next_transaction: no smaller number of a transaction is free.
        next_key: no smaller number of an entry is free.
        created_us: time of creation, in microseconds since 1970-01-01 UTC.
        shard: number of this shard.
        shards: number of shards.
        role: what the log is used for, a key of `ROLES`; 0: any, in logs of earlier releases.
        owner: whose log it is, UTF-8 of at most `OWNER_MAX` bytes; empty: anyone's.
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
    role: int = 0
    owner: bytes = b""

    @property
    def tag(self) -> bytes:
        """The first bytes of the identity, which each group repeats."""
        return self.identity[:LOG_TAG_SIZE]


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The head of a segment.

    Attributes:
        identity: random name of the log, 16 bytes.
        number: segment number: the recycling stamp.
        first_lsn: LSN of the first record.
        size: bytes of the segment.
        sector_size: bytes of a sector.
        created_us: time of creation, in microseconds since 1970-01-01 UTC.
        previous: number of the predecessor; 0 for none.
        previous_end: offset of the first byte after the predecessor's last group.
        previous_lsn: LSN of the predecessor's last record.
        chain: checksum of the header of the predecessor's last group.
        shard: number of this shard.
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
        """The first bytes of the identity, which each group repeats."""
        return self.identity[:LOG_TAG_SIZE]

    def checksum(self) -> int:
        """Return the chain value of the segment's first group."""
        return int(_CRC.unpack_from(encode_segment_header(self), _CRC_END)[0])


# -- encode -------------------------------------------------------------------------------


def encode_control(control: Control) -> bytes:
    """Encode one copy of the control block, 512 bytes."""
    # Most fields stand in the block in the order of the class; so in `decode_control`.
    identity, segment_size, sector, *rest, owner = astuple(control)
    head = CONTROL_MAGIC, VERSION, 0, sector, identity, segment_size
    return _sealed_block(_CONTROL.pack(*head, *rest, len(owner), owner))


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Encode one copy of a segment's header, 512 bytes."""
    identity, number, first_lsn, size, sector, *rest = astuple(header)
    head = SEGMENT_MAGIC, VERSION, 0, sector, identity, number, first_lsn, size
    return _sealed_block(_SEGMENT.pack(*head, *rest))


def doubled(block: bytes) -> bytes:
    """Return both copies of a block, each filled up with zeros: `DATA_OFFSET` bytes."""
    half = block.ljust(COPY_OFFSET, b"\0")
    return half + half


def _sealed_block(packed: bytes) -> bytes:
    body = packed.ljust(_CRC_END, b"\0")
    return body + _CRC.pack(crc32(body))


# -- decode -------------------------------------------------------------------------------


def decode_control(data: Bytes, offset: int = 0) -> Control | None:
    """Return the control block at ``offset``; None if it is not whole.

    Raises:
        UnsupportedFormatError: it is whole and of a later version.
    """
    values = _open_block(data, offset, _CONTROL, CONTROL_MAGIC)
    if values is None:
        return None
    sector, identity, segment_size, *rest = values
    owner_size, owner = rest[-2:]
    rest[-2:] = [owner[:owner_size]]
    control = Control(identity, segment_size, sector, *rest)
    # A caller may have used the largest number of a transaction or entry: their next ones may be
    # greater. What a checkpoint gives up was durable before.
    durable = control.checkpoint_lsn <= control.durable_lsn + 1
    return control if durable and _possible(sector, segment_size, *rest[:5]) else None


def decode_segment_header(data: Bytes, offset: int = 0) -> SegmentHeader | None:
    """Return the segment header at ``offset``; None if it is not whole.

    Raises:
        UnsupportedFormatError: it is whole and of a later version.
    """
    values = _open_block(data, offset, _SEGMENT, SEGMENT_MAGIC)
    if values is None:
        return None
    sector, identity, number, first_lsn, size, created, *rest = values
    header = SegmentHeader(identity, number, first_lsn, size, sector, created, *rest)
    possible = _possible(sector, size, number, first_lsn, *rest[:3])
    return header if possible and number and first_lsn else None


def _open_block(
    data: Bytes, offset: int, form: struct.Struct, magic: bytes
) -> tuple[Any, ...] | None:
    """Return the fields of a doubled block after its flags; None if it is not whole."""
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


def _possible(sector_size: int, segment_size: int, *numbers: int) -> bool:
    fits = sector_size in SECTOR_SIZES and DATA_OFFSET < segment_size <= LENGTH_MAX
    return fits and max(numbers) <= NUMBER_MAX
