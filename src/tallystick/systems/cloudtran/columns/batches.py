"""Records as Arrow batches, without a Python object per record.

In: the files of a log, a function that opens one, and one split or none. Out: batches of the
`RECORDS` schema that agree with ``records()`` row by row, bodies and names as views,
``attributes`` null. Whole blocks come in chunks, however short the log is; the scan takes every
other block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import (
    byte_ranges,
    coded,
    new_views,
    numbers,
    offsets_of,
    record_batch,
    viewed,
    whole_records,
)
from tallystick.arrow.schemas import record_batches
from tallystick.records import Clock, Kind
from tallystick.systems.cloudtran.columns.kernels import put_targets
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_order import BlockOrder, Opener
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.records import TYPES, block_records
from tallystick.systems.cloudtran.read.scan import Block
from tallystick.systems.cloudtran.runs import walk
from tallystick.systems.cloudtran.runs.chunk import Chunk, Chunks
from tallystick.systems.protocol import Split

if TYPE_CHECKING:
    from tallystick.systems.protocol import Fitting

_KINDS = pa.array([Kind.PERSISTING.value, Kind.PERSISTED.value])
_TYPES = pa.array(list(TYPES.values()))


def read_batches(
    files: Iterable[BlockFile], opened: Opener, log: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most ``rows`` rows, of one split or of all files in order."""
    order = BlockOrder()
    for index, file in enumerate(files):
        if split is not None and file.path != split.file:
            continue
        order.enter(file.serial)
        begin, end = (0, None) if split is None else (split.begin, split.end)
        with opened(file) as scan:
            reader = _FileReader(Chunks(scan, order, index, file), log, rows)
            yield from reader.batches(begin, scan.end if end is None else min(end, scan.end))


def fitting_blocks(chunk: Chunk, log: str, fitting: Fitting) -> Iterator[Block]:
    """Yield the blocks of a chunk with a record that fits by its columns."""
    rows = fitting(_batch(chunk, log, 0, chunk.count))
    blocks = np.unique(chunk.entries[walk.BLOCK][rows]).astype(np.int64)
    return map(chunk.scan.block_at, chunk.table[blocks, walk.OFFSET].tolist())


@dataclass(slots=True)
class _FileReader:
    """Makes batches of one file."""

    chunks: Chunks
    log: str
    rows: int

    def batches(self, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        while offset < end and not self.chunks.order.ended:
            chunk = self.chunks.next(offset, end)
            if chunk is None:
                offset, records = self._scan_block(offset)
                yield from records
                continue
            for begin in range(0, chunk.count, self.rows):
                yield _batch(chunk, self.log, begin, begin + self.rows)
            offset = chunk.end

    def _scan_block(self, offset: int) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Read one block by the scan, which knows all damage; return its end and records."""
        block = self.chunks.scan.block_at(offset)
        if not self.chunks.order.follows(block):
            return block.end, iter(())
        records = block_records(block, self.chunks.file.path)
        return block.end, record_batches(records, self.log, Clock.WALL_US.value, self.rows)


def _batch(chunk: Chunk, log: str, begin: int, end: int) -> pa.RecordBatch:
    entries = chunk.entries[:, begin:end].view(np.int64)
    count = entries.shape[1]
    # Kinds are 1 and 2 on disk; here they are places in `_KINDS`.
    kinds = (entries[walk.KIND] - 1).astype(np.int8)
    sequences = chunk.table[:, walk.SEQUENCE].view(np.int64)[entries[walk.BLOCK]]
    offsets, lengths = chunk.places(chunk.entries[:, begin:end])
    bodies = entries[walk.BODY] - chunk.base
    columns = whole_records(SYSTEM_NAME, log, chunk.file.path, Clock.WALL_US, count) | {
        "offset": numbers(offsets.view(np.int64), None),
        "length": numbers(lengths.view(np.int64), None),
        "kind": coded(kinds, _KINDS),
        "type": coded(kinds, _TYPES),
        "sequence": numbers(sequences, None),
        "time": numbers(entries[walk.TIME], None),
        "transaction": numbers(entries[walk.NUMBER], None),
        "resources": target_lists(chunk.window, bodies, entries[walk.TARGETS]),
        "body": byte_ranges(chunk.window, bodies, entries[walk.BODY_LENGTH]),
    }
    return record_batch(columns, count)


def target_lists(data: Any, bodies: Any, counts: Any) -> pa.Array:
    """Return the lists of targets at ``bodies``, as views into ``data``."""
    ends = offsets_of(counts)
    views = new_views(int(ends[-1]))
    put_targets(data, bodies, counts, views)
    names = viewed(views, None, pa.py_buffer(data), kind=pa.string_view())
    return pa.ListArray.from_arrays(pa.array(ends), names)
