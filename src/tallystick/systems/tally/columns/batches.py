"""Groups as Arrow batches: the columns of the file are the columns of the batch.

In: steps of a scan. Out: `pyarrow.RecordBatch` objects that agree with ``records()`` row by row.
A large group becomes a batch without copying its bodies, numbers and validity; small groups are
joined, or come as runs. The bytes are those of the segment, which stays mapped as long as a batch
uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache

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
from tallystick.arrow.schemas import RECORDS, json_text, record_batches
from tallystick.errors import CorruptLogError
from tallystick.records import Clock, Record
from tallystick.systems.tally.format.columns import Columns
from tallystick.systems.tally.format.kinds import WITH_RESOURCES, Code, name_of
from tallystick.systems.tally.format.layout import HEADER_SIZE, PACKED, SYSTEM_NAME, GroupHeader
from tallystick.systems.tally.format.sealing import KeyMissingError
from tallystick.systems.tally.read.records import (
    columns_of,
    group_attributes,
    records_of,
    step_records,
)
from tallystick.systems.tally.read.scan import Step
from tallystick.systems.tally.runs.chunk import Chunk
from tallystick.systems.tally.runs.pieces import chunk_of
from tallystick.systems.tally.runs.walk import KEY, LSN, TIME, TRANSACTION

_JOIN_ROWS_MAX = 1024
"""Groups of at least so many records are wrapped without copying; smaller ones are joined."""
_SPECIAL = marked((*WITH_RESOURCES, Code.PREPARE))
"""Codes with columns that are filled from their bodies."""
_BARE = marked((Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE, Code.BEGIN))
"""Codes of which a record has no attributes but those of its group, unless it has a user type."""
_ATTRIBUTES = pa.field("attributes", pa.dictionary(pa.int32(), pa.string()))
_INDEX = pa.int8()
_DICTIONARY = pa.dictionary(_INDEX, pa.string())
_CODED = ("system", "log", "file", "outcome", "kind", "type", "clock")
_PLACES = ("offset", "length", "sequence", "time")
SCHEMA = pa.schema(
    [pa.field(one.name, _DICTIONARY if one.name in _CODED else one.type) for one in RECORDS]
)
"""`RECORDS` with dictionary-encoded strings."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The columns of one group as arrays over the file's bytes."""

    header: GroupHeader
    columns: Columns
    codes: npt.NDArray[np.uint8] | None
    """None where all records have the code of the header."""
    ends: npt.NDArray[np.int32]

    @property
    def count(self) -> int:
        return self.header.count


class BatchBuilder:
    """Turns whole groups into batches of at most ``rows`` rows, in order.

    Small groups of one file are joined; a large group becomes a batch of its own.
    """

    def __init__(self, log: str, key: bytes | None, rows: int, *, attributes: bool = False) -> None:
        self._log = log
        self._key = key
        self._rows = rows
        self._attributes = attributes
        self._waiting: list[_Part] = []
        self._waiting_rows = 0
        self._path = ""

    def add(self, step: Step) -> list[pa.RecordBatch]:
        """Take the groups of a step; return the batches that are complete by now."""
        chunk = chunk_of(step.place)
        part = _part(step, self._key) if chunk is None else None
        alone = part is None or part.count >= _JOIN_ROWS_MAX
        full = self._waiting_rows + (part.count if part else 0) > self._rows
        changed = step.file.path != self._path
        # What waits comes before the groups of this step.
        batches = self.flush() if alone or full or changed else []
        self._path = step.file.path
        if chunk is not None:
            if chunk.count:
                batches.append(_chunk_batch(self._log, self._path, chunk))
        elif part is None:
            records = step_records(step, self._key)
            batches += record_batches(records, self._log, Clock.WALL_US.value)
        elif alone:
            batches += self._batches([part])
        else:
            self._waiting.append(part)
            self._waiting_rows += part.count
        return batches

    def flush(self) -> list[pa.RecordBatch]:
        """Return the groups that wait to be joined with others."""
        if not self._waiting:
            return []
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        return self._batches(waiting)

    def _batches(self, parts: list[_Part]) -> list[pa.RecordBatch]:
        batch = _batch(self._log, self._path, parts)
        if self._attributes:
            place = batch.schema.get_field_index("attributes")
            batch = batch.set_column(place, _ATTRIBUTES, _attributes(parts))
        return list(sliced(batch, self._rows))


