"""Offsets in the stream as offsets in the file, and bytes put together, as compiled kernels.

In: offsets of records in the stream, and the pages of it; ranges of bytes. Out: offsets in the
file; the bytes one after the other.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.numba_kernel import kernel


@kernel
def file_offsets(starts: Any, before: int, pages: Any, page_size: int, body_size: int) -> None:
    """Turn offsets in the stream into offsets in the file, in place.

    Args:
        starts: the offsets, ascending, counted from ``before``.
        before: an offset in the stream.
        pages: the numbers of the data pages of the stream.
        page_size: bytes of a page.
        body_size: stream bytes of a page.
    """
    page = before // body_size
    begin = page * body_size - before
    head = page_size - body_size
    for row in range(len(starts)):
        # Offsets rise, so the page is found by going on, without a division per record.
        while starts[row] - begin >= body_size:
            page += 1
            begin += body_size
        starts[row] = pages[page] * page_size + head + starts[row] - begin


@kernel
def gather(data: Any, starts: Any, lengths: Any, out: Any) -> None:
    """Copy ranges of ``data`` to ``out``, one after the other; a negative length is none."""
    to = 0
    for row in range(len(starts)):
        for at in range(starts[row], starts[row] + lengths[row]):
            out[to] = data[at]
            to += 1
