"""Records as Arrow batches, without a Python object per record.

In: the bytes of a file and its log. Out: batches of the `RECORDS` schema, strings as
dictionaries, the same rows as `records()` gives. The compiled walk takes what is in order; from
the first record that is not, the plain scan goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.records import Clock, Outcome, Record
from tallystick.schemas import RECORDS, record_batches
from tallystick.systems.base import Split
from tallystick.systems.h2 import kernels, layout
from tallystick.systems.h2.describe import KINDS, SESSION_TYPES, SYSTEM, record_of
from tallystick.systems.h2.entries import Type
from tallystick.systems.h2.fields import decode_string
from tallystick.systems.h2.scan import Scan
from tallystick.systems.h2.stream import LogStream
from tallystick.systems.h2.times import Zone
from tallystick.systems.h2.xid import parse_name

WINDOW_PAGES = 256
_TYPES = pa.array([one.name for one in Type])
_KIND_NAMES = pa.array([KINDS[one].value for one in Type])
_WITH_SESSION = np.array([one in SESSION_TYPES for one in Type])
_WITH_NUMBER = np.array([one in (Type.ADD, Type.REMOVE, Type.UNDO) for one in Type])


@dataclass(slots=True)
class _Progress:
    """Where the walk stands: rows and records given, and the place in the stream."""

    pages: Any
    """Page numbers of the stream."""
    rows: int = 0
    records: int = 0
    place: int = 0
    strange: bool = False


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Stream bytes that are joined now: ``data[0]`` stands at ``place`` in the stream."""

    data: Any
    place: int


def record_batches_of(
    stream: LogStream, zone: Zone, log: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """The log's records, or those of ``split``, in batches of at most ``rows`` rows."""
    progress = _Progress(np.array(stream.data_pages, dtype=np.int64))
    for stretch, table in _walk(stream, rows, progress):
        batch = _batch(stream, stretch, table, log, progress)
        if (part := _in_split(batch, split)).num_rows:
            yield part
    wanted = (
        record
        for record in _rest(stream, zone, progress)
        if split is None or split.begin <= record.offset < split.end
    )
    yield from record_batches(wanted, log, Clock.NONE.value, rows)


def _rest(stream: LogStream, zone: Zone, progress: _Progress) -> Iterator[Record]:
    """What the walk left. A record cut by the end of the log needs nothing before it; a damaged
    one may show bytes of earlier records, so then the plain scan starts from the first."""
    skip = 0
    scan = Scan(stream, zone)
    if progress.strange:
        skip = progress.rows
    else:
        page, at = divmod(progress.place, stream.body_size)
        stream = replace(stream, data_pages=stream.data_pages[page:], skip=at)
        scan = Scan(stream, zone, before=progress.records)
    for entry in islice(scan.entries(), skip, None):
        yield record_of(entry, stream, None)


def _walk(stream: LogStream, rows: int, progress: _Progress) -> Iterator[tuple[_Stretch, Any]]:
    """Tables of at most ``rows`` rows and the bytes that they speak of."""
    file = np.frombuffer(stream.pages.data, dtype=np.uint8)
    table = np.zeros((rows, kernels.COLUMNS), dtype=np.int64)
    rest = np.zeros(0, dtype=np.uint8)
    page, pages = 0, WINDOW_PAGES
    while page < len(stream.data_pages) or len(rest):
        data = _join(file, stream, progress.pages[page : page + pages], rest)
        page += pages
        last = page >= len(stream.data_pages)
        at, why = 0, kernels.FULL
        while why == kernels.FULL:
            count, at, why = kernels.walk(data, at, last, stream.pages.page_size, table)
            if count:
                yield _Stretch(data, progress.place), table[:count]
            progress.rows += count
            progress.records += int(table[:count, kernels.COUNT].sum())
        pages = pages * 2 if at == 0 else WINDOW_PAGES
        progress.place += at
        progress.strange = why == kernels.STRANGE
        if last or progress.strange:
            return
        rest = data[at:]


def _join(file: Any, stream: LogStream, ids: Any, rest: Any) -> Any:
    """``rest`` and behind it the stream bytes of these pages."""
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


def _batch(
    stream: LogStream, stretch: _Stretch, table: Any, log: str, progress: _Progress
) -> pa.RecordBatch:
    count = len(table)
    codes = table[:, kernels.CODE]
    columns: dict[str, Any] = {
        "system": _constant(SYSTEM, count),
        "log": _constant(log, count),
        "file": _constant(stream.pages.file, count),
        "offset": pa.array(
            _offsets(stream, progress.pages, stretch.place + table[:, kernels.START])
        ),
        "length": pa.array(table[:, kernels.LENGTH].copy()),
        "outcome": _constant(Outcome.VALID.value, count),
        "kind": _coded(codes, _KIND_NAMES),
        "type": _coded(codes, _TYPES),
        "sequence": pa.array(_sequence(table, progress.records)),
        "clock": _constant(Clock.NONE.value, count),
        "transaction": _where(table[:, kernels.SESSION], _WITH_SESSION[codes], signed32=True),
        "record_id": _record_ids(table, codes),
        "resources": _no_resources(count),
        "body": _binaries(stretch.data, table),
    }
    columns |= _branches(stretch.data, table, codes)
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, names=RECORDS.names)


