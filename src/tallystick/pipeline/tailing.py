"""Following logs that grow, roll and are recycled, without Spark.

In: the logs below some paths. Out: positions (how far each file was read) and the records
between two of them. A file's life is its (identity, generation): a recycled or rewound file
begins a new life, and is read from its start again. Only whole, valid records before the first
torn one count, so a record in the making is read once it is whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.discovery import parent
from tallystick.errors import TallystickError, UnsupportedFormatError
from tallystick.pipeline.marks import forget_listings, gone, mark
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.planning import find
from tallystick.records import LogFile, Outcome
from tallystick.systems import system
from tallystick.systems.base import LogReading, LogSource, Split
from tallystick.tables import batches_of

if TYPE_CHECKING:
    import pyarrow as pa

NOT_APPENDED = frozenset({"h2"})
"""Systems that cannot be followed exactly once. H2 gives the pages of its log back at each
checkpoint and writes other things over them at once: records come and go between two looks,
new ones may lie before old ones, and nothing can hold them back for a reader."""

QUIET_NS = 2_000_000_000
"""A file changed less than this ago is looked at again: its time is too coarse to trust."""

Position = dict[str, list[Any]]
"""By file: identity, generation, and the offset behind the last record read."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The records of one life of a file that end after ``begin`` and not after ``end``."""

    source: LogSource
    file: str
    life: tuple[int | None, int | None]
    begin: int
    end: int


@dataclass(slots=True)
class _Seen:
    """What was found in a file when it was last looked at."""

    mark: list[int]
    life: tuple[int | None, int | None]
    ends: np.ndarray
    """Where valid records behind ``since`` end, ascending."""
    since: int
    last: int
    """Where the last valid record ends; 0 if there is none."""

    def settled(self, now: list[int]) -> bool:
        """True if the file is as it was, and was quiet long enough for its time to show it."""
        return self.mark == now and time.time_ns() - now[1] > QUIET_NS


@dataclass(slots=True)
class Tailer:
    """Looks for what is new; remembers what did not change between two looks."""

    options: SourceOptions
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def advance(self, start: Position, limit: Limit | None = None) -> Position:
        """The position after the next records behind ``start``, as far as ``limit`` goes.

        Files that are gone leave the position, those that only cannot be read now stay in it;
        files without records do not enter it.
        """
        budget = _Budget(limit or Limit())
        position: Position = {}
        for path, seen in self._look(start):
            begin = _begin(start, path, seen.life)
            taken = budget.take(begin, seen.ends[np.searchsorted(seen.ends, begin, "right") :])
            if taken or path in start:
                position[path] = [*seen.life, taken or begin]
        for path in start.keys() - position.keys():
            if not gone(path):
                position[path] = start[path]
        return dict(sorted(position.items()))

    def latest(self, start: Position) -> Position:
        """The position after everything that is there now."""
        found = {path: [*seen.life, seen.last] for path, seen in self._look(start) if seen.last}
        return dict(sorted(found.items()))

    def finished(self, position: Position) -> dict[str, str]:
        """By folder the newest file that was read to its end, as were all before it.

        A file may have grown between the look at it and the look at the next one, which shows
        that it is complete: so it is looked at once more, now that the next one is known.
        """
        there = self.latest({})

        def whole(path: str) -> bool:
            if path not in there:
                return gone(path)
            *life, end = there[path]
            return life != position[path][:2] or end <= position[path][2]

        found = {}
        for folder, paths in passed(position).items():
            if ended := list(takewhile(whole, paths)):
                found[folder] = ended[-1]
        return found

    def _logs(self) -> list[LogSource]:
        found = find(self.options.paths).logs
        followed = [source for source in found if source.system not in NOT_APPENDED]
        if len(followed) < len(found) and (not followed or self.options.mode == "failfast"):
            refused = next(source for source in found if source.system in NOT_APPENDED)
            raise UnsupportedFormatError(
                "this log cannot be followed: its pages are given back at each checkpoint and "
                "written over at once, so records come and go between two looks",
                file=refused.files[0],
                expected="a log that is appended to",
                found=refused.system,
                advice="Read it in batch: tallystick pipeline run --stream reads it anew whenever "
                "it changed",
            )
        return followed

    def _look(self, start: Position) -> Iterator[tuple[str, _Seen]]:
        for source in self._logs():
            marks = {path: mark(path) for path in source.files}
            if not all(self._covered(path, now, start) for path, now in marks.items()):
                self._read(source, marks, start)
            yield from ((path, self._seen[path]) for path in source.files if path in self._seen)

    def _covered(self, path: str, now: list[int], start: Position) -> bool:
        seen = self._seen.get(path)
        return (
            seen is not None and seen.settled(now) and seen.since <= _begin(start, path, seen.life)
        )

    def _read(self, source: LogSource, marks: Mapping[str, list[int]], start: Position) -> None:
        try:
            reading = system(source.system).read(source, self.options.reading)
            for file in reading.files():
                if file.path in marks:
                    life = (file.identity, file.generation)
                    since = _begin(start, file.path, life)
                    ends = _ends(reading, file)
                    last = int(ends[-1]) if len(ends) else 0
                    self._seen[file.path] = _Seen(
                        marks[file.path], life, ends[ends > since], since, last
                    )
        except (TallystickError, OSError):
            for path in marks:  # it vanished, or is in the making: the next look will tell
                self._seen.pop(path, None)


