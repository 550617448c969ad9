"""The walk over plain records: it checks each one, and fills columns of integers.

In: the bytes of a file and output arrays. Out: the number of plain records in a row, and the offset
where the first other thing begins; texts stay where they are. Plain is a record as every real
writer leaves it: head of 28 bytes, a length (L in the format) that is exact and no more than
Bitronix 3.0 reads, names ASCII, sorted and each once, end marker in its place, CRC right. Of those
the CRC covers the bytes as they are on disk, except for the CRC itself and the gtrid length byte.
Both cursors of the original accept such records one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tallystick.arrow.byte_kernels import (
    Bytes,
    Number,
    be_int32,
    be_int64,
    be_uint16,
    be_uint32,
    le_word32,
)
from tallystick.arrow.crc_kernel import Table, crc_range
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.bitronix.format import layout

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Bits = npt.NDArray[np.bool_]

_LENGTH, _TIME, _SEQUENCE = layout.LENGTH_OFFSET, layout.TIME_OFFSET, layout.SEQUENCE_OFFSET
_CRC, _GTRID_SIZE, _GTRID = layout.CRC_OFFSET, layout.GTRID_SIZE_OFFSET, layout.GTRID_OFFSET
_HEADER, _HEADER_LENGTH = layout.HEADER_LENGTH_OFFSET, layout.RECORD_HEADER_LENGTH
_RECORD_MIN, _LENGTH_FIXED = layout.RECORD_MIN, layout.LENGTH_FIXED
_LENGTH_OUTSIDE, _LENGTH_MAX = layout.LENGTH_OUTSIDE, layout.LARGEST_FOR_PAGE
_END_RECORD, _END_SIZE = layout.END_RECORD, len(layout.END_MARKER)
_COUNT, _NAME_LENGTH = layout.COUNT.size, layout.NAME_LENGTH.size
_GTRID_MAX, _NAME_MAX = layout.GTRID_MAX, layout.NAME_MAX
_GTRID_TAIL = layout.GTRID_TAIL.size
_HASH_BITS = 31
HASH_MODULUS = (1 << _HASH_BITS) - 1
"""A prime number; what is above its bits is added to them, which leaves the remainder as it is."""
_HIGH_BITS = 0x80808080
_CRC_MASK = 0xFFFFFFFF

NAMES_PER_ROW = 8
"""Resource names per row for which output arrays have space; more of them make a shorter chunk."""


@kernel
def has_high_bits(data: Bytes, begin: Number, end: Number) -> Number:
    """Return whether a byte of the range, or of the four below ``end``, is above 7F."""
    # The last four bytes first: the loop takes four at a time, and may leave up to three.
    bits = le_word32(data, end - 4)
    place = begin
    while place + 4 <= end:
        bits |= le_word32(data, place)
        place += 4
    return bits & np.uint32(_HIGH_BITS) != np.uint32(0)


@kernel
def is_ascending(
    data: Bytes, before: Number, before_size: Number, name: Number, size: Number
) -> Number:
    """Return whether the name ``before`` sorts truly below this one."""
    for index in range(min(before_size, size)):
        one, two = data[np.uint64(before + index)], data[np.uint64(name + index)]
        if one != two:
            return one < two
    return before_size < size


@kernel
def take_names(
    data: Bytes, place: Number, last: Number, names: Number, starts: Longs, sizes: Longs
) -> Number:
    """Add the places of the names from their count at ``place``, after ``names`` others.

    Returns the number of names, or -1 if they are not plain or too many.
    """
    count = be_int32(data, place)
    # The arrays have room for some names per row: a record with more ends the chunk.
    if count < 0 or count > len(starts) - names:
        return -1
    look_closer = has_high_bits(data, place, last)  # in names, or in a length above 127
    place += _COUNT
    before: Number = -1
    before_size: Number = 0
    for _ in range(count):
        if place + _NAME_LENGTH > last:
            return -1
        size = be_uint16(data, place)
        place += _NAME_LENGTH
        if size > _NAME_MAX or place + size > last:
            return -1
        if before >= 0 and not is_ascending(data, before, before_size, place, size):
            return -1
        # Names of ASCII alone sort as Java sorts them, and need no decoding to be compared.
        if look_closer and has_high_bits(data, place, place + size):
            return -1
        starts[names], sizes[names] = place, size
        before, before_size = place, size
        place += size
        names += 1
    return names if place == last else -1


@kernel
def end_of_whole(data: Bytes, place: Number, table: Table) -> Number:
    """Return where the record at ``place`` ends; -1 if its length, end marker or CRC is wrong."""
    length = be_int32(data, place + _LENGTH)
    end = place + length + _LENGTH_OUTSIDE
    gtrid_size = np.int64(data[np.uint64(place + _GTRID_SIZE)])
    if length < _LENGTH_FIXED + gtrid_size or end > len(data) or gtrid_size > _GTRID_MAX:
        return -1
    # Longer ones 2.1.4 reads and the 3.0 line does not: their difference is for the cursors.
    if length > _LENGTH_MAX or be_int32(data, place + _HEADER) != _HEADER_LENGTH:
        return -1
    if be_int32(data, end - _END_SIZE) != _END_RECORD:
        return -1
    # The checksum covers the record but for its own field: it is made in two parts.
    crc = crc_range(data, place, place + _CRC, _CRC_MASK, table)
    crc = crc_range(data, place + _GTRID, end, crc, table)
    if np.int64(crc ^ np.uint32(_CRC_MASK)) != be_uint32(data, place + _CRC):
        return -1
    return end


@kernel
def walk(
    data: Bytes,
    table: Table,
    offsets: Longs,
    lengths: Longs,
    statuses: Ints,
    sequences: Longs,
    times: Longs,
    gtrid_sizes: Longs,
    list_ends: Ints,
    name_starts: Longs,
    name_sizes: Longs,
) -> tuple[Number, Number, Number]:
    """Fill one row per plain record of ``data``; return rows, the offset after them, and names.

    Stops after ``len(offsets)`` rows, or at a record that is not plain, not complete, or has too
    many names. ``list_ends`` has one place more than rows, the first of them zero.
    """
    row = 0
    named: Number = 0
    place: Number = 0
    while row < len(offsets) and place + _RECORD_MIN <= len(data):
        record_end = end_of_whole(data, place, table)
        if record_end < 0:
            break
        gtrid_size = np.int64(data[np.uint64(place + _GTRID_SIZE)])
        begin, last = place + _GTRID + gtrid_size, record_end - _END_SIZE
        taken = take_names(data, begin, last, named, name_starts, name_sizes)
        if taken < 0:
            break
        named = taken
        gtrid_sizes[row] = gtrid_size
        offsets[row] = place
        lengths[row] = record_end - place
        statuses[row] = be_int32(data, place)
        times[row] = be_int64(data, place + _TIME)
        sequences[row] = be_int32(data, place + _SEQUENCE)
        row += 1
        list_ends[row] = named
        place = record_end
    return row, place, named


@kernel
def mark_servers(data: Bytes, begins: Longs, sizes: Longs, marks: Bits) -> None:
    """Mark each row whose gtrid has not the server id of the row before, and the first row.

    The server id is what comes before the tail of a gtrid.
    """
    for row in range(len(begins)):
        marks[row] = row == 0 or not _same_server(data, begins, sizes, row)


@kernel
def _same_server(data: Bytes, begins: Longs, sizes: Longs, row: Number) -> Number:
    one, other, size = begins[row - 1], begins[row], sizes[row]
    # Of another size, so is the server id, as tails have one size.
    if sizes[row - 1] != size:
        return False
    return _same_bytes(data, one, other, size - _GTRID_TAIL)


@kernel
def group_rows(
    data: Bytes,
    begins: Longs,
    sizes: Longs,
    names_ends: Longs,
    factor: Number,
    slots: Ints,
    latest: Ints,
    groups: Ints,
    marks: Bits,
) -> Number:
    """Give each row the number of its gtrid, from 0 in order; return how many gtrids there are.

    A row is marked if it is the first of its group, or has other names than the one before it in
    the group. Names stand between the gtrid and ``names_ends``. ``factor`` is that of the hash,
    below `HASH_MODULUS`. ``slots`` is a hash table filled with -1, of a power of two of places and
    more than rows; ``latest`` has a place per row.
    """
    found = 0
    for row in range(len(begins)):
        begin, size = begins[row], sizes[row]
        # Probing compares whole gtrids, with the latest row of each: hashes only choose where.
        slot = _hash(data, begin, size, factor) & (len(slots) - 1)
        while slots[slot] >= 0:
            other = latest[slots[slot]]
            if sizes[other] == size and _same_bytes(data, begins[other], begin, size):
                break
            slot = (slot + 1) & (len(slots) - 1)
        marks[row] = True
        if slots[slot] < 0:
            slots[slot] = found
            found += 1
        else:
            other = latest[slots[slot]]
            one, names = begins[other] + size, names_ends[row] - begin - size
            alike = names_ends[other] - one == names
            marks[row] = not (alike and _same_bytes(data, one, begin + size, names))
        groups[row] = slots[slot]
        latest[slots[slot]] = row
    return found


@kernel
def _hash(data: Bytes, begin: Number, size: Number, factor: Number) -> Number:
    mixed: Number = 0
    for index in range(size):
        mixed = mixed * factor + np.int64(data[np.uint64(begin + index)])
        # Twice: after the first fold a bit may be left above the modulus.
        mixed = (mixed & HASH_MODULUS) + (mixed >> _HASH_BITS)
        mixed = (mixed & HASH_MODULUS) + (mixed >> _HASH_BITS)
    return mixed


@kernel
def _same_bytes(data: Bytes, one: Number, other: Number, size: Number) -> Number:
    for index in range(size):
        if data[np.uint64(one + index)] != data[np.uint64(other + index)]:
            return False
    return True


def new_columns(rows: int) -> dict[str, npt.NDArray[Any]]:
    """Return output arrays for `walk`, for at most ``rows`` records."""
    return {
        "offsets": np.empty(rows, np.int64),
        "lengths": np.empty(rows, np.int64),
        "statuses": np.empty(rows, np.int32),
        "sequences": np.empty(rows, np.int64),
        "times": np.empty(rows, np.int64),
        "gtrid_sizes": np.empty(rows, np.int64),
        "list_ends": np.zeros(rows + 1, np.int32),
        "name_starts": np.empty(rows * NAMES_PER_ROW, np.int64),
        "name_sizes": np.empty(rows * NAMES_PER_ROW, np.int64),
    }
