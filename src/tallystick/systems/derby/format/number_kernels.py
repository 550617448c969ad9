"""Derby's compressed numbers, read by compiled kernels.

In: bytes and an offset; the caller knows that the first byte is there. Out: the number, or how many
bytes it has.
"""

from __future__ import annotations

from tallystick.arrow.byte_kernels import (
    Bytes,
    Number,
    be_int64,
    be_uint16,
    be_uint32,
    int64,
    uint64,
)
from tallystick.arrow.numba_kernel import kernel


@kernel
def int_size(data: Bytes, place: Number) -> Number:
    """Return how many bytes a compressed int has."""
    first = data[uint64(place)]
    return 1 if first < 0x40 else 2 if first < 0x80 else 4


@kernel
def compressed_int(data: Bytes, place: Number) -> Number:
    """Return a compressed int."""
    first = int64(data[uint64(place)])
    if first < 0x40:
        return first
    return be_uint16(data, place) & 0x3FFF if first < 0x80 else be_uint32(data, place) & 0x7FFFFFFF


@kernel
def long_size(data: Bytes, place: Number) -> Number:
    """Return how many bytes a compressed long has."""
    first = data[uint64(place)]
    return 2 if first < 0x40 else 4 if first < 0x80 else 8


@kernel
def compressed_long(data: Bytes, place: Number) -> Number:
    """Return a compressed long."""
    first = data[uint64(place)]
    if first < 0x40:
        return be_uint16(data, place)
    if first < 0x80:
        return be_uint32(data, place) & 0x3FFFFFFF
    return be_int64(data, place) & 0x7FFFFFFFFFFFFFFF
