"""The compiled walk over whole records: checks each one and lays its columns out for Arrow.

In: the bytes of a file and output arrays. Out: how many plain records stand in a row, and where
the first thing that is none begins. Plain is a record as every real writer leaves it: L exact,
names ASCII, sorted and each once, end marker in its place, CRC right. For those the CRC covers
the bytes as they stand, but for the CRC itself and the gtrid length byte.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tallystick.compiled import kernel

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Table = npt.NDArray[np.uint32]
Number: TypeAlias = Any
"""An int; in plain Python sometimes one of NumPy's."""

ROWS, PLACE, GTRID_BYTES, NAMES, NAME_BYTES = range(5)
"""Places in the counters that `walk` returns."""

SPARE = 15
"""Bytes that `copy` reads and writes beyond what it is asked for, at most."""

_POLYNOMIAL = 0xEDB88320


def crc_table() -> Table:
    """Tables for sixteen bytes at a time: row k is the CRC of a byte followed by k zeros."""
    table = np.zeros((16, 256), np.uint32)
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(_POLYNOMIAL), row >> 1)
    table[0] = row
    for slice_number in range(1, 16):
        row = (row >> 8) ^ table[0][row & 0xFF]
        table[slice_number] = row
    return table


# Places are turned into unsigned numbers before they index: with signed ones numba tests each
# index for being negative, and the four bytes of a number are then not read at once.


@kernel
def low_number32(data: Bytes, place: Number) -> Number:
    """An unsigned little-endian number of four bytes, as the CRC takes them."""
    at = np.uint64(place)
    return (
        np.uint32(data[at])
        | (np.uint32(data[at + np.uint64(1)]) << np.uint32(8))
        | (np.uint32(data[at + np.uint64(2)]) << np.uint32(16))
        | (np.uint32(data[at + np.uint64(3)]) << np.uint32(24))
    )


@kernel
def number32(data: Bytes, place: Number) -> Number:
    """A signed big-endian number of four bytes."""
    at = np.uint64(place)
    value = (
        (np.uint32(data[at]) << np.uint32(24))
        | (np.uint32(data[at + np.uint64(1)]) << np.uint32(16))
        | (np.uint32(data[at + np.uint64(2)]) << np.uint32(8))
        | np.uint32(data[at + np.uint64(3)])
    )
    return (np.int64(value) ^ 0x80000000) - 0x80000000


@kernel
def crc_of_four(value: Number, table: Table, row: Number) -> Number:
    """The CRC of four bytes that ``row`` and at most three more bytes of zeros follow."""
    return (
        table[row + 3, value & np.uint32(0xFF)]
        ^ table[row + 2, (value >> np.uint32(8)) & np.uint32(0xFF)]
        ^ table[row + 1, (value >> np.uint32(16)) & np.uint32(0xFF)]
        ^ table[row, value >> np.uint32(24)]
    )


