"""Offsets in the stream as offsets in the file; bytes put together, as a compiled kernel.

In: offsets of records in the stream; ranges of bytes. Out: offsets in the file; the bytes one after
the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.read.stream import LogStream


def file_offsets(stream: LogStream) -> Callable[[Any], Any]:
    """Return a function of offsets in the stream, an array, that returns those in the file."""
    pages, size = np.array(stream.data_pages, np.int64), stream.body_size
    # What an offset in the file is more than one in the stream, by page of the stream.
    more = pages * stream.pages.page_size + layout.DATA_START - np.arange(len(pages)) * size
    return lambda starts: starts + more[starts // size]


@kernel
def gather(data: Any, starts: Any, lengths: Any, out: Any) -> None:
    """Copy ranges of ``data`` to ``out``, one after the other; a negative length is none."""
    to = 0
    for row in range(len(starts)):
        for at in range(starts[row], starts[row] + lengths[row]):
            out[to] = data[at]
            to += 1
