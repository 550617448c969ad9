"""Records as Arrow batches, without a Python object per record.

In: the log stream of a file. Out: batches of the `RECORDS` schema, strings as dictionaries and
bodies as views into the joined bytes, the same rows as `records()` gives. The compiled walk reads
what is in order; from the first record that is not, the plain scan goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import (
    VIEWED_MAX,
    coded,
    constant,
    new_bitmap,
    new_views,
    no_texts,
    numbers,
    put_views,
    record_batch,
    viewed,
)
from tallystick.arrow.schemas import RECORDS, record_batches
from tallystick.records import Clock, Outcome, Record
from tallystick.roles import branch_of
from tallystick.systems.h2.columns import kernels
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import SESSION_TYPES, Type
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.numbers import decode_string
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.records import KINDS, record_of
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.protocol import Split

WINDOW = 1 << 20
"""Stream bytes that are joined at once; more only for a record that does not fit."""
TABLE_ROWS = 1 << 13
"""Records of a batch at most, however many are wanted."""
_TYPES = pa.array([one.name for one in Type])
_KIND_NAMES = pa.array([KINDS[one].value for one in Type])
_WITH_SESSION = np.array([one in SESSION_TYPES for one in Type])
_WITH_NUMBER = np.array([one in (Type.ADD, Type.REMOVE, Type.UNDO) for one in Type])


@dataclass(slots=True)
class _Progress:
    """Position of the walk: rows and records read, and the offset in the stream."""

    pages: Any
    """Page numbers of the stream."""
    rows: int = 0
    records: int = 0
    offset: int = 0
    irregular: bool = False
    """The walk ended at a record that is not in order."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Stream bytes that are joined now, and the records that the walk found in them."""

    data: Any
    table: Any
    offsets: Any
    """Of the records in the file."""
    sequence: Any


