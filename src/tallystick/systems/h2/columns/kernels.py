"""Places in the stream as places in the file, as a compiled kernel.

In: offsets of records in the stream, and the pages of it. Out: offsets in the file.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.numba_kernel import kernel


@kernel
def file_offsets(starts: Any, before: int, pages: Any, page_size: int, body_size: int) -> None:
    """Turn ascending offsets in the stream, counted from ``before``, into offsets in the file."""
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
    """Copy ranges of ``data`` one after the other; a negative length is none."""
    to = 0
    for row in range(len(starts)):
        for at in range(starts[row], starts[row] + lengths[row]):
            out[to] = data[at]
            to += 1
