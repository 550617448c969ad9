"""Integers in bytes, read by compiled kernels: one set for the kernels of all systems.

In: bytes and an offset: a NumPy array where numba is installed, else any buffer. Out: the integer
there, signed, of 64 bits. No bounds are checked.

Offsets are made unsigned before they index: with signed ones numba tests each index for being
negative, and the bytes of a number are then not read with one instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from tallystick.arrow.numba_kernel import kernel
from tallystick.arrow.plain_bytes import reader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
else:
    Bytes = Any

Number: TypeAlias = Any
"""An int; in plain Python sometimes one of NumPy's."""

int64: Any = int
uint32: Any = int
uint64: Any = int
"""Types that a kernel casts to: NumPy's where numba compiles it, else plain ints, so that kernels
run without the arrow extra too."""
try:
    import numba  # noqa: F401 - only to see whether kernels are compiled
    from numpy import int64, uint32, uint64
except ImportError:
    COMPILED = False
else:
    COMPILED = True
"""True if kernels run as machine code, over NumPy arrays."""

_SIGN_32 = 0x80000000


def _reads(form: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function that reads a number, or have `struct` read it where nothing compiles.

    Args:
        form: The number, as `struct` spells it.
    """
    return lambda function: kernel(function) if COMPILED else reader(form)


@_reads("<I")
def le_word32(data: Bytes, place: Number) -> Number:
    """Return the 4 little-endian bytes at ``place`` as an unsigned number of 32 bits."""
    at = uint64(place)
    return (
        uint32(data[at])
        | (uint32(data[at + uint64(1)]) << uint32(8))
        | (uint32(data[at + uint64(2)]) << uint32(16))
        | (uint32(data[at + uint64(3)]) << uint32(24))
    )


@_reads(">I")
def be_word32(data: Bytes, place: Number) -> Number:
    """Return the 4 big-endian bytes at ``place`` as an unsigned number of 32 bits."""
    at = uint64(place)
    return (
        (uint32(data[at]) << uint32(24))
        | (uint32(data[at + uint64(1)]) << uint32(16))
        | (uint32(data[at + uint64(2)]) << uint32(8))
        | uint32(data[at + uint64(3)])
    )


@_reads("<H")
def le_uint16(data: Bytes, place: Number) -> Number:
    """Return the unsigned little-endian number of 2 bytes at ``place``."""
    at = uint64(place)
    return int64(data[at]) | int64(data[at + uint64(1)]) << 8


@_reads("<I")
def le_uint32(data: Bytes, place: Number) -> Number:
    """Return the unsigned little-endian number of 4 bytes at ``place``."""
    return int64(le_word32(data, place))


@_reads("<i")
def le_int32(data: Bytes, place: Number) -> Number:
    """Return the signed little-endian number of 4 bytes at ``place``."""
    # The sign of 32 bits without a branch: bit 31 is turned round, and its worth taken off.
    return (int64(le_word32(data, place)) ^ _SIGN_32) - _SIGN_32


@_reads("<q")
def le_int64(data: Bytes, place: Number) -> Number:
    """Return the signed little-endian number of 8 bytes at ``place``."""
    # The lower word has no sign, or it would set all bits of the upper one.
    return int64(le_word32(data, place)) | le_int32(data, place + 4) << 32


@_reads(">H")
def be_uint16(data: Bytes, place: Number) -> Number:
    """Return the unsigned big-endian number of 2 bytes at ``place``."""
    at = uint64(place)
    return int64(data[at]) << 8 | int64(data[at + uint64(1)])


@_reads(">I")
def be_uint32(data: Bytes, place: Number) -> Number:
    """Return the unsigned big-endian number of 4 bytes at ``place``."""
    return int64(be_word32(data, place))


@_reads(">i")
def be_int32(data: Bytes, place: Number) -> Number:
    """Return the signed big-endian number of 4 bytes at ``place``."""
    return (int64(be_word32(data, place)) ^ _SIGN_32) - _SIGN_32


@_reads(">q")
def be_int64(data: Bytes, place: Number) -> Number:
    """Return the signed big-endian number of 8 bytes at ``place``."""
    return be_int32(data, place) << 32 | int64(be_word32(data, place + 4))
