"""One file from its first byte to its last: a run of blocks, each with its state.

In: a file's bytes. Out: `Block`s that follow each other without gaps, up to the last byte that is
not zero. What several files prove together (gaps in the sequence, left-overs of an earlier
life) is decided in `runs/analysis.py` and `block_order.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tallystick.errors import LogFormatError
from tallystick.records import Outcome
from tallystick.storage.files import SECTOR
from tallystick.storage.zeros import last_nonzero_end
from tallystick.systems.cloudtran.format.entries import PlacedEntry, Suspect, parse_suspects
from tallystick.systems.cloudtran.format.layout import (
    CODEC_ZLIB,
    HEADER_SIZE,
    PROLOGUE_SIZE,
    Header,
    Prologue,
    block_length,
    parse_header,
    parse_prologue,
)
from tallystick.systems.cloudtran.read.header_repair import BlockContent, BlockFinder, second_places

_EMPTY_SECTOR = bytes(SECTOR)


class BlockState(StrEnum):
    """The states of a block."""

    OK = "ok"
    FIRST_HEADER_DAMAGED = "first-header-damaged"
    SECOND_HEADER_DAMAGED = "second-header-damaged"
    BOTH_HEADERS_REPAIRED = "both-headers-repaired"
    UNFINISHED = "unfinished-tail"
    """A write that never finished, with its data whole: only the end of the block is missing."""
    PAYLOAD_DAMAGED = "payload-damaged"
    """A header is right, the data is not: one block is lost."""
    BOTH_HEADERS_DAMAGED = "both-headers-damaged"
    """Nothing readable up to the next block that can be trusted."""
    TORN = "torn"
    """A write that never finished; the file ends here."""
    STALE = "stale"
    """A whole block of an earlier life of the space; the file ends here."""


READABLE = frozenset(
    (
        BlockState.OK,
        BlockState.FIRST_HEADER_DAMAGED,
        BlockState.SECOND_HEADER_DAMAGED,
        BlockState.BOTH_HEADERS_REPAIRED,
        BlockState.UNFINISHED,
    )
)
# (first copy is right, second copy is right)
_HEADER_STATES = {
    (True, True): BlockState.OK,
    (False, True): BlockState.FIRST_HEADER_DAMAGED,
    (True, False): BlockState.SECOND_HEADER_DAMAGED,
    (False, False): BlockState.BOTH_HEADERS_REPAIRED,
}
LOST = frozenset((BlockState.PAYLOAD_DAMAGED, BlockState.BOTH_HEADERS_DAMAGED))
_OUTCOMES = {
    BlockState.PAYLOAD_DAMAGED: Outcome.CORRUPT,
    BlockState.BOTH_HEADERS_DAMAGED: Outcome.CORRUPT,
    BlockState.TORN: Outcome.TORN,
    BlockState.STALE: Outcome.STALE,
}


@dataclass(slots=True)
class Block:
    """One block, or a range of bytes in its place; offset and length in bytes of the file.

    ``content`` is there in the readable states, ``claimed`` is the header that passed its test
    otherwise. ``second_at`` is the offset of the second header, None where no copy is right.
    ``cut`` is True for a torn block of which a sector was never written, or that the file cuts.
    """

    offset: int
    length: int
    state: BlockState
    content: BlockContent | None = None
    second_at: int | None = None
    claimed: Header | None = None
    suspects: tuple[Suspect, ...] = ()
    cut: bool = False

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + self.length

    @property
    def readable(self) -> bool:
        """True if the block's content is known."""
        return self.state in READABLE

    @property
    def outcome(self) -> Outcome:
        """What the bytes are: valid where the block is readable, headers repaired or not."""
        return _OUTCOMES.get(self.state, Outcome.VALID)

    @property
    def prologue(self) -> Prologue:
        """The prologue of a block with content."""
        assert self.content is not None
        return self.content.prologue

    @property
    def entries(self) -> list[PlacedEntry]:
        """The entries; empty without content."""
        return self.content.entries if self.content is not None else []

    @property
    def entries_at(self) -> int:
        """Offset of the entries, or of their zlib stream."""
        return self.offset + HEADER_SIZE + PROLOGUE_SIZE

    def place_of(self, entry: PlacedEntry) -> tuple[int, int]:
        """Return offset and length in the file; packed entries share the place of their stream."""
        if self.content is not None and self.prologue.codec == CODEC_ZLIB:
            return self.entries_at, self.content.size - PROLOGUE_SIZE
        return self.entries_at + entry.offset, entry.length


