"""CRC-32 inside compiled kernels, for formats with a checksum in every small record.

In: bytes as a NumPy array, a range of it, and `crc_table`. Out: the checksum as `crc.crc32` gives
it. Sixteen bytes at a time; for large ranges the CRC of the machine in `crc` is faster.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tallystick.arrow.byte_kernels import Bytes, Number, le_word32
from tallystick.arrow.numba_kernel import kernel

Table = npt.NDArray[np.uint32]

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
            crc_of_four(crc ^ le_word32(data, place), table, 12)
            ^ crc_of_four(le_word32(data, place + 4), table, 8)
            ^ crc_of_four(le_word32(data, place + 8), table, 4)
            ^ crc_of_four(le_word32(data, place + 12), table, 0)
        )
        place += 16
    if place + 8 <= end:
        crc = crc_of_four(crc ^ le_word32(data, place), table, 4) ^ crc_of_four(
            le_word32(data, place + 4), table, 0
        )
        place += 8
    if place + 4 <= end:
        crc = crc_of_four(crc ^ le_word32(data, place), table, 0)
        place += 4
    while place < end:
        byte = np.uint32(data[np.uint64(place)])
        crc = table[0, (crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        place += 1
    return crc
