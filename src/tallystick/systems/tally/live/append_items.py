"""What can be submitted to a native log, how large it is, and what fits in one group.

In: items. Out: sizes, and runs of items that are written as one group each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from tallystick.records import Xid
from tallystick.systems.tally.format.columns import Draft, Inner
from tallystick.systems.tally.format.kinds import ELEMENTS
from tallystick.systems.tally.live.carry_forward import Bundle

RECORD_BYTES = 64
"""More than the columns of one record take."""
PAIR_BYTES = 12


class EndingDraft(NamedTuple):
    """A prepare or commit; its pairs are counted when its place is known."""

    code: int
    transaction: int
    xid: Xid | None = None
    extra: bytes = b""


class Columnar(NamedTuple):
    """Plain records, encoded before: a group of its own. Its LSN is that of the first one."""

    inner: Inner
    records: int


class Action(NamedTuple):
    """Something that the writer does between two groups: roll, reclaim. No record."""

    run: Callable[[], None]


Item: TypeAlias = bytes | Draft | EndingDraft | Bundle | Columnar | Action
"""``bytes`` is a plain record (`Code.APPEND`)."""


_PAIRS_BYTES = 64 * PAIR_BYTES
_PLAIN = {bytes}


def size_of(item: Item) -> int:
    """At least the inner bytes that an item takes, without its pairs."""
    if isinstance(item, bytes):
        return len(item) + RECORD_BYTES
    if isinstance(item, Draft):
        return len(item.body) + len(item.gtrid) + RECORD_BYTES
    if isinstance(item, Bundle):
        return sum([len(one.body) + len(one.gtrid) + RECORD_BYTES for one in item.drafts])
    if isinstance(item, Columnar):
        return item.inner.size
    if isinstance(item, Action):
        return 0
    xid = item.xid
    return len(item.extra) + RECORD_BYTES + (len(xid.gtrid) + len(xid.bqual) if xid else 0)


def is_element(item: Item) -> bool:
    if isinstance(item, Bundle):
        return any(map(is_element, item.drafts))
    return isinstance(item, EndingDraft) or (isinstance(item, Draft) and item.code in ELEMENTS)


def runs(items: Sequence[Item], capacity: int) -> Iterator[tuple[type, list[Item], int]]:
    """Items in runs that can be one group each: plain, columnar, mixed, or no group at all; with
    the sum of their sizes."""
    sizes = [size_of(item) for item in items]
    kinds = set(map(type, items))
    if kinds == _PLAIN and sum(sizes) <= capacity:
        yield bytes, list(items), sum(sizes)
        return
    run: list[Item] = []
    size = pairs = 0
    for item, own in zip(items, sizes, strict=True):
        kind = type(item)
        alone = kind is Columnar or kind is Action
        if kind is EndingDraft:
            pairs += _PAIRS_BYTES
        if run and (size + pairs + own > capacity or alone):
            yield object, run, size
            run, size, pairs = [], 0, _PAIRS_BYTES * (kind is EndingDraft)
        if alone:
            yield kind, [item], own
        else:
            run.append(item)
            size += own
    if run:
        yield object, run, size
