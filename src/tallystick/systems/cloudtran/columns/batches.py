"""Records as Arrow batches, without a Python object per record.

In: the files of a log, a function that opens one, and one split or none. Out: batches of the
`RECORDS` schema that agree with ``records()`` row by row, bodies and names as views,
``attributes`` null. Blocks with both headers whole go through compiled kernels, checksums
included; the scan takes every other block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import (
    coded,
    constant,
    new_bitmap,
    new_views,
    numbers,
    put_views,
    record_batch,
    viewed,
)
from tallystick.arrow.schemas import record_batches
from tallystick.errors import LogFormatError
from tallystick.records import Clock, Kind, Outcome
from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran.columns import kernels
from tallystick.systems.cloudtran.format.layout import (
    CODEC_ZLIB,
    HEADER_SIZE,
    PROLOGUE_SIZE,
    SYSTEM_NAME,
    Prologue,
    unpack_entries,
)
from tallystick.systems.cloudtran.read.block_order import BlockOrder, Opener
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.records import TYPES, block_records
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.systems.protocol import Split

RUN_BYTES = 8 << 20
"""Bytes of file that one run of the kernel covers."""
RUN_BLOCKS = 4096
_KINDS = pa.array([Kind.PERSISTING.value, Kind.PERSISTED.value])
_TYPES = pa.array(list(TYPES.values()))


def read_batches(
    files: Iterable[BlockFile], opened: Opener, log: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most ``rows`` rows, of one split or of all files in order."""
    order = BlockOrder()
    for file in files:
        if split is not None and file.path != split.file:
            continue
        order.enter(file.serial)
        begin, end = (0, None) if split is None else (split.begin, split.end)
        with opened(file) as scan:
            walk = _Walk(scan, file, log, order, rows)
            yield from walk.batches(begin, scan.end if end is None else min(end, scan.end))


