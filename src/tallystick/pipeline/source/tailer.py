"""Looking for what is new in logs that grow, roll and are recycled, without Spark.

In: the logs below some paths. Out: positions (how far each log was read). A log that did not change
is not read again, and of the others no file before the one that was read last.

The files of a log come one after the other: a position says how far the last one was read, and
that those before it were. So a file is passed only once it is known to be complete, and only if the
next one continues it: what is missing in between was lost, and the options say what follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tallystick.errors import (
    CorruptLogError,
    LogUnreadableError,
    TallystickError,
    UnsupportedFormatError,
)
from tallystick.pipeline.fingerprint import fingerprint, gone
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.planning import RecordsLostError, find, require_one_log, require_start
from tallystick.pipeline.source.earlier_positions import read_on
from tallystick.pipeline.source.followed_log import Ends, FollowedLog, is_file_of
from tallystick.pipeline.source.positions import (
    UNREAD,
    HistoryRewrittenError,
    LogPosition,
    Position,
    digests,
    is_at,
    key_of,
    lost,
    reached,
    replaced,
    require_unchanged,
    rewritten,
)
from tallystick.printable import logger
from tallystick.reading.discovery import parent
from tallystick.reading.names import log_name
from tallystick.reading.survey import why_not_followed
from tallystick.systems.protocol import LogSource, Missing
from tallystick.systems.registry import system

QUIET_NS = 2_000_000_000
"""A file changed less than this ago is looked at again: its time is too coarse to trust."""

_DAMAGED = "Run explain over the log; failOnDataLoss=false goes on without what is damaged"

_log = logger("tallystick.pipeline")

_Prints = dict[str, list[int]]
"""Fingerprints of the files of a log."""


@dataclass(slots=True)
class _Seen:
    """What was found in a file when it was last looked at."""

    fingerprints: list[list[int]]
    """Of the file; of all files of its log where one of them may prove more of it durable."""
    looked_ns: int
    ends: Ends
    """Ends of valid records after ``since``, ascending."""
    places: Ends
    """The places of these records."""
    since: int
    last: int
    """Where the last valid record ends; 0 if there is none."""
    last_place: int | None
    """The place of the last valid record."""
    first: int
    """Where the digests of its history begin."""
    damaged: int | None
    """Where the first damaged record after ``since`` begins."""
    held: bool
    """True if records follow that are not yet durable."""
    proved: tuple[int, str] = (0, "")
    """The offset of a position and its digests, which the file was found to hold."""

    def settled(self, prints: _Prints, path: str) -> bool:
        """Return True if nothing changed, and times were old enough to be trusted."""
        if self.fingerprints not in ([prints[path]], [*prints.values()]):
            return False
        return _quiet(self.fingerprints, self.looked_ns)

    def covers(self, begin: int | None, prints: _Prints, path: str) -> bool:
        """Return True if it still holds, and tells what is wanted."""
        return self.settled(prints, path) and (begin is None or self.since <= begin)

    def ends_after(self, begin: int) -> Ends:
        """Return the ends of records after ``begin``, and forget those before it."""
        if begin > self.since:
            kept = np.searchsorted(self.ends, begin, "right")
            self.ends, self.places = self.ends[kept:].copy(), self.places[kept:].copy()
            self.since = begin
            if self.damaged is not None and self.damaged < begin:
                self.damaged = None
        return self.ends

    def entry(self, number: int, path: str, end: int, before: LogPosition) -> LogPosition:
        """Return what a position says once the file was read up to ``end``."""
        at = int(np.searchsorted(self.ends, end, "right"))
        self.proved = end, digests(path, self.first, end)
        return {
            **before,
            "file": path,
            "number": number,
            "offset": end,
            "place": int(self.places[at - 1]) if 0 < at <= len(self.places) else self.last_place,
            "digests": self.proved[1],
            "known": max(number, before["known"]),
        }


def _quiet(prints: Iterable[Collection[int]], looked_ns: int) -> bool:
    return looked_ns - max((changed for _, changed in prints), default=0) > QUIET_NS


@dataclass(slots=True)
class Tailer:
    """Looks for what is new; remembers what did not change between two looks."""

    options: SourceOptions
    seen: dict[str, _Seen] = field(default_factory=dict)
    _done: dict[str, tuple[_Prints, int, LogPosition | None]] = field(default_factory=dict)
    """By log: the files and when they were looked at, and the entry with which nothing is new."""
    _step: int = 0
    _turns: dict[str, int] = field(default_factory=dict)
    """By log: the last step that took records of it."""
    _said: set[str] = field(default_factory=set)
    """What was said once, and is not said again."""

    def advance(self, start: Position, limit: Limit | None = None) -> Position:
        """Return the position after the next records after ``start``, within ``limit``.

        A limit is shared fairly: logs take turns, the one that was read least recently first, and
        of those the one whose oldest change is oldest; each gets an equal part of what is left.
        Within a log no file overtakes an earlier one, and files after the limit are not looked at.
        Logs that are gone stay in the position; those without records do not enter it.

        Raises:
            RecordsLostError: records after the position are gone or damaged, and the options do
                not say to go on without them.
            HistoryRewrittenError: what was read is not in a log any more.
            TallystickError, OSError: a log cannot be read, and the options say to fail.
        """
        logs = self._logs(waits=not start)
        start = read_on(start, logs, self.options)
        position = dict(start)
        if limit is not None and limit != Limit():
            logs.sort(key=self._turn_of)
        self._step += 1
        left, more, taken = limit or Limit(), True, False
        while more and not _is_spent(left):
            more = False  # True once a log was cut off at its part
            for number, source in enumerate(logs):
                budget = _Budget(_part(left, len(logs) - number), may_be_exceeded=not taken)
                self._take(source, budget, start, position)
                taken |= budget.files > 0
                more |= budget.files > 0 and budget.spent
                left = budget.taken_from(left)
                if _is_spent(left):
                    break
        return dict(sorted(position.items()))

    def _take(
        self, source: LogSource, budget: _Budget, start: Position, position: Position
    ) -> None:
        """Move ``position`` over one log as far as the budget goes."""
        key = key_of(source)
        prints = {path: fingerprint(path) for path in source.files}
        looked, done = time.time_ns(), self._done.get(key)
        same = done is not None and (prints, position.get(key)) == (done[0], done[2])
        if same and done is not None and _quiet(prints.values(), done[1]):
            return
        log = FollowedLog(source, self.options.reading)
        entry = position.get(key, UNREAD)
        moved = not is_at(entry, start.get(key, UNREAD))
        step = _Step(self, log, prints, budget, entry, moved)
        self._read(log, step.advance)
        if step.entry["number"] >= 0 or step.entry["losses"]:
            position[key] = step.entry
        if budget.files:
            self._turns[key] = self._step
        if step.whole:
            self._done[key] = prints, looked, position.get(key)

    def _turn_of(self, source: LogSource) -> tuple[int, int]:
        if turn := self._turns.get(key_of(source), 0):
            return turn, 0  # its files need no look: age orders only logs never read
        return 0, min((fingerprint(path)[1] for path in source.files), default=0)

    def read_on(self, position: Position) -> Position:
        """Return a position, perhaps of an earlier version, with one entry per log."""
        if all(isinstance(entry, dict) for entry in position.values()):
            return position
        return read_on(position, self._logs(), self.options)

    def latest(self) -> Position:
        """Return the position after everything that is there now."""
        return {key: entry for key, (entry, _) in self.ends().items()}

    def ends(self) -> dict[str, tuple[LogPosition, list[tuple[int, str]]]]:
        """Return, by log, the entry after everything that is there now, and the files in order."""
        found = {}
        for source in self._logs(waits=True):
            prints = {path: fingerprint(path) for path in source.files}
            log = FollowedLog(source, self.options.reading)
            step = _Step(self, log, prints, _Budget(Limit()), UNREAD, moved=False)
            self._read(log, step.last)
            if step.entry["number"] >= 0:
                found[key_of(source)] = step.entry, log.order
        return dict(sorted(found.items()))

    def finished(self, position: Position) -> dict[str, str]:
        """By folder the newest file that was read to its end, as were all before it."""
        found: dict[str, str] = {}
        logs = self._logs(waits=not position)
        position = read_on(position, logs, self.options)
        for source in logs:
            entry = position.get(key_of(source), UNREAD)
            log = FollowedLog(source, self.options.reading)
            self._read(log, partial(_note_ended, log, entry, found))
        return found

    def _logs(self, *, waits: bool = False) -> list[LogSource]:
        plan = find(self.options.paths, waits=waits)
        if self.options.mode == "failfast":
            plan.require_readable()
        found = plan.logs
        require_one_log(found, self.options)
        followed = [source for source in found if self._can_follow(source)]
        for source in found if len(followed) < len(found) else ():
            if self._can_follow(source):
                continue
            refusal = self._refusal(source)
            if not followed or self.options.mode == "failfast":
                raise refusal
            self.say(f"left out of the stream: {log_name(source)}: {refusal}")
        return followed

    def listed(self, source: LogSource) -> LogSource:
        """Return a log with the files that it has now."""
        found = (one for one in find(self.options.paths).logs if key_of(one) == key_of(source))
        return next(found, source)

    def _can_follow(self, source: LogSource) -> bool:
        known = system(source.system)
        follows = known.followable and source.followable
        return follows and (known.change_feed or not self.options.feeds)

    def _refusal(self, source: LogSource) -> UnsupportedFormatError:
        if source.followable and system(source.system).followable:
            return UnsupportedFormatError(
                "the changes of this log cannot be followed: its commits have no numbers that stay "
                "when files are given up or compacted",
                file=source.files[0],
                expected="a log whose commits are numbered",
                found=source.system,
                advice="Stream its records; or read its changes in batch",
            )
        return UnsupportedFormatError(
            f"this log cannot be followed: {why_not_followed(source, system(source.system))}",
            file=source.files[0],
            expected="a log that is appended to",
            found=source.system if source.followable else source.path,
            advice="Read it in batch: tallystick pipeline run --stream reads it anew whenever "
            "it changed",
        )

    def say(self, text: str) -> None:
        """Warn, the first time only."""
        if text not in self._said:
            self._said.add(text)
            _log.warning("%s", text)

    def _read(self, log: FollowedLog, work: Callable[[], None]) -> None:
        """Do something with a log, as far as it can be read now."""
        try:
            work()
        except (HistoryRewrittenError, RecordsLostError):
            raise
        except (TallystickError, OSError) as error:
            if any(map(gone, log.source.files)):
                return  # it is gone, or is being made: the next look decides
            if self.options.mode == "failfast":
                raise
            self.say(f"waiting for {log_name(log.source)}, which cannot be read: {error}")

    def look(self, log: FollowedLog, path: str, prints: _Prints, begin: int | None) -> _Seen:
        """Return what a file holds after an offset; with None only its last records are wanted."""
        before = self.seen.pop(path, None)
        if before is None or not before.covers(begin, prints, path):
            before = _look_into(log, path, prints, begin, before, self.options.feeds)
        self.seen[path] = before
        return before

    def is_settled(self, entry: LogPosition, prints: _Prints) -> bool:
        """Return True if the file of an entry holds what it did, and did not change since."""
        path = entry["file"]
        seen = self.seen.get(path)
        if seen is None or seen.proved != (entry["offset"], entry["digests"]):
            return False  # it was looked at without this entry
        return seen.settled(prints, path)

    def lose(self, entry: LogPosition, error: RecordsLostError) -> LogPosition:
        """Return the entry with a loss that the stream goes on after, or stands before.

        Raises the error unless the options say to go on.
        """
        if self.options.fail_on_data_loss:
            raise error
        self.say(f"records are left out of the stream: {error}")
        if entry["loss"] == str(error):
            return entry
        return {**entry, "losses": entry["losses"] + 1, "loss": str(error)}


def _look_into(
    log: FollowedLog,
    path: str,
    prints: _Prints,
    begin: int | None,
    before: _Seen | None,
    feeds: bool,
) -> _Seen:
    if path not in log.lives:
        raise LogUnreadableError("a file of the log cannot be read now", file=path)
    looked, first, since = time.time_ns(), log.first(path), begin
    if since is None and before is not None:
        since = before.since
    ends = log.last_ends(path) if since is None else log.ends(path, since)
    last = int(ends[-1]) if len(ends) else since or 0
    since = last if since is None else since
    log.make_durable(path, since, last)
    alone = log.file_by_file and not log.held_back
    try:
        places = log.places
    except CorruptLogError:  # the head of the file gives none
        if feeds:
            raise
        places = np.empty(0, np.int64)
    new = ends > since
    return _Seen(
        fingerprints=[prints[path]] if alone else [*prints.values()],
        looked_ns=looked,
        ends=ends[new],
        places=places[new] if len(places) else places,
        since=since,
        last=last,
        last_place=int(places[-1]) if len(places) else None,
        first=first,
        damaged=log.damaged,
        held=log.held_back,
    )


def _note_ended(log: FollowedLog, entry: LogPosition, found: dict[str, str]) -> None:
    """Note the last file before the one that an entry is about."""
    for number, path in log.order:
        if number < entry["number"]:
            found[parent(path)] = path


@dataclass(slots=True)
class _Step:
    """One look at a log, from an entry on; ``entry`` is how far it came."""

    tailer: Tailer
    log: FollowedLog
    prints: _Prints
    budget: _Budget
    entry: LogPosition
    moved: bool
    """True once something was taken in this step of the stream."""
    whole: bool = False
    """True once everything was taken that is there."""
    _doubted: tuple[str, int] | None = None
    """The damage that was found last: the file, and where it begins."""
    _stated: int | None = None
    """The end that the log stated before anything of it was read."""
    _listed_anew: bool = False
    """True once the files of the log were listed again, as its end was missing."""

    def last(self) -> None:
        """Move to the last record of the log."""
        for number, path in reversed(self.log.order):
            seen = self.tailer.look(self.log, path, self.prints, None)
            if seen.last:
                self.entry = seen.entry(number, path, seen.last, self.begun(UNREAD))
                return

    def advance(self) -> None:
        """Move as far as the budget goes."""
        if self._stated is None:
            self._stated = self.log.stated_end
        self._join()
        there = self._is_there()
        for number, path in self.log.order:
            reached_file = self.entry["number"], self.entry["file"]
            own = (number, path) == reached_file
            # Without the file that was read, another one of its number is not what was read.
            if not own and (number < reached_file[0] or (there and (number, path) < reached_file)):
                continue
            if not (self._take_own() if own else self._take_next(number, path, there=there)):
                return
            there = True
        if self._is_cut():
            return
        self._note_known()
        self.whole = True

    def _take_own(self) -> bool:
        """Take what is new in the file that was read last; return whether the next one is due."""
        if not self._is_unchanged():
            return self._again()
        path, begin = self.entry["file"], self.entry["offset"]
        seen = self.tailer.look(self.log, path, self.prints, begin)
        seen.proved = begin, self.entry["digests"]
        return self._take(self.entry["number"], path, seen, begin)

    def _take_next(self, number: int, path: str, *, there: bool) -> bool:
        """Take the records of a file that continues the log; return whether the next one is due."""
        before = self.entry["file"]
        seen = self.tailer.look(self.log, path, self.prints, 0)
        # Where damage ends a log, files after it may look empty, and the one before tells nothing.
        if len(seen.ends_after(0)) or not there or self.log.damage_ends_log:
            if there and self._grew():
                return self._again()
            missing = self.log.missing(path, reached(self.entry, there=there))
            if missing is not None and missing.usual:
                self.tailer.say(
                    f"{log_name(self.log.source)}: numbers of files are missing, as restarts, and "
                    "files that were removed before the stream began, leave them"
                )
            elif missing is not None:
                if self._restarts(missing):
                    return self._again()
                if not self._goes_on(missing, number, path, seen):
                    return False
        due = self._take(number, path, seen, 0)
        if self.entry["file"] != before:
            self.tailer.seen.pop(before, None)  # what was passed is not looked at again
        return due

    def _take(self, number: int, path: str, seen: _Seen, begin: int) -> bool:
        """Take records after an offset of a file; return whether the next file is due."""
        ends = seen.ends_after(begin)
        if self._is_doubtful(path, seen):
            return self._again()
        if self.entry["number"] >= 0 and self.entry["place"] is None and len(seen.places):
            before = int(seen.places[0]) - 1
            self.entry = {**self.entry, "resumed": before, "lost": before}
        if (taken := self.budget.take(begin, ends)) is not None:
            self._begin_step(number)
            self.entry = seen.entry(number, path, taken, self.entry)
        return not (self._ends_at(path, seen) or self.budget.spent or seen.held)

    def begun(self, entry: LogPosition) -> LogPosition:
        """Return an entry as that of this log."""
        return {**entry, "identity": self.log.identity}

    def _join(self) -> None:
        """Begin the log anew if it is another one, or no longer reaches what was read.

        Unless the options say to read it again, raises `HistoryRewrittenError` for the latter, and
        loses what another log had besides.
        """
        entry, order = self.entry, self.log.order
        if entry["number"] < 0 or not order:
            self.entry = {**self.begun(entry), "since": max(order, default=(-1, ""))[0]}
            if not entry["rewrites"]:
                self._require_start()
        elif (now := self.log.identity) is not None and entry["identity"] != now:
            if self.tailer.options.on_rewrite == "fail":
                self.entry = self.tailer.lose(entry, replaced(self.log.source, now))
            self._restart()
        elif order[-1][0] < entry["number"]:
            self._require_listed()
            if self.tailer.options.on_rewrite == "fail":
                raise rewritten(
                    "the newest file is gone, and older ones are there", entry["file"], 0,
                    f"the bytes up to {entry['offset']} that were read",
                    "no such file, and no newer one",
                )  # fmt: skip
            self._restart()

    def _require_start(self) -> None:
        """Lose what the options begin with, where the log has given that up."""
        try:
            require_start(self.log.source, self.tailer.options)
        except RecordsLostError as error:
            self.entry = self.tailer.lose(self.entry, error)

    def _restart(self) -> None:
        entry = self.entry
        again: LogPosition = {**UNREAD, "rewrites": entry["rewrites"] + 1}
        self.entry = self.begun({**again, "losses": entry["losses"], "loss": entry["loss"]})

    def _is_unchanged(self) -> bool:
        """Return whether the file that was read last holds what was read of it.

        Raises `HistoryRewrittenError` if it does not, unless the options say to read it again.
        """
        entry = self.entry
        path = entry["file"]
        if not entry["digests"] or self.tailer.is_settled(entry, self.prints):
            return True
        try:
            require_unchanged(path, self.log.first(path), entry["offset"], entry["digests"])
        except HistoryRewrittenError:
            if self.log.still_has(entry["number"], path):  # else it was recycled while it was read
                if self.tailer.options.on_rewrite == "fail":
                    raise
                self._restart()
            return False
        return True

    def _is_there(self) -> bool:
        """Return whether the file that was read last is there, perhaps under another name."""
        entry = self.entry
        paths = [path for number, path in self.log.order if number == entry["number"]]
        if entry["number"] < 0 or entry["file"] in paths:
            return True
        for path in paths:
            if is_file_of(entry, self.log, path):
                self.entry = {**entry, "file": path}
                return True
        self._require_listed()
        return False

    def _require_listed(self) -> None:
        """Check that the file that was read last is not one that only cannot be read now."""
        path = self.entry["file"]
        if path not in self.log.source.files and not gone(path):
            raise LogUnreadableError("a file of the log cannot be read now", file=path)

    def _grew(self) -> bool:
        """Return whether the file that was read last has more records, or is gone by now.

        The file after it shows that it is complete; so it is looked at once more, now that this is
        known.
        """
        path = self.entry["file"]
        now = {**self.prints, path: fingerprint(path)}
        if not path or self.tailer.is_settled(self.entry, now):
            return False
        log = FollowedLog(self.log.source, self.tailer.options.reading)
        ends = log.ends(path, self.entry["offset"]) if path in log.lives else None
        return ends is None or bool((ends > self.entry["offset"]).any())

    def _again(self, source: LogSource | None = None) -> bool:
        """Look at the log anew: it changed meanwhile. Return False: nothing of this look is due."""
        self.tailer.seen.pop(self.entry["file"], None)
        self.log = FollowedLog(source or self.log.source, self.tailer.options.reading)
        self.prints = {path: fingerprint(path) for path in self.log.source.files}
        self.advance()
        return False

    def _restarts(self, missing: Missing) -> bool:
        """Return whether the log is read again from its start: what is missing may be there."""
        restarts = self.tailer.options.on_rewrite == "restart" and not missing.certain
        if restarts:
            self._restart()
        return restarts

    def _goes_on(self, missing: Missing, number: int, path: str, seen: _Seen) -> bool:
        """Return whether the log is followed after what is missing, from a file on.

        Only the first step after a gap leaves it out: a step that reaches a gap ends there.
        """
        if self.moved and not self.tailer.options.fail_on_data_loss:
            return False
        self.entry = self.tailer.lose(self.entry, lost(missing, self.log.source))
        if missing.ends_log:
            return False
        self._begin_step(number)
        self.entry = {**seen.entry(number, path, 0, self.entry), "place": None, "resumed": None}
        return True

    def _begin_step(self, number: int) -> None:
        """Note the file that has the first record of a step."""
        if not self.moved:
            self.entry, self.moved = {**self.entry, "begun": number}, True

    def _is_doubtful(self, path: str, seen: _Seen) -> bool:
        """Return whether a file shows damage for the first time; it is forgotten then.

        Its writer may have replaced a group while the file was read: damage is what is there when
        it is read again. That comes before anything is taken: records after damage would hide it.
        """
        if seen.damaged is None or (path, seen.damaged) == self._doubted:
            return False
        self._doubted = path, seen.damaged
        self.tailer.seen.pop(path, None)
        return True

    def _ends_at(self, path: str, seen: _Seen) -> bool:
        """Note damage of a file once it is reached; return whether it ends the log."""
        if seen.damaged is None:
            return False
        fails = self.tailer.options.fail_on_data_loss
        if not fails and self.budget.spent and self.entry["offset"] <= seen.damaged:
            return False
        error = RecordsLostError(
            "records are damaged", file=path, offset=seen.damaged, advice=_DAMAGED
        )
        self.entry = self.tailer.lose(self.entry, error)
        if self.entry["place"] is not None:
            self.entry = {**self.entry, "lost": self.entry["place"]}
        return self.log.damage_ends_log

    def _is_cut(self) -> bool:
        """Lose what the log calls durable and does not have; return whether it was looked at anew.

        A file may have been made between the listing and what the log states: what is missing in
        a later listing, too, is lost.
        """
        place = self.entry["place"]
        if self.entry["number"] >= 0 and place is None:  # after a hole, of which it was told
            return False
        missing = self.log.missing_at_end(self._stated or 0, place)
        if missing is None:
            return False
        if not self._listed_anew:
            self._listed_anew = True
            return not self._again(self.tailer.listed(self.log.source))
        self.entry = self.tailer.lose(self.entry, lost(missing, self.log.source))
        return False

    def _note_known(self) -> None:
        """Note that files without records are the next ones, and that none is missing before."""
        later = [number for number, _ in self.log.order if number > self.entry["number"]]
        if self.entry["number"] >= 0 and later:
            self.entry = {**self.entry, "known": max(self.entry["known"], min(later) - 1)}


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
