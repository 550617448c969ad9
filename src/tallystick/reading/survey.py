"""Reading every log below a path: one way for library, command line and pipeline.

In: a path to a file, a folder or a tree, local or remote, or several. Out: records, Arrow batches,
a summary or both verdicts of every log found there. Nothing is written. What goes wrong with one
log becomes a finding of that log and never stops the others; what goes wrong with one of several
paths, too.
"""

from __future__ import annotations

import operator
import os
import re
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from tallystick.callables import checked
from tallystick.errors import (
    LogBeingWrittenError,
    LogUnreadableError,
    TallystickError,
    TransactionUsageError,
    UnsupportedFormatError,
)
from tallystick.printable import shell_quoted
from tallystick.reading.databases import Answered, whole_databases, with_other_logs
from tallystick.reading.discovery import (
    PATH_UNREAD,
    Discovery,
    discover,
    filled,
    not_followed,
    once,
    other_text,
    parent,
    path_of,
    real,
    with_password,
)
from tallystick.reading.estate import Gatherer, is_coordinator
from tallystick.reading.filters import COLUMNS, EVERYTHING, TIME_OF_DAY, Filter
from tallystick.reading.names import log_name, names_apart
from tallystick.reading.results import (
    Explanation,
    Inspection,
    Summary,
    Verification,
    is_severe,
    summary_of,
)
from tallystick.reading.settled import Observer, damage_of, require_some
from tallystick.reconcile.ids import find_gtrid
from tallystick.records import (
    Answer,
    Clock,
    Finding,
    Judgement,
    Outcome,
    Part,
    Record,
    Severity,
    Surroundings,
    Transaction,
    Verdict,
    Xid,
)
from tallystick.roles.page_store_files import BACKUP_MARK, BACKUP_TEXT, PAGES
from tallystick.storage.source import (
    archive_name,
    is_remote,
    logical_name,
    read_head,
    require_whole,
)
from tallystick.systems.findings import BEING_WRITTEN, NOT_SAFE
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

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_Error = TypeVar("_Error", bound=TallystickError)
Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Progress = Callable[[str], None]

NO_LOG = "no-log"
"""Code of the finding that a path holds no log at all."""
_NAMED_MAX = 6
_ID_MIN = 8
"""Characters from which on a key that no row has may begin the id of a global transaction."""
_LOOKED_AT = 64 << 10
"""Files that are no log: how many are named, and bytes of each that are looked at."""


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
            return wanted.known_among(self._xids()) if wanted.gtrid and self.logs else wanted
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
            note = _no_times(reading.source)
            self.problems.extend([] if note in self.problems else [note])
        return reading.clock

    def tells_lsns(self, reading: LogReading, wanted: Filter) -> bool:
        """Return whether records of a log have LSNs, if these are asked for; else note that."""
        if not wanted.numbered or self._numbers(reading):
            return True
        note = _no_numbers(reading.source)
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
        if wanted.numbered and self._noted_of_all(_NO_LSNS):
            raise UnsupportedFormatError(
                "no record here has an LSN", file=self.path, advice=_UNNUMBERED_ADVICE
            )

    def require_times(self, wanted: Filter) -> None:
        """Check that a log holds times of day, if times are asked for.

        Raises:
            UnsupportedFormatError: no log here does.
        """
        if wanted.timed and self._noted_of_all(_NO_TIMES):
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

    def tell_damage(self, reading: LogReading) -> None:
        """Note the damage of a log that was read: what it gave may not be all."""
        told = {(one.code, one.file, one.offset) for one in self.problems}
        for one in damage_of(reading, self.known, self.options):
            if (one.code, one.file, one.offset) not in told:
                self.problems.append(one)


def why_not_followed(source: LogSource, of: System) -> str:
    """Return why a log cannot be read on as it grows; empty where it can be."""
    if not source.followable:
        return (
            "each transaction is a file that is deleted at its end, and so comes and goes between "
            "two looks"
        )
    if not of.followable:
        return (
            "its pages are given back at each checkpoint and written over at once, so records come "
            "and go between two looks"
        )
    return ""


