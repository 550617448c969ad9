"""The test of log data pages as a compiled kernel, and how compiled loops of `lzf` copy bytes.

In: the file as a NumPy array of bytes, page numbers and log keys. Out: how many pages are whole.
Import this module only where a log is long, and where numba is installed: it loads the compiler.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.byte_kernels import be_int32
from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.h2.format.layout import (
    CHECKSUM_OFFSET,
    DATA_KEY_OFFSET,
    STREAM_DATA,
    checksum,
)

_checksum = kernel(checksum)


@kernel
def count_whole_pages(data: Any, ids: Any, keys: Any, page_size: int) -> int:
    """Return how many pages, from the first of ``ids``, are whole data pages with their key."""
    for index in range(len(ids)):
        start = ids[index] * page_size
        if ids[index] < 0 or start + page_size > len(data) or data[start] != STREAM_DATA:
            return index
        first, second = _checksum(data[start : start + page_size], ids[index])
        at = start + CHECKSUM_OFFSET
        if first != data[at] or second != data[at + 1]:
            return index
        if be_int32(data, start + DATA_KEY_OFFSET) != keys[index]:
            return index
    return len(ids)


@kernel
def put(source: Any, at: int, out: Any, done: int, length: int) -> None:
    """Do what `lzf.put` does."""
    for place in range(length):
        out[done + place] = source[at + place]


@kernel
def repeat(out: Any, done: int, distance: int, length: int) -> None:
    """Do what `lzf.repeat` does, byte by byte."""
    for place in range(done, done + length):
        out[place] = out[place - distance]
