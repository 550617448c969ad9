"""Records of a journal as Arrow batches, decoded by kernels.

In: the files of a journal and a part of one, or none for all. Out: batches of the `RECORDS`
schema, bodies as views into the file's bytes where these are less than 2 GiB. Files that hold
nothing but healthy and stale records and fill never make a Python object per record; from the
first damaged record on, which `judge` has to delimit, a file is read by objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.records import Kind, Outcome
from tallystick.schemas import RECORDS, record_batches
from tallystick.systems.base import Split
from tallystick.systems.jboss.analysis import last_with_records, read_file
from tallystick.systems.jboss.columns import features, fill_columns, fill_xids, names
from tallystick.systems.jboss.convert import KINDS, SYSTEM_NAME
from tallystick.systems.jboss.damaged import records_of
from tallystick.systems.jboss.files import JournalFile, JournalFiles
from tallystick.systems.jboss.judge import damaged_id
from tallystick.systems.jboss.layout import STAMP_SIZE, Name, Shape
from tallystick.systems.jboss.walk import DAMAGED, ROW, STALE, VALID, numbers, pieces

VIEWED_MAX = (1 << 31) - 1
"""Views point into a buffer with 31 bits; larger files are read by objects."""


def batches(
    journal: JournalFiles, log: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Batches of at most ``rows`` rows of one split or of all files."""
    for file in journal.ordered():
        if split is None:
            yield from _file_batches(journal, file, log, 0, file.size, rows)
        elif split.file == file.path:
            yield from _file_batches(journal, file, log, split.begin, split.end, rows)


def _file_batches(
    journal: JournalFiles, file: JournalFile, log: str, begin: int, end: int, rows: int
) -> Iterator[pa.RecordBatch]:
    shape, data = journal.shape(file), file.data()
    place = shape.header_size
    if len(data) > VIEWED_MAX:
        yield from _by_objects(journal, file, log, (begin, end), rows)
        return
    table = _Tables(shape, data, file.path, log)
    for piece in pieces(data, shape, file.stamp, stop=end, rows=rows):
        found = np.frombuffer(piece, np.int64).reshape(-1, ROW)
        plain = found[:, 2] == VALID
        valid = found if plain.all() else found[plain]
        if _is_odd(found, valid, table.bytes[:end], place, file.stamp):
            yield from _by_objects(journal, file, log, (max(begin, place), end), rows)
            return
        wanted = valid[np.searchsorted(valid[:, 0], begin) :]
        if len(wanted):
            yield table.batch(np.ascontiguousarray(wanted))
        place = int(valid[-1, 0] + valid[-1, 1]) if len(valid) else place


def _is_odd(found: Any, valid: Any, data: Any, place: int, stamp: int) -> bool:
    """True if the rows hold, or hide, something that is not simply healthy or stale."""
    stale = () if len(valid) == len(found) else np.unique(found[found[:, 2] == STALE, 3])
    if (found[:, 2] == DAMAGED).any() or any(damaged_id(int(one), stamp) for one in stale):
        return True
    ends = np.concatenate(([place], valid[:, 0] + valid[:, 1]))
    starts = np.concatenate((valid[:, 0], [len(data)]))
    gaps = ends[(starts > ends) & (ends + STAMP_SIZE <= len(data))]
    kinds = data[gaps]
    known = (kinds >= Name.EVENT) & (kinds <= Name.ROLLBACK)
    same = ~known
    for index, byte in enumerate((stamp & 0xFFFFFFFF).to_bytes(4, "big")):
        same &= data[gaps + 1 + index] == byte
    return bool(same.any())


def _by_objects(
    journal: JournalFiles, file: JournalFile, log: str, part: tuple[int, int], rows: int
) -> Iterator[pa.RecordBatch]:
    begin, end = part
    last = file is last_with_records(journal)
    wanted = (
        record
        for record in records_of(read_file(journal, file, last=last))
        if begin <= record.offset < end
    )
    yield from record_batches(wanted, log, "none", rows)


