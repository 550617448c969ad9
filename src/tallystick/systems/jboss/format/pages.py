"""The pages of Artemis and HornetQ: messages that do not fit into memory.

In: the bytes of a page. Out: what it holds. A page is a row of entries, each a ``{``, the size of
the message i4, the message, a ``}``; the first that is not whole ends it. A message is the number
of its transaction i8, whether it is large u1, of Artemis and of a large one the size of the record
i4, the record that a journal would have of it, and the queues that it is for: their number i4, and
the id i8 of each. The record of another message begins, in Artemis, with the kind of protocol u1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tallystick.systems.jboss.format.layout import I4, I8
from tallystick.systems.jboss.format.messages import LargeFile, large_file

_BEGIN, _END = b"{"[0], b"}"[0]
_FRAME = 1 + I4.size + 1
"""Bytes of an entry besides the message."""
_LARGE, _SIZE, _RECORD = 8, 9, 13
"""Where a message says that it is large, the size of its record, and where that begins: its id."""
_PROTOCOL, _ID = 9, 10
"""The same of one that is not large; none is 0."""


class LargeMessage(NamedTuple):
    """A large message in a page.

    Attributes:
        file: what its record says of its file.
        place: how many messages stand before it in the page.
        transaction: that in which it was sent; not positive for none.
        queues: those that it is for.
    """

    file: LargeFile
    place: int
    transaction: int
    queues: tuple[int, ...]


class PageContents(NamedTuple):
    """What a page holds.

    Attributes:
        messages: how many whole messages.
        whole: nothing else stands in it.
        large: those by their ids.
        transactions: those in which messages were sent -> their places in the page.
        first: the id of the first message; None of a page without one, or of HornetQ.
    """

    messages: int
    whole: bool
    large: dict[int, LargeMessage]
    transactions: Mapping[int, Sequence[int]] = {}
    first: int | None = None


def contents_of(data: memoryview) -> PageContents:
    """Return what a page holds."""
    at = count = 0
    large: dict[int, LargeMessage] = {}
    transactions: dict[int, list[int]] = {}
    first: int | None = None
    while at + _FRAME <= len(data) and data[at] == _BEGIN:
        (size,) = I4.unpack_from(data, at + 1)
        begin, end = at + 1 + I4.size, at + _FRAME + size
        if size < 0 or end > len(data) or data[end - 1] != _END:
            break
        number = I8.unpack_from(data, begin)[0] if size >= I8.size else 0
        if number > 0:
            transactions.setdefault(number, []).append(count)
        if not count:
            first = _id(data[begin : end - 1])
        if size >= _RECORD + I8.size and data[begin + _LARGE] == 1:
            record = bytes(data[begin + _RECORD : end - 1])
            queues = _queues(record[I4.unpack_from(data, begin + _SIZE)[0] :])
            message = LargeMessage(large_file(record), count, number, queues)
            large[I8.unpack_from(record)[0]] = message
        at, count = end, count + 1
    return PageContents(count, at == len(data), large, transactions, first)


def _id(message: memoryview) -> int | None:
    """Return the id of a message of Artemis."""
    if len(message) < _RECORD + I8.size:
        return None
    at = _RECORD if message[_LARGE] == 1 else _ID
    return None if at == _ID and not message[_PROTOCOL] else int(I8.unpack_from(message, at)[0])


def _queues(data: bytes) -> tuple[int, ...]:
    """Return the queues that a message is for; none where the bytes are something else."""
    if len(data) < I4.size or len(data) != I4.size + I8.size * I4.unpack_from(data)[0]:
        return ()
    return tuple(number for (number,) in I8.iter_unpack(data[I4.size :]))
