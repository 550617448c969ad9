"""The blocks of all files of a log in the order of reading, and which of them continue it.

In: the files by serial, each scanned block by block. Out: `Sighting`s: a block, its file, stale if
it is left over from an earlier life of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tallystick.systems.cloudtran.read.scan import Block, BlockState, FileScan

ANY_SERIAL = -1
"""Serial of a file whose name has none: that of its first block counts."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a log: path, name without folder and packing, serial from the name."""

    path: str
    name: str
    serial: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """A block as it was met: in which file (by its place in the log)."""

    index: int
    part: Part
    block: Block


Opener = Callable[[Part], AbstractContextManager[FileScan]]


def sightings(parts: Iterable[Part], opened: Opener, *, beyond: bool = False) -> Iterator[Sighting]:
    """Every block of every file in order.

    A readable block of another serial, or not above the last sequence, becomes stale and ends
    its file; with ``beyond`` what follows it is looked at as well, as stale too.
    """
    succession = Succession()
    for index, part in enumerate(parts):
        succession.enter(part.serial)
        with opened(part) as scan:
            for block in scan.blocks():
                if not succession.follows(block):
                    block.state = BlockState.STALE
                yield Sighting(index, part, block)
                if succession.ended and not beyond:
                    break


@dataclass(slots=True)
class Succession:
    """Which blocks continue the log, and which are left over from an earlier life.

    A writer whose sync failed gives its file up and repeats the unacknowledged blocks at the
    head of the next file under their old numbers. So blocks of the right serial that are not
    above the last sequence are repetitions as long as nothing newer stands before them in the
    file; anywhere else they are left over.
    """

    last: int = 0
    """Sequence of the last block that continued it."""
    ended: bool = False
    """A left-over was met: nothing more of this file continues the log."""
    _serial: int = ANY_SERIAL
    _at_head: bool = True

    def enter(self, serial: int) -> None:
        """The next file begins."""
        self._serial = serial
        self._at_head = True
        self.ended = False

    def follows(self, block: Block) -> bool:
        """True if the block belongs to the log; to be asked for each block in order."""
        if block.readable and not self.ended:
            self.accepts(block.prologue.serial, block.prologue.sequence)
        return not self.ended

    def would_accept(self, serial: int) -> bool:
        """True if blocks of this serial belong to the file."""
        return self._serial in (ANY_SERIAL, serial) and not self.ended

    def accepts(self, serial: int, sequence: int) -> bool:
        """The same for a block of which only these are known."""
        repeated = sequence <= self.last
        if not self.would_accept(serial) or (repeated and not self._at_head):
            self.ended = True
        elif not repeated:
            self.last = sequence
            self._at_head = False
        self._serial = serial
        return not self.ended
