"""Records as Arrow batches, without a Python object per record.

In: the chunks of a log. Out: batches of the `RECORDS` schema, strings as dictionaries and bodies as
views into the joined bytes, the same rows as `records()` gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import (
    VIEWED_MAX,
    bitmap,
    byte_ranges,
    coded,
    no_texts,
    numbers,
    record_batch,
    whole_records,
)
from tallystick.arrow.neighbours import marked
from tallystick.arrow.schemas import RECORDS
from tallystick.records import Clock
from tallystick.roles import branch_of
from tallystick.systems.h2.columns.kernels import file_offsets
from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.numbers import decode_string
from tallystick.systems.h2.read.records import KINDS, batches_of_entries
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.runs import walk
from tallystick.systems.h2.runs.chunk import WITH_SESSION, Chunk, signed32
from tallystick.systems.h2.runs.pieces import ROWS, LogPieces
from tallystick.systems.protocol import Split

if TYPE_CHECKING:
    from tallystick.systems.protocol import Fitting

_TYPES = pa.array([one.name for one in Type])
KIND_NAMES = pa.array([KINDS[one].value for one in Type])
_WITH_NUMBER = marked((Type.ADD, Type.REMOVE, Type.UNDO))


def record_batches_of(
    log: LogPieces, path: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the log's records, or those of ``split``, in batches of at most ``rows`` rows."""
    stream = log.stream
    for chunk, offsets in _placed(log, rows):
        if chunk.odd:
            yield from batches_of_entries(chunk.odd, stream, path, split, rows)
            continue
        part, offsets = _in_split(chunk, offsets, split)
        if len(offsets):
            yield _batch(part, offsets, stream.pages.file, path)


def chosen_entries(log: LogPieces, path: str, fitting: Fitting) -> Iterator[Entry]:
    """Yield the records that fit by their columns, and all odd ones, as a scan gives them.

    Args:
        log: a log that comes in runs.
        path: the name of the log.
        fitting: returns the places of the rows of a batch that fit.
    """
    stream = log.stream
    for chunk, offsets in _placed(log, ROWS):
        if chunk.odd:
            yield from chunk.odd
            continue
        rows = fitting(_batch(chunk, offsets, stream.pages.file, path))
        # One scan for records that follow each other.
        in_a_row = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
        for some in in_a_row:
            first = int(some[0])
            part = replace(stream, skip=int(chunk.starts[first]))
            before = int(chunk.sequence[first]) - 1
            scan = Scan(part, log.zone, before, int(chunk.sections[first]))
            yield from islice(scan.entries(), len(some))


def _placed(log: LogPieces, rows: int) -> Iterator[tuple[Chunk, Any]]:
    """Return the chunks of a log with the offset of each record in the file."""
    offsets = file_offsets(log.stream)
    return ((chunk, offsets(chunk.starts)) for chunk in log.chunks(rows))


def _in_split(chunk: Chunk, offsets: Any, split: Split | None) -> tuple[Chunk, Any]:
    """Return the records of a chunk that are in a split, with their offsets in the file."""
    if split is None or (offsets.min() >= split.begin and offsets.max() < split.end):
        return chunk, offsets
    kept = (offsets >= split.begin) & (offsets < split.end)
    # The columns become Arrow buffers, which have to be contiguous.
    table = np.ascontiguousarray(chunk.table[:, kept])
    part = Chunk(chunk.data, table, chunk.begin, chunk.sequence[kept], chunk.sections[kept])
    return part, offsets[kept]


def _batch(chunk: Chunk, offsets: Any, file: str, log: str) -> pa.RecordBatch:
    table = chunk.table
    count = table.shape[1]
    codes = table[walk.CODE]
    small = codes.astype(np.int8)
    columns = whole_records(SYSTEM_NAME, log, file, Clock.NONE, count) | {
        "offset": numbers(offsets, None),
        "length": numbers(table[walk.LENGTH], None),
        "kind": coded(small, KIND_NAMES),
        "type": coded(small, _TYPES),
        "sequence": numbers(chunk.sequence, None),
        "transaction": numbers(signed32(table[walk.SESSION]), bitmap(WITH_SESSION[codes])),
        "record_id": numbers(_record_ids(table, codes), bitmap(_WITH_NUMBER[codes])),
        "resources": no_texts(count),
        "body": _bodies(chunk.data, table),
    }
    return record_batch(columns | _branches(chunk.data, table, codes), count)


def _record_ids(table: Any, codes: Any) -> Any:
    """Return the row keys, and the pages of undo images as signed numbers."""
    values = table[walk.NUMBER]
    pages = codes == Type.UNDO
    # In place, as the table becomes the memory of the batch; nobody asks the chunk afterwards.
    if pages.any():
        values[pages] = signed32(values[pages])
    return values


def _bodies(data: Any, table: Any) -> pa.Array:
    """Return views into the joined bytes; copies where these are too many for views."""
    starts, lengths = table[walk.BODY_START], table[walk.BODY_LENGTH]
    if len(data) > VIEWED_MAX:
        # A view has 32 bits for its offset.
        places = zip(starts.tolist(), lengths.tolist(), strict=True)
        bodies = [bytes(data[at : at + size]) if size >= 0 else None for at, size in places]
        return pa.array(bodies, pa.binary())
    return byte_ranges(data, starts, lengths)


def _branches(data: Any, table: Any, codes: Any) -> dict[str, Any]:
    """Return the XA ids of prepare records, which are few."""
    rows = np.flatnonzero(codes == Type.PREPARE_COMMIT)
    if not len(rows):
        return {}
    columns: dict[str, list[Any]] = {
        name: [None] * len(codes) for name in ("format_id", "gtrid", "bqual")
    }
    for row in rows:
        start = int(table[walk.BODY_START, row])
        end = int(table[walk.START, row] + table[walk.LENGTH, row])
        name, _ = decode_string(bytes(data[start:end]), 0)
        xid = branch_of(name)
        if xid is not None:
            for field, values in columns.items():
                values[row] = getattr(xid, field)
    return {name: pa.array(values, RECORDS.field(name).type) for name, values in columns.items()}
