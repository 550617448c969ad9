"""The bytes of a file as `Span` values that tile it.

In: the blocks of a file in order. Out: the spans of the blocks' parts, and that of what follows the
last one. Whole blocks are kept as numbers, because files may have millions of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from tallystick.records import DeferredList, Outcome, Span
from tallystick.systems.cloudtran.format.layout import HEADER_SIZE
from tallystick.systems.cloudtran.read.scan import Block, BlockState

_REASONS = {
    BlockState.PAYLOAD_DAMAGED: "a header is whole, the checksum of the data fails",
    BlockState.BOTH_HEADERS_DAMAGED: "neither header is readable",
    BlockState.TORN: "nothing whole follows: the write never finished",
    BlockState.STALE: "serial or sequence are of an earlier life of the file",
}
_REPAIRED = "damaged; the other copy and the data give its content"
_DAMAGED_FIRSTS = (BlockState.FIRST_HEADER_DAMAGED, BlockState.BOTH_HEADERS_REPAIRED)


_EXTENT = "q"
"""Offset, length, size of the data and place of the second header: signed, of 64 bits."""
_EXTENT_NUMBERS = 4


class FileSpans(DeferredList):
    """The spans of a file, made when they are asked for; to go through them makes one at a time.

    Args:
        size: bytes of the file.
    """

    def __init__(self, size: int) -> None:
        super().__init__(lambda: tuple(iter(self)))
        self._size = size
        self._end = 0
        self._parts: list[tuple[Span, ...] | array[int]] = []

    def add_block(self, block: Block) -> None:
        """Add the next block."""
        self._end = block.end
        if block.state is BlockState.OK and block.content is not None:
            assert block.second_at is not None
            extent = (block.offset, block.length, block.content.size, block.second_at)
            self._extents().extend(extent)
        else:
            self._parts.append(tuple(_block_spans(block, self._size)))

    def add_whole(self, extents: bytes, end: int) -> None:
        """Add blocks with both headers whole by their extents; the last ends at an offset."""
        self._end = end
        self._extents().frombytes(extents)

    def add_sum(self, valid: int, end: int) -> None:
        """Add whole blocks up to an offset, of which only the sum of headers and data is known."""
        begin, self._end = self._end, end
        spans = [Span(begin, valid, Outcome.VALID, "blocks"), *_padding(begin + valid, end)]
        self._parts.append(tuple(spans))

    def _extents(self) -> array[int]:
        last = self._parts[-1] if self._parts else ()
        if not isinstance(last, array):
            last = array(_EXTENT)
            self._parts.append(last)
        return last

    def __iter__(self) -> Iterator[Span]:
        """Yield them in the order of the file."""
        for part in self._parts:
            yield from _whole_spans(part) if isinstance(part, array) else part
        if self._end < self._size:
            reason = "zero to the end of the file"
            yield Span(self._end, self._size - self._end, Outcome.UNUSED, "preallocated", reason)


def _block_spans(block: Block, file_size: int) -> Iterator[Span]:
    """Yield header, data, padding and header of a block; a block that is lost as one span."""
    if block.content is None or not block.readable:
        what = "block" if block.content is not None else "damaged range"
        yield Span(block.offset, block.length, block.outcome, what, _REASONS[block.state])
        return
    data_end = block.offset + HEADER_SIZE + block.content.size
    second = block.second_at
    if second is None:
        second = min(file_size, max(data_end, block.end - HEADER_SIZE))
    second_end = min(file_size, second + HEADER_SIZE)
    yield _header_span(block.offset, HEADER_SIZE, block.state in _DAMAGED_FIRSTS)
    yield Span(block.offset + HEADER_SIZE, block.content.size, Outcome.VALID, "data")
    yield from _padding(data_end, second)
    if second_end > second:
        yield _header_span(second, second_end - second, block.second_at is None)
    yield from _padding(second_end, block.end)


def _whole_spans(extents: array[int]) -> Iterator[Span]:
    """Yield what `_block_spans` does, of blocks with both headers whole."""
    for place in range(0, len(extents), _EXTENT_NUMBERS):
        offset, length, size, second = extents[place : place + _EXTENT_NUMBERS]
        yield _header_span(offset, HEADER_SIZE, damaged=False)
        yield Span(offset + HEADER_SIZE, size, Outcome.VALID, "data")
        yield from _padding(offset + HEADER_SIZE + size, second)
        yield _header_span(second, HEADER_SIZE, damaged=False)
        yield from _padding(second + HEADER_SIZE, offset + length)


def _header_span(offset: int, size: int, damaged: bool) -> Span:
    if damaged:
        return Span(offset, size, Outcome.CORRUPT, "header", _REPAIRED)
    return Span(offset, size, Outcome.VALID, "header")


def _padding(start: int, end: int) -> Iterator[Span]:
    if end > start:
        reason = "fill up to the disk block boundary"
        yield Span(start, end - start, Outcome.UNUSED, "padding", reason)
