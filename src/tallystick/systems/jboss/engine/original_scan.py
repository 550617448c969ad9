"""Scan a file as the loaders of 2008 and 2009 did, with their defects.

In: the bytes of one file. Out: the rows of whole records as in
`tallystick.systems.jboss.read.scan`, the maximum record id, and the exception that the loader
throws, if any.

g1a to g1c: 32-bit sums overflow; a body that ends on the last byte of the file underflows; after a
length that is too large the scan continues at its position; every record id that could be read
raises the maximum id, even of a damaged record.
g1d: the file id is compared last, so a whole stale record is skipped as a whole.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from tallystick.arrow.numba_kernel import lazy_kernel
from tallystick.arrow.plain_bytes import be_int32, be_int64
from tallystick.storage.zeros import last_other_end
from tallystick.systems.jboss.format.layout import (
    ADD,
    ADD_TX,
    CHECK_SIZE,
    COMMIT,
    COUNT_SIZE,
    FILL,
    ID_SIZE,
    PAIR_SIZE,
    PREPARE,
    RECORD_SIZE_MIN,
    ROLLBACK,
    STAMP_SIZE,
    UPDATE_TX,
    USER_TYPE_SIZE,
    Shape,
)
from tallystick.systems.jboss.read.scan import (
    ROW,
    ROWS,
    VALID,
    Row,
    chosen,
    measure,
    next_type,
    numbers,
    put_row,
)

# What a step comes to; NO_RECORD is no fault: the scan continues at its position.
FINE, NEGATIVE_ARRAY, OUT_OF_MEMORY, UNDERFLOW, BAD_POSITION, NO_RECORD = range(6)
UNDERFLOW_TEXT = "java.nio.BufferUnderflowException"
_TEXTS = {
    NEGATIVE_ARRAY: "java.lang.NegativeArraySizeException: {0}",
    OUT_OF_MEMORY: "java.lang.OutOfMemoryError: Requested array size exceeds VM limit",
    UNDERFLOW: UNDERFLOW_TEXT,
    BAD_POSITION: "java.lang.IllegalArgumentException: newPosition < 0: ({0} < 0)",
}
JAVA_ARRAY_MAX = 1 << 30
"""A body that claims more bytes did not fit the heap of any server of 2008."""

# The state of a scan: next position, maximum record id, fault, the number in its text.
_AT, _MAX_ID, _FAULT, _NUMBER = range(4)
_TRANSACTIONAL_AT = STAMP_SIZE + 2 * ID_SIZE
_PLAIN_AT = STAMP_SIZE + ID_SIZE


@lazy_kernel
def wrap32(value: int) -> int:
    """Return a sum as Java's 32-bit int has it."""
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


@lazy_kernel
def body_2008(data: Any, place: int, end: int, has_type: int) -> tuple[int, int, int]:
    """Read length and body at ``place``: return (fault, length, place after them)."""
    if place + COUNT_SIZE > end:
        return NO_RECORD, 0, place
    length = be_int32(data, place)
    place += COUNT_SIZE
    # The sum of two 32-bit numbers overflows in Java, so a length near 2^31 passes this check.
    if wrap32(place + length) > end:
        # The loader ignores such a length and goes on after the length field, not after the type
        # byte (format, Finding records). So it misses a record that begins within the fields.
        return NO_RECORD, 0, place
    if has_type:
        if place + USER_TYPE_SIZE > end:
            return UNDERFLOW, 0, place
        place += USER_TYPE_SIZE
    if length < 0:
        return NEGATIVE_ARRAY, length, place
    if length > JAVA_ARRAY_MAX:
        return OUT_OF_MEMORY, length, place
    if place + length > end:
        return UNDERFLOW, 0, place
    return FINE, length, place + length


@lazy_kernel
def ending_2008(data: Any, place: int, end: int, extra: bool) -> tuple[int, int, int]:
    """Read the counts of a commit or prepare: return (fault, variable size, place after them)."""
    more = 0
    if extra:
        if place + COUNT_SIZE > end:
            return UNDERFLOW, 0, place
        more = be_int32(data, place)
        place += COUNT_SIZE
    if place + COUNT_SIZE > end:
        return UNDERFLOW, 0, place
    pairs = wrap32(PAIR_SIZE * be_int32(data, place))
    return FINE, wrap32(more + pairs), place + COUNT_SIZE


@lazy_kernel
def fields_2008(
    data: Any, place: int, end: int, kind: int, shape: Any
) -> tuple[int, int, int, int]:
    """Read the fields after the ids: return (fault, fixed size, variable size, place after them).

    The fixed size is that of a record with one id.
    """
    if kind <= UPDATE_TX or (kind == shape.delete_tx and shape.delete_body):
        has_type = 1 if kind <= UPDATE_TX else 0
        fault, variable, place = body_2008(data, place, end, has_type)
        return fault, RECORD_SIZE_MIN + COUNT_SIZE + has_type, variable, place
    if kind in (PREPARE, COMMIT):
        extra = kind == PREPARE and shape.extra == 1
        fault, variable, place = ending_2008(data, place, end, extra)
        counts = 2 * COUNT_SIZE if extra else COUNT_SIZE
        return fault, RECORD_SIZE_MIN + counts, variable, place
    return FINE, RECORD_SIZE_MIN, 0, place


