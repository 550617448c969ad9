"""Ranges of files between two positions: as work for tasks, and as rows.

In: positions. Out: ranges of files, packed for tasks, and their batches.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.pipeline.fingerprint import forget_listings, gone
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import (
    LOGS_MAX,
    RecordsLostError,
    find,
    stored_size,
)
from tallystick.pipeline.row_images import images_of
from tallystick.pipeline.source.earlier_positions import read_on
from tallystick.pipeline.source.followed_log import FollowedLog, is_file_of
from tallystick.pipeline.source.positions import (
    ADVICE,
    UNREAD,
    HistoryRewrittenError,
    LogPosition,
    Position,
    is_at,
    key_of,
    lost,
    require_unchanged,
)
from tallystick.pipeline.task import bounded, fed
from tallystick.printable import logger
from tallystick.reading.discovery import parent
from tallystick.reading.names import log_name
from tallystick.systems.protocol import END, LogSource, Missing, Reached

if TYPE_CHECKING:
    import pyarrow as pa


LOOKS, PAUSE_S = 5, 0.05
"""How often a log is looked at whose files come and go, and the seconds between two looks."""

_log = logger("tallystick.pipeline")


@dataclass(frozen=True, slots=True)
class FileRange:
    """The records of a file that end after ``begin`` and not after ``end``.

    Of a log whose changes are followed it stands for all files of a step, up to this one.
    """

    source: LogSource
    file: str
    number: int
    """The number of the file in its log."""
    begin: int
    end: int
    size: int
    """Bytes to be read, about."""
    digests: str = ""
    """Digests of the bytes before ``end``; empty of a file that is read to its end."""
    places: tuple[int | None, int] | None = None
    """The places of the last record before these (None: there is none), and of the last of these,
    where changes are followed."""
    step: tuple[int, ...] = ()
    """The numbers of the files of a step, where changes are followed: all have to be there."""
    lost: int | None = None
    """The place up to which changes of the log may be lost, where changes are followed."""


def file_ranges(options: SourceOptions, start: Position, end: Position) -> list[FileRange]:
    """Return what lies between two positions, in the order of each log.

    Raises:
        RecordsLostError: files are gone, and the options do not say to go on without them.
        LogUnreadableError: a file is there, and its log is not found.
    """
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE_S)
        logs = find(options.paths, waits=not end).logs
        start, end = read_on(start, logs, options), read_on(end, logs, options)
        steps = {
            key: (since, until)
            for key, until in end.items()
            if not is_at(since := _since(start.get(key), until), until)
        }
        sources = {key_of(log): log for log in logs}
        away = [key for key in steps if key not in sources]
        if not away:
            break
    for key in away:
        path = end[key]["file"]
        if not gone(path):
            raise LogUnreadableError("a file is there, and its log is not found", file=path)
        what = Missing("the log", "none there, though records of it are to be read")
        _give_up(options, what, LogSource("", parent(path), ()))
    return [
        one
        for key, (since, until) in steps.items()
        if key in sources
        for one in _ranges(sources[key], since, until, options)
    ]


def _since(entry: LogPosition | None, until: LogPosition) -> LogPosition:
    """Return where a step begins in a log."""
    if entry is None or entry["rewrites"] != until["rewrites"]:
        return UNREAD
    return entry


def _ranges(
    source: LogSource, since: LogPosition, until: LogPosition, options: SourceOptions
) -> Iterator[FileRange]:
    """Yield what lies between two entries of a log."""
    log, last = FollowedLog(source, options.reading), (until["number"], until["file"])
    files = [one for one in log.order if until["begun"] <= one[0] and one <= last]
    first = since["number"], since["file"]
    if first in files:
        files = [one for one in files if one >= first]
    elif files and files[0][0] == first[0] and is_file_of(since, log, files[0][1]):
        first = files[0]  # its name is another one now
    _require_all(log, files, until, options)
    found = [_range_of(source, one, since["offset"] if one == first else 0, until) for one in files]
    if not options.feeds:
        yield from (one for one in found if one.begin < one.end)
    elif found and until["place"] is not None:
        # A step that resumed after a hole begins there, below what was read of another history.
        resumed = until["resumed"] is not None and until["resumed"] != since["resumed"]
        after = until["resumed"] if resumed else since["place"]
        size = sum(one.size for one in found)
        step = tuple(number for number, _ in files)
        lost = until.get("lost")
        yield replace(found[-1], size=size, places=(after, until["place"]), step=step, lost=lost)


def _range_of(
    source: LogSource, file: tuple[int, str], begin: int, until: LogPosition
) -> FileRange:
    number, path = file
    last = file == (until["number"], until["file"])
    end = until["offset"] if last else END
    size = max(min(stored_size(path), end) - begin, 0)
    return FileRange(source, path, number, begin, end, size, until["digests"] if last else "")


def _require_all(
    log: FollowedLog, files: Sequence[tuple[int, str]], until: LogPosition, options: SourceOptions
) -> None:
    """Check that no file of a step is gone since its end was found."""
    numbers = [number for number, _ in files]
    for wanted in (until["begun"], until["number"]):
        if wanted not in numbers:
            there = ", ".join(str(number) for number, _ in log.order)
            _give_up(options, Missing(f"file {wanted}", f"files {there}"), log.source)
    for (before, _), (_, path) in pairwise(files):
        missing = log.missing(path, Reached(before, None, since=until["since"]))
        if missing is not None and not missing.usual:
            _give_up(options, missing, log.source)


def _give_up(options: SourceOptions, missing: Missing, source: LogSource) -> None:
    """Raise, or say, that records are gone."""
    error = lost(missing, source)
    if options.fail_on_data_loss:
        raise error
    _log.warning("records are left out of the stream: %s", error)


def packed(
    found: Iterable[FileRange], limit: int, *, whole_logs: bool = False
) -> Iterator[tuple[FileRange, ...]]:
    """Yield ranges in order, as many together as stay below ``limit`` bytes and few logs.

    With ``whole_logs`` all ranges of a log that follow each other stay together.
    """
    bundle: list[FileRange] = []
    size = logs = 0
    for one in found:
        more = one.size
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

    A file that was recycled or removed since gives no records, where the options say to go on
    without lost ones; so does a rewritten file, where they say to read it again. A file that is
    there and cannot be read is looked at again: other files of its log come and go.

    Raises:
        RecordsLostError: a file was recycled or removed.
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
    strict = options.fail_on_data_loss
    given = False
    for look in range(LOOKS):
        try:
            log = log or _log_of(one, options, anew=look > 0)
            _require_there(log, one)
            found = (_committed if options.feeds else _read)(log, one, options)
            for batch in found:
                given = True
                yield batch
        except (RecordsLostError, HistoryRewrittenError) as error:
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


def _read(log: FollowedLog, one: FileRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    for batch in log.batches(one.file, one.begin, one.end):
        yield from bounded(_between(batch, one.begin, one.end), options)


def _require_there(log: FollowedLog, one: FileRange) -> None:
    """Check that a file is still the one that was planned, and holds what was seen."""
    there = (one.number, one.file) in log.order
    there = there and {number for number, _ in log.order}.issuperset(one.step)
    if there and one.digests:
        try:
            require_unchanged(one.file, log.first(one.file), one.end, one.digests)
        except HistoryRewrittenError:
            there = log.still_has(one.number, one.file)
            if there:
                raise
    if there:
        return
    if not gone(one.file) and one.file not in log.lives:
        raise LogUnreadableError("a file of the log cannot be read now", file=one.file)
    raise RecordsLostError(
        "records are gone: the file was recycled or removed before they were read",
        file=one.file,
        offset=one.begin,
        advice=ADVICE,
    )


def _committed(
    log: FollowedLog, one: FileRange, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the changes that the records of a range commit, as a change feed."""
    assert one.places is not None
    places = one.places
    changes = log.changes(*places)
    unknown = one.lost is not None and (places[0] is None or places[0] < one.lost)
    if unknown or not options.history:
        yield from fed(changes, options)
        return
    name = log_name(log.source)
    folder, base = options.images_folder, options.base_images
    rows, columns = log.rows_before(), () if log.collection is None else log.columns()
    with images_of(folder, base, name, options.collection, rows, columns) as images:
        images.advance(log.changes, places[0], one.lost)
        yield from fed(images.filled(changes), options)


def _between(batch: pa.RecordBatch, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    stops = pc.add(batch.column("offset"), batch.column("length"))
    kept = batch.filter(pc.and_(pc.greater(stops, begin), pc.less_equal(stops, end)))
    if kept.num_rows:
        yield kept
