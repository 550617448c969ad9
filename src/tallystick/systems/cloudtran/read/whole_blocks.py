"""Runs of whole blocks: what code that decodes many blocks at once gives instead of `Block`s.

In: the scan of a file, the order of its blocks so far, an offset. Out: `WholeBlocks`, or None where
the scan has to read the block at the offset. Who reads a run gets what it would get from the blocks
one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

from tallystick.systems.cloudtran.format.entries import TARGET_COUNT_SIZE, Entry
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence, BlockOrder, Opener
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.scan import BlockState, FileScan


class WholeBlock(NamedTuple):
    """A block of a run; places and sizes as `Block` and its content have them."""

    offset: int
    length: int
    size: int
    second_at: int
    sequence: int
    closing: int


Row = tuple[int, int, int, int, int, int, int, int, int, int]
"""An entry of a run: kind, flags, number and time; offset and length as `Block.place_of` gives
them; where in `WholeBlocks.data` it begins, where its reference ends, where its targets end; and
how many operations it has."""


Settled = tuple[int, int, int, int, int, int, int, int, int]
"""A transaction that begins and ends in a run: number, time of its first and of its last entry,
offset of the last, length of both; then of the first entry as `Row` has it: where it begins, where
its reference ends, where its targets end, and how many operations it has."""


class WholeBlocks(Protocol):
    """Blocks of one file that follow each other and continue the log.

    Of each, both headers are equal, the checksum holds and the entries are exact.
    """

    @property
    def count(self) -> int:
        """How many entries they have."""
        ...

    @property
    def end(self) -> int:
        """The offset after the last block."""
        ...

    def blocks(self) -> Iterator[WholeBlock]:
        """Yield the blocks."""
        ...

    def settled(self, met: Callable[[int], bool]) -> tuple[Iterator[Settled], Iterator[Row]]:
        """Return transactions that begin and end in the run, and the entries of all others.

        The former have one entry in its first place, one after it that says that every target
        holds it, and no more; those whose numbers were ``met`` before are not among them.
        """
        ...

    def logged(self) -> Iterable[range]:
        """Return the numbers of persisting entries in their first place, as ranges."""
        ...

    def closed(self) -> Iterable[range]:
        """Return the numbers of entries that say that every target holds them, as ranges."""
        ...

    def open_rows(self) -> Iterator[Row]:
        """Yield the entries whose numbers are not in `closed`."""
        ...

    def carried(self) -> Iterator[tuple[Entry, int]]:
        """Yield the entries that are carried forward, with their offsets in the file."""
        ...

    def data(self) -> bytes:
        """Return the bytes that the places of rows count in."""
        ...


class RunReader(Protocol):
    """Reads runs of whole blocks."""

    def __call__(self, scan: FileScan, order: BlockOrder, offset: int) -> WholeBlocks | None:
        """Return the run that begins with the block at ``offset`` and note it in ``order``."""
        ...


@lru_cache(maxsize=1024)
def target_names(listed: bytes) -> tuple[str, ...]:
    """Return the names of an exact list of targets; cached, as a program has few of them."""
    found = []
    place = TARGET_COUNT_SIZE
    while place < len(listed):
        end = place + 1 + listed[place]
        found.append(listed[place + 1 : end].decode())
        place = end
    return tuple(found)


@dataclass(frozen=True, slots=True)
class RunOccurrence:
    """A run of whole blocks in its file; ``index`` counts the files of the log from 0."""

    index: int
    file: BlockFile
    run: WholeBlocks


def occurrences_and_runs(
    files: Iterable[BlockFile], opened: Opener, read_run: RunReader, *, beyond: bool = False
) -> Iterator[BlockOccurrence | RunOccurrence]:
    """Yield what `block_order.occurrences` does, with runs in place of blocks where they are."""
    order = BlockOrder()
    for index, file in enumerate(files):
        order.enter(file.serial)
        with opened(file) as scan:
            offset = 0
            while offset < scan.end and (beyond or not order.ended):
                run = None if order.ended else read_run(scan, order, offset)
                if run is not None:
                    yield RunOccurrence(index, file, run)
                    offset = run.end
                    continue
                block = scan.block_at(offset)
                if not order.follows(block):
                    block.state = BlockState.STALE
                yield BlockOccurrence(index, file, block)
                offset = block.end