def survey(
    path: Paths,
    *,
    options: ReadOptions | None = None,
    known: Sequence[System] | None = None,
    progress: Progress | None = None,
) -> Survey:
    """Find the logs below ``path``, each once; of several paths, those below any of them.

    A path is also given as a URL of JDBC, whose password of the files is taken where ``options``
    have none, or a ``file:`` one. ``known`` are the systems to look for,
    by default all; ``progress`` gets each folder.

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
            problems.append(_unread_path(one, error))
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


def _unread_path(path: str, error: LogUnreadableError) -> Finding:
    return Finding(
        PATH_UNREAD, Severity.DAMAGE, "", path, error.message, file=error.file, advice=error.advice
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
            finding = _no_log(path, sorted({*part.others, *unread}))
            found[path] = replace(finding, severity=Severity.INFO) if logs else finding
    return found


def scan(
    path: Paths,
    wanted: Filter = EVERYTHING,
    *,
    salvage: bool = False,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> Iterator[Record]:
    """Yield every record of every log below ``path``, log after log; nothing is written.

    Whole records of the native log are `NumberedRecord`: number and body are always there.
    With ``salvage`` also what lies after damage, marked ``attributes["salvaged"]``; of all that
    only what is ``wanted``. What cannot be read is appended to ``problems``; without such a list
    the first problem is raised as `LogUnreadableError` once everything else was read.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    wanted = found.known_filter(wanted, "records")
    records = partial(found.selected, wanted=wanted, salvage=salvage)
    yield from found.streamed(wanted, records, damaged_file, record_size)
    deliver(found, problems)


