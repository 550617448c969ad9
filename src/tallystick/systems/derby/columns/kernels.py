"""Compiled walks over the bytes of a plain log file: envelopes, columns, group checksums.

In: the file as a NumPy array of bytes. Out: columns of numbers. No Python object per record;
without numba the same functions run as plain Python.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.numba_kernel import kernel

Bytes = NDArray[np.uint8]
Columns = NDArray[np.int64]

ENDED, FULL, STUCK = 0, 1, 2
"""How a walk stopped: at zeros or the end of the file, with full columns, at anything else."""

OFFSET, LENGTH, GROUP, TRANSACTION, OPERATION, RECORD_ID, GLOBAL_ID = range(7)
COLUMNS = 7
LARGE_GROUP = 2048
"""Groups of so many bytes are checked outside, by the CRC of the machine."""
_SLICES = 16


def _crc_tables() -> NDArray[np.uint32]:
    """Tables of CRC-32 for 16 bytes at a time: row k for a byte with k more behind it."""
    rows = np.zeros((_SLICES, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        rows[0, byte] = value
    for row in range(1, _SLICES):
        before = rows[row - 1]
        rows[row] = before >> np.uint32(8) ^ rows[0][before & np.uint32(255)]
    return rows


CRC_TABLES = _crc_tables()


@kernel
def crc_of(data: Bytes, begin: int, end: int, tables: NDArray[np.uint32]) -> int:
    """CRC-32 of ``data[begin:end]``."""
    value = 0xFFFFFFFF
    place = begin
    while place + 16 <= end:
        mixed = 0
        for step in range(4):
            mixed ^= tables[15 - step, data[place + step] ^ (value >> (8 * step) & 255)]
        for step in range(4, 16):
            mixed ^= tables[15 - step, data[place + step]]
        value = mixed
        place += 16
    while place < end:
        value = value >> 8 ^ tables[0, (value ^ data[place]) & 255]
        place += 1
    return value ^ 0xFFFFFFFF


@kernel
def _uint(data: Bytes, place: int, size: int) -> int:
    if place + size > len(data):
        return -1
    value = 0
    for step in range(size):
        value = value << 8 | int(data[place + step])
    return value


@kernel
def _c_int_size(data: Bytes, place: int) -> int:
    first = _uint(data, place, 1)
    return 1 if first < 0x40 else 2 if first < 0x80 else 4


@kernel
def _c_int(data: Bytes, place: int) -> int:
    size = _c_int_size(data, place)
    value = _uint(data, place, size)
    if size == 1:
        return value
    return value & 0x3FFF if size == 2 else value & 0x7FFFFFFF


@kernel
def _c_long_size(data: Bytes, place: int) -> int:
    first = _uint(data, place, 1)
    return 2 if first < 0x40 else 4 if first < 0x80 else 8


@kernel
def _c_long(data: Bytes, place: int) -> int:
    size = _c_long_size(data, place)
    if size == 2:
        return _uint(data, place, 2)
    if size == 4:
        return _uint(data, place, 4) & 0x3FFFFFFF
    return _uint(data, place, 8) & 0x7FFFFFFFFFFFFFFF


@kernel
def _record_id(data: Bytes, place: int, ints_before: int) -> int:
    """The record id of a page operation; ``ints_before`` compressed ints stand before it."""
    for _ in range(4):
        place += _c_long_size(data, place)
    for _ in range(ints_before):
        place += _c_int_size(data, place)
    return _c_int(data, place)


@kernel
def walk(
    data: Bytes,
    number: int,
    position: int,
    limit: int,
    columns: Columns,
    ids: NDArray[np.int8],
    tables: NDArray[np.uint32],
    large: Columns,
) -> tuple[int, int, int, int]:
    """Records from ``position`` that begin before ``limit``, into the rows of ``columns``.

    ``ids`` tells per operation: -1 unknown, 100 no record id, else compressed ints before it.
    ``large`` takes (begin, end, CRC) of groups to be checked outside. Returns (rows, large
    groups, position, how it stopped); whatever is not plainly whole stops it.
    """
    size = len(data)
    count = 0
    checks = 0
    while position < limit:
        if position + 4 > size:
            return count, checks, position, ENDED if position == size else STUCK
        length = _uint(data, position, 4)
        if length == 0:
            return count, checks, position, ENDED
        if count == columns.shape[1] or checks == large.shape[1]:
            return count, checks, position, FULL
        end = position + length + 16
        if length < 10 or end > size or _uint(data, end - 4, 4) != length:
            return count, checks, position, STUCK
        if _uint(data, position + 4, 4) != number or _uint(data, position + 8, 4) != position:
            return count, checks, position, STUCK
        place = position + 12
        if _uint(data, place, 2) != 129:
            return count, checks, position, STUCK
        group = _c_int(data, place + 2)
        place += 2 + _c_int_size(data, place + 2)
        transaction = -1
        if _uint(data, place, 2) == 147:
            transaction = _c_long(data, place + 2)
            place += _c_long_size(data, place + 2)
        elif _uint(data, place, 2) != 0:
            return count, checks, position, STUCK
        operation = _uint(data, place + 2, 2)
        place += 4
        if operation >= len(ids) or ids[operation] < 0 or place + 4 > end:
            return count, checks, position, STUCK
        columns[RECORD_ID, count] = -1
        columns[GLOBAL_ID, count] = -1
        if ids[operation] < 100:
            columns[RECORD_ID, count] = _record_id(data, place, ids[operation])
        elif operation == 169 or operation == 102:
            at = place + 4 if operation == 169 else place
            if _uint(data, at, 2) == 328:
                columns[GLOBAL_ID, count] = at + 2
                gtrid = _uint(data, at + 6, 1)
                if gtrid > 64 or at + 8 + gtrid + _uint(data, at + 7 + gtrid, 1) > end:
                    return count, checks, position, STUCK
        if group & 0x800:
            covered = _uint(data, place + 1, 4)
            crc = _uint(data, place + 5, 8)
            if operation != 453 or data[place] != 1 or end + covered > size:
                return count, checks, position, STUCK
            if covered >= 2048:
                large[0, checks] = end
                large[1, checks] = end + covered
                large[2, checks] = crc
                large[3, checks] = position
                large[4, checks] = count
                checks += 1
            elif crc_of(data, end, end + covered, tables) != crc:
                return count, checks, position, STUCK
        columns[OFFSET, count] = position
        columns[LENGTH, count] = length
        columns[GROUP, count] = group
        columns[TRANSACTION, count] = transaction
        columns[OPERATION, count] = operation
        count += 1
        position = end
    return count, checks, position, FULL


@kernel
def put_views(data: Bytes, starts: Columns, sizes: Columns, views: Bytes) -> None:
    """Arrow views of byte ranges, 16 bytes each: length, then the bytes if they are at most 12,
    else the first four, buffer 0 and the offset in it; little-endian."""
    for index in range(len(starts)):
        start, size = starts[index], sizes[index]
        view = views[index]
        for step in range(4):
            view[step] = size >> 8 * step & 255
        for step in range(min(size, 4 if size > 12 else 12)):
            view[4 + step] = data[start + step]
        if size > 12:
            for step in range(4):
                view[12 + step] = start >> 8 * step & 255
