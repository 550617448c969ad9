"""Many plain records at once: columnar groups, built by NumPy where it is installed.

In: bodies. Out: `Columnar` items of about `BULK_BYTES` each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tallystick.systems.tally.columns import Inner, encode_plain
from tallystick.systems.tally.items import Columnar
from tallystick.systems.tally.kinds import Code

BULK_BYTES: Final = 4 << 20


def columnar(
    bodies: Sequence[bytes], capacity: int, check: Callable[[int], None]
) -> Iterator[Columnar]:
    """Groups in order. ``check(size)`` raises if a body of that size is too large; it is called
    before the first group is made."""
    limit = min(BULK_BYTES, capacity)
    try:
        import numpy
    except ImportError:
        check(max(map(len, bodies), default=0))
        return _plain(bodies, limit)
    lengths = numpy.fromiter(map(len, bodies), numpy.int64, len(bodies))
    check(int(lengths.max(initial=0)))
    return _vectorised(numpy, lengths, bodies, limit)


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


def _vectorised(
    numpy: Any, lengths: Any, bodies: Sequence[bytes], limit: int
) -> Iterator[Columnar]:
    count = len(bodies)
    ends = numpy.zeros(count + 1, numpy.int64)
    numpy.cumsum(lengths, out=ends[1:])
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
