"""Where zeros, or another fill, begin and end: preallocated files consist mostly of them.

In: the bytes of a file and a range. Out: offsets. Windows of fill are compared in place, at memory
speed, and let go if the file is mapped; only the one that ends a run is searched.
"""

from __future__ import annotations

from functools import lru_cache

from tallystick.storage.mapped import NEAR, let_go

_WINDOW = 1 << 16


def is_zero(data: memoryview, begin: int, end: int) -> bool:
    """Return True if all bytes of ``data[begin:end]`` are zero."""
    return first_nonzero(data, begin, end) == end


def first_nonzero(data: memoryview, begin: int, end: int) -> int:
    """Return the offset of the first byte of ``data[begin:end]`` that is not zero, else ``end``."""
    return first_other(data, begin, end, b"\0")


def last_nonzero_end(data: memoryview, begin: int, end: int) -> int:
    """Return the offset after the last nonzero byte of ``data[begin:end]``, else ``begin``.

    So ``data[last_nonzero_end(data, begin, end):end]`` is the run of zeros at the end.
    """
    return last_other_end(data, begin, end, b"\0")


def first_other(data: memoryview, begin: int, end: int, fill: bytes) -> int:
    """Return the offset of the first byte of ``data[begin:end]`` that is not in ``fill``.

    That is ``end`` if all are.
    """
    runs = _runs(fill)
    for place in range(begin, end, _WINDOW):
        window = data[place : min(place + _WINDOW, end)]
        if not _is_run(window, runs) and (left := bytes(window).lstrip(fill)):
            return place + len(window) - len(left)
        if place % NEAR < _WINDOW:
            let_go(data, place)
    return end


def last_other_end(data: memoryview, begin: int, end: int, fill: bytes) -> int:
    """Return the offset after the last byte of ``data[begin:end]`` that is not in ``fill``.

    That is ``begin`` if all are.
    """
    runs = _runs(fill)
    place = end
    while place > begin:
        start = max(begin, place - _WINDOW)
        window = data[start:place]
        if not _is_run(window, runs) and (left := bytes(window).rstrip(fill)):
            return start + len(left)
        place = start
        if place % NEAR < _WINDOW:
            let_go(data, place, backwards=True)
    return begin


@lru_cache(maxsize=4)
def _runs(fill: bytes) -> tuple[bytes, ...]:
    return tuple(bytes([byte]) * _WINDOW for byte in fill)


def _is_run(window: memoryview, runs: tuple[bytes, ...]) -> bool:
    return any(run.startswith(window) for run in runs)
