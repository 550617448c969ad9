"""Where zeros begin and end: what preallocated files mostly hold.

In: the bytes of a file and a range. Out: offsets. Windows of zeros are compared in place, at memory
speed; only the one that ends a run is looked into.
"""

from __future__ import annotations

_ZEROS = bytes(1 << 16)


def is_zero(data: memoryview, begin: int, end: int) -> bool:
    """True if the whole range is zeros."""
    return zeros_from(data, begin, end) == end


def zeros_from(data: memoryview, begin: int, end: int) -> int:
    """The first place from ``begin`` on that is not zero, at most ``end``."""
    for place in range(begin, end, len(_ZEROS)):
        window = data[place : min(place + len(_ZEROS), end)]
        if not _ZEROS.startswith(window):
            return place + len(window) - len(bytes(window).lstrip(b"\0"))
    return end


def zeros_back(data: memoryview, begin: int, end: int) -> int:
    """The place behind the last byte below ``end`` that is not zero, at least ``begin``."""
    place = end
    while place > begin:
        start = max(begin, place - len(_ZEROS))
        window = data[start:place]
        if not _ZEROS.startswith(window):
            return start + len(bytes(window).rstrip(b"\0"))
        place = start
    return begin