@dataclass(slots=True)
class _Walk:
    """The walk over one file."""

    scan: FileScan
    file: BlockFile
    log: str
    order: BlockOrder
    rows: int

    def batches(self, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        data: Any = np.frombuffer(self.scan.data, np.uint8)
        signature: Any = np.frombuffer(self.scan.finder.signature, np.uint8)
        out: Any = np.empty((RUN_BLOCKS, kernels.BLOCK_COLUMNS), np.uint64)
        size = self.scan.finder.block_size
        while offset < end and not self.order.ended:
            found = kernels.walk_blocks(data, offset, end, signature, size, RUN_BYTES, out)
            run = _Run.of(self.scan, data, self._valid_prefix(out[:found]))
            for begin in range(0, run.entries.shape[1], self.rows):
                yield self._batch(run, begin, begin + self.rows)
            if run.count:
                offset = run.end
                self._continue(out[: run.count])
            else:
                offset, records = self._scan_block(offset)
                yield from records

    def _valid_prefix(self, blocks: Any) -> Any:
        """Return the leading blocks of one codec whose checksums hold and that continue the log."""
        data = self.scan.data
        last, serial = self.order.last, None
        for index, row in enumerate(blocks.tolist()):
            start = row[kernels.OFFSET] + HEADER_SIZE
            if row[kernels.CODEC] != blocks[0][kernels.CODEC]:
                return blocks[:index]
            serial = row[kernels.SERIAL] if serial is None else serial
            ordered = row[kernels.SERIAL] == serial and row[kernels.SEQUENCE] > last
            whole = crc32(data[start : start + row[kernels.SIZE]]) == row[kernels.CRC]
            if not ordered or not whole or not self.order.would_accept(serial):
                return blocks[:index]
            last = row[kernels.SEQUENCE]
        return blocks

    def _continue(self, blocks: Any) -> None:
        last = blocks[-1]
        self.order.accepts(int(last[kernels.SERIAL]), int(last[kernels.SEQUENCE]))

    def _scan_block(self, offset: int) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Read one block by the scan, which knows all damage; return its end and records."""
        block = next(self.scan.blocks(offset))
        if not self.order.follows(block):
            return block.end, iter(())
        records = block_records(block, self.file.path)
        return block.end, record_batches(records, self.log, Clock.WALL_US.value, self.rows)

    def _batch(self, run: _Run, begin: int, end: int) -> pa.RecordBatch:
        entries = run.entries[:, begin:end]
        count = entries.shape[1]
        kinds = (entries[kernels.KIND] - 1).astype(np.int8)
        blocks = entries[kernels.BLOCK]
        offsets, lengths = run.places(entries, blocks)
        bodies = entries[kernels.BODY] - run.base
        columns = {
            "system": constant(SYSTEM_NAME, count),
            "log": constant(self.log, count),
            "file": constant(self.file.path, count),
            "offset": numbers(offsets, None),
            "length": numbers(lengths, None),
            "outcome": constant(Outcome.VALID.value, count),
            "kind": coded(kinds, _KINDS),
            "type": coded(kinds, _TYPES),
            "sequence": numbers(run.blocks[:, kernels.SEQUENCE][blocks], None),
            "time": numbers(entries[kernels.TIME], None),
            "clock": constant(Clock.WALL_US.value, count),
            "transaction": numbers(entries[kernels.NUMBER], None),
            "resources": _targets(run.window, bodies, entries[kernels.TARGETS]),
            "body": _bodies(run.window, bodies, entries[kernels.BODY_LENGTH]),
        }
        return record_batch(columns, count)


@dataclass(slots=True)
class _Run:
    """Entries of several whole blocks of one codec.

    Their places count from ``base`` bytes before ``window``, which holds all of them.
    """

    base: int
    window: Any
    blocks: Any
    entries: Any
    packed: bool

    @classmethod
    def of(cls, scan: FileScan, data: Any, found: Any) -> _Run:
        blocks = found.view(np.int64)
        packed = len(blocks) > 0 and int(blocks[0][kernels.CODEC]) == CODEC_ZLIB
        starts = blocks[:, kernels.OFFSET] + (HEADER_SIZE + PROLOGUE_SIZE)
        ends = starts + blocks[:, kernels.SIZE] - PROLOGUE_SIZE
        if packed:
            data, starts, ends = _unpacked(scan, starts, ends)
            blocks = blocks[: len(starts)]
        counts = np.ascontiguousarray(blocks[:, kernels.COUNT])
        rows = min(int(counts.sum()), int((ends - starts).sum()) // kernels.ENTRY_MIN)
        entries = np.empty((kernels.ENTRY_COLUMNS, rows), np.uint64)
        whole = kernels.walk_entries(data, starts, ends, counts, entries)
        kept = int(counts[:whole].sum())
        base, end = (int(starts[0]), int(ends[whole - 1])) if whole else (0, 0)
        found = entries[:, :kept].view(np.int64)
        return cls(base, data[base:end], blocks[:whole], found, packed)

    @property
    def count(self) -> int:
        return len(self.blocks)

    @property
    def end(self) -> int:
        """The offset in the file after the last block."""
        last = self.blocks[-1]
        return int(last[kernels.OFFSET] + last[kernels.LENGTH])

    def places(self, entries: Any, blocks: Any) -> tuple[Any, Any]:
        """Return offsets and lengths in the file; packed entries share those of their stream."""
        if not self.packed:
            return entries[kernels.PLACE], entries[kernels.ENTRY_LENGTH]
        offsets = self.blocks[:, kernels.OFFSET][blocks] + (HEADER_SIZE + PROLOGUE_SIZE)
        return offsets, self.blocks[:, kernels.SIZE][blocks] - PROLOGUE_SIZE


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


def _bodies(data: Any, starts: Any, lengths: Any) -> pa.Array:
    views, valid = new_views(len(starts)), new_bitmap(len(starts))
    put_views(data, starts, lengths, views, valid)
    return viewed(views, None, pa.py_buffer(data))


def _targets(data: Any, starts: Any, counts: Any) -> pa.Array:
    lists = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(counts, out=lists[1:])
    views = new_views(int(lists[-1]))
    kernels.put_targets(data, starts, counts, views)
    names = viewed(views, None, pa.py_buffer(data), kind=pa.string_view())
    return pa.ListArray.from_arrays(pa.array(lists), names)
