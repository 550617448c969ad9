"""The scans of 2008 and 2009 exactly as they were, where they part from the sane one.

In: the bytes of one file. Out: rows as in `tallystick.systems.jboss.read.scan`, of healthy records
only, the maximum record id and the fault that made the loader throw, if one did.

g1a to g1c (section 3.2, column one): 32-bit sums overflow; a body that ends on the last byte of
the file underflows; after a length that reaches too far the scan goes on where it stands; every
record id that could be read raises the maximum id, healthy or not.
g1d: the file id is compared last, so a healthy stale record is skipped as a whole.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.jboss.format.layout import Shape
from tallystick.systems.jboss.read.scan import ROW, ROWS, Row, for_kernel, measure, numbers, signed4

NEGATIVE_ARRAY, OUT_OF_MEMORY, UNDERFLOW, BAD_POSITION = range(1, 5)
UNDERFLOW_TEXT = "java.nio.BufferUnderflowException"
_TEXTS = {
    NEGATIVE_ARRAY: "java.lang.NegativeArraySizeException: {0}",
    OUT_OF_MEMORY: "java.lang.OutOfMemoryError: Requested array size exceeds VM limit",
    UNDERFLOW: UNDERFLOW_TEXT,
    BAD_POSITION: "java.lang.IllegalArgumentException: newPosition < 0: ({0} < 0)",
}
JAVA_ARRAY_MAX = 1 << 30
"""A body that claims more than this was beyond the heap of any server of 2008."""


@kernel
def wrap4(value: int) -> int:
    """A sum as Java's 32-bit int has it."""
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


@kernel
def signed8(data: Any, at: int) -> int:
    """The i8 at ``at``."""
    low = signed4(data, at + 4) & 0xFFFFFFFF
    return (signed4(data, at) << 32) | low


@kernel
def body_2008(data: Any, place: int, end: int, has_type: int) -> tuple[int, int, int]:
    """Read length and body at ``place``: (fault, length, place behind), length -1 for go on."""
    length = signed4(data, place)
    place += 4
    if wrap4(place + length) > end:
        return 0, -1, place
    if has_type:
        if place + 1 > end:
            return 3, 0, place
        place += 1
    if length < 0:
        return 1, length, place
    if length > JAVA_ARRAY_MAX:
        return 2, length, place
    if place + length > end:
        return 3, 0, place
    return 0, length, place + length


@kernel
def ending_2008(data: Any, place: int, end: int, extra: bool) -> tuple[int, int, int]:
    """Read the counts of a commit or prepare: (fault, variable size, place behind)."""
    more = 0
    if extra:
        if place + 4 > end:
            return 3, 0, place
        more = signed4(data, place)
        place += 4
    if place + 4 > end:
        return 3, 0, place
    return 0, wrap4(more + wrap4(8 * signed4(data, place))), place + 4


@kernel
def step_2008(data: Any, at: int, end: int, stamp: int, shape: Any, state: Any) -> tuple[int, int]:
    """One turn of the loop of 2008 at ``at``: (size or 0, next position); -fault as size."""
    kind = int(data[at])
    place = at + 1
    if kind < 11 or kind > 19 or place + 4 > end:
        return 0, place
    if signed4(data, place) != stamp:
        return 0, at + 1
    place += 4
    in_transaction = kind == 13 or kind == 14 or kind == shape[3] or kind >= 17
    if in_transaction:
        if place + 8 > end:
            return 0, place
        place += 8
    if kind < 17:
        if place + 8 > end:
            return 0, place
        state[1] = max(state[1], signed8(data, place))
        place += 8
    fixed = 17 + (8 if in_transaction and kind < 17 else 0)
    variable = 0
    fault = 0
    if kind <= 14 or (kind == shape[3] and shape[4]):
        has_type = 1 if kind <= 14 else 0
        if place + 4 > end:
            return 0, place
        fault, variable, place = body_2008(data, place, end, has_type)
        if not fault and variable < 0:
            return 0, place
        fixed += 4 + has_type
    elif kind == 17 or kind == 18:
        extra = kind == 17 and shape[6] == 1
        fault, variable, place = ending_2008(data, place, end, extra)
        fixed += 8 if extra else 4
    if fault:
        state[3] = variable
        return -fault, place
    if wrap4(at + fixed + variable) > end:
        return 0, place
    last = wrap4(at + variable + fixed) - 4
    if last < 0:
        state[3] = last
        return -4, place
    if signed4(data, last) != variable + fixed:
        return 0, at + 1
    state[3] = variable
    return (-1, place) if variable < 0 else (fixed + variable, at + fixed + variable)


