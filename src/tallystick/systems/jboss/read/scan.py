"""Find the records of a file: the scan of the loaders, compiled where that pays.

In: the bytes of one file, the stamp of its header, a `Shape`. Out: rows of four numbers,
(offset, size, status, file id), by offset. The scan, as in
docs/formats/jboss.md, "Finding records":

1. a byte that is no record type: next position;
2. the fields give a size, the check at its end must agree, the file id must be the header's;
3. if so, the record is taken and the scan continues after it; if not, at the next position.

So a whole record inside a damaged one is found, and nothing inside a valid one. Besides the
records that count (`VALID`) the rows hold whole records under another file id (`STALE`; none
inside another stale one), places where type and file id are right and the rest is not
(`DAMAGED`), and whole records of the second shape (`OTHER`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tallystick.arrow.numba_kernel import (
    compiled_of,
    has_compiler,
    has_twin,
    lazy_kernel,
    lazy_small_kernel,
    pays,
)
from tallystick.arrow.plain_bytes import be_int32, be_uint32, crc32_of
from tallystick.storage.mapped import NEAR, let_go
from tallystick.storage.zeros import last_other_end
from tallystick.systems.jboss.format.layout import (
    ADD,
    ADD_TX,
    CHECK_SIZE,
    COMMIT,
    COUNT_SIZE,
    EVENT,
    FILL,
    I8,
    ID_SIZE,
    PAIR_SIZE,
    PREPARE,
    RECORD_SIZE_MIN,
    ROLLBACK,
    SHAPES,
    STAMP_SIZE,
    UPDATE_TX,
    USER_TYPE_SIZE,
    RecordType,
    Shape,
)

VALID, STALE, DAMAGED, OTHER = range(4)
ROW = 4
OFFSET, SIZE, STATUS, FILE_ID = range(ROW)
"""Numbers in a row; the size is 0 where it is not known."""
ROWS = 8192
"""Rows of one piece of a scan."""
COMPILED_FROM = 1 << 20
"""Bytes of a file from which on it pays to load the compiler for the scan."""
LOADED_FROM = 1 << 12
"""The same where the compiler is loaded already."""
SECOND_SHAPE = {"g2": SHAPES["g3"]}
"""Format 2 code appends to format 1 files without reading their header."""

# A hash costs its record's length at every place that looks like one; the scan hashes at most this
# many times the file's size, so that it stays linear whatever the bytes are.
_HASHED_MAX = 16
_AFTER_FIRST_ID = STAMP_SIZE + ID_SIZE


class ShapeNumbers(NamedTuple):
    """A `Shape` as kernels take it: flags are 0 or 1, types are bytes on disk."""

    compact: int
    type_min: int
    delete_tx: int
    delete_body: int
    pairs: int
    extra: int
    hashed: int
    header_size: int


def numbers(shape: Shape, *, events: bool | None = None) -> ShapeNumbers:
    """Return the shape as kernels take it; ``events`` overrides whether EVENT is a type."""
    known = shape.events if events is None else events
    return ShapeNumbers(
        shape.compact,
        EVENT if known else ADD,
        shape.type_byte(RecordType.DELETE_TX),
        int(shape.delete_body),
        int(shape.pairs),
        int(shape.extra),
        int(shape.hashed),
        shape.header_size,
    )


@lazy_kernel
def measure(data: Any, at: int, end: int, shape: Any) -> int:
    """Return the size that the record at ``at`` claims; 0 if it would not end by ``end``."""
    kind = int(data[at])
    size = RECORD_SIZE_MIN + shape.compact
    field = at + _AFTER_FIRST_ID + shape.compact
    if kind <= UPDATE_TX:
        size += COUNT_SIZE + USER_TYPE_SIZE
        if kind >= ADD_TX:
            size += ID_SIZE
            field += ID_SIZE
        if field + COUNT_SIZE > end:
            return 0
        # Sums here are of 64 bits and never wrap: a length that overflowed in the loaders of 2008
        # is just too large.
        body = be_int32(data, field)
        size = 0 if body < 0 else size + body
    elif kind == shape.delete_tx:
        size += ID_SIZE
        if shape.delete_body:
            if field + ID_SIZE + COUNT_SIZE > end:
                return 0
            body = be_int32(data, field + ID_SIZE)
            size = 0 if body < 0 else size + COUNT_SIZE + body
    elif kind in (PREPARE, COMMIT):
        extra = kind == PREPARE and shape.extra == 1
        size = measure_ending(data, field, end, shape, size + COUNT_SIZE, extra)
    return size if at + size <= end else 0


@lazy_kernel
def measure_ending(data: Any, field: int, end: int, shape: Any, size: int, extra: bool) -> int:
    """Return the size of a commit or prepare with its first count at ``field``; 0 if impossible.

    ``size`` is without what depends on the counts, ``extra`` tells whether extra data follow.
    """
    if field + (2 * COUNT_SIZE if extra else COUNT_SIZE) > end:
        return 0
    first = be_int32(data, field)
    if not extra:
        if not shape.pairs:
            return size
        return 0 if first < 0 else size + PAIR_SIZE * first
    second = be_int32(data, field + COUNT_SIZE)
    if not shape.pairs:
        return 0 if second < 0 else size + COUNT_SIZE + second
    return 0 if first < 0 or second < 0 else size + COUNT_SIZE + first + PAIR_SIZE * second


@lazy_kernel
def check_is_right(data: Any, at: int, size: int, hashed: int) -> bool:
    """Return whether the last four bytes of the record are its size, or its CRC-32."""
    check = at + size - CHECK_SIZE
    if hashed:
        return bool(be_uint32(data, check) == crc32_of(data, at, check))
    return bool(be_int32(data, check) == size)


@lazy_small_kernel
def put_row(rows: Any, index: int, offset: int, size: int, status: int, file_id: int) -> None:
    """Store one row."""
    place = ROW * index
    rows[place] = offset
    rows[place + 1] = size
    rows[place + 2] = status
    rows[place + 3] = file_id


@lazy_small_kernel
def record_at(
    data: Any, at: int, end: int, own: bool, shape: Any, second: Any, budget: int
) -> tuple[int, int, int]:
    """Return (size, status, rest of ``budget``) of what has a record's type at ``at``.

    ``own``: it carries the file's id. ``budget``: bytes that may still be hashed.
    """
    size = measure(data, at, end, shape)
    if size and shape.hashed:
        budget -= size
        if budget < 0:
            size = 0
    if size and check_is_right(data, at, size, shape.hashed):
        return size, VALID if own else STALE, budget
    if own and second.compact != shape.compact:
        size = measure(data, at, end, second)
        if size and check_is_right(data, at, size, second.hashed):
            return size, OTHER, budget
    return size, DAMAGED, budget


@lazy_small_kernel
def next_type_compiled(data: Any, at: int, stop: int, lowest: int) -> int:
    """Do what `next_type` does, over an array."""
    while at < stop and not lowest <= int(data[at]) <= ROLLBACK:
        at += 1
    return at


_TYPES = {lowest: re.compile(b"[%c-%c]" % (lowest, ROLLBACK), re.DOTALL) for lowest in (EVENT, ADD)}


def _next_type(data: Any, at: int, stop: int, lowest: int) -> int:
    found = _TYPES[lowest].search(data, at, stop)
    return stop if found is None else found.start()


next_type = has_twin(_next_type, __name__, "next_type_compiled")
"""``next_type(data, at, stop, lowest)``: the next place of a byte from ``lowest`` to `ROLLBACK`.

