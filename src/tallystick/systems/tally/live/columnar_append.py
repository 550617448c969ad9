"""Many plain records at once: columnar groups, built by NumPy where it is installed.

In: bodies. Out: `Columnar` items of about `BULK_BYTES` each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from tallystick.storage.crc import crc32
from tallystick.systems.tally.format.columns import PLAIN, Inner, encode_plain
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.append_items import Columnar

BULK_BYTES: Final = 8 << 20
"""A disk that syncs 1 GB/s in groups of this size does 0.6 in groups of half of it."""
PIECE_BYTES: Final = 128 << 10
"""Bodies that are joined at once: few enough for the processor's cache to hold them meanwhile."""


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
    sizes = numpy.zeros(count + 1, numpy.int64)
    numpy.cumsum(lengths + 4, out=sizes[1:])
    start = 0
    while start < count:
        stop = int(numpy.searchsorted(sizes, sizes[start] + limit - 16, "right")) - 1
        stop = max(stop, start + 1)
        own = stop - start
        offsets = sizes[start : stop + 1] - sizes[start] - 4 * numpy.arange(own + 1)
        cuts = numpy.searchsorted(offsets, numpy.arange(0, offsets[-1], PIECE_BYTES))
        cuts = start + numpy.unique(numpy.append(cuts, own))
        yield Columnar(_inner(offsets.astype("<i4").tobytes(), bodies, cuts.tolist()), own)
        start = stop


def _inner(offsets: bytes, bodies: Sequence[bytes], cuts: Sequence[int]) -> Inner:
    """The bodies from the first cut to the last, joined between one cut and the next."""
    padding = bytes(-len(offsets) % 8)
    buffers = [offsets, padding]
    crc = crc32(padding, crc32(offsets))
    for begin, end in pairwise(cuts):
        piece = b"".join(bodies[begin:end])
        crc = crc32(piece, crc)
        buffers.append(piece)
    return Inner(PLAIN, buffers, sum(map(len, buffers)), crc)