def record_batches_of(
    stream: LogStream, zone: Zone, log: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the log's records, or those of ``split``, in batches of at most ``rows`` rows."""
    progress = _Progress(np.array(stream.data_pages, dtype=np.int64))
    for piece in _walk(stream, rows, progress):
        part = _in_split(piece, split)
        if part.table.shape[1]:
            yield _batch(part, stream.pages.file, log)
    wanted = (
        record
        for record in _rest(stream, zone, progress)
        if split is None or split.begin <= record.offset < split.end
    )
    yield from record_batches(wanted, log, Clock.NONE.value, rows)


def _rest(stream: LogStream, zone: Zone, progress: _Progress) -> Iterator[Record]:
    """Yield the records that the walk left to the plain scan.

    A record cut by the end of the log needs nothing before it. A damaged one may show bytes of
    earlier records, so then the plain scan starts from the first.
    """
    skip = 0
    scan = Scan(stream, zone)
    if progress.irregular:
        skip = progress.rows
    else:
        page, at = divmod(progress.offset, stream.body_size)
        stream = replace(stream, data_pages=stream.data_pages[page:], skip=at)
        scan = Scan(stream, zone, before=progress.records)
    for entry in islice(scan.entries(), skip, None):
        yield record_of(entry, stream)


def _walk(stream: LogStream, rows: int, progress: _Progress) -> Iterator[_Piece]:
    """Yield pieces of at most ``rows`` records."""
    file = np.frombuffer(stream.pages.data, dtype=np.uint8)
    rest = np.zeros(0, dtype=np.uint8)
    window = max(WINDOW // stream.body_size, 1)
    page, pages = 0, window
    while page < len(stream.data_pages) or len(rest):
        data = _join(file, stream, progress.pages[page : page + pages], rest)
        page += pages
        last = page >= len(stream.data_pages)
        at, why = 0, kernels.FULL
        while why == kernels.FULL:
            # a batch keeps its table
            table = np.empty((kernels.COLUMNS, min(rows, TABLE_ROWS)), dtype=np.int64)
            count, at, why = kernels.walk(data, at, last, stream.pages.page_size, table)
            if count:
                yield _piece(stream, data, table[:, :count], progress)
        pages = pages * 2 if at == 0 else window
        progress.offset += at
        progress.irregular = why == kernels.IRREGULAR
        if last or progress.irregular:
            return
        rest = data[at:]


def _piece(stream: LogStream, data: Any, table: Any, progress: _Progress) -> _Piece:
    offsets = table[kernels.START].copy()
    page_size = stream.pages.page_size
    kernels.file_offsets(offsets, progress.offset, progress.pages, page_size, stream.body_size)
    after = progress.records + 1 + np.cumsum(table[kernels.COUNT])
    progress.rows += table.shape[1]
    progress.records = int(after[-1]) - 1
    return _Piece(data, table, offsets, after - table[kernels.COUNT])


def _in_split(piece: _Piece, split: Split | None) -> _Piece:
    offsets = piece.offsets
    if split is None or (offsets.min() >= split.begin and offsets.max() < split.end):
        return piece
    kept = (offsets >= split.begin) & (offsets < split.end)
    table = np.ascontiguousarray(piece.table[:, kept])
    return _Piece(piece.data, table, offsets[kept], piece.sequence[kept])


def _join(file: Any, stream: LogStream, ids: Any, rest: Any) -> Any:
    """Return ``rest`` followed by the stream bytes of these pages."""
    size = stream.pages.page_size
    data = np.empty(len(rest) + len(ids) * stream.body_size, dtype=np.uint8)
    data[: len(rest)] = rest
    bodies = data[len(rest) :].reshape(-1, stream.body_size)
    whole = file[: stream.pages.page_count * size].reshape(-1, size)
    if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and (np.diff(ids) == 1).all():
        bodies[:] = whole[ids[0] : ids[-1] + 1, layout.DATA_START :]
    else:
        bodies[:] = whole[ids, layout.DATA_START :]
    return data


def _batch(piece: _Piece, file: str, log: str) -> pa.RecordBatch:
    table = piece.table
    count = table.shape[1]
    codes = table[kernels.CODE]
    small = codes.astype(np.int8)
    columns: dict[str, Any] = {
        "system": constant(SYSTEM_NAME, count),
        "log": constant(log, count),
        "file": constant(file, count),
        "offset": numbers(piece.offsets, None),
        "length": numbers(table[kernels.LENGTH], None),
        "outcome": constant(Outcome.VALID.value, count),
        "kind": coded(small, _KIND_NAMES),
        "type": coded(small, _TYPES),
        "sequence": numbers(piece.sequence, None),
        "clock": constant(Clock.NONE.value, count),
        "transaction": numbers(_signed32(table[kernels.SESSION]), _bits(_WITH_SESSION[codes])),
        "record_id": numbers(_record_ids(table, codes), _bits(_WITH_NUMBER[codes])),
        "resources": no_texts(count),
        "body": _bodies(piece.data, table),
    }
    return record_batch(columns | _branches(piece.data, table, codes), count)


def _signed32(values: Any) -> Any:
    return values.astype(np.int32).astype(np.int64)


def _bits(known: Any) -> Any | None:
    return None if known.all() else np.packbits(known, bitorder="little")


def _record_ids(table: Any, codes: Any) -> Any:
    values = table[kernels.NUMBER]
    pages = codes == Type.UNDO
    if pages.any():
        values[pages] = _signed32(values[pages])
    return values


def _bodies(data: Any, table: Any) -> pa.Array:
    """Return views into the joined bytes; copies where these are too many for views."""
    count = table.shape[1]
    starts, lengths = table[kernels.BODY_START], table[kernels.BODY_LENGTH]
    if len(data) > VIEWED_MAX:
        places = zip(starts.tolist(), lengths.tolist(), strict=True)
        bodies = [bytes(data[at : at + size]) if size >= 0 else None for at, size in places]
        return pa.array(bodies, pa.binary())
    views, valid = new_views(count), new_bitmap(count)
    put_views(data, starts, lengths, views, valid)
    return viewed(views, valid, pa.py_buffer(data))


def _branches(data: Any, table: Any, codes: Any) -> dict[str, Any]:
    """Return the XA ids of prepare records, which are few."""
    rows = np.flatnonzero(codes == Type.PREPARE_COMMIT)
    if not len(rows):
        return {}
    columns: dict[str, list[Any]] = {
        name: [None] * len(codes) for name in ("format_id", "gtrid", "bqual")
    }
    for row in rows:
        start = int(table[kernels.BODY_START, row])
        record = int(table[kernels.START, row] + table[kernels.LENGTH, row])
        name, _ = decode_string(bytes(data[start:record]), 0)
        xid = branch_of(name)
        if xid is not None:
            for field, values in columns.items():
                values[row] = getattr(xid, field)
    return {name: pa.array(values, RECORDS.field(name).type) for name, values in columns.items()}
