"""CRC-32 (the zlib polynomial), by the fastest implementation at hand.

In: bytes-like data and a start value. Out: an unsigned 32-bit number. ``isal`` runs at
memory speed; zlib is the fallback and gives the same numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

crc32: Callable[..., int]
"""``crc32(data, start=0)``: the checksum of ``data`` (anything with a buffer), continued."""


def _fastest() -> Callable[..., int]:
    """Return isal's CRC-32 if it is installed, else zlib's."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.crc32
    fast: Any = isal_zlib.crc32
    return fast  # type: ignore[no-any-return]  # isal ships no types


crc32 = _fastest()
