"""Headers of blocks that are damaged, as their twins and the data prove them.

In: the files of a block log. Out: a patch for each copy of a header that does not fit the data.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.systems.cloudtran.format.layout import HEADER_SIZE, encode_block, parse_header
from tallystick.systems.cloudtran.read.files import block_files
from tallystick.systems.cloudtran.read.header_repair import second_places
from tallystick.systems.cloudtran.read.scan import Block, BlockState, FileScan
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.protocol import LogSource, Patch, ReadOptions

_MENDED = (
    BlockState.FIRST_HEADER_DAMAGED,
    BlockState.SECOND_HEADER_DAMAGED,
    BlockState.BOTH_HEADERS_REPAIRED,
)


def patches(source: LogSource, options: ReadOptions) -> Iterator[Patch]:
    """Yield the headers that are damaged; none where several disk block sizes are possible.

    Raises:
        UnsupportedFormatError: a setting has an invalid value.
    """
    reading = CloudtranReading(source, options)
    if reading.block_format.open_sizes:
        return
    for file in block_files(source):
        with reading.scan(file) as scan:
            for block in scan.blocks():
                if block.state in _MENDED:
                    yield from _headers(file.path, scan, block)


def _headers(path: str, scan: FileScan, block: Block) -> Iterator[Patch]:
    finder, content = scan.finder, block.content
    assert content is not None  # its state is one of readable blocks
    start = block.offset + HEADER_SIZE
    data = scan.data[start : start + content.size]
    whole = encode_block(
        block.offset, len(content.entries), data, finder.block_size, finder.signature
    )[:HEADER_SIZE]
    truth = parse_header(whole, 0)
    last = second_places(block.offset, content.size, finder.block_size)[0]
    for place in [block.offset, *([last] if block.second_at is None else [])]:
        if parse_header(scan.data, place) != truth and place + HEADER_SIZE <= len(scan.data):
            yield Patch(path, place, whole, "size and CRC-32 of the block's data prove its header")
