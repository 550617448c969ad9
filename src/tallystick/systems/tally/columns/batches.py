"""Groups as Arrow batches: the columns of the file are the columns of the batch.

In: steps of a scan. Out: `pyarrow.RecordBatch` objects that agree with ``records()`` row by row.
A large group becomes a batch without copying its bodies, numbers and validity; small ones come as
chunks, and what needs more than columns record by record. The bytes are those of the segment, which
stays mapped as long as a batch uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallystick.arrow.columns import (
    coded,
    constant,
    no_texts,
    nulls,
    numbers,
    record_batch,
    sliced,
    viewed,
    whole_records,
)
from tallystick.arrow.neighbours import marked
from tallystick.arrow.numba_kernel import has_compiler
from tallystick.arrow.schemas import json_text, record_batches
from tallystick.errors import CorruptLogError
from tallystick.records import Clock, Record
from tallystick.systems.tally.format.columns import GTRIDS, USER_TYPES, Columns
from tallystick.systems.tally.format.kinds import NAMES, Code
from tallystick.systems.tally.format.layout import HEADER_SIZE, PACKED, SYSTEM_NAME, GroupHeader
from tallystick.systems.tally.format.sealing import KeyMissingError
from tallystick.systems.tally.read.records import columns_of, group_attributes, step_records
from tallystick.systems.tally.read.scan import Step
from tallystick.systems.tally.runs.chunk import Chunk
from tallystick.systems.tally.runs.groups import EVERY_SIZE, PLAIN_BODY_CODES, ChunkReader
from tallystick.systems.tally.runs.pieces import Runs, chunk_of
from tallystick.systems.tally.runs.walk import KEY, LSN, TIME, TRANSACTION

if TYPE_CHECKING:
    from tallystick.systems.protocol import Fitting

_LARGE = 64
"""Groups of at least so many records are wrapped without copying: a batch costs as much."""
_JOINED_MAX = 1 << 19
"""Larger groups are never copied into a chunk: that takes more time than a batch for each does."""
_BARE = marked((Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE, Code.BEGIN))
"""Codes of which a record has no attributes but those of its group, unless it has a user type."""
_PLACES = ("offset", "length", "sequence", "time")


def runs_for(rows: int, key: bytes | None, *, attributes: bool) -> Runs | None:
    """Return the chunks that batches are made of; None without a compiler."""
    if not has_compiler():
        return None
    known, odd = (_BARE, GTRIDS | USER_TYPES) if attributes else (PLAIN_BODY_CODES, GTRIDS)
    return Runs(read=ChunkReader(rows, known, odd, large=_JOINED_MAX, key=key))


def runs_for_choice(key: bytes | None) -> Runs | None:
    """Return the chunks that `chosen_records` tests; None without a compiler."""
    if not has_compiler():
        return None
    return Runs(read=ChunkReader(odd=GTRIDS | USER_TYPES, large=EVERY_SIZE, key=key))


def step_batches(
    log: str, steps: Iterable[Step], key: bytes | None, rows: int, *, attributes: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the steps in batches of at most ``rows`` rows.

    With ``attributes`` that column is filled; chunks must then be those of `runs_for`.
    """
    waiting: list[Record] = []
    for step in steps:
        chunk = chunk_of(step.place)
        if chunk is not None:
            whole = _chunk_batch(log, step, chunk, attributes=attributes) if chunk.count else None
        else:
            whole = _large_batch(log, step, key, attributes=attributes)
            if whole is None:
                waiting += step_records(step, key)
        # What waits comes before a batch of its own.
        if whole is not None or len(waiting) >= rows:
            yield from record_batches(waiting, log, Clock.WALL_US.value, rows)
            waiting = []
        if whole is not None:
            yield from sliced(whole, rows)
    yield from record_batches(waiting, log, Clock.WALL_US.value, rows)


def chosen_records(
    log: str, steps: Iterable[Step], key: bytes | None, fitting: Fitting
) -> Iterator[Record]:
    """Yield the records of chunks that fit, and all of what is read record by record.

    Args:
        log: its name in the batches that are tested.
        steps: of a scan whose chunks are those of `runs_for_choice`.
        key: that of an encrypted log.
        fitting: as for `tallystick.systems.protocol.ChoosesRecords`.
    """
    for step in steps:
        chunk = chunk_of(step.place)
        if chunk is None:
            yield from step_records(step, key)
        elif chunk.count:
            rows = fitting(_chunk_batch(log, step, chunk, attributes=False))
            yield from chunk.records(step.file.path, step.view.header.number, rows)


