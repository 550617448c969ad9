"""The rows of ``records()`` as Arrow batches, without a Python object per record.

In: the bytes of one file. Out: batches of the `RECORDS` schema, its repeating strings
dictionary-encoded, its texts as views, ``attributes`` only where asked for. Runs of plain records
come in chunks; what is odd (damage, names out of order, spare bytes) comes span by span.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallystick.arrow.columns import byte_ranges, coded, numbers, record_batch, whole_records
from tallystick.arrow.schemas import record_batches
from tallystick.records import Clock, Kind, Record
from tallystick.systems.bitronix.columns.attributes import plain_attributes
from tallystick.systems.bitronix.engine.reached import ReachedRecords
from tallystick.systems.bitronix.format.layout import (
    FORMAT_ID,
    GTRID_OFFSET,
    STATUS_NAMES,
    SYSTEM_NAME,
    status_name,
)
from tallystick.systems.bitronix.read.records import KIND_OF, record_of
from tallystick.systems.bitronix.read.scan import CountedWalk, RecordSpan
from tallystick.systems.bitronix.runs.chunk import ROWS, Chunk, read_chunk
from tallystick.systems.bitronix.runs.pieces import Runs, counted_pieces

if TYPE_CHECKING:
    from tallystick.systems.protocol import Fitting, Split

_TYPES = pa.array(STATUS_NAMES)
_KINDS = pa.array([KIND_OF[status].value for status in range(len(STATUS_NAMES))])


@dataclass(frozen=True, slots=True)
class _Place:
    """The values that every row of a file has."""

    file: str
    log: str
    clock: Clock
    attributes: bool


def batches(
    data: memoryview, split: Split, log: str, clock: Clock, rows: int, *, attributes: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a part, at most ``rows`` per batch, with ``attributes`` or without.

    The part begins at the begin of its file, or at a record.
    """
    file = split.file
    place = _Place(file, log, clock, attributes)
    reached, walk = ReachedRecords(data), CountedWalk(data)
    walk.place = max(walk.place, split.begin)
    runs = Runs(data, partial(read_chunk, rows=rows))
    odd: list[Record] = []
    for piece in counted_pieces(walk, runs, lambda: reached.in_step, split.end):
        if isinstance(piece, RecordSpan):
            odd += _reached_record(file, piece, reached)
        # Before the chunk, so that rows stay in the order of the file.
        if odd and (len(odd) >= rows or not isinstance(piece, RecordSpan)):
            yield from _from_objects(odd, place)
            odd = []
        if not isinstance(piece, RecordSpan):
            yield _from_chunk(piece, place)
    yield from _from_objects(odd, place)


def chosen_records(
    data: memoryview, file: str, log: str, clock: Clock, fitting: Fitting
) -> Iterator[Record]:
    """Yield the records of one file in runs that fit, and all that are odd."""
    place, reached = _Place(file, log, clock, attributes=False), ReachedRecords(data)
    again = CountedWalk(data)
    for piece in counted_pieces(CountedWalk(data), Runs(data, read_chunk), lambda: reached.in_step):
        if isinstance(piece, RecordSpan):
            yield from _reached_record(file, piece, reached)
            continue
        rows = fitting(_from_chunk(piece, place))
        for again.place in (piece.columns["offsets"][rows] + piece.base).tolist():
            yield from _reached_record(file, again.next_span(), reached)


def _reached_record(file: str, span: RecordSpan, reached: ReachedRecords) -> list[Record]:
    record = record_of(file, span, reached=reached.reaches(span))
    return [] if record is None or record.attributes.get("salvaged") else [record]


def _from_chunk(chunk: Chunk, place: _Place) -> pa.RecordBatch:
    columns, count = chunk.columns, chunk.count
    filled = {}
    if place.attributes:
        plain = (columns[name] for name in ("offsets", "lengths", "statuses"))
        filled["attributes"] = plain_attributes(chunk.window, *plain)
    names = byte_ranges(chunk.window, columns["name_starts"], columns["name_sizes"])
    types, kinds = _statuses(columns["statuses"])
    filled |= whole_records(SYSTEM_NAME, place.log, place.file, place.clock, count) | {
        "offset": numbers(columns["offsets"] + chunk.base, None),
        "length": numbers(columns["lengths"], None),
        "kind": kinds,
        "type": types,
        "sequence": numbers(columns["sequences"], None),
        "time": numbers(columns["times"], None),
        # One array for all batches: the column is the same in each.
        "format_id": _format_ids(ROWS).slice(0, count),
        "gtrid": byte_ranges(
            chunk.window, columns["offsets"] + GTRID_OFFSET, columns["gtrid_sizes"]
        ),
        "resources": pa.ListArray.from_arrays(
            numbers(columns["list_ends"], None), names.view(pa.string_view())
        ),
    }
    return record_batch(filled, count)


@cache
def _format_ids(count: int) -> pa.Array:
    return pa.array(np.full(count, FORMAT_ID, np.int32))


def _statuses(statuses: npt.NDArray[np.int32]) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
    """Return type and kind of each status; numbers that are no status get names of their own."""
    types, kinds, indices = _TYPES, _KINDS, statuses
    if statuses.min() < 0 or statuses.max() >= len(STATUS_NAMES):
        strange = [int(one) for one in np.unique(statuses) if not 0 <= one < len(STATUS_NAMES)]
        indices = statuses.copy()
        for index, status in enumerate(strange, len(STATUS_NAMES)):
            indices[statuses == status] = index
        types = pa.array([*STATUS_NAMES, *map(status_name, strange)])
        kinds = pa.array([*_KINDS.to_pylist(), *(Kind.UNKNOWN.value for _ in strange)])
    return coded(indices, types), coded(indices, kinds)


def _from_objects(records: list[Record], place: _Place) -> Iterator[pa.RecordBatch]:
    if not place.attributes:
        for record in records:
            record.attributes = {}
    yield from record_batches(records, place.log, place.clock.value)
