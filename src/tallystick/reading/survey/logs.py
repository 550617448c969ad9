"""The logs below some paths, opened one at a time.

In: paths of files, folders or trees, and options. Out: a `Survey` of the logs and other files.
What goes wrong with one log becomes a finding of that log and never stops the others; what goes
wrong with one of several paths, too.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain, islice
from typing import TypeVar

from tallystick.callables import checked
from tallystick.errors import (
    LogUnreadableError,
    TallystickError,
    TransactionUsageError,
    UnsupportedFormatError,
)
from tallystick.printable import shell_quoted
from tallystick.reading.coordinators import is_coordinator
from tallystick.reading.discovery import (
    Discovery,
    discover,
    filled,
    not_followed,
    once,
    parent,
    path_of,
    real,
    with_password,
)
from tallystick.reading.estate import Gatherer
from tallystick.reading.filters import COLUMNS, EVERYTHING, TIME_OF_DAY, Filter
from tallystick.reading.results import is_severe
from tallystick.reading.settled import Observer, add_new, damage_of, require_some
from tallystick.reading.survey.unread import (
    NO_LSNS,
    NO_TIMES,
    UNNUMBERED_ADVICE,
    error_finding,
    no_log,
    no_numbers,
    no_times,
    unread_path,
)
from tallystick.reconcile.ids import find_gtrid
from tallystick.records import Clock, Finding, Outcome, Record, Severity, Transaction, Xid
from tallystick.storage.source import is_remote, require_whole
from tallystick.systems.protocol import (
    ChoosesRecords,
    LogReading,
    LogSource,
    Patch,
    Ranged,
    ReadOptions,
    System,
)
from tallystick.systems.registry import systems

T = TypeVar("T")
_Error = TypeVar("_Error", bound=TallystickError)
Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Progress = Callable[[str], None]
_ID_MIN = 8
"""Characters from which on a key that no row has may begin the id of a global transaction."""


@dataclass(slots=True)
class Survey:
    """The logs below some paths, opened one at a time, and what could not be opened.

    ``paths`` are what was asked for, but for what holds no log where others do, and is no directory
    of a coordinator; ``logs`` are the logs that were found, ``others`` the files that are no log of
    any system; ``problems`` grows while logs are read.
    """

    paths: tuple[str, ...]
    logs: list[LogSource]
    others: list[str]
    problems: list[Finding]
    options: ReadOptions
    known: dict[str, System] = field(repr=False)

    @property
    def path(self) -> str:
        """The path, or several as a message names them."""
        return ", ".join(self.paths)

    def readings(self, progress: Progress | None = None) -> Iterator[LogReading]:
        """Yield each log that opens; ``progress`` is called with its path before."""
        return self._opened(self.read, progress)

    def _opened(self, open_: Callable[[LogSource], T], progress: Progress | None) -> Iterator[T]:
        progress = checked(progress, "progress")
        for source in self.logs:
            if progress is not None:
                progress(source.path)
            with self.guard(source):
                yield open_(source)

    def read(self, source: LogSource) -> LogReading:
        """Return one log. Raises what its reader raises."""
        return self.known[source.system].read(source, self.options)

    def mends(self) -> list[Patch]:
        """Return what mends the logs, as far as their bytes prove it."""
        patches: list[Patch] = []
        for source in self.logs:
            with self.guard(source):
                patches += self.known[source.system].mends(source, self.options)
        return patches

    def repair_command(self) -> str:
        """Return the command that mends the logs in a copy; empty where nothing proves a mend."""
        (path,) = self.paths
        if is_remote(path) or not self.mends():
            return ""
        return f"tallystick repair {shell_quoted(path)} --to COPY"

    def refuse_unknown_settings(self) -> Survey:
        """Return this survey, if each setting has a name and value that a system found here knows.

        Raises:
            UnsupportedFormatError: no system of the logs that were found has such a setting, or
                none has such a value of it.
        """
        systems_here = {source.system for source in self.logs}
        names = {name for system in systems_here for name in self.known[system].settings}
        if systems_here and (unknown := sorted(set(self.options.settings) - names)):
            raise UnsupportedFormatError(
                f"no log here is of a system that has the setting {', '.join(unknown)}",
                file=self.path,
                expected=f"one of {', '.join(sorted(names))}" if names else "no setting",
                found=", ".join(unknown),
            )
        forms = {
            name: form
            for system in systems_here
            for name, form in self.known[system].setting_values.items()
        }
        for name, value in self.options.settings.items():
            pattern, words = forms.get(name, ("", ""))
            if words and not re.fullmatch(pattern, value, re.ASCII):
                # Without the value, which may be a secret in the wrong place.
                raise UnsupportedFormatError(
                    f"the setting {name} has no such value", file=self.path, expected=words
                )
        return self

    def observers(self, progress: Progress | None = None) -> Iterator[Observer]:
        """Yield an `Observer` of each log; ``progress`` is called with its path before."""
        return self._opened(lambda one: Observer(one, self.known, self.options), progress)

    def known_filter(self, wanted: Filter, table: str) -> Filter:
        """Return a filter of a table with the whole id of the global transaction that it names.

        All transactions of the logs are read for it, if it names one.

        Raises:
            UnsupportedFormatError: the table does not tell what is asked for.
            TransactionUsageError: there is no such global transaction, or more than one.
        """
        wanted.require_columns(table)
        if table in ("rows", "changes"):
            wanted = wanted.of_commit()
        try:
            return wanted.known_among(self._xids()) if self.logs else wanted
        except TransactionUsageError as error:
            raise self.not_found(error) from None

    def not_found(self, error: _Error) -> _Error:
        """Return an error about something that is in no log; it names a log that was not read."""
        for source in self.logs:
            with self.guard(source):
                deque(self.read(source).transactions(), maxlen=0)
        unread = next(filter(is_severe, self.problems), None)
        if unread is None:
            return error
        named = (unread.file or "") in unread.message
        why = unread.message if named else f"{unread.file}: {unread.message}"
        message = f"{error.message}, but not all was read: {why}"
        return type(error)(message, file=error.file, advice=error.advice)

    def require_named(self, wanted: Filter, table: str) -> None:
        """Check that the transaction, key, table and resource are there of which nothing was found.

        Of logs that could not be read nobody knows, and where there is none, a problem says so.
        All logs are read for it, if one is asked for.

        Raises:
            TransactionUsageError: there is no such transaction; it names candidates.
            UnsupportedFormatError: nothing has the key, or is of the table or resource.
        """
        if not self.logs or any(map(is_severe, self.problems)):
            return
        numbers = (one.transaction for one in self._transactions())
        wanted.require("transaction", (str(one) for one in numbers if one is not None))
        for name in ("table", "key", "resource"):
            wanted.require(name, self._names(table, COLUMNS.get(table, {}).get(name)))

    def _names(self, table: str, column: str | None) -> Iterator[str]:
        """Yield what stands in a column of a table, as texts."""
        for source in self.logs if column is not None else ():
            with suppress(TallystickError, OSError):  # who reads the log says so
                reading = self.read(source)
                lines = {"changes": reading.changes, "transactions": reading.transactions}
                for line in lines.get(table, reading.records)():
                    found = getattr(line, column or "")
                    values = found if isinstance(found, list | tuple) else [found]
                    yield from (str(one) for one in values if one is not None)

    def meant_key(self, key: str | None) -> str | None:
        """Return the key of a coordinator's row, where one is meant that no row has as it is typed.

        Such a key is the id of a global transaction, which has many spellings.
        """
        if key is None or len(key) < _ID_MIN:
            return key
        try:
            return find_gtrid(key, self._xids()).hex()
        except TransactionUsageError:
            return key

    def _xids(self) -> Iterator[Xid]:
        for one in self._transactions():
            if one.gtrid is not None:
                yield Xid(one.format_id or 0, one.gtrid, one.bqual or b"")

    def _transactions(self) -> Iterator[Transaction]:
        for source in self.logs:
            with suppress(TallystickError, OSError):  # who reads the log says so
                yield from self.read(source).transactions()

    def selected(
        self, reading: LogReading, wanted: Filter, *, salvage: bool = False
    ) -> Iterator[Record]:
        """Return the records of a log that are asked for; parts without them are not read."""
        clock = self.clock_for(reading, wanted)
        self.tells_lsns(reading, wanted)
        if wanted == EVERYTHING:
            return reading.records(salvage=salvage)
        splits = None if salvage else wanted.splits_in(reading)
        if splits is not None and isinstance(reading, Ranged):
            every: Iterator[Record] = chain.from_iterable(map(reading.records_of, splits))
        elif salvage or not isinstance(reading, ChoosesRecords) or find_spec("pyarrow") is None:
            every = reading.records(salvage=salvage)
        else:
            from tallystick.reading.tables import chosen, condition_of

            every = chosen(reading, condition_of(wanted, "records", clock))
        return filter(wanted.of_records(clock), every)

    def clock_for(self, reading: LogReading, wanted: Filter) -> Clock:
        """Return the clock of a log; where it tells no times that are asked for, note that."""
        if wanted.timed and reading.clock not in TIME_OF_DAY:
            note = no_times(reading.source)
            self.problems.extend([] if note in self.problems else [note])
        return reading.clock

    def tells_lsns(self, reading: LogReading, wanted: Filter) -> bool:
        """Return whether records of a log have LSNs, if these are asked for; else note that."""
        if not wanted.numbered or self._numbers(reading):
            return True
        note = no_numbers(reading.source)
        self.problems.extend([] if note in self.problems else [note])
        return False

    def _numbers(self, reading: LogReading) -> bool:
        """Return False if the first whole records have no LSN: then none has."""
        if isinstance(reading, Ranged):
            return True
        whole = (one for one in reading.records() if one.outcome is Outcome.VALID)
        first = list(islice(whole, _TELLING))
        return not first or any(one.sequence is not None for one in first)

    def require_numbers(self, wanted: Filter) -> None:
        """Check that a log numbers its records, if LSNs are asked for.

        Raises:
            UnsupportedFormatError: no log here does.
        """
        if wanted.numbered and self._noted_of_all(NO_LSNS):
            raise UnsupportedFormatError(
                "no record here has an LSN", file=self.path, advice=UNNUMBERED_ADVICE
            )

    def require_times(self, wanted: Filter) -> None:
        """Check that a log holds times of day, if times are asked for.

        Raises:
            UnsupportedFormatError: no log here does.
        """
        if wanted.timed and self._noted_of_all(NO_TIMES):
            raise UnsupportedFormatError(
                "no log here holds times of day",
                file=self.path,
                advice="Leave out --since and --until",
            )

    def _noted_of_all(self, code: str) -> bool:
        """Return whether `clock_for` or `tells_lsns`, which note a log once, have noted each."""
        return 0 < len(self.logs) == sum(one.code == code for one in self.problems)

    def streamed(
        self,
        wanted: Filter,
        items: Callable[[LogReading], Iterable[T]],
        damaged: Callable[[T], Iterable[str]],
        size: Callable[[T], int],
        table: str = "records",
    ) -> Iterator[T]:
        """Yield what is asked for of each log, as `Observer.stream` does.

        Args:
            wanted: what was asked for.
            items: gives what fits of one log.
            damaged: returns the files that an item shows as damaged.
            size: returns about how many bytes of memory an item takes.
            table: the table that the items are of.

        Raises:
            TallystickError: nothing is, and what is asked for by name is in no log.
        """
        taken = False
        for log in self.observers():
            with self.guard(log.source):
                given = False
                for one in log.stream(items, damaged, size):
                    given = taken = True
                    yield one
                self.require_read(log.source, given=given)
        if not taken:
            self.require_named(wanted, table)
        self.require_numbers(wanted)

    def gatherer(self) -> Gatherer:
        """Return what gathers the global transactions of the logs, to judge them together."""
        return Gatherer(self.paths, self.logs)

    @contextmanager
    def guard(self, source: LogSource) -> Iterator[None]:
        """Turn an error inside the block, or bytes lost meanwhile, into one of ``problems``."""
        try:
            yield
            require_whole(source.files)
        except (TallystickError, OSError) as error:
            self.problems.append(error_finding(source, error))

    def require_read(self, source: LogSource, *, given: bool) -> None:
        """Check that a log of which nothing was ``given`` has anything to give.

        Raises:
            LogUnreadableError: it has, and nothing of it can be read.
        """
        if not given:
            require_some(self.read(source), self.known, self.options)

    def note_damage(self, reading: LogReading) -> None:
        """Note the damage of a log that was read: what it gave may not be all."""
        add_new(self.problems, damage_of(reading, self.known, self.options))


def survey(
    path: Paths,
    *,
    options: ReadOptions | None = None,
    known: Sequence[System] | None = None,
    progress: Progress | None = None,
) -> Survey:
    """Find the logs below ``path``, each once; of several paths, those below any of them.

    Args:
        path: a log, a folder or a tree of logs, a URL, or several of these. Of a URL of JDBC also
            the password of the files is taken, where ``options`` have none.
        options: what readers have to know, as a time zone or a key.
        known: the systems to look for; by default all.
        progress: called with each folder.

    Raises:
        LogUnreadableError: the path itself cannot be read. One of several is one of ``problems``.
        ValueError: there is no path, or URLs give several passwords.
    """
    given = [path] if isinstance(path, str | os.PathLike) else list(path)
    options = with_password([os.fspath(one) for one in given], options)
    named = dict[str, str]()
    for each in (path_of(os.fspath(one)) for one in given):
        named.setdefault(real(each), each)
    if not (paths := [*named.values()]):
        raise ValueError("there is no path: expected one at least")
    candidates = tuple(known) if known is not None else systems()
    parts, problems = dict[str, Discovery](), list[Finding]()
    searched = dict[str, Discovery]()
    for one in paths:
        try:
            parts[one] = discover(one, known=candidates, progress=progress, searched=searched)
        except LogUnreadableError as error:
            if len(paths) == 1:
                raise
            problems.append(unread_path(one, error))
    logs = [log for part in parts.values() for log in part.logs]
    if len(parts) > 1:  # of one path `discover` has each once
        logs = once(logs, aliased=True)
    found = dict.fromkeys(one for part in parts.values() for one in part.problems)
    problems += not_followed(found, paths)
    without = _without_log(parts, logs)
    problems += without.values()
    files = {file for log in logs for file in log.files}
    others = dict.fromkeys(one for part in parts.values() for one in part.others)
    shown = [one for one in filled(paths) if one not in without or not logs]
    shown += [one for one in without if is_coordinator(one) and one not in shown]
    return Survey(
        tuple(shown),
        logs,
        [one for one in others if one not in files],
        problems,
        options,
        {one.name: one for one in candidates},
    )


def _without_log(parts: Mapping[str, Discovery], logs: Sequence[LogSource]) -> dict[str, Finding]:
    """Return a finding for each path that holds no log; where others hold some, a note.

    What lies beside the files of a log is none of these: a shell's ``*`` names it, too.
    """
    folders = {log.path for log in logs}
    found = {}
    for path, part in parts.items():
        if not part.logs and parent(path) not in folders:
            unread = [one.file for one in part.problems if one.file is not None]
            finding = no_log(path, sorted({*part.others, *unread}))
            found[path] = replace(finding, severity=Severity.INFO) if logs else finding
    return found


_TELLING = 16
"""Records that are read to find out whether those of a log have LSNs."""