``stop`` if there is none: files are filled with bytes that are none, and in plain Python only a
search passes over them fast."""


@lazy_kernel
def walk(data: Any, end: int, stamp: int, shape: Any, second: Any, state: Any, rows: Any) -> int:
    """Fill ``rows`` and return how many.

    ``state``: next position, end of the last stale row, bytes that may still be hashed, and
    where the scan stops: no row begins there or later. ``second`` is tried where the stamp is
    right and ``shape`` does not fit; it is ``shape`` itself where there is no second one.
    """
    at, stale_end, budget, stop = state[0], state[1], state[2], state[3]
    count = 0
    fitting = len(rows) // ROW
    lowest = shape.type_min
    while at < stop and count < fitting:
        kind = int(data[at])
        if kind < lowest or kind > ROLLBACK or at + STAMP_SIZE > end:
            at = next_type(data, at + 1, stop, lowest)
            continue
        found = be_int32(data, at + 1)
        own = found == stamp
        size, status, budget = record_at(data, at, end, own, shape, second, budget)
        if (status == DAMAGED and not own) or (status == STALE and at < stale_end):
            at += 1
            continue
        put_row(rows, count, at, size, status, found)
        count += 1
        if status == STALE:
            stale_end = at + size
        # Not after the size that a damaged or stale record claims: whole records of this life may
        # begin inside it (format, Finding records).
        at += size if status in (VALID, OTHER) else 1
    state[0], state[1], state[2] = at, stale_end, budget
    return count


def chosen(walk: Any, size: int) -> tuple[Any, Callable[[Any, str], Any]]:
    """Return a walk, compiled where that pays, and what makes of a buffer what it takes.

    Args:
        walk: a lazy kernel.
        size: bytes that it is to walk over.
    """
    if pays(size, LOADED_FROM, COMPILED_FROM) and has_compiler():
        return compiled_of(walk), _array
    return walk, lambda buffer, _kind: buffer


def _array(buffer: Any, kind: str) -> Any:
    import numpy as np

    return np.frombuffer(buffer, dtype=np.dtype(kind))


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a scan. ``size`` of a `DAMAGED` place is what it claims, 0 if impossible."""

    offset: int
    size: int
    status: int
    file_id: int

    @property
    def end(self) -> int:
        """Offset of the byte after it."""
        return self.offset + self.size


