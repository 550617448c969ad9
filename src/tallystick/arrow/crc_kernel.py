"""CRC-32 inside kernels, for formats with a checksum in every small record.

In: bytes and a range of them. Out: the checksum that `tallystick.storage.crc.crc32` gives. Sixteen
bytes at a time; for ranges of more than about 2,000 bytes the CRC of the machine in
`tallystick.storage.crc` is faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystick.arrow.byte_kernels import (
    COMPILED,
    Bytes,
    Number,
    int64,
    le_word32,
    uint32,
    uint64,
)
from tallystick.arrow.numba_kernel import kernel
from tallystick.arrow.plain_bytes import crc32_of as _crc32_interpreted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Table = npt.NDArray[np.uint32]
else:
    Table = Any

_POLYNOMIAL = 0xEDB88320
_ALL_ONES = 0xFFFFFFFF
"""CRC-32 begins with this value, and inverts the last one with it."""


def crc_table() -> Table:
    """Make the tables for sixteen bytes at a time: row k is the CRC of a byte and k zeros."""
    import numpy as np

    table = np.zeros((16, 256), np.uint32)
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(_POLYNOMIAL), row >> 1)
    table[0] = row
    # One zero more after the byte: the CRC moves on by it.
    for slice_number in range(1, 16):
        row = (row >> 8) ^ table[0][row & 0xFF]
        table[slice_number] = row
    return table


CRC_TABLE: Any = crc_table() if COMPILED else None
"""`crc_table` as a constant of compiled kernels; without numba they need none."""


@kernel
def crc_of_four(value: Number, table: Table, row: Number) -> Number:
    """Return the CRC of four bytes that ``row`` more bytes of zeros follow."""
    return (
        table[row + 3, value & uint32(0xFF)]
        ^ table[row + 2, (value >> uint32(8)) & uint32(0xFF)]
        ^ table[row + 1, (value >> uint32(16)) & uint32(0xFF)]
        ^ table[row, value >> uint32(24)]
    )


@kernel
def crc_range(data: Bytes, begin: Number, end: Number, start: Number, table: Table) -> Number:
    """Continue a CRC-32 from its inverted value ``start``; the result is inverted too.

    For checksums over several ranges; `crc32_of` is the one of a whole range.
    """
    crc = uint32(start)
    place = begin
    # Only the first four bytes need the CRC so far: the machine looks the others up meanwhile.
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
        byte = uint32(data[uint64(place)])
        crc = table[0, (crc ^ byte) & uint32(0xFF)] ^ (crc >> uint32(8))
        place += 1
    return crc


@kernel
def _crc32_compiled(data: Bytes, begin: Number, end: Number) -> Number:
    return int64(crc_range(data, begin, end, _ALL_ONES, CRC_TABLE)) ^ _ALL_ONES


crc32_of: Any = _crc32_compiled if COMPILED else _crc32_interpreted
"""``crc32_of(data, begin, end)``: CRC-32 of ``data[begin:end]``, from kernels and for them."""
