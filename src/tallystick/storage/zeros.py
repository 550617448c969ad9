"""Where zeros begin and end: preallocated files consist mostly of them.

In: the bytes of a file and a range. Out: offsets. Windows of zeros are compared in place, at memory
speed, and let go if the file is mapped; only the one that ends a run is searched.
"""

from __future__ import annotations

from tallystick.storage.mapped import NEAR, let_go

_ZEROS = bytes(1 << 16)


def is_zero(data: memoryview, begin: int, end: int) -> bool:
    """Return True if all bytes of ``data[begin:end]`` are zero."""
    return first_nonzero(data, begin, end) == end


def first_nonzero(data: memoryview, begin: int, end: int) -> int:
    """Return the offset of the first byte of ``data[begin:end]`` that is not zero, else ``end``."""
    for place in range(begin, end, len(_ZEROS)):
        window = data[place : min(place + len(_ZEROS), end)]
        if not _ZEROS.startswith(window):
            return place + len(window) - len(bytes(window).lstrip(b"\0"))
        if place % NEAR < len(_ZEROS):
            let_go(data, place)
    return end


def last_nonzero_end(data: memoryview, begin: int, end: int) -> int:
    """Return the offset after the last nonzero byte of ``data[begin:end]``, else ``begin``.

    So ``data[last_nonzero_end(data, begin, end):end]`` is the run of zeros at the end.
    """
    place = end
    while place > begin:
        start = max(begin, place - len(_ZEROS))
        window = data[start:place]
        if not _ZEROS.startswith(window):
            return start + len(bytes(window).rstrip(b"\0"))
        place = start
        if place % NEAR < len(_ZEROS):
            let_go(data, place, backwards=True)
    return begin
