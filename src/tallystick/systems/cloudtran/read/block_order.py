"""The blocks of all files of a log in the order of reading, and which of them continue it.

In: the files by serial, each scanned block by block. Out: `BlockOccurrence`s; a block that is left
over from an earlier life of the log is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tallystick.systems.cloudtran.read.files import ANY_SERIAL, BlockFile
from tallystick.systems.cloudtran.read.scan import Block, BlockState, FileScan


@dataclass(frozen=True, slots=True)
class BlockOccurrence:
    """A block in its file; ``index`` counts the files of the log from 0."""

    index: int
    file: BlockFile
    block: Block


Opener = Callable[[BlockFile], AbstractContextManager[FileScan]]


def occurrences(
    files: Iterable[BlockFile], opened: Opener, *, beyond: bool = False
) -> Iterator[BlockOccurrence]:
    """Yield every block of every file in order.

    A readable block of another serial, or not above the last sequence, becomes stale and ends
    its file; with ``beyond`` the blocks after it follow, as stale too.
    """
    order = BlockOrder()
    for index, file in enumerate(files):
        order.enter(file.serial)
        with opened(file) as scan:
            for block in ordered_blocks(scan, order, beyond=beyond):
                yield BlockOccurrence(index, file, block)


def ordered_blocks(
    scan: FileScan, order: BlockOrder, offset: int = 0, *, beyond: bool = False
) -> Iterator[Block]:
    """Yield the blocks of one file from ``offset`` on, as `occurrences` does."""
    for block in scan.blocks(offset):
        if not order.follows(block):
            block.state = BlockState.STALE
        yield block
        if order.ended and not beyond:
            return


@dataclass(slots=True)
class BlockOrder:
    """Decides which blocks continue the log, and which are left over from an earlier life.

    A writer whose sync failed abandons its file and repeats the unacknowledged blocks at the
    head of the next file under their old numbers. So blocks of the right serial that are not
    above the last sequence are repetitions as long as nothing newer stands before them in the
    file; anywhere else they are left over.
    """

    last: int = 0
    """Sequence of the last block that continued the log."""
    ended: bool = False
    """True after a left-over block: nothing more of this file continues the log."""
    _serial: int = ANY_SERIAL
    _at_head: bool = True

    def enter(self, serial: int) -> None:
        """Begin the next file."""
        self._serial = serial
        self._at_head = True
        self.ended = False

    def follows(self, block: Block) -> bool:
        """Return whether the block belongs to the log; call it for each block in order."""
        if block.readable and not self.ended:
            self.accepts(block.prologue.serial, block.prologue.sequence)
        return not self.ended

    def would_accept(self, serial: int) -> bool:
        """Return whether blocks of this serial belong to the file."""
        return self._serial in (ANY_SERIAL, serial) and not self.ended

    def accepts(self, serial: int, sequence: int) -> bool:
        """Return what `follows` does, for a block of which only these numbers are known."""
        repeated = sequence <= self.last
        if not self.would_accept(serial) or (repeated and not self._at_head):
            self.ended = True
        elif not repeated:
            self.last = sequence
            self._at_head = False
        self._serial = serial
        return not self.ended
