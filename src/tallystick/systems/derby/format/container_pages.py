"""Pages of a container's file: their headers, the places of their rows, their checksums.

In: the bytes of a page, or of a container's head. Out: what they say of themselves. Integers are
big-endian. Source: docs/formats/derby.md, sections "Rows and fields" and "Recovery".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tallystick.storage.crc import crc32
from tallystick.systems.derby.format.crypto import LogCipher

HEAD_AT, HEAD_SIZE = 0x6C, 1 + 80
"""Where the head of a container stands in its page 0, and its bytes with the one of its length."""
CHECKSUM_SIZE = 8
ROWS, ALLOCATION = 117, 118
"""Format ids of pages."""
ROW_DELETED = 1
"""A bit of a row's status byte."""

_HEAD = struct.Struct(">Biii28xq")
"""Its length, and of the head: format id, status, page size and version."""
_HEAD_FORMAT = 116
_SIZE_MIN, _SIZE_MAX = 1 << 10, 1 << 20
_PAGE = struct.Struct(">HxxBBqH")
_IN_USE = 1
_SLOT = struct.Struct(">HHH")


class ContainerHead(NamedTuple):
    """What a container says of itself; ``page_size`` in bytes."""

    status: int
    page_size: int
    version: int


class PageHeader(NamedTuple):
    """What a page says of itself: ``kind`` is its format id, ``rows`` counts deleted ones, too."""

    kind: int
    overflow: int
    status: int
    version: int
    rows: int

    @property
    def has_rows(self) -> bool:
        """Whether it is a page of rows, and was not given back."""
        return (self.kind, self.status) == (ROWS, _IN_USE)


def read_head(data: bytes | memoryview) -> ContainerHead | None:
    """Return the head of a container, of which these are the bytes; None if they are not."""
    if len(data) < _HEAD.size:
        return None
    size, kind, status, page_size, version = _HEAD.unpack_from(data)
    if (size, kind) != (HEAD_SIZE - 1, _HEAD_FORMAT) or not _SIZE_MIN <= page_size <= _SIZE_MAX:
        return None
    return ContainerHead(status, page_size, version)


def is_head_summed(data: bytes) -> bool:
    """Return whether the head of a container ends in the checksum of what comes before it."""
    head = data[1:HEAD_SIZE]
    return len(data) >= HEAD_SIZE and crc32(head[:-CHECKSUM_SIZE]) == int.from_bytes(
        head[-CHECKSUM_SIZE:]
    )


def read_page_header(page: bytes | memoryview) -> PageHeader:
    """Return the header of a page; raises ``struct.error`` where there is none."""
    return PageHeader._make(_PAGE.unpack_from(page))


def rows_at(page: bytes | memoryview) -> list[int]:
    """Return where the rows of a page begin, in their order; the slots of it grow downwards."""
    end = len(page) - CHECKSUM_SIZE
    slots = page[max(0, end - read_page_header(page).rows * _SLOT.size) : end]
    return [at for at, *_ in _SLOT.iter_unpack(slots)][::-1]


def clear_page(
    page: bytes | memoryview, number: int, cipher: LogCipher | None
) -> bytes | memoryview:
    """Return a page as it is in memory.

    All pages but the first are encrypted, each by itself, with its checksum moved to the front.
    """
    if cipher is None or number == 0 or len(page) % cipher.block_size:
        return page
    clear = cipher.decrypt(page)
    return clear[CHECKSUM_SIZE:] + clear[:CHECKSUM_SIZE]


def is_summed(page: bytes | memoryview, number: int) -> bool:
    """Return whether a page has the checksum of its bytes."""
    view = memoryview(page)
    summed: bytes | memoryview = view[:-CHECKSUM_SIZE]
    if number == 0:  # the head of the container in it is written by itself
        # Its bytes count as zeros, as it changes without the page (format, Recovery).
        first, rest = bytes(view[: HEAD_AT + 1]), bytes(summed[HEAD_AT + HEAD_SIZE :])
        summed = first + bytes(HEAD_SIZE - 1) + rest
    return crc32(summed) == int.from_bytes(view[-CHECKSUM_SIZE:])
