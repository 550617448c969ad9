"""Columns of numbers from the compiled walk as one Arrow batch; byte ranges become views.

In: the columns of `kernels.walk`. Out: a batch of the `RECORDS` schema with null attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tallystick.arrow.schemas import RECORDS
from tallystick.records import Clock, Outcome
from tallystick.systems.derby.columns import kernels
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import PREFIX, Group
from tallystick.systems.derby.format.operations import OPERATIONS
from tallystick.systems.derby.read.files import LogBytes

if TYPE_CHECKING:
    pass


_NO_RECORD_ID = 100


_INTS_BEFORE_ID = {
    operations.INSERT: 0,
    operations.DELETE: 0,
    operations.UPDATE_FIELD: 0,
    operations.UPDATE_ROW: 1,
    287: 1,
    104: 0,
}


def _operation_ids() -> NDArray[np.int8]:
    ids = np.full(max(OPERATIONS) + 1, -1, np.int8)
    for number in OPERATIONS:
        ids[number] = _INTS_BEFORE_ID.get(number, _NO_RECORD_ID)
    return ids


OPERATION_IDS = _operation_ids()


_NAMES = sorted({operation.name for operation in OPERATIONS.values()})


_KINDS = sorted({"commit", "rollback", "prepare"} | {str(one.kind) for one in OPERATIONS.values()})


def _codes(words: list[str], word: dict[int, str]) -> NDArray[np.int8]:
    codes = np.zeros(max(OPERATIONS) + 1, np.int8)
    for number, name in word.items():
        codes[number] = words.index(name)
    return codes


_NAME_CODES = _codes(_NAMES, {number: one.name for number, one in OPERATIONS.items()})


_KIND_CODES = _codes(_KINDS, {number: str(one.kind) for number, one in OPERATIONS.items()})


def batch_of(
    log: str, file: LogBytes, data: kernels.Bytes, columns: kernels.Columns
) -> pa.RecordBatch:
    offset, length, group = columns[kernels.OFFSET], columns[kernels.LENGTH], columns[kernels.GROUP]
    operation, count = columns[kernels.OPERATION], columns.shape[1]
    globals_ = _global_ids(data, columns[kernels.GLOBAL_ID])
    fields: dict[str, Any] = {
        "system": _constant("derby", count),
        "log": _constant(log, count),
        "file": _constant(file.path, count),
        "offset": pa.array(offset),
        "length": pa.array(length + PREFIX.size + 4),
        "outcome": _constant(Outcome.VALID.value, count),
        "kind": _words(_kind_codes(operation, group), _KINDS),
        "type": _words(_NAME_CODES[operation], _NAMES),
        "sequence": pa.array(offset | file.number << 32),
        "clock": _constant(Clock.NONE.value, count),
        "transaction": _optional(columns[kernels.TRANSACTION]),
        "record_id": _optional(columns[kernels.RECORD_ID]),
        "body": _binary(data, offset + PREFIX.size, length),
        "resources": _no_resources(count),
        **globals_,
    }
    arrays = [fields.get(field.name) for field in RECORDS]
    names = RECORDS.names
    filled = [
        pa.nulls(count, RECORDS.field(name).type) if array is None else array
        for name, array in zip(names, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(filled, names=names)


def _constant(word: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), [word])


def _words(codes: NDArray[np.int8], words: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes, words)


def _kind_codes(operation: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int8]:
    codes = _KIND_CODES[operation]
    ends = operation == operations.END
    aborted = ends & (group & Group.COMMIT == 0) & (group & Group.ABORT != 0)
    prepared = ends & (group & (Group.COMMIT | Group.ABORT) == 0)
    codes[aborted] = _KINDS.index("rollback")
    codes[prepared] = _KINDS.index("prepare")
    return codes


def _optional(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _binary(
    data: kernels.Bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64], valid: Any = None
) -> pa.Array:
    """Views of byte ranges of the file: nothing is copied."""
    views = np.zeros((len(starts), 16), np.uint8)
    kernels.put_views(data, starts, sizes, views)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def _no_resources(count: int) -> pa.Array:
    offsets = np.zeros(count + 1, np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array([], pa.string())).cast(
        RECORDS.field("resources").type
    )


def _global_ids(data: kernels.Bytes, places: NDArray[np.int64]) -> dict[str, Any]:
    """The three columns of the global id; ``places`` are those of its format number, or -1."""
    valid = places >= 0
    if not valid.any():
        return {}
    at = np.where(valid, places, 0)
    gtrid_size = np.where(valid, data[at + 4], 0).astype(np.int64)
    bqual_at = at + 5 + gtrid_size
    bqual_size = np.where(valid, data[np.where(valid, bqual_at, 0)], 0).astype(np.int64)
    number = np.zeros(len(at), np.int64)
    for step in range(4):
        number = number << 8 | data[at + step]
    return {
        "format_id": pa.array(number.astype(np.uint32).view(np.int32), mask=~valid),
        "gtrid": _binary(data, at + 5, gtrid_size, valid),
        "bqual": _binary(data, bqual_at + 1, bqual_size, valid),
    }
