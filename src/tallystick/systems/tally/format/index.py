"""Encode and decode the index that ends a sealed segment.

The payload of a group with the flag `INDEX`: three columns of int64 with one entry for each group
of the segment: offsets, first LSNs, times. Pure functions, no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tallystick.storage.files import Bytes
from tallystick.systems.tally.format.headers import SegmentHeader
from tallystick.systems.tally.format.layout import DATA_OFFSET, INDEX, GroupHeader

ENTRY_SIZE: Final = 24
"""Bytes per group in the index."""


class Index(NamedTuple):
    """The groups of a sealed segment: three columns of 64-bit numbers."""

    offsets: tuple[int, ...]
    lsns: tuple[int, ...]
    times: tuple[int, ...]


def encode_index(groups: Sequence[tuple[int, int, int]]) -> bytes:
    """Encode (offset, first LSN, time in microseconds) of each group."""
    columns = zip(*groups, strict=True) if groups else ((), (), ())
    return b"".join(struct.pack(f"<{len(groups)}q", *column) for column in columns)


def decode_index(payload: Bytes) -> Index:
    """Decode the payload of an index group."""
    count = len(payload) // ENTRY_SIZE
    numbers = struct.unpack_from(f"<{3 * count}q", payload)
    return Index(numbers[:count], numbers[count : 2 * count], numbers[2 * count :])


def is_index_of(header: GroupHeader, segment: SegmentHeader) -> bool:
    """Return True if ``header`` is that of the index of ``segment``."""
    return (
        bool(header.flags & INDEX)
        and header.offset >= DATA_OFFSET
        and header.end == segment.size
        and (header.segment, header.tag) == (segment.number, segment.tag)
    )
