"""The pages of Artemis and HornetQ: messages that do not fit into memory.

In: the bytes of a page. Out: how many whole messages it holds. A page is a row of entries, each a
``{``, the size of the message i4, the message, a ``}``; the first that is not whole ends it.
"""

from __future__ import annotations

from tallystick.systems.jboss.format.layout import I4

_BEGIN, _END = b"{"[0], b"}"[0]
_FRAME = 1 + I4.size + 1
"""Bytes of an entry besides the message."""


def messages_in(data: memoryview) -> int:
    """Return the number of whole messages in a page."""
    at = count = 0
    while at + _FRAME <= len(data) and data[at] == _BEGIN:
        (size,) = I4.unpack_from(data, at + 1)
        end = at + _FRAME + size
        if size < 0 or end > len(data) or data[end - 1] != _END:
            break
        at, count = end, count + 1
    return count
