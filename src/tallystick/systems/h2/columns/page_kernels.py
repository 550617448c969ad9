"""The bytes of a page store's log pages, as compiled kernels.

In: the file as a NumPy array of bytes and page numbers. Out: how many pages are whole, and where
in the file stream bytes stand.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.numba_kernel import kernel


@kernel
def first_fault(data: Any, ids: Any, keys: Any, page_size: int) -> int:
    """How many of these pages, from the first, are whole data pages with their log key."""
    for index in range(len(ids)):
        start = ids[index] * page_size
        if ids[index] < 0 or start + page_size > len(data) or data[start] != 8:
            return index
        first = 255 + int(data[start])
        second = 255 + first
        for place in (6, page_size // 2 - 1, page_size // 2, page_size - 2, page_size - 1):
            first += int(data[start + place])
            second += first
        one = (((first & 255) + (first >> 8)) ^ ids[index]) & 255
        two = (((second & 255) + (second >> 8)) ^ (ids[index] >> 8)) & 255
        if one != data[start + 1] or two != data[start + 2]:
            return index
        key = 0
        for place in range(7, 11):
            key = key << 8 | int(data[start + place])
        if key != keys[index] & 0xFFFFFFFF:
            return index
    return len(ids)


@kernel
def file_offsets(starts: Any, before: int, pages: Any, page_size: int, body_size: int) -> None:
    """Turn ascending places in the stream, counted from ``before``, into offsets in the file."""
    page = before // body_size
    begin = page * body_size - before
    head = page_size - body_size
    for row in range(len(starts)):
        while starts[row] - begin >= body_size:
            page += 1
            begin += body_size
        starts[row] = pages[page] * page_size + head + starts[row] - begin
