"""Split a log into parts that can be read on their own; find an LSN or a time.

In: a `Catalog` and what is wanted. Out: splits and starting points, from the indexes that end the
sealed segments: of each segment its last bytes are read, not the groups.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tallystick.storage.crc import crc32
from tallystick.systems.protocol import Split, Stretch
from tallystick.systems.tally.format.index import Index, decode_index, is_index_of
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    HEADER_SIZE,
    LENGTH_MAX,
    decode_group_header,
)
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.files import Catalog, FileAccess, FileStatus, SegmentFile
from tallystick.systems.tally.read.header_search import magic_places
from tallystick.systems.tally.read.scan import Step, open_part, open_segment
from tallystick.systems.tally.read.walk import Expected, ReadRun, SegmentView

PART = 64 << 10
"""Bytes of a part that may be read alone."""
_INDEX_READ = 64 << 10
"""Bytes at the end of a segment that are read first: the whole index of up to 2,700 groups."""


def read_index(file: SegmentFile, access: FileAccess) -> Index | None:
    """Return the index of a sealed segment; None if the segment has no index, or a damaged one."""
    segment = file.header
    assert segment is not None
    start = max(segment.size - _INDEX_READ, 0)
    tail = access.part(file.path, start, segment.size - start)
    header = decode_group_header(tail, segment.size - start - HEADER_SIZE)
    if header is None or not is_index_of(header, segment):
        return None
    if header.offset < start:
        start, tail = header.offset, access.part(file.path, header.offset, header.length)
    content = memoryview(tail)[header.offset - start + HEADER_SIZE : -HEADER_SIZE]
    return decode_index(content[: header.stored]) if crc32(content) == header.payload_crc else None


def splits_of(catalog: Catalog, access: FileAccess, target_bytes: int) -> list[Split]:
    """Return splits of about ``target_bytes``; an unsealed segment is one split.

    They end where a missing segment, or one without header, ends the log for who reads it whole.
    """
    splits = []
    missing = min(catalog.missing, default=None)
    for file in catalog.segments:
        assert file.header is not None
        number, size = file.header.number, file.header.size
        if file.status is not FileStatus.LIVE or (missing is not None and number > missing):
            break
        index = read_index(file, access) if size > target_bytes else None
        begins = [0, *_cuts(index, max(target_bytes, 1)), size]
        splits += [Split(file.path, begin, end) for begin, end in pairwise(begins) if begin < end]
    return splits


def segment_stretches(catalog: Catalog, access: FileAccess) -> list[Stretch]:
    """Return a stretch for each segment, by their heads."""
    whole = splits_of(catalog, access, LENGTH_MAX)
    headers = {file.path: file.header for file in catalog.segments if file.header is not None}
    firsts = [(headers[one.file].first_lsn, headers[one.file].created_us) for one in whole]
    lasts = [(lsn - 1, time) for lsn, time in firsts[1:]]
    ends: list[tuple[int | None, int | None]] = [*lasts, (None, None)]
    return [
        Stretch(split, (lsn, last), (time, latest))
        for split, (lsn, time), (last, latest) in zip(whole, firsts, ends, strict=False)
    ]


def stretches_in(catalog: Catalog, access: FileAccess, of: Stretch) -> list[Stretch]:
    """Return parts of `PART` bytes and more of a segment; one where it has no index."""
    file = _live(catalog, of.split.file)
    index = read_index(file, access) if file is not None else None
    if index is None:
        return [of]
    begins = [0, *(index.offsets.index(cut) for cut in _cuts(index, PART))]
    ends = [*begins[1:], len(index.offsets)]
    found = []
    for begin, end in zip(begins, ends, strict=True):
        last = end == len(index.offsets)
        found.append(
            Stretch(
                Split(
                    of.split.file,
                    index.offsets[begin] if begin else of.split.begin,
                    of.split.end if last else index.offsets[end],
                ),
                (index.lsns[begin], of.lsns[1] if last else index.lsns[end] - 1),
                (index.times[begin], of.times[1] if last else index.times[end]),
            )
        )
    return found


def _cuts(index: Index | None, target: int) -> Iterator[int]:
    last = DATA_OFFSET
    for offset in index.offsets if index else ():
        if offset - last >= target:
            last = offset
            yield offset


def witnesses(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Return for each segment the files whose heads are needed to read it.

    They are the control file, its own, and its successors up to the first whole one: that one
    states where the segment ended, and proves that all of it was durable.
    """
    found: dict[str, tuple[str, ...]] = {}
    control = (catalog.control_path,) if catalog.control_path else ()
    later: tuple[str, ...] = ()
    for file in reversed(catalog.segments):
        found[file.path] = (*control, file.path, *later)
        live = file.status is FileStatus.LIVE
        later = (file.path,) if live else (file.path, *later)
    return found


