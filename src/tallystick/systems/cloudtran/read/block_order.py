"""The blocks of all files of a log in the order of reading, and which of them continue it.

In: the files by serial, each scanned block by block. Out: `BlockOccurrence`s; a block that is left
over from an earlier life of the log is stale.

Who knows the blocks up to a number need not read all of them again. What is left out is proved by
numbers alone: a writer numbers the blocks of all files in one sequence, so nothing before a file
reaches the number of its first block. A file that repeats blocks of an abandoned one is the
exception: the file before it then does not end with the number before its first, and is read, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tallystick.errors import LogFormatError, LogUnreadableError
from tallystick.storage.source import read_part, source_size
from tallystick.storage.zeros import last_nonzero_end
from tallystick.systems.cloudtran.format.layout import (
    HEADER_SIZE,
    PROLOGUE_SIZE,
    Header,
    Prologue,
    block_length,
    parse_header,
    parse_prologue,
)
from tallystick.systems.cloudtran.read.block_format import BlockFormat
from tallystick.systems.cloudtran.read.files import ANY_SERIAL, BlockFile
from tallystick.systems.cloudtran.read.scan import Block, BlockState, FileScan

TAIL_SIZE = 16 << 10
"""Bytes at the end of a file in which its last header is looked for; zeros may follow it."""


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
        order.follows(block)
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
        """Return whether the block belongs to the log, stale if not; call it for each in order."""
        if block.readable and not self.ended:
            self.accepts(block.prologue.serial, block.prologue.sequence)
        if self.ended:
            block.state = BlockState.STALE
        return not self.ended

    def would_accept(self, serial: int) -> bool:
        """Return whether blocks of this serial belong to the file."""
        return self._serial in (ANY_SERIAL, serial) and not self.ended

    def accepts(self, serial: int, sequence: int) -> bool:
        """Return what `follows` does, for a block of which only these numbers are known."""
        repeated = sequence <= self.last
        # An old number after a newer block of the same file cannot be a repetition: a writer
        # repeats blocks only at the head of the next file (format, Which header is right).
        if not self.would_accept(serial) or (repeated and not self._at_head):
            self.ended = True
        elif not repeated:
            self.last = sequence
            self._at_head = False
        self._serial = serial
        return not self.ended


# -- after known blocks -------------------------------------------------------------------


def occurrences_after(
    files: Sequence[BlockFile], opened: Opener, form: BlockFormat, known: int
) -> Iterator[BlockOccurrence]:
    """Yield the blocks of all files in order, from the last one up to the number ``known`` on.

    More of the known ones are given where nothing proves that they may be left out. Damage in
    what is left out is not met.
    """
    first, before = _first_needed(files, form, known)
    order = BlockOrder(before)
    for index, file in enumerate(files[first:], first):
        order.enter(file.serial)
        with opened(file) as scan:
            offset = _pass_over(scan, order, known) if index == first else 0
            for block in ordered_blocks(scan, order, offset):
                yield BlockOccurrence(index, file, block)


def _first_needed(files: Sequence[BlockFile], form: BlockFormat, known: int) -> tuple[int, int]:
    """Return the index of the file to begin with, and the number of the last block before it."""
    # From the newest file back: who follows a log knows nearly all of it, so the first or second
    # step ends the search. Each step reads two small pieces, not the files.
    for index in range(len(files) - 1, 0, -1):
        first = _edge(files[index], form, last=False)
        if first is None or first.sequence > known + 1:
            continue
        before = _edge(files[index - 1], form, last=True)
        # No gap and no repetition between the two files: only then do the numbers prove that all
        # before this file is older.
        if before is not None and before.sequence == first.sequence - 1:
            return index, before.sequence
    return 0, 0


def _pass_over(scan: FileScan, order: BlockOrder, known: int) -> int:
    """Return where the last known block of a file begins, and note in ``order`` what precedes it.

    Blocks are passed over by their headers while their numbers have no gap. 0 if the one that is
    reached is not whole.
    """
    offset = reached = 0
    before: Prologue | None = None
    while (head := scan.head_at(offset)) is not None:
        one, end = head
        if before is None:
            follows = order.would_accept(one.serial) and one.sequence > order.last
        else:
            follows = (one.serial, one.sequence) == (before.serial, before.sequence + 1)
        if not follows or one.sequence > known:
            break
        before, reached, offset = one, offset, end
    if before is None or scan.whole_block_at(reached) is None:
        return 0
    # The block before the last known one: so the last known block is accepted once more and
    # yielded, as the caller was promised.
    order.last = before.sequence - 1
    return reached


def _edge(file: BlockFile, form: BlockFormat, *, last: bool) -> Prologue | None:
    """Return the prologue of the first or last block of a file, by its headers.

    None where they do not tell: they are damaged, the block is of another file, the file is packed.
    """
    if not file.path.endswith(file.name):
        return None
    try:
        at = _last_header(file.path, form) if last else (0, None)
        if at is None:
            return None
        offset, second = at
        # One byte more than the prologue, as a closing block must hold nothing else: with exactly
        # the prologue's bytes `parse_prologue` could not see that data follows.
        head = read_part(file.path, offset, HEADER_SIZE + PROLOGUE_SIZE + 1)
        first = parse_header(head, 0)
        if first is None or (first.signature, first.offset) != (form.signature, offset):
            return None
        data = head[HEADER_SIZE : HEADER_SIZE + min(first.size, PROLOGUE_SIZE + 1)]
        prologue = parse_prologue(data)
    except (LogFormatError, LogUnreadableError):
        return None
    return prologue if prologue.serial == file.serial and second in (None, first) else None


def _last_header(path: str, form: BlockFormat) -> tuple[int, Header] | None:
    """Return where the last block of a file begins, and the header at its end."""
    size = source_size(path)
    start = max(0, size - TAIL_SIZE) // form.block_size * form.block_size
    tail = memoryview(read_part(path, start, size - start))
    used = last_nonzero_end(tail, 0, len(tail))
    # The second header ends the block, and the last four of its bytes are zero (a CRC-32 in a field
    # of eight): so the block's end is the next boundary, not `used`.
    end = -(-used // form.block_size) * form.block_size
    header = parse_header(tail, end - HEADER_SIZE)
    if header is None or header.offset + block_length(header.size, form.block_size) != start + end:
        return None
    return header.offset, header
