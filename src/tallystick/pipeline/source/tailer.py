"""Looking for what is new in logs that grow, roll and are recycled, without Spark.

In: the logs below some paths. Out: positions (how far each file was read). A file that did not
change is not read again, unless its system can only tell its records from the whole log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from tallystick.errors import TallystickError, UnsupportedFormatError
from tallystick.pipeline.planning import find
from tallystick.pipeline.source.followed_log import Ends, FollowedLog
from tallystick.pipeline.source.options import Limit, SourceOptions
from tallystick.pipeline.source.positions import Life, Position, begin_of, passed
from tallystick.pipeline.tables.fingerprint import fingerprint, gone
from tallystick.systems.protocol import LogSource
from tallystick.systems.registry import system

QUIET_NS = 2_000_000_000
"""A file changed less than this ago is looked at again: its time is too coarse to trust."""


@dataclass(slots=True)
class _Seen:
    """What was found in a file when it was last looked at."""

    fingerprint: list[int]
    life: Life
    ends: Ends
    """Ends of valid records after ``since``, ascending."""
    since: int
    last: int
    """Where the last valid record ends; 0 if there is none."""

    def settled(self, now: list[int]) -> bool:
        """Return True if the file is unchanged, and its time is old enough to be trusted."""
        return self.fingerprint == now and time.time_ns() - now[1] > QUIET_NS

    def ends_after(self, begin: int) -> Ends:
        """Return the ends of records after ``begin``, and forget those before it."""
        if begin > self.since:
            self.ends = self.ends[np.searchsorted(self.ends, begin, "right") :].copy()
            self.since = begin
        return self.ends


@dataclass(slots=True)
class Tailer:
    """Looks for what is new; remembers what did not change between two looks."""

    options: SourceOptions
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def advance(self, start: Position, limit: Limit | None = None) -> Position:
        """Return the position after the next records after ``start``, within ``limit``.

        Files after the one that reaches the limit are not looked at.
        Files that are gone leave the position, those that only cannot be read now stay in it; files
        without records do not enter it.
        """
        budget = _Budget(limit or Limit())
        position: Position = {}
        for path, seen in self._look(start):
            begin = begin_of(start, path, seen.life)
            taken = budget.take(begin, seen.ends_after(begin))
            if taken or path in start:
                position[path] = [*seen.life, taken or begin]
            if budget.spent:
                break
        for path in start.keys() - position.keys():
            if not gone(path):
                position[path] = start[path]
        return dict(sorted(position.items()))

    def latest(self) -> Position:
        """Return the position after everything that is there now."""
        found = {path: [*seen.life, seen.last] for path, seen in self._look(None) if seen.last}
        return dict(sorted(found.items()))

    def finished(self, position: Position) -> dict[str, str]:
        """By folder the newest file that was read to its end, as were all before it.

        A file may have grown between the look at it and the look at the next one, which shows
        that it is complete: so it is looked at once more, now that the next one is known.
        """
        there = self.latest()

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
        followed = [source for source in found if system(source.system).followable]
        if len(followed) < len(found) and (not followed or self.options.mode == "failfast"):
            refused = next(source for source in found if not system(source.system).followable)
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

    def _look(self, start: Position | None) -> Iterator[tuple[str, _Seen]]:
        """Yield every file in order, with the ends of records after ``start``.

        With None only the last ends are looked for.
        """
        for source in self._logs():
            log = FollowedLog(source, self.options.reading)
            fingerprints = {path: fingerprint(path) for path in source.files}
            stale = {
                path for path, now in fingerprints.items() if not self._covered(path, now, start)
            }
            for path in source.files:
                if path in stale or (stale and not _alone(log)):
                    self._read(log, path, fingerprints[path], start)
                if path in self._seen:
                    yield path, self._seen[path]

    def _covered(self, path: str, now: list[int], start: Position | None) -> bool:
        seen = self._seen.get(path)
        if seen is None or not seen.settled(now):
            return False
        return start is None or seen.since <= begin_of(start, path, seen.life)

    def _read(self, log: FollowedLog, path: str, now: list[int], start: Position | None) -> None:
        before = self._seen.pop(path, None)
        try:
            if path not in log.lives:
                return
            identity, generation, _ = log.lives[path]
            life = (identity, generation)
            since = None
            if start is not None:
                since = begin_of(start, path, life)
            elif before is not None and before.life == life:
                since = before.since
            ends = log.last_ends(path) if since is None else log.ends(path, since)
        except (TallystickError, OSError):
            return  # it is gone, or is being made: the next look decides
        last = int(ends[-1]) if len(ends) else since or 0
        since = last if since is None else since
        self._seen[path] = _Seen(now, life, ends[ends > since], since, last)


def _alone(log: FollowedLog) -> bool:
    """Return True if a file of the log can be looked at without the others."""
    try:
        return log.file_by_file
    except (TallystickError, OSError):
        return False


@dataclass(slots=True)
class _Budget:
    """What is left of a limit while files are gone through."""

    left: Limit

    @property
    def spent(self) -> bool:
        """True if nothing more may be taken."""
        rows, size, files = self.left.rows, self.left.bytes, self.left.files
        return rows == 0 or files == 0 or (size is not None and size <= 0)

    def take(self, begin: int, ends: Ends) -> int | None:
        """Return the last of ``ends`` within the limit; None if there is none."""
        rows, size, files = self.left.rows, self.left.bytes, self.left.files
        if not len(ends) or self.spent:
            return None
        count = len(ends) if rows is None else min(rows, len(ends))
        if size is not None:
            count = min(count, max(1, int(np.searchsorted(ends, begin + size, "right"))))
        last = int(ends[count - 1])
        if count < len(ends):
            self.left = Limit(files=0)  # the limit is reached: no later file may overtake this one
            return last
        self.left = Limit(
            None if rows is None else rows - count,
            None if size is None else size - (last - begin),
            None if files is None else files - 1,
        )
        return last