def step_batches(
    log: str, steps: Iterable[Step], key: bytes | None, rows: int, *, attributes: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the steps in batches of at most ``rows`` rows.

    With ``attributes`` that column is filled; the steps must have no chunks then.
    """
    builder = BatchBuilder(log, key, rows, attributes=attributes)
    for step in steps:
        yield from builder.add(step)
    yield from builder.flush()


def _part(step: Step, key: bytes | None) -> _Part | None:
    """Return the arrays of a whole group; None where its records have to be made one by one."""
    header = step.place.header
    if header is None or not step.place.case.whole or not header.count:
        return None
    try:
        columns = columns_of(step.view.payload(header), header, key)
        if columns.gtrids >= 0:
            # Decoded for their check alone: it raises where the gtrids do not fit.
            columns.records()  # their offsets rise
    except (KeyMissingError, CorruptLogError):
        return None
    count = header.count
    ends = np.frombuffer(columns.data, "<i4", count + 1, columns.offsets)
    if ends[0] != 0 or (count > 1 and bool((ends[1:] < ends[:-1]).any())):
        return None
    codes = None
    if columns.codes >= 0:
        codes = np.frombuffer(columns.data, np.uint8, count, columns.codes)
    _, types, _, _ = _names()
    if bool((types[columns.code if codes is None else codes] < 0).any()):
        return None
    return _Part(header, columns, codes, ends)


def _batch(log: str, path: str, parts: list[_Part]) -> pa.RecordBatch:
    count = sum(part.count for part in parts)
    arrays = {
        **whole_records(SYSTEM_NAME, log, path, Clock.WALL_US, count),
        **_places(parts, count),
        "transaction": _nullable(parts, "transactions", "transaction_validity", count),
        "record_id": _nullable(parts, "keys", "key_validity", count),
        "body": _bodies(parts),
        "gtrid": _gtrids(parts, count),
        "attributes": nulls(pa.string(), count),
        **_coded(parts, count),
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def _places(parts: list[_Part], count: int) -> dict[str, pa.Array]:
    """Return place, size, LSN and time of each record: columns in one buffer.

    The buffer comes from Arrow's allocator, which keeps the memory of batches that were dropped;
    NumPy gives it back, and half of the time went into page faults.
    """
    buffer = pa.allocate_buffer(len(_PLACES) * 8 * count)
    columns = np.frombuffer(buffer, np.int64).reshape(len(_PLACES), count)
    row = 0
    for part in parts:
        _fill_places(part, columns[:, row : row + part.count])
        row += part.count
    return {
        name: pa.Array.from_buffers(
            pa.int64(), count, [None, buffer.slice(index * 8 * count, 8 * count)]
        )
        for index, name in enumerate(_PLACES)
    }


def _fill_places(part: _Part, columns: npt.NDArray[np.int64]) -> None:
    header = part.header
    offsets, lengths, lsns, times = columns
    np.add(_rising(1 << part.count.bit_length())[: part.count], header.first_lsn, out=lsns)
    times.fill(header.time_us)
    if header.flags & PACKED:
        offsets.fill(header.offset)
        lengths.fill(header.length)
        return
    # Widened first, then added to: half the time of an addition that has to widen.
    offsets[:] = part.ends[:-1]
    offsets += header.offset + HEADER_SIZE + part.columns.bodies
    np.subtract(part.ends[1:], part.ends[:-1], out=lengths)


@lru_cache(maxsize=4)
def _rising(size: int) -> npt.NDArray[np.int64]:
    return np.arange(size)


def _bodies(parts: list[_Part]) -> pa.Array:
    if len(parts) == 1:
        one = parts[0]
        buffers = [
            None,
            pa.py_buffer(one.ends),
            pa.py_buffer(one.columns.data[one.columns.bodies :]),
        ]
        return pa.Array.from_buffers(pa.binary(), one.count, buffers)
    bases = np.cumsum([0, *(int(part.ends[-1]) for part in parts)])
    # Each part's offsets count from its own bodies; joined, from the first part's.
    ends = [part.ends[:-1] + base for part, base in zip(parts, bases, strict=False)]
    offsets = np.concatenate([*ends, bases[-1:]]).astype(np.int32)
    data = b"".join(bytes(part.columns.data[part.columns.bodies :]) for part in parts)
    count = sum(part.count for part in parts)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _nullable(parts: list[_Part], values: str, validity: str, count: int) -> pa.Array:
    """Return a column of 64-bit numbers; wrapped if there is one group, joined otherwise."""
    if all(getattr(part.columns, values) < 0 for part in parts):
        return nulls(pa.int64(), count)
    arrays = [_one_nullable(part, values, validity) for part in parts]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _one_nullable(part: _Part, values: str, validity: str) -> pa.Array:
    columns, count = part.columns, part.count
    place, bits = getattr(columns, values), getattr(columns, validity)
    if place < 0:
        return nulls(pa.int64(), count)
    data = pa.py_buffer(columns.data[place : place + 8 * count])
    mask = None if bits < 0 else pa.py_buffer(columns.data[bits : bits - -count // 8])
    return pa.Array.from_buffers(pa.int64(), count, [mask, data])


def _gtrids(parts: list[_Part], count: int) -> pa.Array:
    if all(part.columns.gtrids < 0 for part in parts):
        return nulls(pa.binary(), count)
    values = [one.gtrid or None for part in parts for one in part.columns.records()]
    return pa.array(values, pa.binary())


def _coded(parts: list[_Part], count: int) -> dict[str, pa.Array]:
    """Return the columns that follow from the codes."""
    uniform = {part.columns.code if part.codes is None else -1 for part in parts}
    code = uniform.pop() if len(uniform) == 1 else -1
    if code >= 0:
        kind, type_name = name_of(code)
        names = {"kind": constant(kind.value, count), "type": constant(type_name, count)}
        special = bool(_SPECIAL[code])
    else:
        codes = np.concatenate([_codes(part) for part in parts])
        names = _kinds_and_types(codes)
        special = bool(_SPECIAL[codes].any())
    return names | _special(parts if special else [], count)


def _codes(part: _Part) -> npt.NDArray[np.uint8]:
    if part.codes is not None:
        return part.codes
    return np.full(part.count, part.columns.code, np.uint8)


def _special(parts: list[_Part], count: int) -> dict[str, pa.Array]:
    """Return the columns that are filled from bodies; all null without parts."""
    types = {name: RECORDS.field(name).type for name in ("format_id", "bqual", "resources")}
    if not parts:
        return {
            "format_id": nulls(types["format_id"], count),
            "bqual": nulls(types["bqual"], count),
            "resources": no_texts(count),
        }
    records = [record for part in parts for record in _part_records(part)]
    return {
        "format_id": pa.array([one.format_id for one in records], types["format_id"]),
        "bqual": pa.array([one.bqual for one in records], types["bqual"]),
        "resources": pa.array([list(one.resources) for one in records], types["resources"]),
    }


def _attributes(parts: list[_Part]) -> pa.Array:
    """Return the attributes as JSON: in a group of bare records the same text for each."""
    texts: list[str | None] = []
    indices = np.empty(sum(part.count for part in parts), np.int32)
    row = 0
    for part in parts:
        rows = indices[row : row + part.count]
        if _BARE[_codes(part)].all() and part.columns.user_types < 0:
            texts.append(json_text(group_attributes(part.header.offset, part.header.segment)))
            rows.fill(len(texts) - 1)
        else:
            rows[:] = np.arange(len(texts), len(texts) + part.count)
            texts.extend(json_text(one.attributes) for one in _part_records(part))
        row += part.count
    return coded(indices, pa.array(texts, pa.string()))


def _part_records(part: _Part) -> Iterator[Record]:
    # The payload is unpacked here, whatever the group's flags say of the stored one.
    plain = part.header if not part.header.flags & PACKED else _unpacked(part.header)
    return records_of("", part.columns.data, plain, None, salvaged=False)


def _unpacked(header: GroupHeader) -> GroupHeader:
    return replace(header, flags=header.flags & ~PACKED)


# -- chunks -----------------------------------------------------------------------


def _chunk_batch(log: str, path: str, chunk: Chunk) -> pa.RecordBatch:
    """Return the records of a chunk as one batch; bodies are views into the segment."""
    count, columns, (places, lengths) = chunk.count, chunk.numbers, chunk.places
    bits = -(-count // 8)
    arrays = whole_records(SYSTEM_NAME, log, path, Clock.WALL_US, count) | {
        "offset": numbers(places, None),
        "length": numbers(lengths, None),
        "sequence": numbers(columns[LSN], None),
        "time": numbers(columns[TIME], None),
        "transaction": numbers(columns[TRANSACTION], chunk.valid[0, :bits]),
        "record_id": numbers(columns[KEY], chunk.valid[1, :bits]),
        "resources": no_texts(count),
        "body": viewed(chunk.views, None, pa.py_buffer(chunk.data)),
    }
    return record_batch(arrays | _kinds_and_types(chunk.codes), count)


def _kinds_and_types(codes: npt.NDArray[np.uint8]) -> dict[str, pa.Array]:
    kinds, types, kind_names, type_names = _names()
    return {"kind": coded(kinds[codes], kind_names), "type": coded(types[codes], type_names)}


@cache
def _names() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], pa.Array, pa.Array]:
    """Return the place of each code in the dictionaries of kinds and types, and these.

    The type of a code that nobody writes may have no place, which is -1 then.
    """
    pairs = [name_of(code) for code in range(256)]
    known = [code for code in range(256) if code in set(Code)]
    kinds = list(dict.fromkeys(pairs[code][0].value for code in (*known, 0)))
    types = [pairs[code][1] for code in known]
    # The index of a dictionary has 8 bits with a sign; codes that do not fit get -1, and their
    # groups are read record by record.
    types += [f"code {code}" for code in range(256) if code not in set(Code)][: 127 - len(types)]
    kind_of = np.array([kinds.index(pair[0].value) for pair in pairs], np.int8)
    type_of = np.array([types.index(p[1]) if p[1] in types else -1 for p in pairs], np.int8)
    return kind_of, type_of, pa.array(kinds), pa.array(types)
