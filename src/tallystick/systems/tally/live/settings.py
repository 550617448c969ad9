"""How a native log is written. What is needed to read it is in the log itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
"""Room for both headers, an index of one group and the columns of a single record."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All sizes in bytes. ``segment_size``, ``sector_size``, ``shard`` and ``shards`` count only
    when a log is made.

    ``compression`` is "none", "zlib" or "zstd", for groups of at least ``compress_min``.
    ``group_bytes`` limits a group that forms by itself. ``idle_mark_s`` is the time without
    writes after which the control block notes what is durable (None: only at close).
    ``spares`` freed segments are kept for recycling; without ``recycle`` freed segments stay
    where they are, for a disposer. With ``preallocate`` the next segment is made ahead of need
    by a thread. ``delay_s`` and ``siblings``: a flush waits that long for
    company, if at least so many callers are active.
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
        checks = (
            (self.sector_size in SECTOR_SIZES, f"sector_size must be one of {SECTOR_SIZES}"),
            (
                SEGMENT_SIZE_MIN <= self.segment_size <= LENGTH_MAX
                and self.segment_size % self.sector_size == 0,
                f"segment_size must be a multiple of the sector, at least {SEGMENT_SIZE_MIN}",
            ),
            (self.compression in COMPRESSIONS, f"compression must be one of {set(COMPRESSIONS)}"),
            (self.group_bytes > 0, "group_bytes must be positive"),
            (self.spares >= 0, "spares must not be negative"),
            (0 <= self.shard < self.shards, "shard must be below shards"),
        )
        for fine, text in checks:
            if not fine:
                raise ValueError(text)


def capacity(segment_size: int, sector_size: int) -> int:
    """The most bytes of columns and bodies that one group of such a segment can have."""
    index = round_up(2 * HEADER_SIZE + _OVERHEAD, sector_size)
    return segment_size - DATA_OFFSET - index - 2 * HEADER_SIZE - sector_size
