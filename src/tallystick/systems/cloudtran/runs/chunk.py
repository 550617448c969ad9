"""Whole blocks of a file that follow each other, as tables of numbers made by the compiled walk.

In: the scan of a file, the order of its blocks so far, an offset. Out: the chunk of blocks with
both headers whole, of one codec, that begins there: checksums verified, entries exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.arrow.neighbours import among
from tallystick.errors import LogFormatError
from tallystick.storage.crc import crc32
from tallystick.storage.mapped import let_go
from tallystick.systems.cloudtran.format.entries import (
    ALL_TARGETS,
    Entry,
    EntryKind,
    PersistingFlag,
    parse_entry,
    target_names,
)
from tallystick.systems.cloudtran.format.layout import (
    BOTH_HEADERS,
    CODEC_ZLIB,
    HEADER_SIZE,
    PROLOGUE_SIZE,
    Prologue,
    unpack_entries,
)
from tallystick.systems.cloudtran.read.block_order import BlockOrder
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.systems.cloudtran.runs import walk

CHUNK_BYTES = 4 << 20
"""Bytes of file, or of unpacked entries, from which on a chunk has no further block."""
BLOCKS_MAX = 4096
WINDOW_MAX = (1 << 31) - 1
"""Most bytes of the entries of a chunk: a view of Arrow has 31 bits for its place in them."""
_PERSISTING, _PERSISTED = int(EntryKind.PERSISTING), int(EntryKind.PERSISTED)
_CARRIED = int(PersistingFlag.CARRIED_FORWARD)

Row = tuple[int, int, int, int, int, int, int, int, int, int]
"""An entry of a chunk: kind, flags, number and time; offset and length as `Block.place_of` gives
them; where in `Chunk.data` it begins, where its reference ends, where its targets end; and how many
operations it has."""


@dataclass(slots=True)
class Chunks:
    """The chunks of a file; those that are given are noted in ``order``."""

    scan: FileScan
    order: BlockOrder
    index: int
    file: BlockFile
    _odd_until: int = 0
    """Offset before which `next` gives none: one that was tried there was no chunk."""

    def next(self, offset: int, stop: int) -> Chunk | None:
        """Return the chunk that begins with the block at ``offset``, of blocks below ``stop``.

        Return None if no plain block is there. The offsets must not go back.
        """
        if self.order.ended or offset < self._odd_until:
            return None
        scan = self.scan
        let_go(scan.data, offset)
        data: Any = np.frombuffer(scan.data, np.uint8)
        signature: Any = np.frombuffer(scan.finder.signature, np.uint8)
        out: Any = np.empty((BLOCKS_MAX, walk.BLOCK_COLUMNS), np.uint64)
        size = scan.finder.block_size
        found = walk.walk_blocks(data, offset, stop, signature, size, CHUNK_BYTES, out)
        blocks = self._valid_prefix(out[:found])
        chunk = self._of(data, blocks) if len(blocks) else None
        if chunk is None or not scan.finder.take_effort(int(chunk.table[:, walk.SIZE].sum())):
            # The walk is not tried again on what the scan is to read now.
            for last in blocks[-1:].tolist():
                self._odd_until = last[walk.OFFSET] + last[walk.LENGTH]
            return None
        self.order.accepts(int(chunk.table[-1][walk.SERIAL]), chunk.last_sequence)
        return chunk

    def _valid_prefix(self, blocks: Any) -> Any:
        """Return the leading blocks of one codec whose checksums hold and that continue the log."""
        data, last = self.scan.data, self.order.last
        if not len(blocks) or not self.order.would_accept(serial := int(blocks[0][walk.SERIAL])):
            return blocks[:0]
        codec = int(blocks[0][walk.CODEC])
        columns = (walk.OFFSET, walk.SIZE, walk.CRC, walk.CODEC, walk.SERIAL, walk.SEQUENCE)
        for index, row in enumerate(blocks[:, columns].tolist()):
            offset, size, crc, *kind, sequence = row
            start = offset + HEADER_SIZE
            if (
                kind != [codec, serial]
                or sequence <= last
                # By the machine's CRC, as blocks are large: the kernel has left it to us.
                or crc32(data[start : start + size]) != crc
            ):
                return blocks[:index]
            last = sequence
        return blocks

    def _of(self, data: Any, table: Any) -> Chunk | None:
        """Return the chunk of the leading blocks with exact entries; None if there are none."""
        packed = int(table[0][walk.CODEC]) == CODEC_ZLIB
        blocks = table.view(np.int64)
        starts = blocks[:, walk.OFFSET] + (HEADER_SIZE + PROLOGUE_SIZE)
        ends = starts + blocks[:, walk.SIZE] - PROLOGUE_SIZE
        if packed:
            data, starts, ends = _unpacked(self.scan, starts, ends)
            blocks = blocks[: len(starts)]
        counts = np.ascontiguousarray(blocks[:, walk.COUNT])
        # Headers may count more entries than there is space for.
        rows = min(int(counts.sum()), int((ends - starts).sum()) // walk.ENTRY_MIN)
        entries = np.empty((walk.ENTRY_COLUMNS, rows), np.uint64)
        whole = walk.walk_entries(data, starts, ends, counts, entries)
        if not whole or int(ends[whole - 1]) - int(starts[0]) > WINDOW_MAX:
            return None
        base, end = int(starts[0]), int(ends[whole - 1])
        kept = entries[:, : int(counts[:whole].sum())]
        window = data[base:end]
        return Chunk(self.index, self.file, self.scan, base, window, table[:whole], kept, packed)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole blocks of one codec that follow each other in a file and continue the log.

    Of each, both headers are equal, the checksum holds and the entries are exact. ``index`` counts
    the files of the log from 0; ``scan`` reads single blocks until the next chunk is asked for.
    Places in the table of entries count from ``base`` bytes before ``window``, which holds all of
    them. Numbers are unsigned.
    """

    index: int
    file: BlockFile
    scan: FileScan
    base: int
    window: Any
    table: Any
    entries: Any
    packed: bool

    @property
    def count(self) -> int:
        """How many entries the blocks have."""
        return int(self.entries.shape[1])

    @property
    def end(self) -> int:
        """The offset in the file after the last block."""
        last = self.table[-1]
        return int(last[walk.OFFSET]) + int(last[walk.LENGTH])

    @property
    def data(self) -> memoryview:
        """The bytes that the places of rows count in."""
        return memoryview(self.window)

    # -- blocks ------------------------------------------------------------------------------

    @property
    def last_sequence(self) -> int:
        """The sequence of the last block."""
        return int(self.table[-1][walk.SEQUENCE])

    @property
    def ends_closed(self) -> bool:
        """Whether the last block says that its file was closed."""
        return bool(self.table[-1][walk.CLOSING])

    def unbroken(self) -> Iterator[tuple[int, int, int]]:
        """Yield blocks whose sequences have no gap: offset and sequence of the first, and the last.

        The last is given by its sequence.
        """
        sequences = self.table[:, walk.SEQUENCE]
        breaks = np.flatnonzero(np.diff(sequences) != 1)
        firsts, lasts = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [-1]))
        columns = (self.table[firsts, walk.OFFSET], sequences[firsts], sequences[lasts])
        return zip(*(one.tolist() for one in columns), strict=True)

    @property
    def valid_bytes(self) -> int:
        """How many bytes headers and data have."""
        return len(self.table) * BOTH_HEADERS + int(self.table[:, walk.SIZE].sum())

    def extents(self) -> bytes:
        """Return offset, length, size of the data and place of the second header of each block.

        They are signed integers of 64 bits, in the byte order of the machine.
        """
        columns = (walk.OFFSET, walk.LENGTH, walk.SIZE, walk.SECOND)
        found: bytes = self.table[:, columns].tobytes()
        return found

    def places(self, entries: Any) -> tuple[Any, Any]:
        """Return offsets and lengths in the file; packed entries share those of their stream."""
        if not self.packed:
            return entries[walk.PLACE], entries[walk.ENTRY_LENGTH]
        blocks = self.table[entries[walk.BLOCK].view(np.int64)]
        # Constants become unsigned, too: signed and unsigned numbers of 64 bits together are
        # floats.
        start, size = HEADER_SIZE + PROLOGUE_SIZE, blocks[:, walk.SIZE]
        return blocks[:, walk.OFFSET] + np.uint64(start), size - np.uint64(PROLOGUE_SIZE)

    # -- entries -----------------------------------------------------------------------------

    def settled(self, met: Collection[int]) -> tuple[Any, Any]:
        """Return the places of first and last entries of transactions that begin and end here.

        By ascending number. Such a transaction has exactly two entries: a persisting one in its
        first place, and after it one that says that every target holds the transaction. Its number
        was not ``met`` before.
        """
        numbers = self.entries[walk.NUMBER]
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        # Neighbours with one number; "alone" are pairs that no third entry of that number joins.
        same = ordered[1:] == ordered[:-1]
        alone = ~np.concatenate((same, [False, False])) & ~np.concatenate(([False, False], same))
        paired = same & alone[1:-1]
        firsts, seconds = order[:-1][paired], order[1:][paired]
        plain = self.entries[walk.FLAGS] == ALL_TARGETS  # an operator gave up none of them
        kept = self.in_first_place()[firsts] & self._closing()[seconds] & plain[seconds]
        if met:
            kept &= ~among(numbers[firsts], met)
        return firsts[kept], seconds[kept]

    def rows(self, *but: Any) -> Iterator[Row]:
        """Yield all entries except those at some places."""
        others = np.ones(self.count, bool)
        for places in but:
            others[places] = False
        return self._rows(self.entries[:, others])

    def left_open(self) -> Iterator[tuple[int, int, tuple[str, ...], int]]:
        """Yield kind, number, targets and count of operations of the numbers that stay open."""
        numbers = self.entries[walk.NUMBER]
        left = ~np.isin(numbers, numbers[self._closing()])
        for kind, _, number, *_, body, targets_end, operations in self._rows(self.entries[:, left]):
            yield kind, number, target_names(bytes(self.data[body:targets_end])), operations

    def _rows(self, entries: Any) -> Iterator[Row]:
        base = np.uint64(self.base)
        columns = (
            entries[walk.KIND],
            entries[walk.FLAGS],
            entries[walk.NUMBER],
            entries[walk.TIME].view(np.int64),
            *self.places(entries),
            entries[walk.PLACE] - base,
            entries[walk.BODY] - base,
            entries[walk.TARGETS_END] - base,
            entries[walk.OPERATIONS],
        )
        return zip(*(one.tolist() for one in columns), strict=True)

    def numbers(self) -> list[range]:
        """Return the numbers of all entries, as ranges."""
        return ranges(self.entries[walk.NUMBER])

    def logged(self) -> list[range]:
        """Return the numbers of persisting entries in their first place, as ranges."""
        return ranges(self.entries[walk.NUMBER][self.in_first_place()])

    def closed(self) -> list[range]:
        """Return the numbers of entries that say that every target holds them, as ranges."""
        return ranges(self.entries[walk.NUMBER][self._closing()])

    def carried(self) -> Iterator[tuple[Entry, int]]:
        """Yield the entries that are carried forward, with their offsets in the file."""
        persisting = self.entries[walk.KIND] == _PERSISTING
        for row in self._rows(self.entries[:, persisting & ~self.in_first_place()]):
            yield parse_entry(self.data, row[6]).entry, row[4]

    def in_first_place(self) -> Any:
        """Return which entries are persisting ones that are not carried forward."""
        kinds, flags = self.entries[walk.KIND], self.entries[walk.FLAGS]
        return (kinds == _PERSISTING) & (flags & np.uint64(_CARRIED) == 0)

    def _closing(self) -> Any:
        kinds, flags = self.entries[walk.KIND], self.entries[walk.FLAGS]
        return (kinds == _PERSISTED) & (flags & np.uint64(ALL_TARGETS) != 0)


