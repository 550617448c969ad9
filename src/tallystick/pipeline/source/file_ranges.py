"""Ranges of files between two positions: as work for tasks, and as rows.

In: positions. Out: ranges of files, packed for tasks, and their batches.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.pipeline.fingerprint import forget_listings, gone
from tallystick.pipeline.images import images_of
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
    places_of,
    require_unchanged,
)
from tallystick.pipeline.task import fed
from tallystick.reading.names import log_name
from tallystick.systems.protocol import LogSource

if TYPE_CHECKING:
    import pyarrow as pa


LOOKS, PAUSE_S = 5, 0.05
"""How often a log is looked at whose files come and go, and the seconds between two looks."""


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
    places: tuple[int | None, int] | None = None
    """Of a log whose changes are followed: the places of the last record before these (None: there
    is none), and of the last of these. None where they are not known."""


def file_ranges(options: SourceOptions, start: Position, end: Position) -> list[FileRange]:
    """Return what lies between two positions, one range per file.

    Those of a log whose changes are followed come in the order of the log.
    """
    wanted = {}
    for path, entry in end.items():
        life, stop = life_of(entry), int(entry[2])
        begin = begin_of(start, path, life)
        if begin < stop:
            wanted[path] = life, begin, stop, digests_of(entry)
    sources = _sources(options, wanted)
    found = [
        FileRange(sources[path], path, *one) for path, one in wanted.items() if path in sources
    ]
    chained = options.feeds and options.on_rewrite == "fail"
    return _in_order(found, start, end) if chained else found


def _sources(options: SourceOptions, wanted: Collection[str]) -> dict[str, LogSource]:
    """Return the logs of these files; of those that are gone, none."""
    missing: list[str] = []
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE_S)
        sources = {path: log for log in find(options.paths).logs for path in log.files}
        missing = [path for path in wanted if path not in sources and not gone(path)]
        if not missing:
            return sources
    raise LogUnreadableError(
        "a file is there, and its log is not found", file=missing[0], advice="Try again"
    )


def _in_order(found: list[FileRange], start: Position, end: Position) -> list[FileRange]:
    """Return ranges in the order of their logs, with what was read of the logs before each."""
    if any(len(end[one.file]) < 7 for one in found):
        return found  # a step that an earlier version began
    read, ordered, logs = places_of(start), [], [one.source for one in found]
    for one in sorted(found, key=lambda one: (logs.index(one.source), end[one.file][6])):
        log, until = end[one.file][5:7]
        if until <= read.get(log, until - 1):
            continue  # moved by the log's own writer: it was read where it stood before
        known = log in read or one.begin == 0
        ordered.append(replace(one, places=(read.get(log), until)) if known else one)
        read[log] = until
    return ordered


def packed(
    found: Iterable[FileRange], limit: int, *, whole_logs: bool = False
) -> Iterator[tuple[FileRange, ...]]:
    """Yield ranges in order, as many together as stay below ``limit`` bytes and few logs.

    With ``whole_logs`` all ranges of a log that follow each other stay together.
    """
    bundle: list[FileRange] = []
    size = logs = 0
    for one in found:
        more = one.end - one.begin
        other = not bundle or bundle[-1].source != one.source
        full = size + more > limit or logs + other > LOGS_MAX
        if bundle and full and (other or not whole_logs):
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
    say to read it again. A file that is there and cannot be read is looked at again: other files of
    its log come and go.

    Raises:
        HistoryRewrittenError: a file was rewritten.
        TallystickError, OSError: a file is there and cannot be read.
    """
    for _, parts in groupby(found, lambda one: one.source):
        log: FollowedLog | None = None
        for one in parts:
            log = yield from _read_range(log, one, options)


def _read_range(
    log: FollowedLog | None, one: FileRange, options: SourceOptions
) -> Generator[pa.RecordBatch, None, FollowedLog | None]:
    """Yield the records of one range; return the log for the next one, if it was read whole."""
    strict = options.mode == "failfast" or options.feeds
    given = False
    for look in range(LOOKS):
        try:
            log = log or _log_of(one, options, anew=look > 0)
            _require_there(log, one)
            for batch in _committed(log, one, options) if options.feeds else _read(log, one):
                given = True
                yield batch
        except (_RecordsGoneError, HistoryRewrittenError) as error:
            rewritten = isinstance(error, HistoryRewrittenError)
            if strict or (rewritten and options.on_rewrite == "fail"):
                raise
            return None
        except (TallystickError, OSError):
            if not strict and gone(one.file):
                return None
            if given or look == LOOKS - 1:
                raise
        else:
            return log
        log = None
        time.sleep(PAUSE_S)
    return None


def _log_of(one: FileRange, options: SourceOptions, *, anew: bool) -> FollowedLog:
    """Return the log of a range with the files that were planned, or with those it has now."""
    forget_listings(one.file)
    source = one.source
    if anew:
        there = (log for log in find(options.paths).logs if one.file in log.files)
        source = next(there, source)
    return FollowedLog(source, options.reading, options.collection)


def _read(log: FollowedLog, one: FileRange) -> Iterator[pa.RecordBatch]:
    for batch in log.batches(one.file, one.begin, one.end):
        yield from _between(batch, one.begin, one.end)


class _RecordsGoneError(TallystickError):
    """The file has another life, or is not there any more."""


def _require_there(log: FollowedLog, one: FileRange) -> None:
    now = log.lives.get(one.file)
    if now is None and not gone(one.file):
        raise LogUnreadableError("a file of the log cannot be read now", file=one.file)
    there = now is not None and now[:2] == one.life[:2]
    if there and one.digests:
        try:
            require_unchanged(one.file, log.first(one.file), one.end, one.digests)
        except HistoryRewrittenError:
            there = log.lives_on(one.file)
            if there:
                raise
    if not there:
        raise _RecordsGoneError(
            "records are gone: the file was recycled before they were read",
            file=one.file,
            offset=one.begin,
            advice="Hold files back until the stream has read them (option holdFolder)",
        )


def _committed(
    log: FollowedLog, one: FileRange, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the changes that the records of a range commit, as a change feed."""
    places = one.places
    if places is None:  # after a position of an earlier version, or in a history taken anew
        limits = log.place_limits(one.file, _read(log, one))
        if limits is None:
            return
        places = limits[0] - 1, limits[1]
    changes = log.changes(*places)
    if not options.history:
        yield from fed(changes, options)
        return
    name = log_name(log.source)
    with images_of(options.images_folder, options.base_images, name) as images:
        if options.collection is not None and images.version is None:
            images.add_rows(options.collection, log.rows_before())
        if places[0] is not None:
            images.advance(log.changes, places[0])
        yield from fed(images.filled(changes), options)


def _between(batch: pa.RecordBatch, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    stops = pc.add(batch.column("offset"), batch.column("length"))
    kept = batch.filter(pc.and_(pc.greater(stops, begin), pc.less_equal(stops, end)))
    if kept.num_rows:
        yield kept
