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
from tallystick.pipeline.source.positions import (
    HistoryRewrittenError,
    Life,
    Position,
    begin_of,
    digests,
    digests_of,
    life_of,
    passed,
    places_of,
    require_unchanged,
)
from tallystick.printable import logger
from tallystick.reading.discovery import parent
from tallystick.reading.names import log_name
from tallystick.systems.protocol import LogSource
from tallystick.systems.registry import system

QUIET_NS = 2_000_000_000
"""A file changed less than this ago is looked at again: its time is too coarse to trust."""

_log = logger("tallystick.pipeline")


@dataclass(slots=True)
class _Seen:
    """What was found in a file when it was last looked at."""

    fingerprints: list[list[int]]
    """Of the file; of all files of its log where one of them may prove more of it durable."""
    life: Life
    ends: Ends
    """Ends of valid records after ``since``, ascending."""
    since: int
    last: int
    """Where the last valid record ends; 0 if there is none."""
    first: int
    """Where the digests of its history begin."""
    log: str = ""
    """The name of its log, where changes are followed."""
    places: Ends = field(default_factory=lambda: np.empty(0, np.int64))
    """The places of these records, where changes are followed."""
    last_place: int = 0
    """The place of the last valid record."""

    def settled(self, now: list[int], log: list[list[int]]) -> bool:
        """Return True if nothing changed, and times are old enough to be trusted."""
        seen = self.fingerprints
        newest = max(changed for _, changed in seen)
        return seen in ([now], log) and time.time_ns() - newest > QUIET_NS

    def entry(self, path: str, end: int) -> list[object]:
        """Return what a position says once the file was read up to ``end``."""
        identity, generation, rewrites = self.life
        entry: list[object] = [identity, generation, end, digests(path, self.first, end), rewrites]
        if not self.log:
            return entry
        at = int(np.searchsorted(self.ends, end, "right"))
        return [*entry, self.log, int(self.places[at - 1]) if at else self.last_place * (end > 0)]

    def ends_after(self, begin: int) -> Ends:
        """Return the ends of records after ``begin``, and forget those before it."""
        if begin > self.since:
            kept = np.searchsorted(self.ends, begin, "right")
            self.ends, self.places = self.ends[kept:].copy(), self.places[kept:].copy()
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
    _left_out: set[str] = field(default_factory=set)
    """Names of logs that cannot be followed, of which that was said."""

    def advance(self, start: Position, limit: Limit | None = None) -> Position:
        """Return the position after the next records after ``start``, within ``limit``.

        A limit is shared fairly: logs take turns, the one that was read least recently first, and
        of those the one whose oldest change is oldest; each gets an equal part of what is left.
        Within a log no file overtakes an earlier one, and files after the limit are not looked at.
        Files that are gone leave the position, unless they are the last that was read of a log
        whose changes are followed; those that only cannot be read now stay in it; files without
        records do not enter it.
        """
        logs = self._logs()
        self._require_newest(start, logs)
        there = {path for source in logs for path in source.files}
        newest = places_of(start)
        position = {
            path: at
            for path, at in start.items()
            if path in there or (len(at) > 6 and newest[at[5]] == at[6]) or not gone(path)
        }
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
            new_life = path in start and life_of(start[path]) != seen.life
            if (taken or new_life) and (entry := _entry(path, seen, taken or 0)):
                position[path] = entry
            if budget.spent:
                return

    def _turn_of(self, source: LogSource) -> tuple[int, int]:
        if turn := self._turns.get((source.path, source.name), 0):
            return turn, 0  # its files need no look: age orders only logs never read
        return 0, min((fingerprint(path)[1] for path in source.files), default=0)

    def latest(self) -> Position:
        """Return the position after everything that is there now."""
        found = {
            path: entry
            for source in self._logs()
            for path, seen in self._look(source, None)
            if seen.last and (entry := _entry(path, seen, seen.last))
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
            now, then = there[path], position[path]
            return now[:2] != then[:2] or now[2] <= then[2]

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
        followed = [source for source in found if self._can_follow(source)]
        for source in found if len(followed) < len(found) else ():
            if self._can_follow(source):
                continue
            refusal = self._refusal(source)
            if not followed or self.options.mode == "failfast":
                raise refusal
            if (name := log_name(source)) not in self._left_out:
                self._left_out.add(name)
                _log.warning("left out of the stream: %s: %s", name, refusal)
        return followed

    def _can_follow(self, source: LogSource) -> bool:
        known = system(source.system)
        return known.followable and (known.change_feed or not self.options.feeds)

    def _refusal(self, source: LogSource) -> UnsupportedFormatError:
        if system(source.system).followable:
            return UnsupportedFormatError(
                "the changes of this log cannot be followed: its commits have no numbers that stay "
                "when files are given up or compacted",
                file=source.files[0],
                expected="a log whose commits are numbered",
                found=source.system,
                advice="Stream its records; or read its changes in batch",
            )
        return UnsupportedFormatError(
            "this log cannot be followed: its pages are given back at each checkpoint and "
            "written over at once, so records come and go between two looks",
            file=source.files[0],
            expected="a log that is appended to",
            found=source.system,
            advice="Read it in batch: tallystick pipeline run --stream reads it anew whenever "
            "it changed",
        )

    def _look(self, source: LogSource, start: Position | None) -> Iterator[tuple[str, _Seen]]:
        """Yield the files of a log in order, with the ends of records after ``start``.

        With None only the last ends are looked for.
        """
        log = FollowedLog(source, self.options.reading)
        fingerprints = {path: fingerprint(path) for path in source.files}
        stale = {path for path in source.files if not self._covered(path, fingerprints, start)}
        for path in source.files:
            if path in stale or (stale and not _alone(log)):
                self._read(log, path, fingerprints, start)
            if path in self._seen:
                yield path, self._seen[path]

    def _covered(
        self, path: str, fingerprints: dict[str, list[int]], start: Position | None
    ) -> bool:
        seen = self._seen.get(path)
        if seen is None or not seen.settled(fingerprints[path], [*fingerprints.values()]):
            return False
        if start is None or path not in start:
            return start is None or seen.since == 0
        return seen.life == life_of(start[path]) and seen.since <= start[path][2]

    def _read(
        self,
        log: FollowedLog,
        path: str,
        fingerprints: dict[str, list[int]],
        start: Position | None,
    ) -> None:
        before = self._seen.pop(path, None)
        try:
            if path in log.lives:
                self._seen[path] = self._look_into(log, path, fingerprints, start, before)
        except (TallystickError, OSError) as error:
            if isinstance(error, HistoryRewrittenError):
                if log.lives_on(path):
                    raise
                return  # it was recycled while it was read: the next look finds its new life
            if self.options.mode == "failfast" and not any(map(gone, log.source.files)):
                raise
            # it is gone, or is being made: the next look decides

    def _look_into(
        self,
        log: FollowedLog,
        path: str,
        fingerprints: dict[str, list[int]],
        start: Position | None,
        before: _Seen | None,
    ) -> _Seen:
        first = log.first(path)
        life = self._life(log, path, first, start, before)
        since = None
        if start is not None:
            since = begin_of(start, path, life)
        elif before is not None and before.life == life:
            since = before.since
        ends = log.last_ends(path) if since is None else log.ends(path, since)
        last = int(ends[-1]) if len(ends) else since or 0
        since = last if since is None else since
        log.make_durable(path, since, last)
        held = log.held_back
        marks = [*fingerprints.values()] if held else [fingerprints[path]]
        new = ends > since
        seen = _Seen(marks, life, ends[new], since, last, first)
        if self.options.feeds:
            known = (start or {}).get(path, [])
            seen.log, seen.places = log_name(log.source), log.places[new]
            seen.last_place = int(log.places[-1]) if len(ends) else (known[6:7] or [0])[0]
        return seen

    def _life(
        self,
        log: FollowedLog,
        path: str,
        first: int,
        start: Position | None,
        before: _Seen | None,
    ) -> Life:
        """Return the life of a file: a new one where its history is not the one that was read.

        Raises `HistoryRewrittenError` unless the options say to read such a file again.
        """
        identity, generation = log.lives[path][:2]
        known = (start or {}).get(path)
        if known is None or known[:2] != [identity, generation]:
            same = before is not None and before.life[:2] == (identity, generation)
            return identity, generation, before.life[2] if before is not None and same else 0
        rewrites = life_of(known)[2]
        if digests_of(known):
            try:
                require_unchanged(path, first, known[2], digests_of(known))
            except HistoryRewrittenError:
                if self.options.on_rewrite == "fail":
                    raise
                rewrites += 1
        return identity, generation, rewrites

    def _require_newest(self, start: Position, logs: list[LogSource]) -> None:
        """Check that logs did not go back behind the newest file that was read of them.

        Files are given up oldest first, or once there are newer ones.
        """
        if self.options.on_rewrite != "fail":
            return
        missing = self._taken_back(start, logs)
        if missing and (missing := self._taken_back(start, self._logs())):
            raise HistoryRewrittenError(
                "records that the stream has handed on were taken back: the newest file is gone, "
                "and older ones are there",
                file=missing[0],
                expected=f"the bytes up to {start[missing[0]][2]} that were read",
                found="no such file, and no newer one",
                advice="Put the log back as it was; or go on with the option onRewrite=restart",
            )

    def _taken_back(self, start: Position, logs: list[LogSource]) -> list[str]:
        newest: dict[str, str] = {}
        for path, entry in start.items():
            folder = parent(path)
            if entry[1] is not None and (
                folder not in newest or entry[1] > start[newest[folder]][1]
            ):
                newest[folder] = path
        there = {path for source in logs for path in source.files}
        suspects = {folder: path for folder, path in newest.items() if path not in there}
        return [
            path
            for folder, path in suspects.items()
            if gone(path) and self._only_older(folder, start[path][1], logs)
        ]

    def _only_older(self, folder: str, generation: int, logs: list[LogSource]) -> bool:
        """Return True if a folder has files of logs, and none of that generation or later."""
        found: list[int] = []
        for source in logs:
            if any(parent(path) == folder for path in source.files):
                lives = FollowedLog(source, self.options.reading).lives
                found += [life.generation for life in lives.values() if life.generation is not None]
        return bool(found) and max(found) < generation


def _entry(path: str, seen: _Seen, end: int) -> list[object] | None:
    """Return the entry of a file; None if it went after the look at it."""
    try:
        return seen.entry(path, end)
    except (TallystickError, OSError):
        if gone(path):
            return None
        raise


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
