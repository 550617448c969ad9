"""The rows of ``records()`` as Arrow batches, without a Python object per record.

In: the bytes of one file. Out: batches of the `RECORDS` schema, its repeating strings
dictionary-encoded, its texts as views, ``attributes`` only where asked for. A compiled kernel takes
runs of whole records; the strict walk takes the rest (damage, names out of order, spare bytes) one
span at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallystick.arrow.columns import coded, constant, numbers, record_batch, viewed
from tallystick.arrow.crc_kernel import crc_table
from tallystick.arrow.schemas import record_batches
from tallystick.records import Clock, Kind, Outcome, Record
from tallystick.systems.bitronix.columns.attributes import plain_attributes
from tallystick.systems.bitronix.columns.kernels import new_columns, walk
from tallystick.systems.bitronix.engine.reached import ReachedRecords
from tallystick.systems.bitronix.format.layout import (
    FORMAT_ID,
    STATUS_NAMES,
    SYSTEM_NAME,
    status_name,
)
from tallystick.systems.bitronix.read.records import KIND_OF, record_of
from tallystick.systems.bitronix.read.scan import CountedWalk, RecordSpan, header_span

WINDOW = 1 << 20
"""Bytes that one call of the kernel may read: bounds its output arrays."""

ROWS = 1 << 14
"""Largest number of records in a batch."""
_TABLE = crc_table()
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
    data: memoryview, file: str, log: str, clock: Clock, rows: int, *, attributes: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield all records of one file, at most ``rows`` per batch, with ``attributes`` or without."""
    place = _Place(file, log, clock, attributes)
    if not data or header_span(data).length == len(data):
        return
    walker, reached = CountedWalk(data), ReachedRecords(data)
    array = np.frombuffer(data, np.uint8)
    odd: list[Record] = []
    while walker.place < walker.end:
        if reached.in_step and (batch := _take(array, walker, place, rows)) is not None:
            yield from _from_objects(odd, place)
            odd = []
            yield batch
            continue
        odd += _reached_record(file, walker.next_span(), reached)
        if len(odd) >= rows:
            yield from _from_objects(odd, place)
            odd = []
    yield from _from_objects(odd, place)


def _reached_record(file: str, span: RecordSpan, reached: ReachedRecords) -> list[Record]:
    record = record_of(file, span, reached=reached.reaches(span))
    return [] if record is None or record.attributes.get("salvaged") else [record]


def _take(
    array: npt.NDArray[np.uint8], walker: CountedWalk, place: _Place, rows: int
) -> pa.RecordBatch | None:
    """Return a batch of the records that the kernel accepts; None if the next one is not plain."""
    begin = walker.place
    window = array[begin : min(walker.end, begin + WINDOW)]
    columns = new_columns(min(rows, ROWS))
    count, size, names = walk(window, _TABLE, **columns)
    if not count:
        return None
    walker.place += int(size)
    filled = {}
    if place.attributes:
        plain = (columns[name][:count] for name in ("offsets", "lengths", "statuses"))
        filled["attributes"] = plain_attributes(window, *plain)
    columns["offsets"] += begin
    data = pa.py_buffer(window)
    filled |= _from_columns(columns, data, (int(count), int(names)), place)
    return record_batch(filled, int(count))


def _from_columns(
    columns: dict[str, npt.NDArray[Any]], data: pa.Buffer, counts: tuple[int, int], place: _Place
) -> dict[str, pa.Array]:
    count, names = counts
    lists = numbers(columns["list_ends"][: count + 1], None)
    texts = viewed(columns["names"][:names], None, data, kind=pa.string_view())
    types, kinds = _statuses(columns["statuses"][:count])
    return {
        "system": constant(SYSTEM_NAME, count),
        "log": constant(place.log, count),
        "file": constant(place.file, count),
        "offset": numbers(columns["offsets"][:count], None),
        "length": numbers(columns["lengths"][:count], None),
        "outcome": constant(Outcome.VALID.value, count),
        "kind": kinds,
        "type": types,
        "sequence": numbers(columns["sequences"][:count], None),
        "time": numbers(columns["times"][:count], None),
        "clock": constant(place.clock.value, count),
        "format_id": _format_ids(ROWS).slice(0, count),
        "gtrid": viewed(columns["gtrids"][:count], None, data),
        "resources": pa.ListArray.from_arrays(lists, texts),
    }


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
