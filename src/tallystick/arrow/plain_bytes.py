"""Integers in bytes and their CRC, read in plain Python: twins of what compiled kernels call.

In: bytes and an offset. Out: what `byte_kernels` and `crc_kernel` give, without loading NumPy or
numba. No bounds are checked before.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from tallystick.arrow.numba_kernel import has_twin
from tallystick.storage.crc import crc32

_NUMBERS = "tallystick.arrow.byte_kernels"


def reader(form: str) -> Callable[[Any, int], int]:
    """Return a function that reads a number as `struct` spells it."""
    unpack = Struct(form).unpack_from
    return lambda data, place: unpack(data, place)[0]


be_int32 = has_twin(reader(">i"), _NUMBERS, "be_int32")
be_uint32 = has_twin(reader(">I"), _NUMBERS, "be_uint32")
be_int64 = has_twin(reader(">q"), _NUMBERS, "be_int64")


def _crc32_of(data: Any, begin: int, end: int) -> int:
    return crc32(data[begin:end])


crc32_of = has_twin(_crc32_of, "tallystick.arrow.crc_kernel", "crc32_of")
"""``crc32_of(data, begin, end)``: CRC-32 of ``data[begin:end]``."""