@kernel
def crc_range(data: Bytes, begin: Number, end: Number, start: Number, table: Table) -> Number:
    """CRC-32 of a range, continued from the inverted value ``start``; not inverted at the end."""
    crc = np.uint32(start)
    place = begin
    while place + 16 <= end:
        crc = (
            crc_of_four(crc ^ low_number32(data, place), table, 12)
            ^ crc_of_four(low_number32(data, place + 4), table, 8)
            ^ crc_of_four(low_number32(data, place + 8), table, 4)
            ^ crc_of_four(low_number32(data, place + 12), table, 0)
        )
        place += 16
    if place + 8 <= end:
        crc = crc_of_four(crc ^ low_number32(data, place), table, 4) ^ crc_of_four(
            low_number32(data, place + 4), table, 0
        )
        place += 8
    if place + 4 <= end:
        crc = crc_of_four(crc ^ low_number32(data, place), table, 0)
        place += 4
    while place < end:
        byte = np.uint32(data[np.uint64(place)])
        crc = table[0, (crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        place += 1
    return crc


@kernel
def copy(data: Bytes, place: Number, out: Bytes, used: Number, size: Number) -> None:
    """Copy ``size`` bytes, and up to `SPARE` more without meaning."""
    done = 0
    while done < size:
        # All loads before all stores: only so they become one of each.
        source, target = np.uint64(place + done), np.uint64(used + done)
        b0 = data[source]
        b1 = data[source + np.uint64(1)]
        b2 = data[source + np.uint64(2)]
        b3 = data[source + np.uint64(3)]
        b4 = data[source + np.uint64(4)]
        b5 = data[source + np.uint64(5)]
        b6 = data[source + np.uint64(6)]
        b7 = data[source + np.uint64(7)]
        b8 = data[source + np.uint64(8)]
        b9 = data[source + np.uint64(9)]
        b10 = data[source + np.uint64(10)]
        b11 = data[source + np.uint64(11)]
        b12 = data[source + np.uint64(12)]
        b13 = data[source + np.uint64(13)]
        b14 = data[source + np.uint64(14)]
        b15 = data[source + np.uint64(15)]
        out[target] = b0
        out[target + np.uint64(1)] = b1
        out[target + np.uint64(2)] = b2
        out[target + np.uint64(3)] = b3
        out[target + np.uint64(4)] = b4
        out[target + np.uint64(5)] = b5
        out[target + np.uint64(6)] = b6
        out[target + np.uint64(7)] = b7
        out[target + np.uint64(8)] = b8
        out[target + np.uint64(9)] = b9
        out[target + np.uint64(10)] = b10
        out[target + np.uint64(11)] = b11
        out[target + np.uint64(12)] = b12
        out[target + np.uint64(13)] = b13
        out[target + np.uint64(14)] = b14
        out[target + np.uint64(15)] = b15
        done += 16


@kernel
def has_high_bits(data: Bytes, begin: Number, end: Number) -> Number:
    """True if a byte of the range, or of the four below ``end``, is above 7F."""
    bits = low_number32(data, end - 4)
    place = begin
    while place + 4 <= end:
        bits |= low_number32(data, place)
        place += 4
    return bits & np.uint32(0x80808080) != np.uint32(0)


@kernel
def is_ascending(
    data: Bytes, before: Number, before_size: Number, name: Number, size: Number
) -> Number:
    """True if the name before sorts truly below this one."""
    for index in range(min(before_size, size)):
        one, two = data[np.uint64(before + index)], data[np.uint64(name + index)]
        if one != two:
            return one < two
    return before_size < size


@kernel
def take_names(
    data: Bytes, place: Number, last: Number, names: Number, used: Number, ends: Ints, out: Bytes
) -> tuple[Number, Number]:
    """Copy the names from their count at ``place`` on; the new counts, or -1 if not plain."""
    count = number32(data, place)
    look_closer = has_high_bits(data, place, last)  # in names, or in a length above 127
    place += 4
    before: Number = -1
    before_size: Number = 0
    for _ in range(count):
        if place + 2 > last:
            return -1, 0
        at = np.uint64(place)
        size = (np.int64(data[at]) << 8) | np.int64(data[at + np.uint64(1)])
        place += 2
        if size > 32767 or place + size > last:
            return -1, 0
        if before >= 0 and not is_ascending(data, before, before_size, place, size):
            return -1, 0
        if look_closer and has_high_bits(data, place, place + size):
            return -1, 0
        copy(data, place, out, used, size)
        before, before_size = place, size
        place += size
        used += size
        names += 1
        ends[names] = used
    return (names, used) if place == last else (-1, 0)


@kernel
def walk(
    data: Bytes,
    place: Number,
    end: Number,
    table: Table,
    offsets: Longs,
    lengths: Longs,
    statuses: Ints,
    sequences: Longs,
    times: Longs,
    gtrid_ends: Ints,
    gtrids: Bytes,
    list_ends: Ints,
    name_ends: Ints,
    name_bytes: Bytes,
) -> tuple[Number, Number, Number, Number, Number]:
    """Fill one row per plain record from ``place`` on, until ``end``, ``len(offsets)`` rows, or
    a record that is not plain or that ends within `SPARE` bytes of the end of the file. Arrays
    of ends have one place more than rows, the first of them zero; the byte arrays hold as much
    as lies between ``place`` and ``end``, and `SPARE` more.
    """
    row = 0
    gtrid_used: Number = 0
    names: Number = 0
    used: Number = 0
    while row < len(offsets) and place + 37 <= end:
        length = number32(data, place + 4)
        behind = place + length + 8
        gtrid_size = np.int64(data[place + 28])
        if length < 29 + gtrid_size or behind > end or gtrid_size > 127:
            break
        if behind + SPARE > len(data):
            break
        if number32(data, behind - 4) != 0x786E7442:
            break
        crc = crc_range(data, place, place + 24, 0xFFFFFFFF, table)
        crc = crc_range(data, place + 29, behind, crc, table)
        if np.int64(crc ^ np.uint32(0xFFFFFFFF)) != number32(data, place + 24) & 0xFFFFFFFF:
            break
        body = place + 29 + gtrid_size
        taken, taken_bytes = take_names(data, body, behind - 4, names, used, name_ends, name_bytes)
        if taken < 0:
            break
        names, used = taken, taken_bytes
        copy(data, place + 29, gtrids, gtrid_used, gtrid_size)
        gtrid_used += gtrid_size
        offsets[row] = place
        lengths[row] = length + 8
        statuses[row] = number32(data, place)
        high = number32(data, place + 12)
        times[row] = (high << 32) | (number32(data, place + 16) & 0xFFFFFFFF)
        sequences[row] = number32(data, place + 20)
        row += 1
        gtrid_ends[row] = gtrid_used
        list_ends[row] = names
        place = behind
    return row, place, gtrid_used, names, used


def new_columns(rows: int, size: int) -> dict[str, npt.NDArray[Any]]:
    """Output arrays for `walk` over ``size`` bytes, at most ``rows`` records."""
    return {
        "offsets": np.empty(rows, np.int64),
        "lengths": np.empty(rows, np.int64),
        "statuses": np.empty(rows, np.int32),
        "sequences": np.empty(rows, np.int64),
        "times": np.empty(rows, np.int64),
        "gtrid_ends": np.zeros(rows + 1, np.int32),
        "gtrids": np.empty(size + SPARE, np.uint8),
        "list_ends": np.zeros(rows + 1, np.int32),
        "name_ends": np.zeros(size // 2 + 2, np.int32),
        "name_bytes": np.empty(size + SPARE, np.uint8),
    }