@dataclass(slots=True)
class FileScan:
    """The blocks of one file."""

    finder: BlockFinder
    _end: int = -1

    @property
    def data(self) -> memoryview:
        """The bytes of the file."""
        return self.finder.data

    @property
    def end(self) -> int:
        """The offset after the last byte that is not zero; found once."""
        if self._end < 0:
            self._end = last_nonzero_end(self.data, 0, len(self.data))
        return self._end

    def blocks(self, offset: int = 0) -> Iterator[Block]:
        """Yield the blocks from ``offset`` on, where one must start.

        Nothing follows a torn one, and zeros at the end of the file are no block.
        """
        while offset < self.end:
            block = self.block_at(offset)
            yield block
            if block.state is BlockState.TORN:
                return
            offset = block.end

    def block_at(self, offset: int) -> Block:
        """Return the block that starts at ``offset``, below `end`; a torn one ends with the file.

        Call it with ascending offsets only.
        """
        return self.whole_block_at(offset) or self._examine(offset)

    def head_at(self, offset: int) -> tuple[Prologue, int] | None:
        """Return prologue and end of the block at ``offset`` if both its headers are exact.

        The data is not verified.
        """
        first = self._exact_header(offset)
        if first is None:
            return None
        start = offset + HEADER_SIZE
        try:
            # One byte more than a prologue: it shows of a closing block that it holds something
            # else, too.
            prologue = parse_prologue(self.data[start : start + min(first.size, PROLOGUE_SIZE + 1)])
        except LogFormatError:
            return None
        length = block_length(first.size, self.finder.block_size)
        return prologue, min(offset + length, len(self.data))

    def _exact_header(self, offset: int) -> Header | None:
        """Return the header at ``offset`` if it stands there and an equal one ends the block."""
        first = parse_header(self.data, offset)
        if first is None or first.signature != self.finder.signature or first.offset != offset:
            return None
        return None if self._second_at(first) is None else first

    def whole_block_at(self, offset: int) -> Block | None:
        """Return the block if both headers are exact and the data fits them, without a search."""
        first = self._exact_header(offset)
        if first is None:
            return None
        content = self.finder.verify(offset, first.size, first.crc)
        if content is None or len(content.entries) != first.count:
            return None
        return self._readable(offset, content)

    def _readable(self, offset: int, content: BlockContent) -> Block:
        count = len(content.entries)
        truth = Header(self.finder.signature, offset, count, content.size, content.crc)
        second = self._second_at(truth)
        state = _HEADER_STATES[parse_header(self.data, offset) == truth, second is not None]
        length = min(block_length(content.size, self.finder.block_size), len(self.data) - offset)
        if state is BlockState.SECOND_HEADER_DAMAGED and self._is_unfinished(truth):
            state = BlockState.UNFINISHED
        return Block(offset, length, state, content, second)

    def _is_unfinished(self, truth: Header) -> bool:
        """Return whether a crash left the last block so: its file cut, or its last sectors zero."""
        end = truth.offset + block_length(truth.size, self.finder.block_size)
        used = truth.offset + HEADER_SIZE + truth.size
        if end > len(self.data):
            header = bytes(self.data[truth.offset : truth.offset + HEADER_SIZE])
            # Padding and second header. A file that a crash has cut has the first bytes of these;
            # anything else is damage.
            expected = bytes(end - HEADER_SIZE - used) + header
            return expected.startswith(bytes(self.data[used:]))
        return self.end <= end - SECTOR

    def _second_at(self, truth: Header) -> int | None:
        """Return the offset of the equal second header, None if it is at neither place."""
        for place in second_places(truth.offset, truth.size, self.finder.block_size):
            if parse_header(self.data, place) == truth:
                return place
        return None

    def _examine(self, offset: int) -> Block:
        content = self.finder.find(offset)
        if content is not None:
            return self._readable(offset, content)
        following = self.finder.next_confirmed(offset)
        if following is None:
            return self._last_block(offset)
        claimed = self._valid_header(offset)
        if claimed is None:
            return self._lost_region(offset, following)
        length = block_length(claimed.size, self.finder.block_size)
        return self._damaged(offset, min(length, following - offset), claimed)

    def _valid_header(self, offset: int) -> Header | None:
        """Return a header that states its own offset: the second one, else the first."""
        for place in self.finder.headers.seconds.get(offset, ()):
            return parse_header(self.data, place)
        return parse_header(self.data, offset) if self.finder.has_first_header(offset) else None

    def _damaged(self, offset: int, length: int, claimed: Header) -> Block:
        suspects = self._suspects(offset, min(claimed.size, length - HEADER_SIZE))
        state = BlockState.PAYLOAD_DAMAGED
        return Block(offset, length, state, claimed=claimed, suspects=suspects)

    def _lost_region(self, offset: int, end: int) -> Block:
        suspects = self._suspects(offset, end - offset - HEADER_SIZE)
        state = BlockState.BOTH_HEADERS_DAMAGED
        return Block(offset, end - offset, state, suspects=suspects)

    def _last_block(self, offset: int) -> Block:
        """Return the last block of the file: damaged only if its write had provably finished."""
        first = self.finder.has_first_header(offset)
        claimed = self._valid_header(offset)
        if first and claimed is not None and self.finder.headers.seconds.get(offset):
            length = block_length(claimed.size, self.finder.block_size)
            used = offset + HEADER_SIZE + claimed.size
            # Up to the end of the data only: of the padding after it whole sectors are zero in a
            # whole block.
            if offset + length <= len(self.data) and not self._has_empty_sector(offset, used):
                return self._damaged(offset, length, claimed)
        header = parse_header(self.data, offset) if first else None
        rest = len(self.data) - offset
        suspects = self._suspects(offset, rest - HEADER_SIZE)
        cut = self._is_cut(offset, header)
        return Block(offset, rest, BlockState.TORN, claimed=header, suspects=suspects, cut=cut)

    def _is_cut(self, offset: int, header: Header | None) -> bool:
        """Return whether a sector of the last block is zero, or missing from the file.

        Without a header the first sector must be: a block is written from its start on.
        """
        length = block_length(header.size, self.finder.block_size) if header else SECTOR
        end = offset + length
        return end > len(self.data) or self._has_empty_sector(offset, end)

    def _has_empty_sector(self, start: int, end: int) -> bool:
        first = -(-start // SECTOR) * SECTOR
        sectors = range(first, end - SECTOR + 1, SECTOR)
        return any(bytes(self.data[place : place + SECTOR]) == _EMPTY_SECTOR for place in sectors)

    def _suspects(self, offset: int, size: int) -> tuple[Suspect, ...]:
        start = offset + HEADER_SIZE
        data = self.data[start : start + max(0, size)]
        try:
            prologue = parse_prologue(data)
        except LogFormatError:
            return ()
        entries = data[PROLOGUE_SIZE:]
        if prologue.codec == CODEC_ZLIB:
            entries = memoryview(_unpack_prefix(entries, self.finder.unpacked_max))
        return tuple(parse_suspects(entries))


def _unpack_prefix(packed: memoryview, size_max: int) -> bytes:
    """Return the first bytes of a damaged zlib stream, as far as they unpack."""
    stream = zlib.decompressobj()
    pieces: list[bytes] = []
    size = 0
    # In small steps: a step that fails returns nothing of what it had unpacked.
    for place in range(0, len(packed), SECTOR):
        try:
            piece = stream.decompress(packed[place : place + SECTOR], size_max - size)
        except zlib.error:
            break
        pieces.append(piece)
        size += len(piece)
        if size >= size_max:
            break
    return b"".join(pieces)
