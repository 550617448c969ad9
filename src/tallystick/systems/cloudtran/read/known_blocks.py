"""Begin to read a log at the end of the blocks that are known, not at its first file.

In: the files of a log and the number of the last known block. Out: `BlockOccurrence`s, without most
of the known ones. What is left out is proved by numbers alone: a writer numbers the blocks of all
files in one sequence, so nothing before a file reaches the number of its first block. A file that
repeats blocks of an abandoned one is the exception: the file before it then does not end with the
number before its first, and is read, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from tallystick.systems.cloudtran.read.block_order import (
    BlockOccurrence,
    BlockOrder,
    Opener,
    ordered_blocks,
)
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.scan import FileScan

TAIL_SIZE = 16 << 10
"""Bytes at the end of a file in which its last header is looked for; zeros may follow it."""


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
    for index in range(len(files) - 1, 0, -1):
        first = _edge(files[index], form, last=False)
        if first is None or first.sequence > known + 1:
            continue
        before = _edge(files[index - 1], form, last=True)
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
    end = -(-used // form.block_size) * form.block_size
    header = parse_header(tail, end - HEADER_SIZE)
    if header is None or header.offset + block_length(header.size, form.block_size) != start + end:
        return None
    return header.offset, header
