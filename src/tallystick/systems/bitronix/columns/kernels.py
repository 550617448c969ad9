"""The compiled walk over whole records: checks each one and lays its columns out for Arrow.

In: the bytes of a file and output arrays. Out: how many plain records stand in a row, and where
the first thing that is none begins; texts are left where they are, as views. Plain
is a record as every real writer leaves it: L exact, names ASCII, sorted and each once, end marker
in its place, CRC right. For those the CRC covers the bytes as they stand, but for the CRC itself
and the gtrid length byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tallystick.arrow.byte_kernels import Bytes, Number, be_int32, le_word32
from tallystick.arrow.columns import put_view
from tallystick.arrow.crc_kernel import Table, crc_range
from tallystick.arrow.numba_kernel import kernel

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

NAMES_PER_ROW = 8
"""Room for resource names in output arrays; records with more of them make a shorter batch."""


@kernel
def has_high_bits(data: Bytes, begin: Number, end: Number) -> Number:
    """True if a byte of the range, or of the four below ``end``, is above 7F."""
    bits = le_word32(data, end - 4)
    place = begin
    while place + 4 <= end:
        bits |= le_word32(data, place)
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
def take_names(data: Bytes, place: Number, last: Number, names: Number, views: Table) -> Number:
    """Views of the names from their count at ``place`` on, behind ``names`` others; how many
    views there are now, or -1 if not plain or too many."""
    count = be_int32(data, place)
    if count > len(views) - names:
        return -1
    look_closer = has_high_bits(data, place, last)  # in names, or in a length above 127
    place += 4
    before: Number = -1
    before_size: Number = 0
    for _ in range(count):
        if place + 2 > last:
            return -1
        at = np.uint64(place)
        size = (np.int64(data[at]) << 8) | np.int64(data[at + np.uint64(1)])
        place += 2
        if size > 32767 or place + size > last:
            return -1
        if before >= 0 and not is_ascending(data, before, before_size, place, size):
            return -1
        if look_closer and has_high_bits(data, place, place + size):
            return -1
        put_view(data, place, size, views, names)
        before, before_size = place, size
        place += size
        names += 1
    return names if place == last else -1


@kernel
def walk(
    data: Bytes,
    table: Table,
    offsets: Longs,
    lengths: Longs,
    statuses: Ints,
    sequences: Longs,
    times: Longs,
    gtrids: Table,
    list_ends: Ints,
    names: Table,
) -> tuple[Number, Number, Number]:
    """Fill one row per plain record of ``data``, up to ``len(offsets)`` rows, or to a record that
    is not plain, not all there, or has too many names. Returns rows, the place behind them and the
    number of names. ``list_ends`` has one place more than rows, the first of them zero.
    """
    row = 0
    named: Number = 0
    place: Number = 0
    end = len(data)
    while row < len(offsets) and place + 37 <= end:
        length = be_int32(data, place + 4)
        behind = place + length + 8
        gtrid_size = np.int64(data[np.uint64(place + 28)])
        if length < 29 + gtrid_size or behind > end or gtrid_size > 127:
            break
        if be_int32(data, behind - 4) != 0x786E7442:
            break
        crc = crc_range(data, place, place + 24, 0xFFFFFFFF, table)
        crc = crc_range(data, place + 29, behind, crc, table)
        if np.int64(crc ^ np.uint32(0xFFFFFFFF)) != be_int32(data, place + 24) & 0xFFFFFFFF:
            break
        taken = take_names(data, place + 29 + gtrid_size, behind - 4, named, names)
        if taken < 0:
            break
        named = taken
        put_view(data, place + 29, gtrid_size, gtrids, row)
        offsets[row] = place
        lengths[row] = length + 8
        statuses[row] = be_int32(data, place)
        high = be_int32(data, place + 12)
        times[row] = (high << 32) | (be_int32(data, place + 16) & 0xFFFFFFFF)
        sequences[row] = be_int32(data, place + 20)
        row += 1
        list_ends[row] = named
        place = behind
    return row, place, named


def new_columns(rows: int) -> dict[str, npt.NDArray[Any]]:
    """Output arrays for `walk`, for at most ``rows`` records."""
    return {
        "offsets": np.empty(rows, np.int64),
        "lengths": np.empty(rows, np.int64),
        "statuses": np.empty(rows, np.int32),
        "sequences": np.empty(rows, np.int64),
        "times": np.empty(rows, np.int64),
        "gtrids": np.empty((rows, 4), np.uint32),
        "list_ends": np.zeros(rows + 1, np.int32),
        "names": np.empty((rows * NAMES_PER_ROW, 4), np.uint32),
    }