@kernel
def walk_2008(data: Any, end: int, stamp: int, shape: Any, state: Any, rows: Any) -> int:
    """As `walk`, for g1a to g1c. ``state``: next position, maximum record id,
    fault and the number that goes with it."""
    at = state[0]
    count = 0
    while at < end and count < len(rows) // 4 and state[2] == 0:
        size, following = step_2008(data, at, end, stamp, shape, state)
        if size < 0:
            state[2] = -size
        elif size > 0:
            rows[4 * count] = at
            rows[4 * count + 1] = size
            rows[4 * count + 2] = 0
            rows[4 * count + 3] = stamp
            count += 1
        at = at if size < 0 else following
    state[0] = at
    return count


@kernel
def underflows_2009(data: Any, at: int, end: int) -> bool:
    """True if a body with a user type reaches exactly to the end, where g1d reads on."""
    kind = int(data[at])
    if kind > 14:
        return False
    field = at + (13 if kind < 13 else 21)
    if field + 4 > end:
        return False
    length = signed4(data, field)
    return length >= 0 and field + 4 + length == end


@kernel
def walk_2009(data: Any, end: int, stamp: int, shape: Any, state: Any, rows: Any) -> int:
    """As `walk`, for g1d; stale rows are skipped whole. ``state`` as in `walk_2008`."""
    at = state[0]
    count = 0
    while at < end and count < len(rows) // 4:
        kind = int(data[at])
        if kind < 11 or kind > 19 or at + 5 > end:
            at += 1
            continue
        if underflows_2009(data, at, end):
            state[2] = 3
            break
        size = measure(data, at, end, shape)
        if size == 0 or signed4(data, at + size - 4) != size:
            at += 1
            continue
        if signed4(data, at + 1) == stamp:
            rows[4 * count] = at
            rows[4 * count + 1] = size
            rows[4 * count + 2] = 0
            rows[4 * count + 3] = stamp
            count += 1
        at += size
    state[0] = at
    return count


@dataclass(frozen=True, slots=True)
class OriginalScan:
    """What a g1 loader takes from one file; ``error`` is what it throws, empty if nothing."""

    rows: list[Row]
    max_id: int
    error: str


def original_scan(data: memoryview, shape: Shape, stamp: int, max_id: int) -> OriginalScan:
    """The scan of a g1 generation; ``max_id`` is that of the files before.

    Only g1a to g1c raise it here; from g1d on healthy records do, which is the caller's part.
    """
    state = array("q", [shape.header_size, max_id, 0, 0])
    buffer = array("q", bytes(8 * ROW * ROWS))
    loop = walk_2008 if shape.pairs else walk_2009
    raw, state_, buffer_ = (
        for_kernel(data, "u1"),
        for_kernel(state, "i8"),
        for_kernel(buffer, "i8"),
    )
    rows: list[Row] = []
    while state[0] < len(data) and not state[2]:
        count = loop(raw, len(data), stamp, numbers(shape), state_, buffer_)
        rows += (Row(*buffer[index : index + ROW]) for index in range(0, ROW * count, ROW))
    error = _TEXTS[state[2]].format(state[3]) if state[2] else ""
    return OriginalScan(rows, state[1], error)