def group_before(catalog: Catalog, access: FileAccess, path: str, offset: int) -> int:
    """Return the start of the last group that begins before ``offset``; 0 without an index."""
    file = _live(catalog, path)
    index = read_index(file, access) if file is not None and offset > 0 else None
    row = bisect_left(index.offsets, offset) - 1 if index is not None else -1
    return index.offsets[row] if index is not None and row >= 0 else 0


def durable_near(catalog: Catalog, access: FileAccess, path: str, end: int) -> int:
    """Return the highest LSN that is proved durable, of a segment whose records end at ``end``.

    The header after the last whole group says so for that group even where its own group is still
    being written.
    """
    file = _live(catalog, path)
    if file is None or file.header is None:
        return 0
    durable = file.durable_lsn
    if file.stated_end is not None or not end:
        return durable
    segment = file.header
    start = max(end - HEADER_SIZE, 0) // HEADER_SIZE * HEADER_SIZE
    data = access.part(path, start, segment.sector_size + 4 * HEADER_SIZE)
    for place in magic_places(data, 0):
        header = decode_group_header(data, place)
        if header and (header.segment, header.tag) == (segment.number, segment.tag):
            durable = max(durable, header.durable_lsn)
    return durable


@dataclass
class SplitWalk:
    """The walk over one split.

    Attributes:
        begin: the group that the walk began with, as its own header says.
        end: what was due where it ended; final once `steps` is exhausted.
    """

    catalog: Catalog
    access: FileAccess
    split: Split
    begin: Expected | None = None
    end: Expected | None = None

    @cached_property
    def file(self) -> SegmentFile | None:
        """The segment; None if it is not there any more."""
        return _live(self.catalog, self.split.file)

    def steps(self, read_run: ReadRun | None = None) -> Iterator[Step]:
        """Yield the places of the split; nothing before it is read."""
        file, split = self.file, self.split
        if file is None or file.header is None:
            return
        whole = 2 * (split.end - split.begin) > file.header.size
        source, view = (
            open_segment(file, self.access)
            if whole
            else open_part(file, self.access, split.begin, split.end)
        )
        with source:
            first = Expected.first_of(file.header)
            due = first if split.begin <= DATA_OFFSET else due_at(view, split.begin)
            self.begin = self.end = due
            for place in view.walk(due, stop=self._stop(file), read_run=read_run):
                # What is no whole group may be explained by bytes after the part: it is read once
                # more, in the whole segment.
                if not (whole or place.case is Case.VALID):
                    break
                yield Step(file, view, place, after_damage=False)
                self.end = place.then or self.end
            else:
                whole = True
            view.data = b""
        if not whole:
            yield from self._rest(file, read_run)

    def _rest(self, file: SegmentFile, read_run: ReadRun | None) -> Iterator[Step]:
        """Yield the places from one on that only the whole segment explains."""
        source, view = open_segment(file, self.access)
        with source:
            for place in view.walk(self.end, stop=self._stop(file), read_run=read_run):
                yield Step(file, view, place, after_damage=False)
                self.end = place.then or self.end
            view.data = b""

    def _stop(self, file: SegmentFile) -> int:
        end = self.split.end
        return end if file.stated_end is None else min(end, file.stated_end)


def _live(catalog: Catalog, path: str) -> SegmentFile | None:
    return next((file for file in catalog.live if file.path == path), None)


def due_at(view: SegmentView, offset: int) -> Expected:
    """Return what is due at the offset of a group, as its own header says."""
    header = decode_group_header(view.data, offset) or view.copies_from(offset).trails.get(offset)
    return Expected(offset, view.durable_lsn, -1) if header is None else Expected.at(header)


def seek(
    catalog: Catalog, access: FileAccess, *, lsn: int = 0, time_us: int | None = None
) -> tuple[SegmentFile, Expected | None] | None:
    """Return the segment and the place to start reading at.

    The place is at or before the first record wanted: that with ``lsn``, or the first one written
    at ``time_us`` (microseconds) or later. None if the log has no segment; without an index the
    place is the start of the segment.
    """
    live = catalog.live
    if not live:
        return None
    wanted = time_us if time_us is not None else lsn
    file = live[max(_segment_at(live, wanted, by_time=time_us is not None), 0)]
    index = read_index(file, access)
    if index is None or not index.offsets:
        return file, None
    column = index.lsns if time_us is None else index.times
    # Groups can share a time, and the first of them is wanted: one less finds the group before it.
    # An LSN is in one group only.
    row = bisect_right(column, wanted - (time_us is not None)) - 1
    place = index.offsets[max(row, 0)]
    header = decode_group_header(access.part(file.path, place, HEADER_SIZE), 0)
    return file, Expected.at(header) if header is not None and header.offset == place else None


def _segment_at(live: Sequence[SegmentFile], wanted: int, *, by_time: bool) -> int:
    starts = [
        (one.header.created_us if by_time else one.header.first_lsn) for one in live if one.header
    ]
    return bisect_right(starts, wanted - by_time) - 1
