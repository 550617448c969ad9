"""Items that can be submitted to a native log, their sizes, and what fits in one group.

In: items, or bodies of many plain records. Out: sizes; items in pieces that are written as one
group each; groups of plain records, encoded ahead (by NumPy where it is installed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from tallystick.records import Xid
from tallystick.storage.crc import crc32
from tallystick.systems.tally.format.columns import (
    PLAIN,
    GroupPayload,
    UnplacedRecord,
    encode_plain,
)
from tallystick.systems.tally.format.kinds import ELEMENTS, Code

RECORD_BYTES: Final = 64
"""More than the columns of one record take."""
PAIR_BYTES: Final = 12
"""Bytes of a (segment, count) pair of a prepare or commit record."""


class Bundle(NamedTuple):
    """Records that are written in one group; the LSN of the item is that of the last one."""

    records: tuple[UnplacedRecord, ...]


class UnplacedEnding(NamedTuple):
    """A prepare or commit record whose pairs are counted when its place is known."""

    code: int
    transaction: int
    xid: Xid | None = None
    extra: bytes = b""


class Columnar(NamedTuple):
    """Plain records that are encoded already: a group of their own.

    The LSN of the item is that of its first record.
    """

    payload: GroupPayload
    record_count: int


class Action(NamedTuple):
    """A function that the writer calls between two groups, to roll or reclaim; no record."""

    run: Callable[[], None]


Item: TypeAlias = bytes | UnplacedRecord | UnplacedEnding | Bundle | Columnar | Action
"""``bytes`` is a plain record (`Code.APPEND`)."""


_PAIRS_BYTES = 64 * PAIR_BYTES
_PLAIN = {bytes}


def size_of(item: Item) -> int:
    """Return an upper bound of the payload bytes of an item, without its pairs."""
    if isinstance(item, bytes):
        return len(item) + RECORD_BYTES
    if isinstance(item, UnplacedRecord):
        return len(item.body) + len(item.gtrid) + RECORD_BYTES
    if isinstance(item, Bundle):
        return sum([len(one.body) + len(one.gtrid) + RECORD_BYTES for one in item.records])
    if isinstance(item, Columnar):
        return item.payload.size
    if isinstance(item, Action):
        return 0
    xid = item.xid
    return len(item.extra) + RECORD_BYTES + (len(xid.gtrid) + len(xid.bqual) if xid else 0)


def needs_transaction(item: Item) -> bool:
    """Return True if the item is part of a transaction, or ends one."""
    if isinstance(item, Bundle):
        return any(map(needs_transaction, item.records))
    return isinstance(item, UnplacedEnding) or (
        isinstance(item, UnplacedRecord) and item.code in ELEMENTS
    )


def split_into_groups(
    items: Sequence[Item], capacity: int
) -> Iterator[tuple[type, list[Item], int]]:
    """Yield items that can be one group each, with their kind and the sum of their sizes.

    The kind is ``bytes`` for plain records only, `Columnar` or `Action` for a single item, else
    ``object``.
    """
    sizes = [size_of(item) for item in items]
    kinds = set(map(type, items))
    if kinds == _PLAIN and sum(sizes) <= capacity:
        yield bytes, list(items), sum(sizes)
        return
    group: list[Item] = []
    size = pairs = 0
    for item, own in zip(items, sizes, strict=True):
        kind = type(item)
        alone = kind is Columnar or kind is Action
        if kind is UnplacedEnding:
            pairs += _PAIRS_BYTES
        if group and (size + pairs + own > capacity or alone):
            yield object, group, size
            group, size, pairs = [], 0, _PAIRS_BYTES * (kind is UnplacedEnding)
        if alone:
            yield kind, [item], own
        else:
            group.append(item)
            size += own
    if group:
        yield object, group, size


# -- many plain records at once ------------------------------------------------------------

BULK_BYTES: Final = 8 << 20
"""A disk that syncs 1 GB/s in groups of this size does 0.6 in groups of half of it."""
PIECE_BYTES: Final = 128 << 10
"""Bytes of bodies that are joined at once: they stay in the processor's cache meanwhile."""
_OFFSET_BYTES: Final = 4
"""Bytes of a body's offset in the columns."""
_COLUMNS_BYTES: Final = 16
"""Bytes of the columns of a plain group that come once: the last offset, and padding."""


def columnar(
    bodies: Sequence[bytes], capacity: int, check: Callable[[int], None]
) -> Iterator[Columnar]:
    """Return plain records as groups of about `BULK_BYTES`, in order.

    ``check(size)`` raises if a body of that size is too large; it is called before the first group
    is made.
    """
    limit = min(BULK_BYTES, capacity)
    try:
        import numpy
    except ImportError:
        check(max(map(len, bodies), default=0))
        return _plain_groups(bodies, limit)
    lengths = numpy.fromiter(map(len, bodies), numpy.int64, len(bodies))
    check(int(lengths.max(initial=0)))
    return _numpy_groups(numpy, lengths, bodies, limit)


def _plain_groups(bodies: Sequence[bytes], limit: int) -> Iterator[Columnar]:
    start = size = 0
    for place, body in enumerate(bodies):
        own = len(body) + _OFFSET_BYTES
        if size + own + _COLUMNS_BYTES > limit and place > start:
            yield Columnar(encode_plain(Code.APPEND, bodies[start:place]), place - start)
            start, size = place, 0
        size += own
    if start < len(bodies):
        yield Columnar(encode_plain(Code.APPEND, bodies[start:]), len(bodies) - start)


def _numpy_groups(
    numpy: Any, lengths: Any, bodies: Sequence[bytes], limit: int
) -> Iterator[Columnar]:
    count = len(bodies)
    sizes = numpy.zeros(count + 1, numpy.int64)
    numpy.cumsum(lengths + _OFFSET_BYTES, out=sizes[1:])
    start = 0
    while start < count:
        stop = int(numpy.searchsorted(sizes, sizes[start] + limit - _COLUMNS_BYTES, "right")) - 1
        stop = max(stop, start + 1)
        own = stop - start
        offsets = sizes[start : stop + 1] - sizes[start] - _OFFSET_BYTES * numpy.arange(own + 1)
        cuts = numpy.searchsorted(offsets, numpy.arange(0, offsets[-1], PIECE_BYTES))
        cuts = start + numpy.unique(numpy.append(cuts, own))
        yield Columnar(_payload(offsets.astype("<i4").tobytes(), bodies, cuts.tolist()), own)
        start = stop


def _payload(offsets: bytes, bodies: Sequence[bytes], cuts: Sequence[int]) -> GroupPayload:
    """Return the bodies from the first cut to the last, joined between two cuts each."""
    padding = bytes(-len(offsets) % 8)
    buffers = [offsets, padding]
    crc = crc32(padding, crc32(offsets))
    for begin, end in pairwise(cuts):
        piece = b"".join(bodies[begin:end])
        crc = crc32(piece, crc)
        buffers.append(piece)
    return GroupPayload(PLAIN, buffers, sum(map(len, buffers)), crc)
