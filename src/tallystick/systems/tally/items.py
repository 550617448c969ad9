"""What can be submitted to a native log, how large it is, and what fits in one group.

In: items. Out: sizes, and runs of items that are written as one group each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from tallystick.records import Xid
from tallystick.systems.tally.carry import Bundle
from tallystick.systems.tally.columns import Draft, Inner
from tallystick.systems.tally.kinds import ELEMENTS

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


def size_of(item: Item) -> int:
    """At least the inner bytes that an item takes, without its pairs."""
    if isinstance(item, bytes):
        return len(item) + RECORD_BYTES
    if isinstance(item, Draft):
        return len(item.body) + len(item.gtrid) + RECORD_BYTES
    if isinstance(item, Bundle):
        return sum(map(size_of, item.drafts))
    if isinstance(item, Columnar):
        return item.inner.size
    if isinstance(item, Action):
        return 0
    xid = item.xid
    return len(item.extra) + RECORD_BYTES + (len(xid.gtrid) + len(xid.bqual) if xid else 0)


def is_element(item: Item) -> bool:
    return isinstance(item, EndingDraft) or (isinstance(item, Draft) and item.code in ELEMENTS)


def runs(items: Sequence[Item], capacity: int) -> Iterator[tuple[type, list[Item]]]:
    """Items in runs that can be one group each: plain, columnar, mixed, or no group at all."""
    if all(type(item) is bytes for item in items) and sum(map(size_of, items)) <= capacity:
        yield bytes, list(items)
        return
    run: list[Item] = []
    size = 0
    for item in items:
        own = size_of(item) + (PAIR_BYTES * 64 if isinstance(item, EndingDraft) else 0)
        alone = isinstance(item, Columnar | Action)
        if run and (size + own > capacity or alone):
            yield object, run
            run, size = [], 0
        if alone:
            yield type(item), [item]
        else:
            run.append(item)
            size += own
    if run:
        yield object, run
