"""Decide which copy of a block's header is right, by the data that it describes.

Signature and place of a header have known values, the number of entries follows from parsing,
size and checksum are confirmed by the checksum itself. So a block is read as long as for its
size and for its checksum one of all collected copies is right, or the copies differ in so few
bits that all settings can be tried.

In: the bytes of one file, the signature and the disk block size. Out: `BlockContent` of a block or
None. The work spent on searching is bounded by a multiple of the file's size, for any content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, product

from tallystick.errors import LogFormatError
from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran.format.entries import PlacedEntry, parse_entries
from tallystick.systems.cloudtran.format.layout import (
    HEADER_SIZE,
    PROLOGUE_SIZE,
    UNPACKED_MAX,
    Header,
    Prologue,
    block_length,
    parse_header,
    parse_prologue,
    unpack_entries,
)

DOUBTFUL_BITS_MAX = 8
"""Bits of size and checksum in which two copies may differ for all settings to be tried."""
EFFORT_FACTOR = 64
"""Bytes that may be checksummed in search of a block, as a multiple of the file's size."""
_CRC_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class BlockContent:
    """The verified data of a block: its true size and checksum, prologue and entries."""

    size: int
    crc: int
    prologue: Prologue
    entries: list[PlacedEntry]


@dataclass(slots=True)
class HeaderCopies:
    """All header copies of one file, found by the signature."""

    firsts: list[int] = field(default_factory=list)
    """Offsets, ascending, of headers that state to start a block right there."""
    seconds: dict[int, list[int]] = field(default_factory=dict)
    """Offsets of trailing copies by the start of the block that they state to end."""


def find_headers(data: memoryview, signature: bytes, block_size: int) -> HeaderCopies:
    """Return every signature that can be a first or a second header."""
    found = HeaderCopies()
    for place in signature_places(data, signature):
        header = parse_header(data, place)
        if header is None:
            continue
        if header.offset == place:
            if place % block_size == 0:
                found.firsts.append(place)
        elif place in second_places(header.offset, header.size, block_size):
            found.seconds.setdefault(header.offset, []).append(place)
    return found


def signature_places(data: memoryview, signature: bytes, start: int = 0) -> Iterator[int]:
    """Yield the offsets of the signature from ``start`` on, ascending."""
    # An expression, because a memoryview has no `find` and a file is not to be copied.
    for hit in re.compile(re.escape(signature)).finditer(data, start):
        yield hit.start()


def second_places(offset: int, size: int, block_size: int) -> tuple[int, int]:
    """Return the two offsets where the second header of a block may stand.

    Writers place it at the very end of the block; readers also accept it right after the data.
    """
    return (offset + block_length(size, block_size) - HEADER_SIZE, offset + HEADER_SIZE + size)


