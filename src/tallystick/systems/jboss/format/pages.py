"""The pages of Artemis and HornetQ: messages that do not fit into memory.

In: the bytes of a page. Out: what it holds. A page is a row of entries, each a ``{``, the size of
the message i4, the message, a ``}``; the first that is not whole ends it. A message is the number
of its transaction i8, whether it is large u1, and, of Artemis, the size of the rest i4 and the
record that a journal would have of it.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.systems.jboss.format.layout import I4, I8
from tallystick.systems.jboss.format.messages import large_size

_BEGIN, _END = b"{"[0], b"}"[0]
_FRAME = 1 + I4.size + 1
"""Bytes of an entry besides the message."""
_LARGE, _RECORD = 8, 13
"""Where a message says that it is large, and where its record begins, with its id."""


class PageContents(NamedTuple):
    """What a page holds.

    Attributes:
        messages: how many whole messages.
        whole: nothing else stands in it.
        large: large message -> the bytes that it says its file has.
        transactions: of the messages that were sent in one.
    """

    messages: int
    whole: bool
    large: dict[int, int]
    transactions: frozenset[int] = frozenset()


def contents_of(data: memoryview) -> PageContents:
    """Return what a page holds."""
    at = count = 0
    large: dict[int, int] = {}
    transactions: set[int] = set()
    while at + _FRAME <= len(data) and data[at] == _BEGIN:
        (size,) = I4.unpack_from(data, at + 1)
        begin, end = at + 1 + I4.size, at + _FRAME + size
        if size < 0 or end > len(data) or data[end - 1] != _END:
            break
        if size >= I8.size and (number := I8.unpack_from(data, begin)[0]) > 0:
            transactions.add(number)
        if size >= _RECORD + I8.size and data[begin + _LARGE] == 1:
            record = bytes(data[begin + _RECORD : end - 1])
            if (wanted := large_size(record)) is not None:
                large[I8.unpack_from(record)[0]] = wanted
        at, count = end, count + 1
    return PageContents(count, at == len(data), large, frozenset(transactions))
