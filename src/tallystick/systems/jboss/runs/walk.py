"""Fields of whole records as columns of integers: compiled kernels, no object per record.

In: the bytes of one file and the rows of its scan. Out: arrays with one number per record.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.byte_kernels import be_int32, be_int64
from tallystick.arrow.numba_kernel import kernel, small_kernel
from tallystick.systems.jboss.format.layout import (
    COMMIT,
    COUNT_SIZE,
    ID_SIZE,
    IN_TRANSACTION,
    OF_RECORD,
    PREPARE,
    ROLLBACK,
    STAMP_SIZE,
    WITH_BODY,
    RecordType,
    Shape,
)
from tallystick.systems.jboss.read.scan import OFFSET

# Bits of what a record type has; `features` puts them in the order of the bytes on disk.
HAS_TRANSACTION, HAS_RECORD_ID, HAS_BODY, HAS_TYPE, HAS_XID, MAY_BE_HEURISTIC = (
    1 << bit for bit in range(6)
)
TYPE_BYTES = ROLLBACK + 1
"""Bytes on disk from 0 on, record types or not."""


def features(shape: Shape) -> list[int]:
    """Return what each record type has, by its byte on disk."""
    table = [0] * TYPE_BYTES
    for kind in RecordType:
        bits = HAS_TRANSACTION if kind in IN_TRANSACTION else 0
        bits |= HAS_RECORD_ID if kind in OF_RECORD else 0
        bits |= HAS_BODY | HAS_TYPE if kind in WITH_BODY else 0
        bits |= HAS_BODY if kind is RecordType.DELETE_TX else 0
        bits |= HAS_XID if kind is RecordType.PREPARE and shape.extra else 0
        bits |= MAY_BE_HEURISTIC if kind is RecordType.ADD else 0
        table[shape.type_byte(kind)] = bits
    return table


@small_kernel
def ids_at(data: Any, at: int, bits: int, compact: int) -> tuple[int, int, int]:
    """Return transaction and record id of the record at ``at``, and the place after both.

    ``bits`` are those of its type in `features`; a number that it has not is 0.
    """
    field = at + STAMP_SIZE + compact
    transaction = record_id = 0
    if bits & HAS_TRANSACTION:
        transaction = be_int64(data, field)
        field += ID_SIZE
    if bits & HAS_RECORD_ID:
        record_id = be_int64(data, field)
        field += ID_SIZE
    return transaction, record_id, field


@kernel
def fill_fields(data: Any, rows: Any, shape: Any, table: Any, kinds: Any, fields: Any) -> None:
    """Fill the type byte and three numbers of every record; a number that it has not is 0.

    ``rows`` are those of the scan, ``table`` is that of `features`. ``fields`` has a row for
    transactions, one for record ids, and one for user types and the counts of commits and prepares.
    Of generations whose commits list pairs the count is that of the pairs, or no count at all.
    """
    for row in range(len(kinds)):
        at = int(rows[row, OFFSET])
        kind = int(data[at])
        bits = table[kind]
        kinds[row] = kind
        fields[0, row], fields[1, row], field = ids_at(data, at, bits, shape.compact)
        if bits & HAS_TYPE:
            # User types are signed bytes (format, Records), and the array holds unsigned ones.
            number = int(data[field + COUNT_SIZE])
            fields[2, row] = number - 256 if number > 127 else number
        elif kind in (COMMIT, PREPARE):
            fields[2, row] = be_int32(data, field)