@dataclass(slots=True)
class BlockFinder:
    """Finds the content of blocks in one file, repairing their headers where that is needed."""

    data: memoryview
    signature: bytes
    block_size: int
    unpacked_max: int = UNPACKED_MAX
    _headers: HeaderCopies | None = None
    _next: int = 0
    _effort: int = -1

    def __post_init__(self) -> None:
        self._effort = EFFORT_FACTOR * len(self.data) + (1 << 20)

    @property
    def headers(self) -> HeaderCopies:
        """All header copies of the file; the file is searched once, at the first use."""
        if self._headers is None:
            self._headers = find_headers(self.data, self.signature, self.block_size)
        return self._headers

    def has_first_header(self, offset: int) -> bool:
        """Return whether an exact header at ``offset`` states that it stands there."""
        header = parse_header(self.data, offset)
        return header is not None and header.signature == self.signature and header.offset == offset

    def next_confirmed(self, offset: int) -> int | None:
        """Return the next block start after ``offset`` that a second header or the data confirms.

        Call it with ascending offsets only.
        """
        firsts = self.headers.firsts
        while self._next < len(firsts):
            place = firsts[self._next]
            if place > offset and self._is_confirmed(place):
                return place
            self._next += 1
        return None

    def _is_confirmed(self, place: int) -> bool:
        if self.headers.seconds.get(place):
            return True
        header = parse_header(self.data, place)
        return header is not None and self.verify(place, header.size, header.crc) is not None

    def find(self, offset: int) -> BlockContent | None:
        """Return the content of the block that starts at ``offset``.

        None if no pair of size and checksum from any two collected copies fits the data.
        """
        copies = self._copies(offset)
        # In this order, as a copy is more likely right as a whole than the size of one with the CRC
        # of another. A dict keeps the order and tries no pair twice.
        pairs = dict.fromkeys((copy.size, copy.crc) for copy in copies)
        pairs |= dict.fromkeys((one.size, two.crc) for one, two in product(copies, copies))
        for size, crc in pairs:
            if (content := self.verify(offset, size, crc)) is not None:
                return content
        for one, two in combinations(copies, 2):
            if (content := self._try_bits(offset, one, two)) is not None:
                return content
        return None

    def _copies(self, offset: int) -> list[Header]:
        following = self.next_confirmed(offset)
        end = len(self.data) if following is None else following
        first = parse_header(self.data, offset)
        places = [offset]
        if first is not None:
            places += second_places(offset, first.size, self.block_size)
        places += self.headers.seconds.get(offset, ())
        # Where the next block begins this one ends, with its second header: the only way to it
        # where the sizes in all copies are damaged.
        places.append(end - HEADER_SIZE)
        found = (parse_header(self.data, place) for place in dict.fromkeys(places))
        return [header for header in found if header is not None]

    def verify(self, offset: int, size: int, crc: int) -> BlockContent | None:
        """Return the content if the data fits this size and checksum and parses exactly."""
        if not self._lies_inside(offset, size) or crc > _CRC_MAX or not self._spend(size):
            return None
        data = self._slice(offset, size)
        return self._parse(data, crc) if crc32(data) == crc else None

    def _try_bits(self, offset: int, one: Header, two: Header) -> BlockContent | None:
        sizes, crcs = one.size ^ two.size, one.crc ^ two.crc
        if not 0 < sizes.bit_count() + crcs.bit_count() <= DOUBTFUL_BITS_MAX:
            return None
        checksum = place = 0
        for size in sorted(_settings(one.size, sizes)):
            if not self._lies_inside(offset, size) or not self._spend(size - place):
                continue
            # the data of a smaller size begins that of a larger one: continue its checksum
            checksum = crc32(self._slice(offset, size)[place:], checksum)
            place = size
            # Only the bits in which both copies agree must match: one comparison for all settings
            # of the doubtful bits.
            if (checksum ^ one.crc) & ~crcs == 0:
                content = self._parse(self._slice(offset, size), checksum)
                if content is not None:
                    return content
        return None

    def _lies_inside(self, offset: int, size: int) -> bool:
        return size >= PROLOGUE_SIZE and offset + HEADER_SIZE + size <= len(self.data)

    def _slice(self, offset: int, size: int) -> memoryview:
        start = offset + HEADER_SIZE
        return self.data[start : start + size]

    def take_effort(self, size: int) -> bool:
        """Spend what verifying ``size`` bytes costs; return False if it is gone."""
        if self._effort < size:
            return False
        self._effort -= size
        return True

    def _spend(self, size: int) -> bool:
        self._effort -= size
        return self._effort >= 0

    def _parse(self, data: memoryview, crc: int) -> BlockContent | None:
        try:
            prologue = parse_prologue(data)
            entries = parse_entries(unpack_entries(prologue, data, self.unpacked_max))
        except LogFormatError:
            return None
        return BlockContent(len(data), crc, prologue, entries)


def _settings(value: int, mask: int) -> Iterator[int]:
    """Yield ``value`` with the bits of ``mask`` set in every way."""
    bits = mask
    while True:
        yield (value & ~mask) | bits
        if bits == 0:
            return
        # The next smaller subset of the mask's bits.
        bits = (bits - 1) & mask
