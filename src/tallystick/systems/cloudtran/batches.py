"""Records as Arrow batches, without a Python object per record.

In: a `CloudtranReading`, and one split or all files. Out: batches of the `RECORDS` schema that
agree with ``records()`` row by row, ``attributes`` left null. Blocks with both headers whole go
through compiled kernels, checksums included; whatever stops these goes through the scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tallystick.errors import LogFormatError
from tallystick.records import Clock, Kind, Outcome
from tallystick.schemas import RECORDS, record_batches
from tallystick.storage.crc import crc32
from tallystick.systems.base import Split
from tallystick.systems.cloudtran import kernels
from tallystick.systems.cloudtran.layout import (
    CODEC_ZLIB,
    HEADER_SIZE,
    PROLOGUE_SIZE,
    Prologue,
    unpack_entries,
)
from tallystick.systems.cloudtran.records import TYPES, block_records
from tallystick.systems.cloudtran.scan import FileScan
from tallystick.systems.cloudtran.survey import Part, Succession
from tallystick.systems.cloudtran.verdict import SYSTEM_NAME

if TYPE_CHECKING:
    from tallystick.systems.cloudtran.reader import CloudtranReading

RUN_BYTES = 8 << 20
"""Bytes of file that are walked at once."""
RUN_BLOCKS = 4096
_KINDS = pa.array([Kind.PERSISTING.value, Kind.PERSISTED.value])
_TYPES = pa.array(list(TYPES.values()))
_COLUMNS = tuple(RECORDS.names)


def read_batches(
    reading: CloudtranReading, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Batches of at most ``rows`` rows, of one split or of all files in order."""
    succession = Succession()
    for part in reading.parts:
        if split is not None and part.path != split.file:
            continue
        succession.enter(part.serial)
        begin, end = (0, None) if split is None else (split.begin, split.end)
        with reading.scan(part) as scan:
            walk = _Walk(scan, part, reading.source.path, succession, rows)
            yield from walk.batches(begin, scan.end if end is None else min(end, scan.end))