def pieces(
    data: memoryview,
    shape: Shape,
    stamp: int,
    *,
    stop: int | None = None,
    second: Shape | None = None,
    events: bool | None = None,
    rows: int = ROWS,
) -> Iterator[array[int]]:
    """Yield the rows of a file in pieces of at most ``rows``, each one flat array.

    The scan begins after the header and ends before ``stop``, or with the file.
    """
    # No record begins with a byte of fill, and a file may be nearly all fill.
    last = last_other_end(data, 0, len(data) if stop is None else stop, FILL)
    state = array("q", [shape.header_size, 0, _HASHED_MAX * len(data), last])
    buffer = array("q", bytes(8 * ROW * rows))
    first = numbers(shape, events=events)
    other = first if second is None else numbers(second, events=False)
    made, array_of = chosen(walk, last - shape.header_size)
    raw = array_of(data, "u1")
    state_, buffer_ = array_of(state, "i8"), array_of(buffer, "i8")
    while state[0] < last:
        state[3] = min(state[0] + NEAR, last)
        count = made(raw, len(data), stamp, first, other, state_, buffer_)
        yield buffer[: ROW * count]
        let_go(data, state[0])


def scan(
    data: memoryview,
    shape: Shape,
    stamp: int,
    *,
    second: Shape | None = None,
    events: bool | None = None,
) -> Iterator[Row]:
    """Yield the rows of a file one by one."""
    for piece in pieces(data, shape, stamp, second=second, events=events):
        for index in range(0, len(piece), ROW):
            yield Row(*piece[index : index + ROW])


def measure_at(data: memoryview, offset: int, shape: Shape) -> int:
    """Return the size of the whole record at ``offset``; 0 if there is none."""
    if offset + STAMP_SIZE > len(data) or not EVENT <= data[offset] <= ROLLBACK:
        return 0
    size = measure(data, offset, len(data), numbers(shape))
    right = size and check_is_right(data, offset, size, int(shape.hashed))
    return size if right else 0


def number_at(data: memoryview, offset: int, shape: Shape, which: int = 0) -> int | None:
    """Return one of the first numbers of the record at ``offset``, even of a damaged one.

    Of a record of a transaction the first is that of the transaction, the second its record's.
    """
    at = offset + shape.fields_at + which * I8.size
    return I8.unpack_from(data, at)[0] if at + I8.size <= len(data) else None
