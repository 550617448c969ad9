"""What a split leaves open, as bytes and back: one form for all systems.

In: a value of JSON that may hold bytes, and arrays of integers as bytes. Out: compressed bytes, and
what a system builds of the value again. Nothing is pickled, and what is damaged, or was not written
by `packed`, is refused.

    zlib( size of the head, 4 bytes | head: JSON | the bytes that stand in it, one after the other )

Bytes stand in the head as an object with the one key ``bytes``: where they begin and end.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tallystick.errors import TallystickError
from tallystick.systems.protocol import NotClosedInPartsError

if TYPE_CHECKING:
    from tallystick.systems.protocol import Longs

UNPACKED_MAX: Final = 1 << 30
"""Most bytes that a rest may unpack to."""
_SIZE: Final = Struct("<I")
_BYTES: Final = "bytes"
_LEVEL: Final = 1
_INTEGERS: Final = 1 << 63

_Built = TypeVar("_Built")


def packed(value: Any) -> bytes:
    """Return a value of JSON as bytes.

    Wherever JSON allows a value it may hold bytes, or an array that gives its memory as bytes: that
    of NumPy as `longs` reads it.
    """
    parts = bytearray()

    def placed(part: Any) -> dict[str, tuple[int, int]]:
        begin, view = len(parts), memoryview(part)
        parts.extend(view.cast("B") if view.nbytes else b"")
        return {_BYTES: (begin, len(parts))}

    head = json.dumps(value, default=placed, separators=(",", ":")).encode()
    return zlib.compress(b"".join((_SIZE.pack(len(head)), head, parts)), _LEVEL)


def unpacked(rest: bytes, build: Callable[[Any], _Built]) -> _Built:
    """Return what ``build`` makes of the value that was packed: tuples are lists, arrays bytes.

    Raises:
        NotClosedInPartsError: the rest is damaged, or ``build`` raises an error about the value.
    """
    try:
        return build(_value(rest))
    except (
        ValueError, TypeError, LookupError, OverflowError, RecursionError, zlib.error,
        struct.error, TallystickError,
    ) as error:  # fmt: skip
        raise NotClosedInPartsError(f"what a split left open is damaged: {error}") from error


def _value(rest: bytes) -> Any:
    stream = zlib.decompressobj()
    # With a bound: a few bytes from elsewhere may claim to unpack to any size.
    data = stream.decompress(rest, UNPACKED_MAX)
    if not stream.eof or stream.unused_data:
        raise ValueError("it is not one whole stream")
    (size,) = _SIZE.unpack_from(data)
    start = _SIZE.size + size
    if start > len(data):
        raise ValueError("its head is cut")

    def found(value: dict[str, Any]) -> Any:
        if value.keys() != {_BYTES}:
            return value
        begin, end = items(value[_BYTES], int, int)
        if not 0 <= begin <= end <= len(data) - start:
            raise ValueError("a part of it is missing")
        return data[start + begin : start + end]

    return json.loads(data[_SIZE.size : start], object_hook=found)


def require(holds: bool, otherwise: str) -> None:
    """Check that the splits of a log can be judged together.

    Raises:
        NotClosedInPartsError: it does not hold: the whole log has to be read.
    """
    if not holds:
        raise NotClosedInPartsError(f"the log is not closed in parts: {otherwise}")


def items(value: Any, *kinds: Any) -> list[Any]:
    """Return the items of a list that has one of each of these types, integers signed of 64 bits.

    Raises:
        TypeError: it is another value.
        ValueError: an integer is too large.
    """
    if not isinstance(value, list) or len(value) != len(kinds):
        raise TypeError(f"not a list of {len(kinds)} items")
    for one, kind in zip(value, kinds, strict=True):
        if not isinstance(one, kind) or isinstance(one, bool):
            raise TypeError(f"{type(one).__name__} where another type is due")
        if isinstance(one, int) and not -_INTEGERS <= one < _INTEGERS:
            raise ValueError("an integer of more than 64 bits")
    return value


def longs(part: Any) -> Longs:
    """Return the signed 64-bit integers of an array that was packed.

    Raises:
        TypeError: ``part`` is no bytes.
        ValueError: its size is no multiple of 8.
    """
    import numpy as np

    return np.frombuffer(part, np.int64)