def _large_batch(
    log: str, step: Step, key: bytes | None, *, attributes: bool
) -> pa.RecordBatch | None:
    """Return a large group over the bytes of the file; None where its records need more."""
    header = step.place.header
    if header is None or not step.place.case.whole or header.count < _LARGE:
        return None
    try:
        columns = columns_of(step.view.payload(header), header, key)
    except (KeyMissingError, CorruptLogError):
        return None
    count, data = header.count, columns.data
    ends = np.frombuffer(data, "<i4", count + 1, columns.offsets)
    codes = np.full(1, columns.code, np.uint8)
    if columns.codes >= 0:
        codes = np.frombuffer(data, np.uint8, count, columns.codes)
    # The checksum vouches for the bytes, not for a writer: offsets are checked before use.
    if columns.gtrids >= 0 or ends[0] != 0 or bool((ends[1:] < ends[:-1]).any()):
        return None
    if not PLAIN_BODY_CODES[codes].all():
        return None
    if attributes and (columns.user_types >= 0 or not _BARE[codes].all()):
        return None
    same = json_text(group_attributes(header.offset, header.segment))
    bodies = [None, pa.py_buffer(ends), pa.py_buffer(data[columns.bodies :])]
    arrays = whole_records(SYSTEM_NAME, log, step.file.path, Clock.WALL_US, count) | {
        **_places(header, columns, ends),
        **_kinds_and_types(codes, count),
        "transaction": _nullable(columns, columns.transactions, columns.transaction_validity),
        "record_id": _nullable(columns, columns.keys, columns.key_validity),
        "resources": no_texts(count),
        "body": pa.Array.from_buffers(pa.binary(), count, bodies),
    }
    if attributes:
        arrays["attributes"] = constant(same or "", count)
    return record_batch(arrays, count)


def _places(
    header: GroupHeader, columns: Columns, ends: npt.NDArray[np.int32]
) -> dict[str, pa.Array]:
    """Return place, size, LSN and time of each record: columns in one buffer.

    The buffer comes from Arrow's allocator, which keeps the memory of batches that were dropped;
    NumPy gives it back, and half of the time went into page faults.
    """
    count = header.count
    buffer = pa.allocate_buffer(len(_PLACES) * 8 * count)
    offsets, lengths, lsns, times = np.frombuffer(buffer, np.int64).reshape(len(_PLACES), count)
    np.add(_rising(1 << count.bit_length())[:count], header.first_lsn, out=lsns)
    times.fill(header.time_us)
    if header.flags & PACKED:
        offsets.fill(header.offset)
        lengths.fill(header.length)
    else:
        # Widened first, then added to: half the time of an addition that has to widen.
        offsets[:] = ends[:-1]
        offsets += header.offset + HEADER_SIZE + columns.bodies
        np.subtract(ends[1:], ends[:-1], out=lengths)
    return {
        name: pa.Array.from_buffers(
            pa.int64(), count, [None, buffer.slice(index * 8 * count, 8 * count)]
        )
        for index, name in enumerate(_PLACES)
    }


@lru_cache(maxsize=4)
def _rising(size: int) -> npt.NDArray[np.int64]:
    return np.arange(size)


def _nullable(columns: Columns, place: int, bits: int) -> pa.Array:
    """Return the numbers at a place of a group's payload, with their validity if they have one."""
    count = columns.count
    if place < 0:
        return nulls(pa.int64(), count)
    data = pa.py_buffer(columns.data[place : place + 8 * count])
    mask = None if bits < 0 else pa.py_buffer(columns.data[bits : bits - -count // 8])
    return pa.Array.from_buffers(pa.int64(), count, [mask, data])


def _chunk_batch(log: str, step: Step, chunk: Chunk, *, attributes: bool) -> pa.RecordBatch:
    """Return the records of a chunk as one batch; bodies are views into the segment."""
    count, columns, (places, lengths) = chunk.count, chunk.numbers, chunk.places
    bits = -(-count // 8)
    arrays = whole_records(SYSTEM_NAME, log, step.file.path, Clock.WALL_US, count) | {
        "offset": numbers(places, None),
        "length": numbers(lengths, None),
        "sequence": numbers(columns[LSN], None),
        "time": numbers(columns[TIME], None),
        "transaction": numbers(columns[TRANSACTION], chunk.valid[0, :bits]),
        "record_id": numbers(columns[KEY], chunk.valid[1, :bits]),
        "resources": no_texts(count),
        "body": viewed(chunk.views, None, pa.py_buffer(chunk.data)),
    }
    if attributes:
        # Those of its group are all that a bare record has.
        groups, sizes = chunk.groups(), chunk.group_sizes()
        texts = [json_text(group_attributes(at, step.view.header.number)) for at, _, _ in groups]
        indices = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
        arrays["attributes"] = coded(indices, pa.array(texts, pa.string()))
    return record_batch(arrays | _kinds_and_types(chunk.codes, count), count)


def _kinds_and_types(codes: npt.NDArray[np.uint8], count: int) -> dict[str, pa.Array]:
    """Return both of ``count`` records; one code stands for all of them."""
    if len(codes) == 1:
        kind, type_name = NAMES[int(codes[0])]
        return {"kind": constant(kind.value, count), "type": constant(type_name, count)}
    kinds, types, kind_names, type_names = _names()
    return {"kind": coded(kinds[codes], kind_names), "type": coded(types[codes], type_names)}


@cache
def _names() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], pa.Array, pa.Array]:
    """Return the place of each known code in the dictionaries of kinds and types, and these."""
    kinds = [*{kind.value: None for kind, _ in NAMES.values()}]
    kind_of, type_of = np.zeros(256, np.int8), np.zeros(256, np.int8)
    for place, (code, (kind, _)) in enumerate(NAMES.items()):
        kind_of[code], type_of[code] = kinds.index(kind.value), place
    return kind_of, type_of, pa.array(kinds), pa.array([name for _, name in NAMES.values()])