class _Tables:
    """What the batches of one file share."""

    def __init__(self, shape: Shape, data: memoryview, path: str, log: str) -> None:
        self.bytes = np.frombuffer(data, np.uint8)
        self._buffer = pa.py_buffer(data)
        self._shape = numbers(shape)
        self._features = np.array(features(shape), np.int64)
        self._path, self._log = path, log
        named = [Name(one) if one else None for one in names(shape)]
        self._types = np.array([_NAMES.index(one.name) if one else 0 for one in named], np.int8)
        self._kinds = np.array([_KINDS.index(KINDS[one]) if one else 0 for one in named], np.int8)

    def batch(self, rows: Any) -> pa.RecordBatch:
        """The records of some rows, all of them healthy."""
        count = len(rows)
        flat = rows.reshape(-1)
        kinds = np.empty(count, np.int64)
        numbers_ = np.zeros((2, count), np.int64)
        present = np.zeros((3, count), np.bool_)
        bodies = np.zeros(4 * count, np.int32)
        shape, table = self._shape, self._features
        xids = fill_columns(self.bytes, flat, shape, table, kinds, numbers_, present, bodies)
        columns = self._xids(flat, kinds) if xids else {}
        kind = np.where(kinds >= 64, _KINDS.index(Kind.HEURISTIC), self._kinds[kinds & 63])
        columns |= {
            "system": _constant(SYSTEM_NAME, count),
            "log": _constant(self._log, count),
            "file": _constant(self._path, count),
            "offset": pa.array(rows[:, 0]),
            "length": pa.array(rows[:, 1]),
            "outcome": _constant(Outcome.VALID.value, count),
            "kind": _coded(kind, [one.value for one in _KINDS]),
            "type": _coded(self._types[kinds & 63], _NAMES),
            "clock": _constant("none", count),
            "transaction": _filled(pa.int64(), numbers_[0], present[0]),
            "resources": _no_texts(count),
            "record_id": _filled(pa.int64(), numbers_[1], present[1]),
            "body": self._viewed(bodies, present[2]),
        }
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type)
            for field in RECORDS
        ]
        return pa.RecordBatch.from_arrays(arrays, names=RECORDS.names)

    def _xids(self, rows: Any, kinds: Any) -> dict[str, pa.Array]:
        count = len(kinds)
        format_ids = np.zeros(count, np.int32)
        gtrids, bquals = np.zeros(4 * count, np.int32), np.zeros(4 * count, np.int32)
        present = np.zeros(count, np.bool_)
        shape, table, out = self._shape, self._features, (format_ids, gtrids, bquals)
        fill_xids(self.bytes, rows, shape, table, kinds, present, out)
        return {
            "format_id": _filled(pa.int32(), format_ids, present),
            "gtrid": self._viewed(gtrids, present),
            "bqual": self._viewed(bquals, present),
        }

    def _viewed(self, views: Any, present: Any) -> pa.Array:
        buffers = [_bitmap(present), pa.py_buffer(views), self._buffer]
        return pa.Array.from_buffers(pa.binary_view(), len(present), buffers)


def _filled(kind: pa.DataType, values: Any, present: Any) -> pa.Array:
    buffers = [_bitmap(present), pa.py_buffer(values)]
    return pa.Array.from_buffers(kind, len(present), buffers)


def _bitmap(present: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(present, bitorder="little"))


_NAMES = [name.name for name in Name]
_KINDS = list(Kind)


def _constant(text: str, count: int) -> pa.Array:
    return _coded(np.zeros(count, np.int8), [text])


def _coded(codes: Any, texts: list[str]) -> pa.Array:
    indices = pa.array(codes.astype(np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _no_texts(count: int) -> pa.Array:
    offsets = pa.array(np.zeros(count + 1, np.int32))
    field = RECORDS.field("resources").type
    return pa.ListArray.from_arrays(offsets, pa.array([], pa.string()), type=field)
