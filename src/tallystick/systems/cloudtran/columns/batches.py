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
from tallystick.records import Clock, Kind, Outcome
from tallystick.systems.cloudtran.columns import kernels
from tallystick.systems.cloudtran.columns.block_runs import BlockRun, read_run, target_lists
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_order import BlockOrder, Opener
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.records import TYPES, block_records
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.systems.protocol import Split

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
        while offset < end and not self.order.ended:
            run = read_run(self.scan, self.order, offset, end)
            if run is None:
                offset, records = self._scan_block(offset)
                yield from records
                continue
            for begin in range(0, run.count, self.rows):
                yield self._batch(run, begin, begin + self.rows)
            offset = run.end

    def _scan_block(self, offset: int) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Read one block by the scan, which knows all damage; return its end and records."""
        block = self.scan.block_at(offset)
        if not self.order.follows(block):
            return block.end, iter(())
        records = block_records(block, self.file.path)
        return block.end, record_batches(records, self.log, Clock.WALL_US.value, self.rows)

    def _batch(self, run: BlockRun, begin: int, end: int) -> pa.RecordBatch:
        entries = run.entries[:, begin:end].view(np.int64)
        count = entries.shape[1]
        kinds = (entries[kernels.KIND] - 1).astype(np.int8)
        sequences = run.table[:, kernels.SEQUENCE].view(np.int64)[entries[kernels.BLOCK]]
        offsets, lengths = run.places(run.entries[:, begin:end])
        bodies = entries[kernels.BODY] - run.base
        columns = {
            "system": constant(SYSTEM_NAME, count),
            "log": constant(self.log, count),
            "file": constant(self.file.path, count),
            "offset": numbers(offsets.view(np.int64), None),
            "length": numbers(lengths.view(np.int64), None),
            "outcome": constant(Outcome.VALID.value, count),
            "kind": coded(kinds, _KINDS),
            "type": coded(kinds, _TYPES),
            "sequence": numbers(sequences, None),
            "time": numbers(entries[kernels.TIME], None),
            "clock": constant(Clock.WALL_US.value, count),
            "transaction": numbers(entries[kernels.NUMBER], None),
            "resources": target_lists(run.window, bodies, entries[kernels.TARGETS]),
            "body": _bodies(run.window, bodies, entries[kernels.BODY_LENGTH]),
        }
        return record_batch(columns, count)


def _bodies(data: Any, starts: Any, lengths: Any) -> pa.Array:
    views, valid = new_views(len(starts)), new_bitmap(len(starts))
    put_views(data, starts, lengths, views, valid)
    return viewed(views, None, pa.py_buffer(data))
