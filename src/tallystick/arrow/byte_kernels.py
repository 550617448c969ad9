"""Integers in bytes, read by compiled kernels: one set for the kernels of all systems.

In: a NumPy array of bytes and an offset. Out: the integer there, as a signed 64-bit number that
holds every value of up to 32 bits, and the bits of a 64-bit one. No bounds are checked.

Offsets are made unsigned before they index: with signed ones numba tests each index for being
negative, and the bytes of a number are then not read with one instruction.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tallystick.arrow.numba_kernel import kernel

Bytes = npt.NDArray[np.uint8]
Number: TypeAlias = Any
"""An int; in plain Python sometimes one of NumPy's."""

_SIGN_32 = 0x80000000


@kernel
def le_word32(data: Bytes, place: Number) -> Number:
    """Return the 4 little-endian bytes at ``place`` as an unsigned number of 32 bits."""
    at = np.uint64(place)
    return (
        np.uint32(data[at])
        | (np.uint32(data[at + np.uint64(1)]) << np.uint32(8))
        | (np.uint32(data[at + np.uint64(2)]) << np.uint32(16))
        | (np.uint32(data[at + np.uint64(3)]) << np.uint32(24))
    )


@kernel
def be_word32(data: Bytes, place: Number) -> Number:
    """Return the 4 big-endian bytes at ``place`` as an unsigned number of 32 bits."""
    at = np.uint64(place)
    return (
        (np.uint32(data[at]) << np.uint32(24))
        | (np.uint32(data[at + np.uint64(1)]) << np.uint32(16))
        | (np.uint32(data[at + np.uint64(2)]) << np.uint32(8))
        | np.uint32(data[at + np.uint64(3)])
    )


@kernel
def le_uint16(data: Bytes, place: Number) -> Number:
    """Return the unsigned little-endian number of 2 bytes at ``place``."""
    at = np.uint64(place)
    return np.int64(data[at]) | np.int64(data[at + np.uint64(1)]) << 8


@kernel
def le_uint32(data: Bytes, place: Number) -> Number:
    """Return the unsigned little-endian number of 4 bytes at ``place``."""
    return np.int64(le_word32(data, place))


@kernel
def le_int32(data: Bytes, place: Number) -> Number:
    """Return the signed little-endian number of 4 bytes at ``place``."""
    return (np.int64(le_word32(data, place)) ^ _SIGN_32) - _SIGN_32


@kernel
def le_int64(data: Bytes, place: Number) -> Number:
    """Return the signed little-endian number of 8 bytes at ``place``."""
    return np.int64(le_word32(data, place)) | np.int64(le_word32(data, place + 4)) << 32


@kernel
def be_uint16(data: Bytes, place: Number) -> Number:
    """Return the unsigned big-endian number of 2 bytes at ``place``."""
    at = np.uint64(place)
    return np.int64(data[at]) << 8 | np.int64(data[at + np.uint64(1)])


@kernel
def be_uint32(data: Bytes, place: Number) -> Number:
    """Return the unsigned big-endian number of 4 bytes at ``place``."""
    return np.int64(be_word32(data, place))


@kernel
def be_int32(data: Bytes, place: Number) -> Number:
    """Return the signed big-endian number of 4 bytes at ``place``."""
    return (np.int64(be_word32(data, place)) ^ _SIGN_32) - _SIGN_32


@kernel
def be_int64(data: Bytes, place: Number) -> Number:
    """Return the signed big-endian number of 8 bytes at ``place``."""
    return np.int64(be_word32(data, place)) << 32 | np.int64(be_word32(data, place + 4))
