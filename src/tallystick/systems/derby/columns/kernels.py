"""Compiled scan of a plain log file: envelopes, heads of bodies, ids, group checksums.

In: the file as a NumPy array of bytes. Out: columns of numbers. No Python object per record;
without numba the same functions run as plain Python.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import (
    Bytes,
    Number,
    be_int32,
    be_int64,
    be_uint16,
    be_uint32,
    int64,
    uint64,
)
from tallystick.arrow.crc_kernel import crc32_of
from tallystick.arrow.numba_kernel import kernel, small_kernel
from tallystick.systems.derby.format import layout
from tallystick.systems.derby.format.field_types import COMPRESSED_LONG, PAGE
from tallystick.systems.derby.format.number_kernels import (
    compressed_int,
    compressed_long,
    int_size,
    long_size,
)
from tallystick.systems.derby.format.record_body import BODY_SIZE_MIN

Columns = NDArray[np.int64]
Contents = NDArray[np.int8]

ENDED, FULL, STUCK = 0, 1, 2
"""Why a scan stopped: at zeros or the end of the file, with full columns, at anything else."""

OFFSET, LENGTH, GROUP, TRANSACTION, OPERATION, RECORD_ID, GLOBAL_ID = range(7)
"""Columns of records. GLOBAL_ID is the offset of the XA format id. -1 is null."""
COLUMNS = 7

LARGE_BEGIN, LARGE_END, LARGE_CRC, LARGE_OFFSET, LARGE_ROW = range(5)
"""Columns of large groups: the range, its stored CRC, offset and row of the checksum record."""
LARGE_COLUMNS = 5
LARGE_GROUP = 2048
"""Groups of so many bytes are left to the caller, who has the CRC of the machine."""

CONTENT, SKIP = 0, 1
"""Rows of the table of operations: what a scan takes from its fields, and what precedes that."""
UNKNOWN, NO_ID, HAS_RECORD_ID, HAS_GLOBAL_ID = range(4)
"""SKIP counts the compressed ints after the page, and the bytes before the global id."""

PAGE_LONGS = PAGE.longs + COMPRESSED_LONG.longs
"""Compressed longs at the start of every operation on a page: the page and its version."""

_LENGTH_SIZE = layout.LENGTH.size
_PREFIX_SIZE = layout.PREFIX.size
_INSTANT_AT = _LENGTH_SIZE
_POSITION_AT = _INSTANT_AT + 4
_ID_SIZE = layout.FORMAT_ID_SIZE
_CHECKSUM_GROUP = int(layout.Group.CHECKSUM)
_CHECKSUM_SIZE = layout.CHECKSUM.size
_COVERED_AT = 1
_CRC_AT = 5
_GTRID_AT = 4
_TAIL_SIZE_MIN = 4


@kernel
def scan_records(
    data: Bytes,
    number: Number,
    position: Number,
    covered: Number,
    limit: Number,
    columns: Columns,
    contents: Contents,
    large: Columns,
) -> tuple[Number, Number, Number, Number, Number]:
    """Decode the records from ``position`` that begin before ``limit`` into ``columns``.

    Args:
        data: the bytes of the file.
        number: the file's number.
        position: offset of a record.
        covered: offset up to which a checksum record before ``position`` covers the file.
        limit: an offset.
        columns: array of `COLUMNS` rows; it limits the number of records.
        contents: the table of operations, by format id.
        large: array of `LARGE_COLUMNS` rows; takes the groups that the caller has to check.

    Returns:
        Numbers of records and large groups, the next offset, ``covered`` there, and why it stops.
    """
    count = checks = 0
    while position < limit:
        length = body_length(data, number, position)
        full = count == columns.shape[1] or checks == large.shape[1]
        if length == 0 or (length > 0 and full):
            return count, checks, position, covered, FULL if length else ENDED
        left, covered = _decode(
            data, position, length, covered, columns, count, contents, large, checks
        )
        if left < 0:
            return count, checks, position, covered, STUCK
        checks += left
        count += 1
        position += length + layout.LOG_RECORD_FIXED_OVERHEAD_SIZE
    return count, checks, position, covered, FULL


@small_kernel
def _decode(
    data: Bytes,
    position: Number,
    length: Number,
    covered: Number,
    columns: Columns,
    row: Number,
    contents: Contents,
    large: Columns,
    check: Number,
) -> tuple[Number, Number]:
    """Decode a record; return how many groups are left to the caller, and ``covered`` after it.

    The first is -1 if the record is not plainly whole and under a checksum. Fields and tails are
    not decoded, so only a checksum vouches for them.
    """
    body_end = position + _PREFIX_SIZE + length
    place = put_head(data, position + _PREFIX_SIZE, body_end, columns, row) if length > 0 else -1
    if place < 0 or not _put_ids(data, place, body_end, contents, columns, row):
        return -1, covered
    columns[OFFSET, row] = position
    columns[LENGTH, row] = length
    if columns[GROUP, row] & _CHECKSUM_GROUP == 0:
        return 0 if body_end + _LENGTH_SIZE <= covered else -1, covered
    left = check_group(data, place, body_end, large, check)
    if columns[OPERATION, row] != layout.CHECKSUM_OPERATION or left < 0:
        return -1, covered
    if left > 0:
        large[LARGE_OFFSET, check] = position
        large[LARGE_ROW, check] = row
    return left, body_end + _LENGTH_SIZE + be_int32(data, place + _COVERED_AT)


@kernel
def body_length(data: Bytes, number: Number, position: Number) -> Number:
    """Return the length of the body at ``position``; 0 at the end, -1 unless plainly whole."""
    size = len(data)
    if position + _LENGTH_SIZE > size:
        return 0 if position == size else -1
    length = be_int32(data, position)
    if length == 0:
        return 0
    body_end = position + _PREFIX_SIZE + length
    if length < BODY_SIZE_MIN or body_end + _LENGTH_SIZE > size:
        return -1
    if be_int32(data, body_end) != length:
        return -1
    if be_uint32(data, position + _INSTANT_AT) != number:
        return -1
    return length if be_uint32(data, position + _POSITION_AT) == position else -1


@kernel
def put_head(data: Bytes, begin: Number, body_end: Number, columns: Columns, row: Number) -> Number:
    """Decode group, transaction and operation; return the offset of the fields, or -1.

    The first `BODY_SIZE_MIN` bytes are known to be there.
    """
    if be_uint16(data, begin) != layout.LOG_RECORD:
        return -1
    place = begin + _ID_SIZE
    columns[GROUP, row] = compressed_int(data, place)
    place += int_size(data, place)
    object_id = be_uint16(data, place)
    place += _ID_SIZE
    columns[TRANSACTION, row] = -1
    if object_id == layout.TRANSACTION_ID:
        size = long_size(data, place)
        if place + size + _ID_SIZE > body_end:
            return -1
        columns[TRANSACTION, row] = compressed_long(data, place)
        place += size
    elif object_id != layout.NULL:
        return -1
    columns[OPERATION, row] = be_uint16(data, place)
    return place + _ID_SIZE


@kernel
def _put_ids(
    data: Bytes,
    place: Number,
    body_end: Number,
    contents: Contents,
    columns: Columns,
    row: Number,
) -> bool:
    """Decode the record id or global id of the operation; return False if it is not plain."""
    columns[RECORD_ID, row] = -1
    columns[GLOBAL_ID, row] = -1
    operation = columns[OPERATION, row]
    if operation >= contents.shape[1]:
        return False
    content = contents[CONTENT, operation]
    skip = int64(contents[SKIP, operation])
    if content == HAS_RECORD_ID:
        columns[RECORD_ID, row] = _record_id(data, place, body_end, skip)
        return bool(columns[RECORD_ID, row] >= 0)
    if content == HAS_GLOBAL_ID:
        return _put_global_id(data, place + skip, body_end, columns, row)
    return bool(content == NO_ID)


@kernel
def _record_id(data: Bytes, place: Number, body_end: Number, ints: Number) -> Number:
    """Return the record id of an operation on a page, after so many compressed ints; -1 if cut."""
    for _ in range(PAGE_LONGS):
        if place >= body_end:
            return -1
        place += long_size(data, place)
    for _ in range(ints):
        if place >= body_end:
            return -1
        place += int_size(data, place)
    if place + _TAIL_SIZE_MIN >= body_end:
        return -1
    return compressed_int(data, place)


@kernel
def _put_global_id(
    data: Bytes, place: Number, body_end: Number, columns: Columns, row: Number
) -> bool:
    """Note where a global id begins; return False unless it is whole or null."""
    if place + _ID_SIZE > body_end:
        return False
    object_id = be_uint16(data, place)
    if object_id == layout.NULL:
        return True
    gtrid_at = place + _ID_SIZE + _GTRID_AT
    if object_id != layout.GLOBAL_ID or gtrid_at >= body_end:
        return False
    gtrid_size = int64(data[uint64(gtrid_at)])
    bqual_at = gtrid_at + 1 + gtrid_size
    if gtrid_size > layout.GLOBAL_ID_PART_MAX or bqual_at >= body_end:
        return False
    bqual_size = int64(data[uint64(bqual_at)])
    if bqual_size > layout.GLOBAL_ID_PART_MAX or bqual_at + 1 + bqual_size > body_end:
        return False
    columns[GLOBAL_ID, row] = place + _ID_SIZE
    return True


@kernel
def check_group(
    data: Bytes, place: Number, body_end: Number, large: Columns, row: Number
) -> Number:
    """Check the group after a checksum record; return 0, 1 if it is in ``large``, -1 if bad."""
    if place + _CHECKSUM_SIZE > body_end or data[uint64(place)] != layout.CHECKSUM_CRC32:
        return -1
    covered = be_int32(data, place + _COVERED_AT)
    crc = be_int64(data, place + _CRC_AT)
    begin = body_end + _LENGTH_SIZE
    if covered < 0 or begin + covered > len(data):
        return -1
    if covered < LARGE_GROUP:
        return 0 if crc32_of(data, begin, begin + covered) == crc else -1
    large[LARGE_BEGIN, row] = begin
    large[LARGE_END, row] = begin + covered
    large[LARGE_CRC, row] = crc
    return 1
