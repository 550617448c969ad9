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
from tallystick.pipeline.fingerprint import fingerprint, gone
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.planning import find
from tallystick.pipeline.source.followed_log import Ends, FollowedLog
from tallystick.pipeline.source.positions import Life, Position, begin_of, passed
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
    _step: int = 0
    _turns: dict[tuple[str, str], int] = field(default_factory=dict)
    """By path and name of a log: the last step that took records of it."""

    def advance(self, start: Position, limit: Limit | None = None) -> Position:
        """Return the position after the next records after ``start``, within ``limit``.

        A limit is shared fairly: logs take turns, the one that was read least recently first, and
        of those the one whose oldest change is oldest; each gets an equal part of what is left.
        Within a log no file overtakes an earlier one, and files after the limit are not looked at.
        Files that are gone leave the position, those that only cannot be read now stay in it;
        files without records do not enter it.
        """
        logs = self._logs()
        there = {path for source in logs for path in source.files}
        position = {path: at for path, at in start.items() if path in there or not gone(path)}
        if limit is not None and limit != Limit():
            logs.sort(key=self._turn_of)
        self._step += 1
        left, more, taken = limit or Limit(), True, False
        while more and not _is_spent(left):
            more = False  # True once a log was cut off at its part
            for number, source in enumerate(logs):
                budget = _Budget(_part(left, len(logs) - number), may_be_exceeded=not taken)
                self._take(source, budget, position)
                taken |= budget.files > 0
                more |= budget.files > 0 and budget.spent
                left = budget.taken_from(left)
                if _is_spent(left):
                    break
        return dict(sorted(position.items()))

    def _take(self, source: LogSource, budget: _Budget, position: Position) -> None:
        """Move ``position`` over one log as far as the budget goes."""
        start = dict(position)
        for path, seen in self._look(source, start):
            begin = begin_of(start, path, seen.life)
            if taken := budget.take(begin, seen.ends_after(begin)):
                self._turns[source.path, source.name] = self._step
            if taken or path in start:
                position[path] = [*seen.life, taken or begin]
            if budget.spent:
                return

    def _turn_of(self, source: LogSource) -> tuple[int, int]:
        if turn := self._turns.get((source.path, source.name), 0):
            return turn, 0  # its files need no look: age orders only logs never read
        return 0, min((fingerprint(path)[1] for path in source.files), default=0)

    def latest(self) -> Position:
        """Return the position after everything that is there now."""
        found = {
            path: [*seen.life, seen.last]
            for source in self._logs()
            for path, seen in self._look(source, None)
            if seen.last
        }
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
        plan = find(self.options.paths)
        if self.options.mode == "failfast":
            plan.require_readable()
        found = plan.logs
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

    def _look(self, source: LogSource, start: Position | None) -> Iterator[tuple[str, _Seen]]:
        """Yield the files of a log in order, with the ends of records after ``start``.

        With None only the last ends are looked for.
        """
        log = FollowedLog(source, self.options.reading)
        fingerprints = {path: fingerprint(path) for path in source.files}
        stale = {path for path, now in fingerprints.items() if not self._covered(path, now, start)}
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
            if self.options.mode == "failfast" and not gone(path):
                raise
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
    """What may be taken of one log, and what was."""

    limit: Limit
    may_be_exceeded: bool = True
    """True for the first record of a step, which is taken whatever its size."""
    rows: int = 0
    bytes: int = 0
    files: int = 0
    full: bool = False
    """True once a file was read in part: no later file of its log may overtake it."""

    @property
    def spent(self) -> bool:
        """True if nothing more may be taken."""
        return self.full or _is_spent(self.taken_from(self.limit))

    def taken_from(self, limit: Limit) -> Limit:
        """Return the limit without what was taken."""
        return Limit(
            None if limit.rows is None else max(limit.rows - self.rows, 0),
            None if limit.bytes is None else max(limit.bytes - self.bytes, 0),
            None if limit.files is None else max(limit.files - self.files, 0),
        )

    def take(self, begin: int, ends: Ends) -> int | None:
        """Return the last of ``ends`` within the limit; None if there is none."""
        if not len(ends) or self.spent:
            return None
        left = self.taken_from(self.limit)
        count = len(ends) if left.rows is None else min(left.rows, len(ends))
        if left.bytes is not None:
            fitting = int(np.searchsorted(ends, begin + left.bytes, "right"))
            count = min(count, max(fitting, int(self.may_be_exceeded and not self.files)))
            if not count:
                self.full = True
                return None
        last = int(ends[count - 1])
        self.rows += count
        self.bytes += last - begin
        self.files += 1
        self.full = count < len(ends)
        return last


def _is_spent(limit: Limit) -> bool:
    return 0 in (limit.rows, limit.bytes, limit.files)


def _part(limit: Limit, logs: int) -> Limit:
    """Return one of ``logs`` equal parts of a limit, with at least one of everything."""
    parts = (
        None if total is None else max(total // logs, 1)
        for total in (limit.rows, limit.bytes, limit.files)
    )
    return Limit(*parts)