@lazy_kernel
def ids_2008(
    data: Any, place: int, end: int, kind: int, in_transaction: bool, state: Any
) -> tuple[bool, int]:
    """Read transaction and record id at ``place``: return (they fit, place after them)."""
    if in_transaction:
        if place + ID_SIZE > end:
            return False, place
        place += ID_SIZE
    if kind < PREPARE:
        if place + ID_SIZE > end:
            return False, place
        # Before the record is checked, as in the original: a damaged record raises the maximum id,
        # too.
        state[_MAX_ID] = max(state[_MAX_ID], be_int64(data, place))
        place += ID_SIZE
    return True, place


@lazy_kernel
def step_2008(data: Any, at: int, end: int, stamp: int, shape: Any, state: Any) -> tuple[int, int]:
    """Do one turn of the loop of 2008 at ``at``: return (size or 0 or -fault, next position)."""
    kind = int(data[at])
    place = at + 1
    if kind < ADD or kind > ROLLBACK or at + STAMP_SIZE > end or be_int32(data, place) != stamp:
        return 0, place
    place = at + STAMP_SIZE
    in_transaction = ADD_TX <= kind <= UPDATE_TX or kind == shape.delete_tx or kind >= PREPARE
    fits, place = ids_2008(data, place, end, kind, in_transaction, state)
    if not fits:
        return 0, place
    fault, fixed, variable, place = fields_2008(data, place, end, kind, shape)
    if fault == NO_RECORD:
        return 0, place
    state[_NUMBER] = variable
    if fault:
        return -fault, place
    if in_transaction and kind < PREPARE:
        fixed += ID_SIZE
    following = wrap32(at + fixed + variable)
    if following > end:
        return 0, place
    check = following - CHECK_SIZE
    if check < 0:
        state[_NUMBER] = check
        return -BAD_POSITION, place
    # Here alone the original puts its position back: everywhere else it goes on where it stands.
    if be_int32(data, check) != variable + fixed:
        return 0, at + 1
    return (-NEGATIVE_ARRAY, place) if variable < 0 else (fixed + variable, at + fixed + variable)


@lazy_kernel
def walk_2008(data: Any, end: int, stop: int, stamp: int, shape: Any, state: Any, rows: Any) -> int:
    """Fill ``rows`` as `tallystick.systems.jboss.read.scan.walk` does, for g1a to g1c."""
    at = state[_AT]
    count = 0
    while at < stop and count < len(rows) // ROW and state[_FAULT] == FINE:
        at = next_type(data, at, stop, ADD)
        if at == stop:
            break
        size, following = step_2008(data, at, end, stamp, shape, state)
        if size < 0:
            state[_FAULT] = -size
        else:
            if size > 0:
                put_row(rows, count, at, size, VALID, stamp)
                count += 1
            at = following
    state[_AT] = at
    return count


@lazy_kernel
def underflows_2009(data: Any, at: int, end: int) -> bool:
    """Return whether a body with a user type ends exactly at the end, where g1d reads on."""
    kind = int(data[at])
    if kind > UPDATE_TX:
        return False
    field = at + (_PLAIN_AT if kind < ADD_TX else _TRANSACTIONAL_AT)
    if field + COUNT_SIZE > end:
        return False
    length = be_int32(data, field)
    return bool(length >= 0 and field + COUNT_SIZE + length == end)


@lazy_kernel
def walk_2009(data: Any, end: int, stop: int, stamp: int, shape: Any, state: Any, rows: Any) -> int:
    """Fill ``rows`` as `tallystick.systems.jboss.read.scan.walk` does, for g1d.

    Stale records are skipped as a whole.
    """
    at = state[_AT]
    count = 0
    while at < stop and count < len(rows) // ROW:
        kind = int(data[at])
        if kind < ADD or kind > ROLLBACK or at + STAMP_SIZE > end:
            at = next_type(data, at + 1, stop, ADD)
            continue
        if underflows_2009(data, at, end):
            state[_FAULT] = UNDERFLOW
            break
        size = measure(data, at, end, shape)
        if size == 0 or be_int32(data, at + size - CHECK_SIZE) != size:
            at += 1
            continue
        # Last, after the check size: g1d alone skips a whole stale record, and a record of this
        # life that lies inside one is lost to it (format, Finding records).
        if be_int32(data, at + 1) == stamp:
            put_row(rows, count, at, size, VALID, stamp)
            count += 1
        at += size
    state[_AT] = at
    return count


@dataclass(frozen=True, slots=True)
class OriginalScan:
    """What a g1 loader takes from one file; ``error`` is its exception, empty if none."""

    rows: list[Row]
    max_id: int
    error: str


def original_scan(data: memoryview, shape: Shape, stamp: int, max_id: int) -> OriginalScan:
    """Scan one file as the loader of a g1 generation; ``max_id`` is that of the files before.

    Only g1a to g1c raise it here; from g1d on valid records raise it, which is up to the caller.
    """
    state = array("q", [shape.header_size, max_id, FINE, 0])
    buffer = array("q", bytes(8 * ROW * ROWS))
    stop = last_other_end(data, 0, len(data), FILL)  # no record begins with one
    walk, array_of = chosen(walk_2008 if shape.pairs else walk_2009, stop - shape.header_size)
    raw, state_, buffer_ = array_of(data, "u1"), array_of(state, "i8"), array_of(buffer, "i8")
    rows: list[Row] = []
    while state[_AT] < stop and not state[_FAULT]:
        count = walk(raw, len(data), stop, stamp, numbers(shape), state_, buffer_)
        rows += (Row(*buffer[index : index + ROW]) for index in range(0, ROW * count, ROW))
    error = _TEXTS[state[_FAULT]].format(state[_NUMBER]) if state[_FAULT] else ""
    return OriginalScan(rows, state[_MAX_ID], error)
