"""The block log, byte for byte. All integers are unsigned and little-endian.

A file is a run of blocks; a block is one write and starts at a multiple of the disk block
size B (512 to 65536, a power of two, not stored anywhere):

    header | data | zero bytes up to the boundary | header again
    data = prologue | entries, as they are or as one zlib stream

Source: docs/formats/cloudtran.md. Sizes in bytes, times in microseconds since
1970-01-01 UTC. Nothing here opens a file.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import Final

from tallystick.errors import LogFormatError
from tallystick.storage.crc import crc32

SYSTEM_NAME: Final = "cloudtran"
FORMAT_NAME: Final = "block log, version 1"

Buffer = bytes | bytearray | memoryview

# -- header, 84 bytes, at the start and at the end of a block ----------------------------

SIGNATURE = bytes.fromhex(
    "8954584c0d0a1a0a5045525349535431"  # tag: 0x89 "TXL" CR LF 0x1A LF "PERSIST1"
    "48785914272dd19b81945f872d0f0c35"  # first 48 bytes of SHA-512 of the tag
    "965dd61bd6a4749413bc6044bc274496"
    "4efd7d5583bd4d1a49dc320a4eb39cf9"
)
SIGNATURE_SIZE = 64
# signature; place of the block in the file; entries; bytes of data; CRC-32 of the data
_HEADER = Struct("<64sIIIQ")
HEADER_SIZE = _HEADER.size
OFFSET_AT, COUNT_AT, SIZE_AT, CRC_AT = 64, 68, 72, 76
BOTH_HEADERS = 2 * HEADER_SIZE
DATA_SIZE_MAX = (1 << 32) - 1 - BOTH_HEADERS

# -- prologue, 16 bytes, never compressed ------------------------------------------------

# version; codec; flags; file serial; block sequence
_PROLOGUE = Struct("<BBHIQ")
PROLOGUE_SIZE = _PROLOGUE.size
CODEC_AT, FLAGS_AT, SERIAL_AT, SEQUENCE_AT = 1, 2, 4, 8
VERSION = 1
CODEC_NONE = 0
CODEC_ZLIB = 1
FLAG_CLOSING = 1

BLOCK_SIZES = (512, 4096, 1024, 2048, 8192, 16384, 32768, 65536)
"""Disk block sizes in the order in which a reader tries them."""
UNPACKED_MAX = 256 << 20
"""Largest size in bytes of the unpacked entries of one block, unless configured otherwise."""


@dataclass(frozen=True, slots=True)
class Header:
    """One copy of a block's header, as read: nothing about it is checked."""

    signature: bytes
    offset: int
    count: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Prologue:
    """First 16 bytes of the data; `parse_prologue` gives only valid ones."""

    serial: int
    sequence: int
    codec: int = CODEC_NONE
    closing: bool = False


# -- sizes -------------------------------------------------------------------------------


def block_length(data_size: int, block_size: int) -> int:
    """Return the bytes of a whole block whose data has ``data_size`` bytes."""
    return -(-(BOTH_HEADERS + data_size) // block_size) * block_size


# -- encode ------------------------------------------------------------------------------


def encode_data(prologue: Prologue, packed: bytes) -> bytes:
    """Return the data of a block: the prologue, then entries packed as its codec states."""
    flags = FLAG_CLOSING if prologue.closing else 0
    head = _PROLOGUE.pack(VERSION, prologue.codec, flags, prologue.serial, prologue.sequence)
    return head + packed


def encode_block(
    offset: int, count: int, data: Buffer, block_size: int, signature: bytes = SIGNATURE
) -> bytes:
    """Return one whole write: header, data, padding, header."""
    header = _HEADER.pack(signature, offset, count, len(data), crc32(data))
    padding = bytes(block_length(len(data), block_size) - BOTH_HEADERS - len(data))
    return b"".join((header, data, padding, header))


# -- decode ------------------------------------------------------------------------------


def parse_header(data: Buffer, place: int) -> Header | None:
    """Return the 84 bytes at ``place`` as a header; None where they do not lie in ``data``."""
    if place < 0 or place + HEADER_SIZE > len(data):
        return None
    return Header(*_HEADER.unpack_from(data, place))


def parse_prologue(data: Buffer) -> Prologue:
    """Return the prologue of a block's data.

    Raises:
        LogFormatError: the data starts with no valid prologue.
    """
    if len(data) < PROLOGUE_SIZE:
        raise LogFormatError("the data is shorter than its prologue")
    version, codec, flags, serial, sequence = _PROLOGUE.unpack_from(data)
    if version != VERSION or codec > CODEC_ZLIB or flags & ~FLAG_CLOSING or sequence == 0:
        raise LogFormatError(
            "not a prologue", found=f"version {version}, codec {codec}, flags {flags}"
        )
    closing = bool(flags & FLAG_CLOSING)
    if closing and (codec != CODEC_NONE or len(data) != PROLOGUE_SIZE):
        raise LogFormatError("a closing block holds nothing but its prologue")
    return Prologue(serial, sequence, codec, closing)


def unpack_entries(prologue: Prologue, data: Buffer, unpacked_max: int = UNPACKED_MAX) -> Buffer:
    """Return the bytes of the entries.

    Raises:
        LogFormatError: the zlib stream is damaged, or unpacks to more than ``unpacked_max`` bytes.
    """
    packed = memoryview(data)[PROLOGUE_SIZE:]
    if prologue.codec == CODEC_NONE:
        return packed
    stream = zlib.decompressobj()
    try:
        entries = stream.decompress(packed, unpacked_max)
    except zlib.error as error:
        raise LogFormatError(f"not a zlib stream: {error}") from error
    if not stream.eof or stream.unused_data:
        raise LogFormatError(f"not one zlib stream of at most {unpacked_max} unpacked bytes")
    return entries