def passed(position: Position) -> dict[str, list[str]]:
    """By folder the files, oldest first, behind which the position has another one."""
    paths: dict[str, list[str]] = {}
    for path in sorted(position):
        paths.setdefault(parent(path), []).append(path)
    return {folder: found[:-1] for folder, found in paths.items() if len(found) > 1}


def stretches(options: SourceOptions, start: Position, end: Position) -> list[Stretch]:
    """What lies between two positions, one stretch per file."""
    sources = {path: log for log in find(options.paths).logs for path in log.files}
    found = []
    for path, (identity, generation, stop) in end.items():
        begin = _begin(start, path, (identity, generation))
        if begin < stop and path in sources:
            found.append(Stretch(sources[path], path, (identity, generation), begin, stop))
    return found


def read(stretch: Stretch, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of a stretch. A file that was recycled or removed since gives none, unless
    ``mode`` is failfast: then `TallystickError` says that records are gone."""
    try:
        forget_listings(stretch.file)
        reading = system(stretch.source.system).read(stretch.source, options.reading)
        file = next((one for one in reading.files() if one.path == stretch.file), None)
        if file is not None and (file.identity, file.generation) == stretch.life:
            for batch in _valid(reading, file, stretch.end):
                yield from _between(batch, stretch.begin, stretch.end)
            return
    except (TallystickError, OSError):
        if options.mode == "failfast":
            raise
        return
    if options.mode == "failfast":
        raise TallystickError(
            "records are gone: the file was recycled before they were read",
            file=stretch.file,
            offset=stretch.begin,
            advice="Hold files back until the stream has read them (option holdFolder)",
        )


@dataclass(slots=True)
class _Budget:
    """What is left of a limit while files are gone through."""

    left: Limit

    def take(self, begin: int, ends: np.ndarray) -> int | None:
        """The last of ``ends`` that may be taken; None if there is nothing, or no room."""
        rows, size, files = self.left.rows, self.left.bytes, self.left.files
        if not len(ends) or rows == 0 or files == 0 or (size is not None and size <= 0):
            return None
        count = len(ends) if rows is None else min(rows, len(ends))
        if size is not None:
            count = min(count, max(1, int(np.searchsorted(ends, begin + size, "right"))))
        last = int(ends[count - 1])
        if count < len(ends):
            self.left = Limit(files=0)  # full: no later file may overtake this one
            return last
        self.left = Limit(
            None if rows is None else rows - count,
            None if size is None else size - (last - begin),
            None if files is None else files - 1,
        )
        return last


def _begin(start: Position, path: str, life: tuple[int | None, int | None]) -> int:
    known = start.get(path)
    return int(known[2]) if known is not None and tuple(known[:2]) == life else 0


def _ends(reading: LogReading, file: LogFile) -> np.ndarray:
    """Where the valid records before the first torn one end, ascending."""
    torn = [span.offset for span in file.spans if span.outcome is Outcome.TORN]
    limit = min(torn, default=file.size)
    ends = [np.empty(0, np.int64)]
    for batch in _valid(reading, file, limit):
        offsets, lengths = (batch.column(name).to_numpy() for name in ("offset", "length"))
        ends.append(offsets + lengths)
    found = np.sort(np.concatenate(ends))
    return found[found <= limit]


def _valid(reading: LogReading, file: LogFile, limit: int) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    for batch in batches_of(reading, "records", Split(file.path, 0, min(limit, file.size))):
        ours = pc.equal(batch.column("file"), file.path)
        yield batch.filter(pc.and_(ours, pc.equal(batch.column("outcome"), Outcome.VALID.value)))


def _between(batch: pa.RecordBatch, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    stops = pc.add(batch.column("offset"), batch.column("length"))
    kept = batch.filter(pc.and_(pc.greater(stops, begin), pc.less_equal(stops, end)))
    if kept.num_rows:
        yield kept