def ranges(numbers: Any) -> list[range]:
    """Return the ranges of consecutive numbers, ascending."""
    if not len(numbers):
        return []
    if not (numbers[1:] > numbers[:-1]).all():  # they nearly always grow, and sorting takes longer
        numbers = np.unique(numbers)
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts = numbers[np.concatenate(([0], breaks + 1))].tolist()
    lasts = numbers[np.concatenate((breaks, [len(numbers) - 1]))].tolist()
    return [range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


def _unpacked(scan: FileScan, starts: Any, ends: Any) -> tuple[Any, Any, Any]:
    """Return the unpacked entries of leading blocks, joined, with the bounds of each block."""
    parts: list[Any] = []
    bounds = [0]
    prologue = Prologue(0, 0, CODEC_ZLIB)
    # What cannot be unpacked ends the chunk: read by itself, it is judged.
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        try:
            data = scan.data[start - PROLOGUE_SIZE : end]
            parts.append(unpack_entries(prologue, data, scan.finder.unpacked_max))
        except LogFormatError:
            break
        bounds.append(bounds[-1] + len(parts[-1]))
        # Unpacked sizes are not known before, and a hostile block may claim any: look after each.
        if bounds[-1] > CHUNK_BYTES:
            break
    places = np.array(bounds, np.int64)
    return np.frombuffer(b"".join(parts), np.uint8), places[:-1], places[1:]
