"""The pages of Artemis and HornetQ: messages that do not fit into memory.

In: the bytes of a page. Out: what it holds. A page is a row of entries, each a ``{``, the size of
the message i4, the message, a ``}``; the first that is not whole ends it. A message is the number
of its transaction i8, whether it is large u1, of Artemis and of a large one the size of the record
i4, the record that a journal would have of it, and the queues that it is for: their number i4, and
the id i8 of each. The record of another message begins, in Artemis, with the kind of protocol u1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tallystick.systems.jboss.format.layout import I4, I8
from tallystick.systems.jboss.format.messages import (
    LARGE_MESSAGE,
    MESSAGE,
    LargeFile,
    large_file,
    size_of_message,
)

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
        file: what the record says of the message's file.
        place: how many messages stand before it in the page.
        transaction: the transaction in which it was sent; not positive if there was none.
        queues: the queues that get it.
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


class PagedMessage(NamedTuple):
    """A message in a page, as a journal would have it.

    Attributes:
        place: how many messages stand before it in the page.
        transaction: the transaction in which it was sent; not positive if there was none.
        user_type: of the record; None of one whose form is not known.
        message_id: its id; None where the form is not known.
        record: its bytes.
        queues: those that it is for; none where the form is not known.
    """

    place: int
    transaction: int
    user_type: int | None
    message_id: int | None
    record: bytes
    queues: tuple[int, ...]


def _entries(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Yield each whole message, and where its entry ends."""
    at = 0
    while at + _FRAME <= len(data) and data[at] == _BEGIN:
        (size,) = I4.unpack_from(data, at + 1)
        begin, end = at + 1 + I4.size, at + _FRAME + size
        if size < 0 or end > len(data) or data[end - 1] != _END:
            return
        yield data[begin : end - 1], end
        at = end


def contents_of(data: memoryview) -> PageContents:
    """Return what a page holds."""
    at = count = 0
    large: dict[int, LargeMessage] = {}
    transactions: dict[int, list[int]] = {}
    first: int | None = None
    for message, end in _entries(data):
        number = _transaction(message)
        if number > 0:
            transactions.setdefault(number, []).append(count)
        if not count:
            first = _id(message)
        if _is_large(message):
            record, queues = _large_parts(message)
            found = LargeMessage(large_file(record), count, number, queues)
            large[I8.unpack_from(record)[0]] = found
        at, count = end, count + 1
    return PageContents(count, at == len(data), large, transactions, first)


def messages_of(data: memoryview) -> Iterator[PagedMessage]:
    """Yield the whole messages of a page of Artemis, with their records."""
    for place, (message, _) in enumerate(_entries(data)):
        kind, record, queues = None, b"", tuple[int, ...]()
        if _is_large(message):
            kind, (record, queues) = LARGE_MESSAGE, _large_parts(message)
        elif size := size_of_message(bytes(message[_PROTOCOL:])):
            kind, record = MESSAGE, bytes(message[_PROTOCOL : _PROTOCOL + size])
            queues = _queues(bytes(message[_PROTOCOL + size :]))
        found = _id(message) if kind is not None else None
        yield PagedMessage(place, _transaction(message), kind, found, record, queues)


def _transaction(message: memoryview) -> int:
    return int(I8.unpack_from(message)[0]) if len(message) >= I8.size else 0


def _is_large(message: memoryview) -> bool:
    return len(message) >= _RECORD + I8.size and message[_LARGE] == 1


def _large_parts(message: memoryview) -> tuple[bytes, tuple[int, ...]]:
    """Return the record of a large message, with what follows it, and its queues."""
    record = bytes(message[_RECORD:])
    return record, _queues(record[I4.unpack_from(message, _SIZE)[0] :])


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
