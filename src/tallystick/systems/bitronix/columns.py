"""The rows of ``records()`` as Arrow batches, without a Python object per record.

In: the bytes of one file. Out: batches of the `RECORDS` schema, its repeating strings
dictionary-encoded and ``attributes`` null. A compiled kernel takes whole records in a row; what
it leaves (damage, names out of order, spare bytes) goes through the strict walk, piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallystick.records import Clock, Kind, Outcome, Record
from tallystick.schemas import RECORDS, record_batches
from tallystick.systems.bitronix.kernels import crc_table, new_columns, walk
from tallystick.systems.bitronix.layout import FORMAT_ID, STATUS_NAMES, status_name
from tallystick.systems.bitronix.rows import KIND_OF, record_of
from tallystick.systems.bitronix.scan import CountedWalk, Piece, header_piece

WINDOW = 1 << 20
"""Bytes that one call of the kernel may look at: bounds its output arrays."""

_TEXT = pa.dictionary(pa.int32(), pa.string())
_ENCODED = ("system", "log", "file", "outcome", "kind", "type", "clock")
SCHEMA = pa.schema(
    [field.with_type(_TEXT) if field.name in _ENCODED else field for field in RECORDS]
)
_TABLE = crc_table()
_TYPES = pa.array(STATUS_NAMES)
_KINDS = pa.array([KIND_OF[status].value for status in range(len(STATUS_NAMES))])


@dataclass(frozen=True, slots=True)
class _Place:
    """What is the same in every row of a file."""

    file: str
    log: str
    clock: Clock


def batches(
    data: memoryview, file: str, log: str, clock: Clock, rows: int
) -> Iterator[pa.RecordBatch]:
    """All records of one file, at most ``rows`` a batch."""
    place = _Place(file, log, clock)
    if not data or header_piece(data).length == len(data):
        return
    walker = CountedWalk(data)
    array = np.frombuffer(data, np.uint8)
    scratch = new_columns(rows, WINDOW)
    odd: list[Record] = []
    while walker.place < walker.end:
        if walker.in_step and (count := _take(array, walker, scratch)) is not None:
            yield from _from_objects(odd, place)
            odd = []
            yield _from_columns(scratch, count, place)
            continue
        odd += _told(file, walker.next_piece())
        if len(odd) >= rows:
            yield from _from_objects(odd, place)
            odd = []
    yield from _from_objects(odd, place)


def _told(file: str, piece: Piece) -> list[Record]:
    record = record_of(file, piece)
    return [] if record is None or record.attributes.get("salvaged") else [record]


def _take(
    array: npt.NDArray[np.uint8], walker: CountedWalk, scratch: dict[str, npt.NDArray[Any]]
) -> tuple[int, int, int, int] | None:
    """Let the kernel walk on; None if no plain record stands at the place."""
    end = min(walker.end, walker.place + WINDOW)
    count, place, *used = walk(array, walker.place, end, _TABLE, **scratch)
    walker.place = int(place)
    return (int(count), *map(int, used)) if count else None  # type: ignore[return-value]


def _from_columns(
    columns: dict[str, npt.NDArray[Any]], counts: tuple[int, int, int, int], place: _Place
) -> pa.RecordBatch:
    rows, gtrid_bytes, names, name_bytes = counts
    texts = pa.Array.from_buffers(
        pa.string(),
        names,
        [
            None,
            _buffer(columns["name_ends"], names + 1),
            _buffer(columns["name_bytes"], name_bytes),
        ],
    )
    gtrids = pa.Array.from_buffers(
        pa.binary(),
        rows,
        [None, _buffer(columns["gtrid_ends"], rows + 1), _buffer(columns["gtrids"], gtrid_bytes)],
    )
    lists = pa.Array.from_buffers(
        RECORDS.field("resources").type,
        rows,
        [None, _buffer(columns["list_ends"], rows + 1)],
        children=[texts],
    )
    types, kinds = _statuses(columns["statuses"][:rows])
    filled = {
        "offset": pa.array(columns["offsets"][:rows].copy()),
        "length": pa.array(columns["lengths"][:rows].copy()),
        "kind": kinds,
        "type": types,
        "sequence": pa.array(columns["sequences"][:rows].copy()),
        "time": pa.array(columns["times"][:rows].copy()),
        "gtrid": gtrids,
        "resources": lists,
    }
    constant = _constants(place, rows)
    arrays = [filled.get(name, constant[name]) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _buffer(array: npt.NDArray[Any], count: int) -> pa.Buffer:
    return pa.py_buffer(array[:count].tobytes())


@lru_cache(maxsize=4)
def _constants(place: _Place, rows: int) -> dict[str, pa.Array]:
    """The columns that are the same in every row; null where nothing fills them."""
    columns = {field.name: pa.nulls(rows, field.type) for field in SCHEMA}
    texts = {
        "system": "bitronix",
        "log": place.log,
        "file": place.file,
        "outcome": Outcome.VALID.value,
        "clock": place.clock.value,
    }
    columns |= {name: _constant(value, rows) for name, value in texts.items()}
    columns["format_id"] = pa.array(np.full(rows, FORMAT_ID, np.int32))
    return columns


def _constant(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def _statuses(statuses: npt.NDArray[np.int32]) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
    """Type and kind of each status; numbers that are no status get names of their own."""
    types, kinds, indices = _TYPES, _KINDS, statuses.copy()
    if statuses.min() < 0 or statuses.max() >= len(STATUS_NAMES):
        strange = [int(one) for one in np.unique(statuses) if not 0 <= one < len(STATUS_NAMES)]
        for index, status in enumerate(strange, len(STATUS_NAMES)):
            indices[statuses == status] = index
        types = pa.array([*STATUS_NAMES, *map(status_name, strange)])
        kinds = pa.array([*_KINDS.to_pylist(), *(Kind.UNKNOWN.value for _ in strange)])
    numbers = pa.array(indices)
    return (
        # Each number is known to be an index.
        pa.DictionaryArray.from_arrays(numbers, types, safe=False),
        pa.DictionaryArray.from_arrays(numbers, kinds, safe=False),
    )


def _from_objects(records: list[Record], place: _Place) -> Iterator[pa.RecordBatch]:
    for record in records:
        record.attributes = {}
    for batch in record_batches(records, place.log, place.clock.value):
        arrays = [
            batch.column(field.name).dictionary_encode()
            if field.name in _ENCODED
            else batch.column(field.name)
            for field in SCHEMA
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
