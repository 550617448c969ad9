"""Records of a journal as Arrow batches, decoded by kernels.

In: the files of a journal and a part of one, or none for all. Out: batches of the `RECORDS`
schema; bodies are views into the file's bytes where these are less than 2 GiB. Files of valid
records, stale records and fill are read without a Python object per record; from the first
damaged record on, whose end only `classify` finds, a file is read record by record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import (
    VIEWED_MAX,
    coded,
    new_bitmap,
    new_views,
    no_texts,
    numbers,
    record_batch,
    viewed,
    whole_records,
)
from tallystick.arrow.schemas import BATCH_ROWS, record_batches
from tallystick.records import Clock, Kind, Record
from tallystick.systems.jboss.columns.kernels import (
    HEURISTIC,
    fill_columns,
    fill_xids,
    record_types,
)
from tallystick.systems.jboss.format.layout import SYSTEM_NAME, RecordType, Shape, decode
from tallystick.systems.jboss.read.classify import nothing_follows, read_file
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.records import KINDS, records_of, to_record
from tallystick.systems.jboss.read.scan import OFFSET, ROW, SIZE, STATUS, VALID, pieces
from tallystick.systems.jboss.read.scan import numbers as shape_numbers
from tallystick.systems.jboss.runs.pieces import has_damage
from tallystick.systems.jboss.runs.walk import features
from tallystick.systems.protocol import Split

if TYPE_CHECKING:
    from tallystick.systems.protocol import Fitting


def batches(
    journal: JournalFiles, log: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most ``rows`` rows of one split or of all files."""
    for file in journal.ordered():
        if split is not None and split.file != file.path:
            continue
        table = _FileBatches(journal.shape(file), file.data(), file.path, log)
        # A part may be longer than the file is now.
        part = (0, file.size) if split is None else (split.begin, min(split.end, file.size))
        for found in _found(journal, file, part, rows):
            if isinstance(found, Iterator):
                yield from record_batches(found, log, Clock.NONE.value, rows)
            else:
                yield table.batch(found)


def chosen_records(journal: JournalFiles, log: str, fitting: Fitting) -> Iterator[Record]:
    """Yield the records of all files that fit by their columns, and all that follow damage."""
    for file in journal.ordered():
        shape, data = journal.shape(file), file.data()
        table = _FileBatches(shape, data, file.path, log)
        for found in _found(journal, file, (0, file.size), BATCH_ROWS):
            if isinstance(found, Iterator):
                yield from found
                continue
            for offset, size in found[fitting(table.batch(found))][:, [OFFSET, SIZE]].tolist():
                yield to_record(decode(shape, data, offset, size), file.path)


def _found(
    journal: JournalFiles, file: JournalFile, part: tuple[int, int], rows: int
) -> Iterator[Any]:
    """Yield the rows of valid records in a part of a file; at last those after damage, one by one.

    The last is then an iterator of `Record`s.
    """
    (begin, end), shape, data = part, journal.shape(file), file.data()
    place = shape.header_size
    if len(data) > VIEWED_MAX:
        yield _by_records(journal, file, part)
        return
    whole = np.frombuffer(data, np.uint8)[:end]
    for piece in pieces(data, shape, file.stamp, stop=end, rows=rows):
        found = np.frombuffer(piece, np.int64).reshape(-1, ROW)
        plain = found[:, STATUS] == VALID
        valid = found if plain.all() else found[plain]
        if has_damage(found, valid, whole, place, file.stamp):
            # From the end of the last whole record on: all before it were found already.
            yield _by_records(journal, file, (max(begin, place), end))
            return
        # A part is scanned from the header on, too: begun elsewhere, the scan might take a record
        # inside a body for one of the journal.
        wanted = valid[np.searchsorted(valid[:, OFFSET], begin) :]
        if len(wanted):
            yield np.ascontiguousarray(wanted)
        place = int(valid[-1, OFFSET] + valid[-1, SIZE]) if len(valid) else place


def _by_records(
    journal: JournalFiles, file: JournalFile, part: tuple[int, int]
) -> Iterator[Record]:
    begin, end = part
    last = nothing_follows(journal, file)
    for record in records_of(read_file(journal, file, last=last)):
        if begin <= record.offset < end:
            yield record


class _FileBatches:
    """Makes the batches of one file."""

    def __init__(self, shape: Shape, data: memoryview, path: str, log: str) -> None:
        self.bytes = np.frombuffer(data, np.uint8)
        self._buffer = pa.py_buffer(data)
        self._shape = shape_numbers(shape)
        self._features = np.array(features(shape), np.int64)
        self._path, self._log = path, log
        known = record_types(shape)
        types = [_NAMES.index(one.name) if one else 0 for one in known]
        kinds = [_KINDS.index(KINDS[one]) if one else 0 for one in known]
        heuristics = [_KINDS.index(Kind.HEURISTIC)] * len(known)
        # by the byte on disk; from `HEURISTIC` on by that of a heuristic outcome
        rest = [0] * (HEURISTIC - len(known))
        self._types = np.array(types + rest + types, np.int8)
        self._kinds = np.array(kinds + rest + heuristics, np.int8)

    def batch(self, rows: Any) -> pa.RecordBatch:
        """Return the records of some rows, all of them valid."""
        count = len(rows)
        kinds = np.empty(count, np.uint8)
        values = np.zeros((2, count), np.int64)
        present = np.zeros((3, -(-count // 8)), np.uint8)
        bodies = new_views(count)
        shape, table = self._shape, self._features
        found = fill_columns(self.bytes, rows, shape, table, kinds, values, present, bodies)
        xids = self._xids(rows, kinds) if found else {}
        columns = whole_records(SYSTEM_NAME, self._log, self._path, Clock.NONE, count) | {
            "offset": numbers(rows[:, OFFSET].copy(), None),
            "length": numbers(rows[:, SIZE].copy(), None),
            "kind": coded(self._kinds[kinds], _KIND_NAMES),
            "type": coded(self._types[kinds], _TYPE_NAMES),
            "transaction": numbers(values[0], present[0]),
            "resources": no_texts(count),
            "record_id": numbers(values[1], present[1]),
            "body": viewed(bodies, present[2], self._buffer),
        }
        return record_batch(columns | xids, count)

    def _xids(self, rows: Any, kinds: Any) -> dict[str, pa.Array]:
        count = len(kinds)
        format_ids = np.zeros(count, np.int32)
        gtrids, bquals = new_views(count), new_views(count)
        present = new_bitmap(count)
        shape, table, out = self._shape, self._features, (format_ids, gtrids, bquals)
        fill_xids(self.bytes, rows, shape, table, kinds, present, out)
        return {
            "format_id": numbers(format_ids, present),
            "gtrid": viewed(gtrids, present, self._buffer),
            "bqual": viewed(bquals, present, self._buffer),
        }


_NAMES = [one.name for one in RecordType]
_TYPE_NAMES = pa.array(_NAMES)
_KINDS = list(Kind)
_KIND_NAMES = pa.array([one.value for one in _KINDS])
