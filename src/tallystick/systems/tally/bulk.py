"""Many plain records at once: columnar groups, built by NumPy where it is installed.

In: bodies. Out: `Columnar` items of about `BULK_BYTES` each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tallystick.systems.tally.columns import Inner, encode_plain
from tallystick.systems.tally.kinds import Code
from tallystick.systems.tally.log import Columnar

BULK_BYTES: Final = 4 << 20


def columnar(bodies: Sequence[bytes], capacity: int) -> Iterator[Columnar]:
    """Groups in order; each body must fit into ``capacity`` with its offset."""
    limit = min(BULK_BYTES, capacity)
    try:
        import numpy
    except ImportError:
        return _plain(bodies, limit)
    return _vectorised(numpy, bodies, limit)


def _plain(bodies: Sequence[bytes], limit: int) -> Iterator[Columnar]:
    start = size = 0
    for place, body in enumerate(bodies):
        own = len(body) + 4
        if size + own + 16 > limit and place > start:
            yield Columnar(encode_plain(Code.APPEND, bodies[start:place]), place - start)
            start, size = place, 0
        size += own
    if start < len(bodies):
        yield Columnar(encode_plain(Code.APPEND, bodies[start:]), len(bodies) - start)


def _vectorised(numpy: Any, bodies: Sequence[bytes], limit: int) -> Iterator[Columnar]:
    count = len(bodies)
    ends = numpy.zeros(count + 1, numpy.int64)
    numpy.cumsum(numpy.fromiter(map(len, bodies), numpy.int64, count), out=ends[1:])
    sizes = ends + 4 * numpy.arange(count + 1)
    start = 0
    while start < count:
        stop = int(numpy.searchsorted(sizes, sizes[start] + limit - 16, "right")) - 1
        stop = max(stop, start + 1)
        offsets = (ends[start : stop + 1] - ends[start]).astype("<i4").tobytes()
        data = b"".join(bodies[start:stop])
        yield Columnar(_inner(offsets, data), stop - start)
        start = stop


def _inner(offsets: bytes, data: bytes) -> Inner:
    padding = bytes(-len(offsets) % 8)
    size = len(offsets) + len(padding) + len(data)
    return Inner(Code.APPEND << 16, (offsets, padding, data), size)
