"""Where the records of a file lie: the scan of the loaders, as compiled kernels.

In: the bytes of one file, the stamp of its header, a `Shape`. Out: rows of four numbers,
(offset, size, status, file id), in order of offsets. The scan follows section 3.2 of the format:

1. a byte that is no record type: next position;
2. the fields give a size, the check at its end must agree, the file id must be the header's;
3. if so, the record is taken and the scan goes on right behind it; if not, at the next position.

So a whole record inside a damaged one is found, and nothing inside a healthy one. Beside
the records that count (`VALID`) the rows hold what a person wants to know of: healthy records
under another file id (`STALE`; none inside another such), places where type and file id are
right and the rest is not (`DAMAGED`), and healthy records of the second shape (`OTHER`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.jboss.format.layout import I8, SHAPES, Name, Shape

VALID, STALE, DAMAGED, OTHER = range(4)
ROW = 4
"""Numbers in a row: offset, size (0 where it is not known), status, file id."""
ROWS = 8192
"""Rows of one piece of a scan."""

# A hash costs its record's length at every place that looks like one; more than this many times
# the file's size is not spent on them, so that the scan stays linear whatever the bytes.
HASHED_MAX = 16

ShapeNumbers = tuple[int, int, int, int, int, int, int, int, int]
# The kernels' view of a shape: compact, lowest type, DELETE, DELETE_TX, DELETE_TX has a body,
# pairs, extra data, hashed, header size.


def numbers(shape: Shape, *, events: bool | None = None) -> ShapeNumbers:
    """The shape as the kernels take it; ``events`` overrides whether type 10 is known."""
    known = shape.events if events is None else events
    return (
        shape.compact,
        int(Name.EVENT if known else Name.ADD),
        shape.type_byte(Name.DELETE),
        shape.type_byte(Name.DELETE_TX),
        int(shape.delete_body),
        int(shape.pairs),
        int(shape.extra),
        int(shape.hashed),
        shape.header_size,
    )


def _crc_table() -> array[int]:
    table = array("q")
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0xEDB88320 if byte & 1 else 0)
        table.append(byte)
    return table


@kernel
def signed4(data: Any, at: int) -> int:
    """The i4 at ``at``."""
    high = int(data[at])
    if high >= 128:
        high -= 256
    return (high << 24) | (int(data[at + 1]) << 16) | (int(data[at + 2]) << 8) | int(data[at + 3])


@kernel
def measure(data: Any, at: int, end: int, shape: Any) -> int:
    """Size that the record at ``at`` claims; 0 if its fields make none that ends by ``end``."""
    kind = int(data[at])
    size = 17 + shape[0]
    field = at + 13 + shape[0]
    if kind <= 14:  # EVENT, ADD, UPDATE; ADD_TX, UPDATE_TX
        size += 5
        if kind >= 13:
            size += 8
            field += 8
        if field + 4 > end:
            return 0
        body = signed4(data, field)
        size = 0 if body < 0 else size + body
    elif kind == shape[3]:
        size += 8
        if shape[4]:
            if field + 12 > end:
                return 0
            body = signed4(data, field + 8)
            size = 0 if body < 0 else size + 4 + body
    elif kind == 17 or kind == 18:
        size = measure_ending(data, field, end, shape, size + 4, kind == 17 and shape[6] == 1)
    return size if at + size <= end else 0


@kernel
def measure_ending(data: Any, field: int, end: int, shape: Any, size: int, extra: bool) -> int:
    """Size of a commit or prepare whose fields begin at ``field``; 0 if they make none."""
    if field + (8 if extra else 4) > end:
        return 0
    first = signed4(data, field)
    if not extra:
        if not shape[5]:
            return size
        return 0 if first < 0 else size + 8 * first
    second = signed4(data, field + 4)
    if not shape[5]:
        return 0 if second < 0 else size + 4 + second
    return 0 if first < 0 or second < 0 else size + 4 + first + 8 * second


@kernel
def check_is_right(data: Any, at: int, size: int, hashed: int, table: Any) -> bool:
    """True if the last four bytes of the record are its size, or its CRC-32."""
    found = signed4(data, at + size - 4)
    if not hashed:
        return found == size
    crc = 0xFFFFFFFF
    for place in range(at, at + size - 4):
        crc = table[(crc ^ int(data[place])) & 0xFF] ^ (crc >> 8)
    return found & 0xFFFFFFFF == crc ^ 0xFFFFFFFF


@kernel
def walk(
    data: Any, end: int, stamp: int, shape: Any, second: Any, table: Any, state: Any, rows: Any
) -> int:
    """Fill ``rows`` from ``state`` on; returns how many. Done when it is less than fit.

    ``state``: next position, end of the last stale row, bytes that may still be hashed, and
    where the scan stops: no row begins there or behind.
    ``second`` is tried on places with the right stamp that ``shape`` does not fit; it is
    ``shape`` itself where there is nothing to try.
    """
    at, stale_end, budget, stop = state[0], state[1], state[2], state[3]
    count = 0
    room = len(rows) // 4
    two_shapes = second[0] != shape[0]
    while at < stop and count < room:
        kind = int(data[at])
        if kind < shape[1] or kind > 19 or at + 5 > end:
            at += 1
            continue
        found = signed4(data, at + 1)
        size = measure(data, at, end, shape)
        status = 0
        if size and shape[7]:
            budget -= size
            if budget < 0:
                size = 0
        if size == 0 or not check_is_right(data, at, size, shape[7], table):
            status = 2
            if two_shapes and found == stamp:
                size = measure(data, at, end, second)
                if size and check_is_right(data, at, size, second[7], table):
                    status = 3
        elif found != stamp:
            status = 1
        if (status == 2 and found != stamp) or (status == 1 and at < stale_end):
            at += 1
            continue
        rows[4 * count] = at
        rows[4 * count + 1] = size
        rows[4 * count + 2] = status
        rows[4 * count + 3] = found
        count += 1
        if status == 1:
            stale_end = at + size
        at += size if status == 0 or status == 3 else 1
    state[0], state[1], state[2] = at, stale_end, budget
    return count


COMPILED = hasattr(walk, "py_func")
_TABLE = _crc_table()


def for_kernel(buffer: Any, kind: str) -> Any:
    """The buffer as the kernels take it: a NumPy array where they are compiled."""
    if not COMPILED:
        return buffer
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
    """The rows of a file in pieces of at most ``rows``, four numbers each, as one flat array.

    The scan begins behind the header and ends before ``stop``, or with the file. The array is
    used again for the next piece.
    """
    last = len(data) if stop is None else stop
    state = array("q", [shape.header_size, 0, HASHED_MAX * len(data), last])
    buffer = array("q", bytes(8 * ROW * rows))
    first = numbers(shape, events=events)
    other = first if second is None else numbers(second, events=False)
    raw, table = for_kernel(data, "u1"), for_kernel(_TABLE, "i8")
    state_, buffer_ = for_kernel(state, "i8"), for_kernel(buffer, "i8")
    while state[0] < last:
        count = walk(raw, len(data), stamp, first, other, table, state_, buffer_)
        yield buffer[: ROW * count]


def scan(
    data: memoryview,
    shape: Shape,
    stamp: int,
    *,
    second: Shape | None = None,
    events: bool | None = None,
) -> Iterator[Row]:
    """The rows of a file one by one."""
    for piece in pieces(data, shape, stamp, second=second, events=events):
        for index in range(0, len(piece), ROW):
            yield Row(*piece[index : index + ROW])


def measure_at(data: memoryview, offset: int, shape: Shape) -> int:
    """Size of the healthy record at ``offset``, 0 if there is none."""
    if offset + 5 > len(data) or not Name.EVENT <= data[offset] <= Name.ROLLBACK:
        return 0
    size = measure(data, offset, len(data), numbers(shape))
    right = size and check_is_right(data, offset, size, int(shape.hashed), _TABLE)
    return size if right else 0


def transaction_at(data: memoryview, offset: int, shape: Shape) -> int | None:
    """The i8 where a transactional record at ``offset`` has its transaction, healthy or not."""
    at = offset + shape.fields_at
    return I8.unpack_from(data, at)[0] if at + I8.size <= len(data) else None


SECOND_SHAPE = {"g2": SHAPES["g3"]}
"""Format 2 code appends to format 1 files without a look at their header."""
