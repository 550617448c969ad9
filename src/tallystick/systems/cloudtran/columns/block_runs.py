"""Runs of whole blocks, read by compiled kernels: a `WholeBlocks` of `read`, as tables of numbers.

In: the scan of a file, the order of its blocks so far, an offset. Out: the run of blocks with both
headers whole, of one codec, that begins there: checksums verified, entries exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import VIEWED_MAX, new_views, viewed
from tallystick.errors import LogFormatError
from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran.columns import kernels
from tallystick.systems.cloudtran.format.entries import (
    ALL_TARGETS,
    Entry,
    EntryKind,
    PersistingFlag,
    parse_entry,
)
from tallystick.systems.cloudtran.format.layout import (
    CODEC_ZLIB,
    HEADER_SIZE,
    PROLOGUE_SIZE,
    Prologue,
    unpack_entries,
)
from tallystick.systems.cloudtran.read.block_order import BlockOrder
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.systems.cloudtran.read.whole_blocks import Row, Settled, WholeBlock

RUN_BYTES = 8 << 20
"""Bytes of file that one run of the kernel covers."""
RUN_BLOCKS = 4096
_PERSISTING, _PERSISTED = int(EntryKind.PERSISTING), int(EntryKind.PERSISTED)
_CARRIED = int(PersistingFlag.CARRIED_FORWARD)


def read_run(
    scan: FileScan, order: BlockOrder, offset: int, stop: int | None = None
) -> BlockRun | None:
    """Return the run that begins with the block at ``offset`` and note it in ``order``.

    Its blocks start below ``stop``. None where there is no such block.
    """
    data: Any = np.frombuffer(scan.data, np.uint8)
    signature: Any = np.frombuffer(scan.finder.signature, np.uint8)
    out: Any = np.empty((RUN_BLOCKS, kernels.BLOCK_COLUMNS), np.uint64)
    end, size = scan.end if stop is None else stop, scan.finder.block_size
    found = kernels.walk_blocks(data, offset, end, signature, size, RUN_BYTES, out)
    run = BlockRun.of(scan, data, _valid_prefix(scan, order, out[:found]))
    if run is None or not scan.finder.take_effort(int(run.table[:, kernels.SIZE].sum())):
        return None
    last = run.table[-1]
    order.accepts(int(last[kernels.SERIAL]), int(last[kernels.SEQUENCE]))
    return run


def _valid_prefix(scan: FileScan, order: BlockOrder, blocks: Any) -> Any:
    """Return the leading blocks of one codec whose checksums hold and that continue the log."""
    data = scan.data
    last, serial = order.last, None
    for index, row in enumerate(blocks.tolist()):
        start = row[kernels.OFFSET] + HEADER_SIZE
        if row[kernels.CODEC] != blocks[0][kernels.CODEC]:
            return blocks[:index]
        serial = row[kernels.SERIAL] if serial is None else serial
        ordered = row[kernels.SERIAL] == serial and row[kernels.SEQUENCE] > last
        whole = crc32(data[start : start + row[kernels.SIZE]]) == row[kernels.CRC]
        if not ordered or not whole or not order.would_accept(serial):
            return blocks[:index]
        last = row[kernels.SEQUENCE]
    return blocks


@dataclass(slots=True)
class BlockRun:
    """Several whole blocks of one codec.

    Places in the table of entries count from ``base`` bytes before ``window``, which holds all of
    them. Numbers are unsigned.
    """

    base: int
    window: Any
    table: Any
    entries: Any
    packed: bool

    @classmethod
    def of(cls, scan: FileScan, data: Any, table: Any) -> BlockRun | None:
        """Return the run of the leading blocks with exact entries; None if there are none."""
        packed = len(table) > 0 and int(table[0][kernels.CODEC]) == CODEC_ZLIB
        blocks = table.view(np.int64)
        starts = blocks[:, kernels.OFFSET] + (HEADER_SIZE + PROLOGUE_SIZE)
        ends = starts + blocks[:, kernels.SIZE] - PROLOGUE_SIZE
        if packed:
            data, starts, ends = _unpacked(scan, starts, ends)
            blocks = blocks[: len(starts)]
        counts = np.ascontiguousarray(blocks[:, kernels.COUNT])
        rows = min(int(counts.sum()), int((ends - starts).sum()) // kernels.ENTRY_MIN)
        entries = np.empty((kernels.ENTRY_COLUMNS, rows), np.uint64)
        whole = kernels.walk_entries(data, starts, ends, counts, entries)
        if not whole or int(ends[whole - 1]) - int(starts[0]) > VIEWED_MAX:
            return None
        base, end = int(starts[0]), int(ends[whole - 1])
        kept = int(counts[:whole].sum())
        return cls(base, data[base:end], table[:whole], entries[:, :kept], packed)

    @property
    def count(self) -> int:
        """How many entries the blocks have."""
        return int(self.entries.shape[1])

    @property
    def end(self) -> int:
        """The offset in the file after the last block."""
        last = self.table[-1]
        return int(last[kernels.OFFSET]) + int(last[kernels.LENGTH])

    def blocks(self) -> Iterator[WholeBlock]:
        """Yield the blocks."""
        columns = (
            kernels.OFFSET,
            kernels.LENGTH,
            kernels.SIZE,
            kernels.SECOND,
            kernels.SEQUENCE,
            kernels.CLOSING,
        )
        return map(WholeBlock._make, self.table[:, columns].tolist())

    def places(self, entries: Any) -> tuple[Any, Any]:
        """Return offsets and lengths in the file; packed entries share those of their stream."""
        if not self.packed:
            return entries[kernels.PLACE], entries[kernels.ENTRY_LENGTH]
        blocks = self.table[entries[kernels.BLOCK].view(np.int64)]
        start, size = HEADER_SIZE + PROLOGUE_SIZE, blocks[:, kernels.SIZE]
        return blocks[:, kernels.OFFSET] + np.uint64(start), size - np.uint64(PROLOGUE_SIZE)

    # -- entries -----------------------------------------------------------------------------

    def settled(self, met: Callable[[int], bool]) -> tuple[Iterator[Settled], Iterator[Row]]:
        """Return transactions that begin and end in the run, and the entries of all others.

        The former have one entry in its first place, one after it that says that every target
        holds it, and no more; those whose numbers were ``met`` before are not among them.
        """
        firsts, seconds = self.pairs()
        numbers = self.entries[kernels.NUMBER][firsts]
        kept = ~np.fromiter(map(met, numbers.tolist()), bool, len(firsts))
        firsts, seconds = firsts[kept], seconds[kept]
        return self._settled(firsts, seconds), self.rows_but(firsts, seconds)

    def pairs(self) -> tuple[Any, Any]:
        """Return the places of first and last entries of transactions that the run may settle.

        They are those of `settled`, as if no number were met before, by ascending number.
        """
        numbers = self.entries[kernels.NUMBER]
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        same = ordered[1:] == ordered[:-1]
        alone = ~np.concatenate((same, [False, False])) & ~np.concatenate(([False, False], same))
        paired = same & alone[1:-1]
        firsts, seconds = order[:-1][paired], order[1:][paired]
        plain = self.entries[kernels.FLAGS] == ALL_TARGETS
        kept = self.in_first_place()[firsts] & self._closing()[seconds] & plain[seconds]
        return firsts[kept], seconds[kept]

    def rows_but(self, *places: Any) -> Iterator[Row]:
        """Yield all entries but those at some places."""
        others = np.ones(self.count, bool)
        for some in places:
            others[some] = False
        return self._rows(self.entries[:, others])

    def _settled(self, firsts: Any, seconds: Any) -> Iterator[Settled]:
        begun, ended = self.entries[:, firsts], self.entries[:, seconds]
        lengths, (places, rest) = self.places(begun)[1], self.places(ended)
        base = np.uint64(self.base)
        return zip(
            begun[kernels.NUMBER].tolist(),
            begun[kernels.TIME].view(np.int64).tolist(),
            ended[kernels.TIME].view(np.int64).tolist(),
            places.tolist(),
            (lengths + rest).tolist(),
            (begun[kernels.PLACE] - base).tolist(),
            (begun[kernels.BODY] - base).tolist(),
            (begun[kernels.TARGETS_END] - base).tolist(),
            begun[kernels.OPERATIONS].tolist(),
            strict=True,
        )

    def open_rows(self) -> Iterator[Row]:
        """Yield the entries whose numbers are not in `closed`."""
        numbers = self.entries[kernels.NUMBER]
        return self._rows(self.entries[:, ~np.isin(numbers, numbers[self._closing()])])

    def _rows(self, entries: Any) -> Iterator[Row]:
        offsets, lengths = self.places(entries)
        base = np.uint64(self.base)
        return zip(
            entries[kernels.KIND].tolist(),
            entries[kernels.FLAGS].tolist(),
            entries[kernels.NUMBER].tolist(),
            entries[kernels.TIME].view(np.int64).tolist(),
            offsets.tolist(),
            lengths.tolist(),
            (entries[kernels.PLACE] - base).tolist(),
            (entries[kernels.BODY] - base).tolist(),
            (entries[kernels.TARGETS_END] - base).tolist(),
            entries[kernels.OPERATIONS].tolist(),
            strict=True,
        )

    def numbers(self) -> list[range]:
        """Return the numbers of all entries, as ranges."""
        return ranges(self.entries[kernels.NUMBER])

    def logged(self) -> list[range]:
        """Return the numbers of persisting entries in their first place, as ranges."""
        return ranges(self.entries[kernels.NUMBER][self.in_first_place()])

    def closed(self) -> list[range]:
        """Return the numbers of entries that say that every target holds them, as ranges."""
        return ranges(self.entries[kernels.NUMBER][self._closing()])

    def carried(self) -> Iterator[tuple[Entry, int]]:
        """Yield the entries that are carried forward, with their offsets in the file."""
        persisting = self.entries[kernels.KIND] == _PERSISTING
        view = memoryview(self.window)
        for row in self._rows(self.entries[:, persisting & ~self.in_first_place()]):
            yield parse_entry(view, row[6]).entry, row[4]

    def in_first_place(self) -> Any:
        """Return which entries are persisting ones that are not carried forward."""
        kinds, flags = self.entries[kernels.KIND], self.entries[kernels.FLAGS]
        return (kinds == _PERSISTING) & (flags & np.uint64(_CARRIED) == 0)

    def _closing(self) -> Any:
        kinds, flags = self.entries[kernels.KIND], self.entries[kernels.FLAGS]
        return (kinds == _PERSISTED) & (flags & np.uint64(ALL_TARGETS) != 0)

    def data(self) -> bytes:
        """Return the bytes that the places of rows count in."""
        found: bytes = self.window.tobytes()
        return found


def ranges(numbers: Any) -> list[range]:
    """Return the ranges of consecutive numbers, ascending."""
    if not len(numbers):
        return []
    numbers = np.unique(numbers)
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts = numbers[np.concatenate(([0], breaks + 1))].tolist()
    lasts = numbers[np.concatenate((breaks, [len(numbers) - 1]))].tolist()
    return [range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


def target_lists(data: Any, bodies: Any, counts: Any) -> pa.Array:
    """Return the lists of targets at ``bodies``, as views into ``data``."""
    ends = np.zeros(len(bodies) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    views = new_views(int(ends[-1]))
    kernels.put_targets(data, bodies, counts, views)
    names = viewed(views, None, pa.py_buffer(data), kind=pa.string_view())
    return pa.ListArray.from_arrays(pa.array(ends), names)


def _unpacked(scan: FileScan, starts: Any, ends: Any) -> tuple[Any, Any, Any]:
    """Return the unpacked entries of leading blocks, joined, with the bounds of each block."""
    pieces: list[Any] = []
    bounds = [0]
    prologue = Prologue(0, 0, CODEC_ZLIB)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        try:
            data = scan.data[start - PROLOGUE_SIZE : end]
            pieces.append(unpack_entries(prologue, data, scan.finder.unpacked_max))
        except LogFormatError:
            break
        bounds.append(bounds[-1] + len(pieces[-1]))
        if bounds[-1] > RUN_BYTES:
            break
    places = np.array(bounds, np.int64)
    return np.frombuffer(b"".join(pieces), np.uint8), places[:-1], places[1:]
