"""The bytes of a file as `Span` values that tile it.

In: a block, or the spans of all blocks of a file. Out: the spans of the block's parts, and the span
of what follows the last block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tallystick.records import Outcome, Span
from tallystick.systems.cloudtran.format.layout import HEADER_SIZE
from tallystick.systems.cloudtran.read.scan import Block, BlockState
from tallystick.systems.cloudtran.read.whole_blocks import WholeBlock

_REASONS = {
    BlockState.PAYLOAD_DAMAGED: "a header is whole, the checksum of the data fails",
    BlockState.BOTH_HEADERS_DAMAGED: "neither header is readable",
    BlockState.TORN: "nothing whole follows: the write never finished",
    BlockState.STALE: "serial or sequence are of an earlier life of the file",
}
_REPAIRED = "damaged; the other copy and the data give its content"
_DAMAGED_FIRSTS = (BlockState.FIRST_HEADER_DAMAGED, BlockState.BOTH_HEADERS_REPAIRED)


def block_spans(block: Block, file_size: int) -> Iterator[Span]:
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


def whole_spans(blocks: Iterable[WholeBlock]) -> Iterator[Span]:
    """Yield what `block_spans` does, of blocks with both headers whole."""
    for offset, length, size, second, _, _ in blocks:
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


def rest_span(spans: Sequence[Span], file_size: int) -> Iterator[Span]:
    """Yield the span of zeros after the last block, if there are any."""
    end = spans[-1].end if spans else 0
    if end < file_size:
        reason = "zero to the end of the file"
        yield Span(end, file_size - end, Outcome.UNUSED, "preallocated", reason)
