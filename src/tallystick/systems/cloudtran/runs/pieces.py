"""A log in pieces: chunks of whole blocks, and every other block by itself.

In: the files by serial, each scanned block by block. Out: pieces in the order of reading. The scan
gives the blocks; where they are whole the compiled walk takes over, if that pays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from tallystick.systems import runs
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence, BlockOrder, Opener
from tallystick.systems.cloudtran.read.files import BlockFile

if TYPE_CHECKING:
    from tallystick.systems.cloudtran.runs.chunk import Chunk

Piece: TypeAlias = "BlockOccurrence | Chunk"


def pieces(files: Iterable[BlockFile], opened: Opener, *, beyond: bool = False) -> Iterator[Piece]:
    """Yield what `block_order.occurrences` does, whole blocks of a long log in chunks."""
    order, size = BlockOrder(), 0
    for index, file in enumerate(files):
        order.enter(file.serial)
        with opened(file) as scan:
            size += scan.end
            # Of all files so far: many small files are worth the compiler like one large one.
            chunks = None
            if runs.pay_here(size):
                from tallystick.systems.cloudtran.runs.chunk import Chunks

                chunks = Chunks(scan, order, index, file)
            offset = 0
            while offset < scan.end and (beyond or not order.ended):
                chunk = None if chunks is None else chunks.next(offset, scan.end)
                if chunk is not None:
                    yield chunk
                    offset = chunk.end
                    continue
                block = scan.block_at(offset)
                order.follows(block)
                yield BlockOccurrence(index, file, block)
                offset = block.end
