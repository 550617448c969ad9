"""Ranges of files between two positions: as work for tasks, and as rows.

In: positions. Out: ranges of files, packed for tasks, and their batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tallystick.errors import TallystickError
from tallystick.pipeline.change_feed import feed
from tallystick.pipeline.fingerprint import forget_listings
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import LOGS_MAX, find
from tallystick.pipeline.source.followed_log import FollowedLog
from tallystick.pipeline.source.positions import (
    HistoryRewrittenError,
    Life,
    Position,
    begin_of,
    digests_of,
    life_of,
    require_unchanged,
)
from tallystick.systems.protocol import LogSource

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FileRange:
    """The records of one life of a file that end after ``begin`` and not after ``end``."""

    source: LogSource
    file: str
    life: Life
    begin: int
    end: int
    digests: str = ""
    """Digests of the bytes before ``end``."""


def file_ranges(options: SourceOptions, start: Position, end: Position) -> list[FileRange]:
    """Return what lies between two positions, one range per file."""
    sources = {path: log for log in find(options.paths).logs for path in log.files}
    found = []
    for path, entry in end.items():
        life, stop = life_of(entry), int(entry[2])
        begin = begin_of(start, path, life)
        if begin < stop and path in sources:
            known = digests_of(entry)
            found.append(FileRange(sources[path], path, life, begin, stop, known))
    return found


def packed(found: Iterable[FileRange], limit: int) -> Iterator[tuple[FileRange, ...]]:
    """Yield ranges in order, as many together as stay below ``limit`` bytes and few logs."""
    bundle: list[FileRange] = []
    size = logs = 0
    for one in found:
        more = one.end - one.begin
        other = not bundle or bundle[-1].source != one.source
        if bundle and (size + more > limit or logs + other > LOGS_MAX):
            yield tuple(bundle)
            bundle, size, logs, other = [], 0, 0, True
        bundle.append(one)
        size += more
        logs += other
    if bundle:
        yield tuple(bundle)


def read(found: Iterable[FileRange], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges.

    A file that was recycled or removed since gives none, unless ``mode`` is failfast: then
    `TallystickError` says that records are gone. So does one that was rewritten, where the options
    say to read it again.

    Raises:
        HistoryRewrittenError: a file was rewritten.
    """
    for source, parts in groupby(found, lambda one: one.source):
        log = None
        for one in parts:
            try:
                if log is None:
                    forget_listings(one.file)
                    log = FollowedLog(source, options.reading)
                rows = _read(log, one)
                yield from _committed(log, rows) if options.feeds else rows
            except (TallystickError, OSError) as error:
                rewritten = isinstance(error, HistoryRewrittenError)
                strict = options.mode == "failfast" or options.feeds
                if strict or (rewritten and options.on_rewrite == "fail"):
                    raise


def _read(log: FollowedLog, one: FileRange) -> Iterator[pa.RecordBatch]:
    now = log.lives.get(one.file)
    if now is None or now[:2] != one.life[:2]:
        raise TallystickError(
            "records are gone: the file was recycled before they were read",
            file=one.file,
            offset=one.begin,
            advice="Hold files back until the stream has read them (option holdFolder)",
        )
    if one.digests:
        require_unchanged(one.file, log.first(one.file), one.end, one.digests)
    for batch in log.batches(one.file, one.begin, one.end):
        yield from _between(batch, one.begin, one.end)


def _committed(log: FollowedLog, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the changes that these records of one file commit, as a change feed."""
    import pyarrow.compute as pc

    limits = [pc.min_max(batch.column("sequence")).as_py() for batch in records]
    if limits:
        after = min(one["min"] for one in limits) - 1
        yield from feed(log.changes(after, max(one["max"] for one in limits)))


def _between(batch: pa.RecordBatch, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    stops = pc.add(batch.column("offset"), batch.column("length"))
    kept = batch.filter(pc.and_(pc.greater(stops, begin), pc.less_equal(stops, end)))
    if kept.num_rows:
        yield kept
