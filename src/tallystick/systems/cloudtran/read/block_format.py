"""Infer what no file states: the signature of the block headers and the disk block size.

In: the bytes of files, or of their beginnings. Out: the signature, or the block size in bytes that
matches the positions of the headers; None where there are no headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from tallystick.storage.source import ByteSource
from tallystick.systems.cloudtran.format.layout import (
    BLOCK_SIZES,
    HEADER_SIZE,
    PROLOGUE_SIZE,
    SIGNATURE,
    SIGNATURE_SIZE,
    VERSION,
    Header,
    block_length,
    parse_header,
)
from tallystick.systems.cloudtran.read.header_repair import BlockFinder, signature_places

TRIAL_FILES_MAX = 3
"""Files, blocks, headers and bytes that are read to find the disk block size."""
TRIAL_BLOCKS_MAX = 4096
TRIAL_HITS_MAX = 256
TRIAL_BYTES_MAX = 32 << 20
"""Files, blocks, headers and bytes that are looked at to find the disk block size."""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """What a reader must know and the files do not state.

    Attributes:
        signature: the 64 bytes at the start of each header.
        block_size: the disk block size in bytes.
        unpacked_max: bytes that the entries of one block may unpack to.
    """

    signature: bytes
    block_size: int
    unpacked_max: int


# -- signature ---------------------------------------------------------------------------


def find_signature(sources: Iterable[ByteSource]) -> bytes | None:
    """Return the signature of the files, or of their beginnings; None where no file shows one.

    It is ours, or one learned from the first file that has another.
    """
    for source in sources:
        data = source.data
        if data[:SIGNATURE_SIZE] == SIGNATURE:
            return SIGNATURE
        if may_be_foreign(bytes(data[: HEADER_SIZE + PROLOGUE_SIZE])):
            learned = learned_signature(data)
            if learned is not None:
                return learned
    return None


def may_be_foreign(head: bytes) -> bool:
    """Return whether the first bytes can be a header with another signature.

    Cheap: it compares every field of a first header that has a known value.
    """
    header = parse_header(head, 0)
    return (
        header is not None
        and len(head) >= HEADER_SIZE + PROLOGUE_SIZE
        and header.offset == 0
        and header.crc < 1 << 32
        and header.size >= PROLOGUE_SIZE
        and head[HEADER_SIZE] == VERSION
    )


def learned_signature(data: memoryview) -> bytes | None:
    """Return the first 64 bytes if they start a block whose data and second header match."""
    header = parse_header(data, 0)
    if header is None or header.offset != 0:
        return None
    finder = BlockFinder(data, header.signature, BLOCK_SIZES[0])
    if finder.verify(0, header.size, header.crc) is None or not _recurs(data, header):
        return None
    return header.signature


def _recurs(data: memoryview, header: Header) -> bool:
    places = [HEADER_SIZE + header.size]
    places += [block_length(header.size, size) - HEADER_SIZE for size in BLOCK_SIZES]
    return any(parse_header(data, place) == header for place in places)


# -- disk block size ---------------------------------------------------------------------


def find_block_size(datas: Iterable[memoryview], signature: bytes) -> int | None:
    """Return the disk block size that explains the headers of files, or of their beginnings.

    The blocks of the first files are followed until one size is left. Where damage breaks the
    chain, the size is taken that explains most signatures; where several explain them, the first
    to be tried. None where there are no headers.
    """
    sizes: tuple[int, ...] = BLOCK_SIZES
    followed = False
    for data in islice(datas, TRIAL_FILES_MAX):
        left = _sizes_of_chain(data, signature, sizes)
        if len(left) == 1:
            return left[0]
        if left:
            sizes, followed = left, True
            continue
        hits = _first_hits(data[:TRIAL_BYTES_MAX], signature) or _first_hits(data, signature)
        if hits:
            return max(sizes, key=lambda size: _agreeing(hits, size, len(data)))
    return sizes[0] if followed else None


def _sizes_of_chain(data: memoryview, signature: bytes, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes that explain all blocks from the beginning on, until one is left."""
    place = 0
    for _ in range(TRIAL_BLOCKS_MAX):
        header = parse_header(data, place)
        if header is None and place > 0:
            break
        if header is None or header.signature != signature or header.offset != place:
            return ()
        lengths = {size: block_length(header.size, size) for size in sizes}
        seconds = {size: place + length - HEADER_SIZE for size, length in lengths.items()}
        if max(seconds.values()) + HEADER_SIZE > len(data) and place > 0:
            break
        sizes = tuple(size for size in sizes if parse_header(data, seconds[size]) == header)
        if len(sizes) < 2:
            return sizes
        place += lengths[sizes[0]]
    return sizes


def _first_hits(data: memoryview, signature: bytes) -> dict[int, Header]:
    hits = {}
    for place in islice(signature_places(data, signature), TRIAL_HITS_MAX):
        header = parse_header(data, place)
        if header is not None and header.offset <= place:
            hits[place] = header
    return hits


def _agreeing(hits: dict[int, Header], block_size: int, file_size: int) -> int:
    count = 0
    for place, header in hits.items():
        length = block_length(header.size, block_size)
        if header.offset == place:
            following = place + length
            count += place % block_size == 0 and (following in hits or following == file_size)
        else:
            count += place == header.offset + length - HEADER_SIZE
    return count