def _sequence(table: Any, before: int) -> Any:
    counts = table[:, kernels.COUNT]
    return before + 1 + np.cumsum(counts) - counts


def _offsets(stream: LogStream, pages: Any, places: Any) -> Any:
    index, rest = np.divmod(places, stream.body_size)
    return pages[index] * stream.pages.page_size + rest + layout.DATA_START


def _constant(text: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, dtype=np.int32)), pa.array([text])
    )


def _coded(codes: Any, names: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)


def _where(values: Any, known: Any, *, signed32: bool = False) -> Any:
    if signed32:
        values = values.astype(np.uint32).view(np.int32).astype(np.int64)
    return pa.array(values, mask=~known)


def _record_ids(table: Any, codes: Any) -> Any:
    numbers = table[:, kernels.NUMBER].copy()
    pages = codes == Type.UNDO
    numbers[pages] = numbers[pages].astype(np.uint32).view(np.int32)
    return _where(numbers, _WITH_NUMBER[codes])


def _no_resources(count: int) -> Any:
    kind = RECORDS.field("resources").type
    offsets = pa.array(np.zeros(count + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array([], kind.value_type)).cast(kind)


def _binaries(data: Any, table: Any) -> Any:
    lengths = table[:, kernels.BODY_LENGTH]
    offsets = np.zeros(len(table) + 1, dtype=np.int64)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    bodies = np.empty(int(offsets[-1]), dtype=np.uint8)
    kernels.gather(data, table, bodies)
    valid = pa.array(lengths >= 0).buffers()[1]
    buffers = [valid, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(bodies)]
    return pa.Array.from_buffers(pa.binary(), len(table), buffers)


def _branches(data: Any, table: Any, codes: Any) -> dict[str, Any]:
    """The XA ids of prepare records, which are few."""
    rows = np.flatnonzero(codes == Type.PREPARE_COMMIT)
    if not len(rows):
        return {}
    columns: dict[str, list[Any]] = {
        name: [None] * len(table) for name in ("format_id", "gtrid", "bqual")
    }
    for row in rows:
        start = int(table[row, kernels.BODY_START])
        record = int(table[row, kernels.START] + table[row, kernels.LENGTH])
        name, _ = decode_string(bytes(data[start:record]), 0)
        xid = parse_name(name)
        if xid is not None:
            for field, values in columns.items():
                values[row] = getattr(xid, field)
    return {name: pa.array(values, RECORDS.field(name).type) for name, values in columns.items()}


def _in_split(batch: pa.RecordBatch, split: Split | None) -> pa.RecordBatch:
    if split is None:
        return batch
    offsets = batch.column("offset")
    return batch.filter(
        pc.and_(pc.greater_equal(offsets, split.begin), pc.less(offsets, split.end))
    )