def read_arrow(
    path: Paths,
    table: str = "records",
    *,
    columns: Sequence[str] = (),
    salvage: bool = False,
    wanted: Filter = EVERYTHING,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> pa.RecordBatchReader:
    """Return a `pyarrow.RecordBatchReader` of one table of every log below ``path``.

    ``table`` is a key of `tallystick.reading.tables.TABLES`, ``columns`` are those that are wanted,
    by default all. Records of the native log are decoded in whole buffers; those of other systems
    too, many times faster, if ``columns`` leaves out ``attributes``; with ``salvage`` one by one.
    ``wanted`` and ``problems`` as for `scan`; of changes ``problems`` gets damage that may hide
    others, too.

    Raises:
        ValueError: there is no such table or column.
        UnsupportedFormatError: the table has no column for something that is asked for.
        TransactionUsageError: no transaction has the number, or the id, that is asked for.
    """
    from tallystick.reading import tables

    schema = tables.selected(table, columns)
    found = survey(path, options=options).refuse_unknown_settings()
    wanted = found.known_filter(wanted, table)

    def of_log(reading: LogReading) -> Iterator[pa.RecordBatch]:
        clock = found.clock_for(reading, wanted)
        if salvage and table == "records":
            batches = tables.salvaged_batches(reading)
        else:
            splits = wanted.splits_in(reading, table)
            batches = chain.from_iterable(
                tables.batches_of(
                    reading,
                    table,
                    one,
                    attributes="attributes" in schema.names,
                    condition=tables.condition_of(wanted, table, clock),
                )
                for one in ([None] if splits is None else splits)
            )
            if table == "changes" and splits is None and problems is not None:
                batches = chain(batches, told(reading))
        if table == "records":
            found.tells_lsns(reading, wanted)
        return filter(None, (wanted.taken_of(batch, table, clock) for batch in batches))

    def told(reading: LogReading) -> Iterator[pa.RecordBatch]:
        found.tell_damage(reading)
        yield from ()

    def batches() -> Iterator[pa.RecordBatch]:
        if table != "findings":
            size = operator.attrgetter("nbytes")
            yield from found.streamed(wanted, of_log, tables.damaged_files, size, table)
        else:
            for log in found.observers():
                with found.guard(log.source):
                    batches = tables.finding_batches(log.observe(lambda _: None).findings)
                    yield from (wanted.taken_of(one, table, Clock.NONE) for one in batches)
        deliver(found, problems)

    return tables.reader_of(schema, batches())


def explain(
    path: Paths,
    *,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
    whole: bool = False,
) -> Explanation:
    """Return, per log below ``path``, what its engine would do and what the bytes prove.

    With ``whole`` the engine's part of each verdict is made while its log is watched for changes;
    else, where it lists every record, when it is first asked for.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    answer = Explanation(found.path, [], [], found.problems, found.others)

    def take(reading: LogReading) -> Verdict:
        verdict = reading.verdict()
        return replace(verdict, engine=dict(verdict.engine)) if whole else verdict

    gathered, names = found.gatherer(), list[str]()
    apart = names_apart(found.logs)
    for log in found.observers(progress):
        with found.guard(log.source):
            seen = log.observe(take)
            answer.findings.append(seen.findings)
            answer.logs.append(replace(seen.value, name=apart[log.source]))
            names.append(log_name(log.source))
            gathered.add(seen.reading, seen.findings, seen.value.judgement)
    answer.estate = gathered.judged(found.problems)
    if answer.estate is not None:
        answer.logs = [
            one.judged(answer.estate.logs.get(name, one.judgement))
            for name, one in zip(names, answer.logs, strict=True)
        ]
    answer.databases, answer.logs = whole_databases(answer.logs)
    return answer


def inspect(
    path: Paths, *, options: ReadOptions | None = None, progress: Progress | None = None
) -> Inspection:
    """Return a summary of every log below ``path``."""
    found = survey(path, options=options).refuse_unknown_settings()
    logs: list[Summary] = []
    gathered = found.gatherer()
    for log in found.observers(progress):
        with found.guard(log.source):
            seen = log.observe(partial(summary_of, title=log.system.title))
            seen.value.findings = seen.findings
            logs.append(seen.value)
            gathered.add(seen.reading, seen.findings)
    estate = gathered.judged(found.problems)
    return Inspection(found.path, logs, found.problems, found.others, estate)


def verify(
    path: Paths, *, options: ReadOptions | None = None, progress: Progress | None = None
) -> Verification:
    """Return the findings of every log below ``path``.

    A log that `explain` does not call fine has one at least, and so has what a restart opens
    besides the log and does not fit.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    gathered = found.gatherer()
    of_logs: list[tuple[Observer, list[Finding], Judgement, bool]] = []
    answered = list[Answered]()
    for log in found.observers(progress):
        with found.guard(log.source):
            seen = log.observe(lambda reading: reading.verdict())
            own, agree = seen.value.judgement, not seen.value.differences
            of_logs.append((log, seen.findings, own, agree))
            answered.append((log.source.path, seen.value.surroundings, own))
            gathered.add(seen.reading, seen.findings, own)
    parts: dict[Part, Observer] = {}
    for (log, *_), (_, around, answer) in zip(of_logs, with_other_logs(answered), strict=True):
        parts = dict.fromkeys(_deciding(around, answer), log) | parts
    estate = gathered.judged(found.problems)
    findings = list(estate.findings) if estate is not None else []
    texts = {one.why for one in parts}
    # Not before all logs were read: what they say together may change the answer about one.
    for log, of_log, own, agree in of_logs:
        judgement = own if estate is None else estate.logs.get(log_name(log.source), own)
        safe = judgement.answer is Answer.SAFE and agree
        told = judgement is not own and judgement.answer is Answer.LOSES  # by all logs together
        findings += of_log
        findings += [_not_fitting(log, one) for one, of in parts.items() if of is log]
        if not (safe or told) and not any(map(is_severe, of_log)) and judgement.text not in texts:
            findings.append(_not_safe(log, judgement))
    return Verification(found.path, len(found.logs), findings + found.problems, estate)


def error_finding(source: LogSource, error: TallystickError | OSError) -> Finding:
    """Return the finding for a log whose reading stopped with ``error``."""
    code = "unreadable" if isinstance(error, LogUnreadableError | OSError) else "not-read"
    written = isinstance(error, LogBeingWrittenError)
    known = error if isinstance(error, TallystickError) else TallystickError(str(error))
    return Finding(
        BEING_WRITTEN.code if written else code,
        Severity.WARNING if written else Severity.DAMAGE,
        source.system,
        log_name(source),
        f"reading stopped: {error}",
        file=known.file or next(iter(source.files), None),
        offset=known.offset,
        expected=known.expected,
        found=known.found,
        advice=known.advice,
    )


def _not_safe(log: Observer, judgement: Judgement) -> Finding:
    build = log.system.findings_of(log_name(log.source))
    differs = ", but its engine and its bytes differ" if judgement.answer is Answer.SAFE else ""
    text = f"{judgement.words}{differs}: {judgement.text}"
    files = log.source.files
    return build(NOT_SAFE.code, text, file=files[0] if len(files) == 1 else log.source.path)


def _deciding(around: Surroundings | None, answer: Judgement) -> list[Part]:
    """Return the parts beside a log from which a refusal, a loss or the answer follows."""
    if around is None:
        return []
    grave = (Answer.REFUSES, Answer.LOSES)
    return [
        one for one in around.parts
        if one.answer in grave
        or one == around.other_log
        or (one.answer is not Answer.SAFE and one.why == answer.text)
    ]  # fmt: skip


def _not_fitting(log: Observer, part: Part) -> Finding:
    """Return what is found about a part beside a log, with where it is, or would be."""
    advice = "Use it and the log from one copy; tallystick explain says what else is beside them"
    if part.answer is Answer.CANNOT_TELL:
        advice = f"It would be decided by {part.decided_by or part.path}"
    elif not part.there:
        advice = "Look for it where it was moved, or put it back from the copy of the log's moment"
    text = f"{Judgement(part.answer).words}: {part.why}"
    build = log.system.findings_of(log_name(log.source))
    return build(NOT_SAFE.code, text, file=part.path, advice=advice)


_NO_TIMES = "no-times"


def _no_times(source: LogSource) -> Finding:
    return Finding(
        _NO_TIMES, Severity.WARNING, source.system, log_name(source),
        "The log holds no times of day: nothing of it lies between two times.",
        advice="Leave out --since and --until, or ask for a transaction or a key",
    )  # fmt: skip


_NO_LSNS = "no-lsns"
_UNNUMBERED_ADVICE = "Leave out --from-lsn and --to-lsn, or ask for a transaction or a key"
_TELLING = 16
"""Records that are read to find out whether those of a log have LSNs."""


def _no_numbers(source: LogSource) -> Finding:
    return Finding(
        _NO_LSNS, Severity.INFO, source.system, log_name(source),
        "The records of the log have no LSNs: nothing of it lies between two of them.",
        advice=_UNNUMBERED_ADVICE,
    )  # fmt: skip


def damaged_file(record: Record) -> tuple[str, ...]:
    """Return the file of a record that is corrupt."""
    return (record.file,) if record.outcome is Outcome.CORRUPT else ()


def record_size(record: Record) -> int:
    """Return about how many bytes of memory a record takes."""
    return 1024 + len(record.body or b"")


def _no_log(path: str, others: list[str]) -> Finding:
    text = f"there is no log of any known system below {path}"
    advice = "Point at the folder that holds the log files, or at a tree above it"
    store = next((parent(one) for one in others if _is_backup_mark(one, others)), None)
    if store is not None:
        text = f"{store} is a backup of a page store: whole pages, and no log yet"
        advice = f"tallystick store check {shell_quoted(store)} begins its log and checks each page"
    return Finding(
        NO_LOG,
        Severity.WARNING,
        "",
        path,
        text,
        file=path,
        expected="files of a known log system",
        found=_others_text(others),
        advice=advice,
    )


def _is_backup_mark(path: str, others: Container[str]) -> bool:
    """Return whether a file marks the pages beside it as a finished backup of a page store."""
    folder, _, name = path.rpartition("/")
    if name != BACKUP_MARK or f"{folder}/{PAGES}" not in others:
        return False
    try:
        return read_head(path, len(BACKUP_TEXT)) == BACKUP_TEXT
    except LogUnreadableError:
        return False


def _others_text(others: list[str]) -> str:
    """Return how many files there are that are no log, and what the first of them hold."""
    if not others:
        return "no file"
    named = ", ".join(f"{logical_name(one)} ({_content_text(one)})" for one in others[:_NAMED_MAX])
    more = f" and {len(others) - _NAMED_MAX} more" if len(others) > _NAMED_MAX else ""
    return f"{len(others)} other file{'s' if len(others) != 1 else ''}: {named}{more}"


def _content_text(path: str) -> str:
    """Return what a file holds that is no log, as far as its beginning tells."""
    try:
        head = read_head(path, _LOOKED_AT)
    except LogUnreadableError as error:
        return error.message
    if not head:
        return "empty"
    if kind := archive_name(head):
        return f"{kind}: unpack it first"
    if any(head):
        return other_text(path, head) or "content of no known log"
    return "only zeros" if len(head) < _LOOKED_AT else f"zeros in its first {_LOOKED_AT} bytes"


class _Found(Protocol):
    problems: list[Finding]


def deliver(found: _Found, problems: list[Finding] | None) -> None:
    """Append what could not be read to ``problems``; without such a list raise the first one."""
    unread = [one for one in found.problems if one.severity is not Severity.INFO]
    if problems is not None:
        problems.extend(found.problems)
    elif unread:
        first = unread[0]
        raise LogUnreadableError(
            first.message,
            file=first.file,
            offset=first.offset,
            expected=first.expected,
            found=first.found,
            advice=first.advice,
        )
