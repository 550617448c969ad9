"""What a group writer counts: totals and a histogram, cheap enough to be always on."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from operator import add
from typing import Final

from tallystick.storage.files import Bytes

BUCKETS = 16
"""Bucket n counts flushes shorter than 1 ms x 2**n that no lower one counts; the last one also
all that took longer."""

_ALONE: Final = struct.Struct(f"={3 + BUCKETS}q")
NOTHING_ALONE: Final = bytes(_ALONE.size)
"""What `GroupCounters.and_alone` takes if no item was a group by itself."""


@dataclass(slots=True)
class GroupCounters:
    """Totals since the writer was opened.

    ``groups`` counts calls of ``write``, ``records`` items, ``bytes`` their declared sizes,
    ``fsyncs`` calls of ``sync``, ``refused`` items of groups that the log could not take.
    ``seconds`` is the time spent in flushes, and ``histogram`` counts flushes by duration.
    """

    groups: int = 0
    records: int = 0
    bytes: int = 0
    fsyncs: int = 0
    refused: int = 0
    seconds: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    @property
    def fsyncs_per_record(self) -> float:
        """Return syncs per item: the figure of group commit that no machine changes."""
        return self.fsyncs / self.records if self.records else 0.0

    def add_group(self, records: int, size: int) -> None:
        """Count one group that was written."""
        self.groups += 1
        self.records += records
        self.bytes += size

    def and_alone(self, counted: Bytes) -> GroupCounters:
        """Return these totals and those of items that were each a group and a flush.

        Args:
            counted: Their number, bytes, nanoseconds, and the histogram, 64 bits each.
        """
        records, size, nanoseconds, *histogram = _ALONE.unpack(counted)
        return GroupCounters(
            self.groups + records,
            self.records + records,
            self.bytes + size,
            self.fsyncs + records,
            self.refused,
            self.seconds + nanoseconds / 1e9,
            list(map(add, self.histogram, histogram)),
        )

    def add_time(self, seconds: float) -> None:
        """Count one flush of this duration."""
        self.seconds += seconds
        milliseconds = int(seconds * 1000)
        self.histogram[min(milliseconds.bit_length(), BUCKETS - 1)] += 1
