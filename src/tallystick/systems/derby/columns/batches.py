"""The columns of a chunk as one Arrow batch; byte ranges become views.

In: a chunk. Out: a batch of the `RECORDS` schema with null
attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import Bytes
from tallystick.arrow.columns import (
    bitmap,
    byte_ranges,
    coded,
    no_texts,
    numbers,
    numbers_at,
    record_batch,
    whole_records,
)
from tallystick.records import Clock, Kind
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import (
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    PREFIX,
    SYSTEM_NAME,
    Group,
)
from tallystick.systems.derby.format.operations import OPERATIONS
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.runs import walk
from tallystick.systems.derby.runs.chunk import Chunk, Runs
from tallystick.systems.derby.runs.pieces import file_pieces

if TYPE_CHECKING:
    from tallystick.systems.protocol import Fitting

_OPERATION_COUNT = max(OPERATIONS) + 1


def _codes(texts: dict[int, str], distinct: list[str]) -> NDArray[np.int8]:
    """Return the index in ``distinct`` of each operation's text."""
    codes = np.zeros(_OPERATION_COUNT, np.int8)
    for number, text in texts.items():
        codes[number] = distinct.index(text)
    return codes


_NAMES = sorted({one.name for one in OPERATIONS.values()})
_NAME_CODES = _codes({number: one.name for number, one in OPERATIONS.items()}, _NAMES)
_KINDS = [kind.value for kind in Kind]
_KIND_CODES = _codes({number: one.kind.value for number, one in OPERATIONS.items()}, _KINDS)
_ROLLBACK, _PREPARE = _KINDS.index(Kind.ROLLBACK), _KINDS.index(Kind.PREPARE)
_NAME_TEXTS, _KIND_TEXTS = pa.array(_NAMES), pa.array(_KINDS)


def batch_of(log: str, chunk: Chunk) -> pa.RecordBatch:
    """Return the batch of the records of a chunk of the log with this name."""
    file, data, columns = chunk.file, chunk.data, chunk.columns
    offset, length = columns[walk.OFFSET], columns[walk.LENGTH]
    operation, count = columns[walk.OPERATION], columns.shape[1]
    return record_batch(
        whole_records(SYSTEM_NAME, log, file.path, Clock.NONE, count)
        | {
            "offset": numbers(offset, None),
            "length": numbers(length + LOG_RECORD_FIXED_OVERHEAD_SIZE, None),
            "kind": coded(_kind_codes(operation, columns[walk.GROUP]), _KIND_TEXTS),
            "type": coded(_NAME_CODES[operation], _NAME_TEXTS),
            "sequence": numbers(offset | file.number << 32, None),
            "transaction": _optional(columns[walk.TRANSACTION]),
            "record_id": _optional(columns[walk.RECORD_ID]),
            "body": byte_ranges(data, offset + PREFIX.size, length),
            "resources": no_texts(count),
        }
        | global_ids(data, columns[walk.GLOBAL_ID]),
        count,
    )


def chosen_ranges(runs: Runs, scan: LogScan, log: str, fitting: Fitting) -> Iterator[ByteRange]:
    """Yield the ranges of records in runs that fit and are not dropped, and all ranges after one.

    Args:
        runs: of the log.
        scan: of the log.
        log: its name in the batches that are tested.
        fitting: as for `tallystick.systems.protocol.ChoosesRecords`.
    """
    for number in scan.log.files:
        for piece in file_pieces(scan.file(number), runs):
            if isinstance(piece, ByteRange):
                yield piece
            elif not piece.dropped:
                for row in fitting(batch_of(log, piece)).tolist():
                    yield piece.range(row, scan)


def _kind_codes(operation: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int8]:
    # Indexed by an array, it is a copy, and may be changed.
    codes = _KIND_CODES[operation]
    ends = operation == operations.END
    codes[ends & (group & Group.COMMIT == 0) & (group & Group.ABORT != 0)] = _ROLLBACK
    codes[ends & (group & (Group.COMMIT | Group.ABORT) == 0)] = _PREPARE
    return codes


def _optional(values: NDArray[np.int64]) -> pa.Array:
    return numbers(values, bitmap(values >= 0))


def global_ids(data: Bytes, places: NDArray[np.int64]) -> dict[str, Any]:
    """Make the columns of the global id; ``places`` are offsets of its XA format id, or -1."""
    known = places >= 0
    if not known.any():
        return {}
    # Rows without an id read some bytes that are there; the bitmap hides them.
    at = np.where(known, places, 0)
    gtrid_at = at + walk.GTRID_AT
    gtrid_size = data[gtrid_at].astype(np.int64)
    bqual_at = np.where(known, gtrid_at + 1 + gtrid_size, 0)
    bqual_size = data[bqual_at].astype(np.int64)
    return {
        "format_id": numbers(numbers_at(data, at, ">i4"), bitmap(known)),
        "gtrid": byte_ranges(data, gtrid_at + 1, np.where(known, gtrid_size, -1)),
        "bqual": byte_ranges(data, bqual_at + 1, np.where(known, bqual_size, -1)),
    }
