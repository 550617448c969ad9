"""Settings of a native log that is written; what is needed to read it is in the log itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from tallystick.arguments import choice, flag, integer, seconds
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    HEADER_SIZE,
    LENGTH_MAX,
    SECTOR_SIZE,
    SECTOR_SIZES,
    SEGMENT_SIZE,
    SEGMENT_SIZE_MIN,
    round_up,
)
from tallystick.systems.tally.format.sealing import COMPRESSIONS

_OVERHEAD: Final = 1024
"""Space for both headers, an index of one group and the columns of a single record."""


_INTEGERS: Final = (
    "segment_size", "sector_size", "group_bytes", "compress_min", "spares", "siblings", "shard",
    "shards",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """How a native log is written. All sizes are in bytes, times in seconds.

    Attributes:
        segment_size: size of a segment file; used when a log is made.
        sector_size: groups are padded to it; used when a log is made.
        group_bytes: size of a group that forms by itself, at most.
        compression: "none", "zlib" or "zstd".
        compress_min: size of a group from which on it is compressed.
        idle_mark_s: time without writes after which the control block notes what is durable; None:
            only when the log is closed.
        spares: number of freed segments that are kept for recycling.
        recycle: False leaves freed segments in place, for a disposer.
        preallocate: a thread makes the next segment ahead of need.
        delay_s: time that a flush waits for more callers.
        siblings: number of active callers from which on a flush waits.
        shard: number of this shard; used when a log is made.
        shards: number of shards; used when a log is made.

    Raises:
        TypeError: a value is no number.
        ValueError: a value is out of its range.
    """

    segment_size: int = SEGMENT_SIZE
    sector_size: int = SECTOR_SIZE
    group_bytes: int = 1 << 20
    compression: str = "none"
    compress_min: int = 4096
    idle_mark_s: float | None = 1.0
    spares: int = 2
    recycle: bool = True
    preallocate: bool = True
    delay_s: float = 0.0
    siblings: int = 5
    shard: int = 0
    shards: int = 1

    def __post_init__(self) -> None:
        for name in _INTEGERS:
            integer(getattr(self, name), name, 0, sys.maxsize)
        seconds(self.delay_s, "delay_s")
        flag(self.recycle, "recycle")
        flag(self.preallocate, "preallocate")
        choice(self.compression, "compression", sorted(COMPRESSIONS))
        if self.idle_mark_s is not None:
            seconds(self.idle_mark_s, "idle_mark_s", positive=True)
        checks = (
            (self.sector_size in SECTOR_SIZES, f"sector_size must be one of {SECTOR_SIZES}"),
            (
                SEGMENT_SIZE_MIN <= self.segment_size <= LENGTH_MAX
                and self.segment_size % self.sector_size == 0,
                f"segment_size must be a multiple of the sector, at least {SEGMENT_SIZE_MIN}",
            ),
            (self.group_bytes > 0, "group_bytes must be positive"),
            (self.spares >= 0, "spares must not be negative"),
            (0 <= self.shard < self.shards, "shard must be below shards"),
        )
        for fine, text in checks:
            if not fine:
                raise ValueError(text)


def capacity(segment_size: int, sector_size: int) -> int:
    """Return the payload bytes that one group of such a segment can have at most."""
    index = round_up(2 * HEADER_SIZE + _OVERHEAD, sector_size)
    return segment_size - DATA_OFFSET - index - 2 * HEADER_SIZE - sector_size