@dataclass(slots=True)
class _Walk:
    """One file on its way into batches."""

    scan: FileScan
    part: Part
    log: str
    succession: Succession
    rows: int

    def batches(self, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        data: Any = np.frombuffer(self.scan.data, np.uint8)
        signature: Any = np.frombuffer(self.scan.finder.signature, np.uint8)
        out: Any = np.empty((RUN_BLOCKS, kernels.BLOCK_COLUMNS), np.uint64)
        size = self.scan.finder.block_size
        while offset < end and not self.succession.ended:
            found = kernels.walk_blocks(data, offset, end, signature, size, RUN_BYTES, out)
            run = _Run.of(self.scan, data, self._sound(out[:found]))
            for begin in range(0, len(run.entries), self.rows):
                yield self._batch(run, begin, begin + self.rows)
            if run.count:
                offset = run.end
                self._continue(out[: run.count])
            else:
                offset, records = self._judge(offset)
                yield from records

    def _sound(self, blocks: Any) -> Any:
        """The leading blocks of one codec whose checksums hold and that continue the log."""
        data = self.scan.data
        last, serial = self.succession.last, None
        for index, row in enumerate(blocks.tolist()):
            start = row[kernels.OFFSET] + HEADER_SIZE
            if row[kernels.CODEC] != blocks[0][kernels.CODEC]:
                return blocks[:index]
            serial = row[kernels.SERIAL] if serial is None else serial
            ordered = row[kernels.SERIAL] == serial and row[kernels.SEQUENCE] > last
            whole = crc32(data[start : start + row[kernels.SIZE]]) == row[kernels.CRC]
            if not ordered or not whole or not self.succession.would_accept(serial):
                return blocks[:index]
            last = row[kernels.SEQUENCE]
        return blocks

    def _continue(self, blocks: Any) -> None:
        last = blocks[-1]
        self.succession.accepts(int(last[kernels.SERIAL]), int(last[kernels.SEQUENCE]))

    def _judge(self, offset: int) -> tuple[int, Iterator[pa.RecordBatch]]:
        """One block by the scan, which knows every kind of damage."""
        block = next(self.scan.blocks(offset))
        if not self.succession.follows(block):
            return block.end, iter(())
        records = block_records(block, self.part.path)
        return block.end, record_batches(records, self.log, Clock.WALL_US.value, self.rows)

    def _batch(self, run: _Run, begin: int, end: int) -> pa.RecordBatch:
        entries = run.entries[begin:end]
        count = len(entries)
        kinds = pa.array((entries[:, kernels.KIND] - 1).astype(np.int8))
        blocks = entries[:, kernels.BLOCK]
        offsets, lengths = run.places(entries, blocks)
        columns = {
            "system": _constant(SYSTEM_NAME, count),
            "log": _constant(self.log, count),
            "file": _constant(self.part.path, count),
            "offset": pa.array(offsets),
            "length": pa.array(lengths),
            "outcome": _constant(Outcome.VALID.value, count),
            "kind": pa.DictionaryArray.from_arrays(kinds, _KINDS),
            "type": pa.DictionaryArray.from_arrays(kinds, _TYPES),
            "sequence": pa.array(run.blocks[:, kernels.SEQUENCE][blocks]),
            "time": pa.array(entries[:, kernels.TIME]),
            "clock": _constant(Clock.WALL_US.value, count),
            "transaction": pa.array(entries[:, kernels.NUMBER]),
            "resources": _targets(run.data, entries),
            "body": _bodies(run.data, entries),
        }
        arrays = [columns.get(name) for name in _COLUMNS]
        filled = [
            _nulls(field.type, count) if array is None else array
            for array, field in zip(arrays, RECORDS, strict=True)
        ]
        return pa.RecordBatch.from_arrays(filled, names=list(_COLUMNS))


@dataclass(slots=True)
class _Run:
    """Entries of several whole blocks of one codec; places are in ``data``."""

    data: Any
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
        entries = np.empty((rows, kernels.ENTRY_COLUMNS), np.uint64)
        whole = kernels.walk_entries(data, starts, ends, counts, entries)
        kept = int(counts[:whole].sum())
        return cls(data, blocks[:whole], entries[:kept].view(np.int64), packed)

    @property
    def count(self) -> int:
        return len(self.blocks)

    @property
    def end(self) -> int:
        """Offset in the file behind the last block."""
        last = self.blocks[-1]
        return int(last[kernels.OFFSET] + last[kernels.LENGTH])

    def places(self, entries: Any, blocks: Any) -> tuple[Any, Any]:
        """Offsets and lengths in the file; packed entries share those of their stream."""
        if not self.packed:
            return entries[:, kernels.PLACE], entries[:, kernels.ENTRY_LENGTH]
        offsets = self.blocks[:, kernels.OFFSET][blocks] + (HEADER_SIZE + PROLOGUE_SIZE)
        return offsets, self.blocks[:, kernels.SIZE][blocks] - PROLOGUE_SIZE


def _unpacked(scan: FileScan, starts: Any, ends: Any) -> tuple[Any, Any, Any]:
    """The unpacked entries of leading blocks one behind the other, with their places."""
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


@lru_cache(maxsize=64)
def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind)


@lru_cache(maxsize=64)
def _constant(value: str, count: int) -> pa.DictionaryArray:
    indices = pa.array(np.zeros(count, np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


def _bodies(data: Any, entries: Any) -> pa.Array:
    starts, ends = entries[:, kernels.BODY], entries[:, kernels.BODY_END]
    offsets = np.zeros(len(entries) + 1, np.int32)
    np.cumsum((ends - starts).astype(np.int32), out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    kernels.gather(data, starts, ends, offsets, out)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(entries), buffers)


def _targets(data: Any, entries: Any) -> pa.Array:
    counts = entries[:, kernels.TARGETS]
    lists = np.zeros(len(entries) + 1, np.int32)
    np.cumsum(counts.astype(np.int32), out=lists[1:])
    names = int(lists[-1])
    offsets = np.empty(names + 1, np.int32)
    # a name is at most 255 bytes and lies inside its entry
    room = int((entries[:, kernels.BODY_END] - entries[:, kernels.BODY]).sum())
    out = np.empty(min(room, names * 255), np.uint8)
    used = kernels.gather_targets(data, entries[:, kernels.BODY], counts, offsets, out)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out[:used])]
    values = pa.Array.from_buffers(pa.string(), names, buffers)
    return pa.ListArray.from_arrays(pa.array(lists), values, type=RECORDS.field("resources").type)
