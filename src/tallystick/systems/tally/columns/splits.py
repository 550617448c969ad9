"""Parts of a log that can be read on their own, and the way to an LSN or a time.

In: a `Catalog` and where to go. Out: splits and starting points, from the indexes that end the
sealed segments: of each segment its last bytes are read, not the groups.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tallystick.storage.crc import crc32
from tallystick.storage.files import Bytes
from tallystick.systems.protocol import Split
from tallystick.systems.tally.format.headers import SegmentHeader
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    HEADER_SIZE,
    INDEX,
    GroupHeader,
    decode_group_header,
)
from tallystick.systems.tally.read.files import Catalog, Life, Reach, SegmentFile
from tallystick.systems.tally.read.scan import Step, open_segment
from tallystick.systems.tally.read.walk import Expected, Leap, SegmentView

ENTRY_SIZE = 24
"""Bytes per group in the index."""
_INDEX_READ = 64 << 10
"""What is read of a segment's end at first: the whole index if it has no more than 2,700 groups."""


class Index(NamedTuple):
    """The groups of a sealed segment: three columns of 64-bit numbers."""

    offsets: tuple[int, ...]
    lsns: tuple[int, ...]
    times: tuple[int, ...]


def encode_index(groups: Sequence[tuple[int, int, int]]) -> bytes:
    """(offset, first LSN, time) of each group as n x int64, n x int64, n x int64."""
    columns = zip(*groups, strict=True) if groups else ((), (), ())
    return b"".join(struct.pack(f"<{len(groups)}q", *column) for column in columns)


def decode_index(stored: Bytes) -> Index:
    """The index in the inner bytes of its group."""
    count = len(stored) // ENTRY_SIZE
    numbers = struct.unpack_from(f"<{3 * count}q", stored)
    return Index(numbers[:count], numbers[count : 2 * count], numbers[2 * count :])


def read_index(file: SegmentFile, reach: Reach) -> Index | None:
    """The index of a sealed segment, None if it has none or it is damaged."""
    segment = file.header
    assert segment is not None
    start = max(segment.size - _INDEX_READ, 0)
    tail = reach.part(file.path, start, segment.size - start)
    header = decode_group_header(tail, segment.size - start - HEADER_SIZE)
    if header is None or not _is_index(header, segment):
        return None
    if header.offset < start:
        start, tail = header.offset, reach.part(file.path, header.offset, header.length)
    inner = memoryview(tail)[header.offset - start + HEADER_SIZE : -HEADER_SIZE]
    return decode_index(inner[: header.stored]) if crc32(inner) == header.inner_crc else None


def _is_index(header: GroupHeader, segment: SegmentHeader) -> bool:
    return (
        bool(header.flags & INDEX)
        and header.offset >= DATA_OFFSET
        and header.end == segment.size
        and (header.segment, header.tag) == (segment.number, segment.identity[:8])
    )


def splits_of(catalog: Catalog, reach: Reach, target_bytes: int) -> list[Split]:
    """Splits of about ``target_bytes``; an unsealed segment is one split."""
    splits = []
    for file in catalog.segments:
        if file.life is not Life.LIVE:
            continue
        assert file.header is not None
        size = file.header.size
        index = read_index(file, reach) if size > target_bytes else None
        begins = [0, *_cuts(index, max(target_bytes, 1)), size]
        splits += [Split(file.path, begin, end) for begin, end in pairwise(begins) if begin < end]
    return splits


def _cuts(index: Index | None, target: int) -> Iterator[int]:
    last = DATA_OFFSET
    for offset in index.offsets if index else ():
        if offset - last >= target:
            last = offset
            yield offset


def witnesses(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """By segment the files whose heads say all that its reading takes from any head.

    They are the control file, its own, and its successors up to the first whole one: that one knows
    where it ended, and that all of it was durable.
    """
    found: dict[str, tuple[str, ...]] = {}
    control = (catalog.control_path,) if catalog.control_path else ()
    behind: tuple[str, ...] = ()
    for file in reversed(catalog.segments):
        found[file.path] = (*control, file.path, *behind)
        behind = (file.path,) if file.life is Life.LIVE else (file.path, *behind)
    return found


def group_before(catalog: Catalog, reach: Reach, path: str, offset: int) -> int:
    """Where the last group of a segment begins that begins before ``offset``; 0 if no index
    tells."""
    file = _live(catalog, path)
    index = read_index(file, reach) if file is not None and offset > 0 else None
    row = bisect_left(index.offsets, offset) - 1 if index is not None else -1
    return index.offsets[row] if index is not None and row >= 0 else 0


def split_steps(
    catalog: Catalog, reach: Reach, split: Split, leap: Leap | None = None
) -> Iterator[Step]:
    """The places of one split. What lies before the split is not looked at."""
    file = _live(catalog, split.file)
    if file is None:
        return
    source, view = open_segment(file, reach)
    with source:
        due = view.first() if split.begin <= DATA_OFFSET else due_at(view, split.begin)
        end = split.end if file.until is None else min(split.end, file.until)
        for place in view.walk(due, to=end, leap=leap):
            yield Step(file, view, place, behind=False)
        view.data = b""


def _live(catalog: Catalog, path: str) -> SegmentFile | None:
    return next((f for f in catalog.segments if f.path == path and f.life is Life.LIVE), None)


def due_at(view: SegmentView, offset: int) -> Expected:
    """What is due at the offset of a group, as its own header says."""
    header = _header_at(view, offset)
    if header is None:
        return Expected(offset, view.durable_lsn, -1)
    return _at(header)


def _at(header: GroupHeader) -> Expected:
    return Expected(header.offset, header.first_lsn, header.chain)


def _header_at(view: SegmentView, offset: int) -> GroupHeader | None:
    return decode_group_header(view.data, offset) or view.copies_from(offset).trails.get(offset)


def seek(
    catalog: Catalog, reach: Reach, *, lsn: int = 0, time_us: int | None = None
) -> tuple[SegmentFile, Expected | None] | None:
    """The segment and the place to start reading at: at or before the first record wanted.

    None if the log has no segment. Without an index the start is that of the segment.
    """
    live = [file for file in catalog.segments if file.life is Life.LIVE]
    if not live:
        return None
    wanted = time_us if time_us is not None else lsn
    file = live[max(_segment_at(live, wanted, by_time=time_us is not None), 0)]
    index = read_index(file, reach)
    if index is None or not index.offsets:
        return file, None
    column = index.lsns if time_us is None else index.times
    row = bisect_right(column, wanted - (time_us is not None)) - 1
    place = index.offsets[max(row, 0)]
    header = decode_group_header(reach.part(file.path, place, HEADER_SIZE), 0)
    return file, _at(header) if header is not None and header.offset == place else None


def _segment_at(live: Sequence[SegmentFile], wanted: int, *, by_time: bool) -> int:
    starts = [
        (one.header.created_us if by_time else one.header.first_lsn) for one in live if one.header
    ]
    return bisect_right(starts, wanted - by_time) - 1
