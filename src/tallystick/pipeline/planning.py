"""Which task reads what: small logs together, large files in parts.

In: `SourceOptions`. Out: tasks of about ``split_bytes`` of stored bytes each, and the findings of
looking for logs. Only directories, heads and sizes are read, and of small logs a few blocks that
tell how much is filled; the splits of a large file come from its reader, which finds them without
reading the file through. And what a batch does where files went since, or where it is to fail over
records that a log lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path

from tallystick.arrow.texts import whole_text
from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.pipeline.fingerprint import forget_listings, gone_of
from tallystick.pipeline.options import OptionError, SourceOptions, matching
from tallystick.printable import first_of
from tallystick.reading.coordinators import Coordinator, coordinators_of
from tallystick.reading.discovery import not_followed, once, parent
from tallystick.reading.names import log_name, row_name
from tallystick.reading.results import is_severe
from tallystick.reading.settled import settled_findings
from tallystick.reading.survey import survey
from tallystick.reading.tables import batches_of, selected
from tallystick.records import Finding, Outcome, Severity
from tallystick.storage.source import PACKINGS, is_remote, read_part
from tallystick.systems.protocol import (
    END,
    AttributeBatches,
    ClosesBySplit,
    JudgedBySplit,
    LogReading,
    LogSource,
    Ordered,
    Reached,
    Separable,
    Split,
)
from tallystick.systems.registry import system, systems

LOGS_MAX = 32
"""The most logs in one task: each costs an opening, and packed ones are larger unpacked."""

_LOOKED_AT_MIN, _BLOCK = 1 << 18, 1 << 12
"""Bytes of a file of which it matters how many are filled, and those that are looked at."""

NAMES_MAX = 10
"""Names of other files that one finding lists."""

LOSING = ("records", "transactions", "changes", "global_transactions")
"""The tables that lack rows where a log lost records; the others describe what is there."""

CLOSED, JUDGED = ("transactions", "changes"), ("files", "findings", "logs")
"""Tables that splits of a log may give together: one by one in most part, or by what they tell."""

_ADVICE = "Run triage and explain over the log; mode=permissive gives what is there"


class RecordsLostError(LogUnreadableError):
    """Records that are to be handed on are gone, or damaged."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A log, or one split of it, with its size in stored bytes.

    ``closes`` are the tables besides the records that all splits of the log can give together;
    ``first`` is True of one split of a log, or the whole.
    """

    source: LogSource
    split: Split | None = None
    size: int = 0
    closes: tuple[str, ...] = ()
    first: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """What one Spark task reads: pieces, or findings that the search for logs made.

    ``coordinators`` are those of the pieces, where all are judged together.
    """

    pieces: tuple[Piece, ...] = ()
    problems: tuple[Finding, ...] = ()
    coordinators: tuple[Coordinator, ...] = ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """Logs whose rows stay together; ``parts`` read the records of one too large for a task."""

    whole: Task
    parts: tuple[Task, ...] = ()

    @property
    def closes(self) -> tuple[str, ...]:
        """The tables besides the records that the parts give together: splits of one log do."""
        if len(self.parts) < 2 or len(self.whole.pieces) > 1:
            return ()
        return self.parts[0].pieces[0].closes


@dataclass(slots=True)
class Plan:
    """The logs below some paths, each once, and the findings about other files."""

    logs: list[LogSource] = field(default_factory=list)
    problems: list[Finding] = field(default_factory=list)
    paths: Sequence[str] = ()
    """The paths that were searched, none of them a pattern."""

    def coordinators(self) -> tuple[Coordinator, ...]:
        """Return what the directories of coordinators tell whose decision logs are here."""
        here = {log_name(log) for log in self.logs}
        found = coordinators_of(self.paths, self.logs)
        return tuple(replace(one, log=whole_text(one.log)) for one in found if one.log in here)

    def require_readable(self) -> None:
        """Raise `LogUnreadableError` if a file or folder below the paths could not be read."""
        for problem in self.problems:
            if problem.severity is Severity.DAMAGE:
                raise LogUnreadableError(problem.message, file=problem.file, advice=problem.advice)


def find(paths: Sequence[str], *, waits: bool = False) -> Plan:
    """Return every log below the paths once, even where paths overlap.

    A pattern stands for what it matches now: a stream finds what is made later.

    Raises `LogUnreadableError` if a path itself cannot be read, or nothing matches any path, which
    a stream that ``waits`` has not begun with.
    """
    each = [*chain.from_iterable(map(matching, paths))] or ([] if waits else [*paths])
    plan = Plan(paths=each)
    for path in each:
        found = survey(path)
        plan.logs += found.logs
        plan.problems += found.problems
        plan.problems += _stranger_findings(found.others, found.logs)
    plan.logs = once(plan.logs, aliased=len(each) > 1)
    plan.problems = not_followed(plan.problems, each)
    return plan


def tasks(options: SourceOptions, plan: Plan | None = None) -> list[Task]:
    """Return the work of one table. Records are split; the other tables close over a whole log.

    Raises:
        RecordsLostError: the version to begin with was given up, and that is not to be skipped.
        TallystickError: what is asked for does not fit, or fails as ``mode`` says.
    """
    plan = plan or find(options.paths)
    require_one_log(plan.logs, options)
    if options.mode == "failfast":
        plan.require_readable()
    for log in plan.logs if options.fail_on_data_loss else ():
        try:
            require_start(log, options)
        except RecordsLostError:
            raise
        except (TallystickError, OSError):
            pass  # the task will meet the error and report it
    whole = options.table != "records" or options.salvage
    pieces = [piece for log in plan.logs for piece in _pieces(log, options, whole=whole)]
    if options.table == "global_transactions":
        return [Task(tuple(pieces), (), plan.coordinators())]  # all logs are judged together
    planned = list(_packed(((piece,) for piece in pieces), options.split_bytes))
    if options.table == "findings" and options.search and plan.problems:
        planned.append(Task(problems=tuple(plan.problems)))
    return planned


def require_one_log(logs: Sequence[LogSource], options: SourceOptions) -> None:
    """Check that bounds by version are asked of one log only. Raises `OptionError`."""
    if options.bounds.of_versions and len(logs) > 1:
        raise OptionError(
            "startingVersion and endingVersion are numbers of one log",
            expected="a path with one log",
            found=f"{len(logs)} logs",
            advice="Load the logs one by one, or use startingTimestamp and endingTimestamp",
        )


def bundles(logs: Iterable[LogSource], options: SourceOptions) -> Iterator[Bundle]:
    """Yield the logs in bundles of about ``split_bytes``; those of one name stay together."""
    named: dict[str, list[Piece]] = {}
    for log in logs:
        named.setdefault(row_name(log), []).extend(_pieces(log, options, whole=True))
    for whole in _packed(map(tuple, named.values()), options.split_bytes):
        parts: list[Task] = []
        if sum(piece.size for piece in whole.pieces) > options.split_bytes and not options.salvage:
            split = (_pieces(piece.source, options, whole=False) for piece in whole.pieces)
            units = ((piece,) for pieces in split for piece in pieces)
            parts = list(_packed(units, options.split_bytes))
        yield Bundle(whole, tuple(parts))


def stored_size(path: str) -> int:
    """Return bytes of a file as stored; 0 where that cannot be known now."""
    if is_remote(path):
        import fsspec

        filesystem, key = fsspec.core.url_to_fs(path)
        return int(filesystem.size(key) or 0)
    try:
        return Path(path.removeprefix("file://")).stat().st_size
    except OSError:
        return 0  # reading it will say why


def _filled_size(path: str) -> int:
    """Return about how many bytes of a file are filled, at most twice as many as there are.

    Files are made ahead with zeros, and filled from their start.
    """
    size = stored_size(path)
    if is_remote(path) or path.endswith(PACKINGS):
        return size
    try:
        while size > _LOOKED_AT_MIN:
            block = read_part(path, size // 2, _BLOCK)
            if block != bytes(len(block)):
                break
            size //= 2
    except (TallystickError, OSError):
        pass  # reading it will say why
    return size


def _pieces(log: LogSource, options: SourceOptions, *, whole: bool) -> list[Piece]:
    size = sum(map(stored_size, log.files))
    if size <= options.split_bytes:
        return [Piece(log, None, sum(map(_filled_size, log.files)))]
    if whole:
        return [Piece(log, None, size)]
    try:
        reading = system(log.system).read(log, options.reading)
        if "attributes" in options.columns and not isinstance(reading, AttributeBatches):
            return [Piece(log, None, size)]  # every part would decode all records of the log
        splits = reading.splits(options.split_bytes)
    except (TallystickError, OSError):
        return [Piece(log, None, size)]  # the task will meet the error and report it
    closes: tuple[str, ...] = CLOSED if isinstance(reading, ClosesBySplit) else ()
    if isinstance(reading, JudgedBySplit):
        closes += JUDGED
    return [
        Piece(_with_needed_files(log, reading, split), split, _size(split), closes, not number)
        for number, split in enumerate(splits)
    ]


def _with_needed_files(log: LogSource, reading: LogReading, split: Split) -> LogSource:
    """Return the log with the files that the split needs: a task opens each file it carries."""
    if not isinstance(reading, Separable):
        return log
    return replace(log, files=tuple(reading.needed(split)))


def _size(split: Split) -> int:
    """Return bytes of a split. Of a file that is still written one may reach beyond its end."""
    end = stored_size(split.file)
    return (min(split.end, end) if end > split.begin else split.end) - split.begin


def _packed(units: Iterable[tuple[Piece, ...]], limit: int) -> Iterator[Task]:
    """Units in order, as many to a task as stay below ``limit``, at least one."""
    bundle: list[Piece] = []
    size = 0
    for unit in units:
        more = sum(piece.size for piece in unit)
        if bundle and (size + more > limit or len(bundle) >= LOGS_MAX):
            yield Task(tuple(_sharing_files(bundle)))
            bundle, size = [], 0
        bundle += unit
        size += more
    if bundle:
        yield Task(tuple(_sharing_files(bundle)))


def _sharing_files(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield pieces so that neighbouring splits of one log share their files: it is opened once."""
    for _, some in groupby(pieces, key=lambda one: replace(one.source, files=())):
        group = list(some)
        if any(one.split is None for one in group):
            yield from group
            continue
        files = dict.fromkeys(file for one in group for file in one.source.files)
        shared = replace(group[0].source, files=tuple(files))
        yield from (replace(one, source=shared) for one in group)


def _stranger_findings(files: Iterable[str], logs: Iterable[LogSource]) -> Iterator[Finding]:
    companions: dict[str, frozenset[str]] = {}
    for log in logs:
        if names := system(log.system).companions:
            path = log.path.rstrip("/")
            companions |= {path: names, parent(path): names}
    folders: dict[str, list[str]] = {}
    for file in files:
        folder, name = parent(file), file.rpartition("/")[2]
        if not companions.get(folder, frozenset()) & {name, name.partition(".")[0]}:
            folders.setdefault(folder, []).append(name)
    for folder, strangers in folders.items():
        yield Finding(
            "not-a-log",
            Severity.INFO,
            "",
            folder,
            f"no log of any known system: {first_of(strangers, NAMES_MAX)}",
            file=f"{folder}/{strangers[0]}",
        )


# -- what changed or was lost ---------------------------------------------------------------


def require_no_hole(source: LogSource, options: SourceOptions) -> None:
    """Check that no file is missing between those of a log, as far as its own numbers tell.

    Only heads of files are read. H2's log has no files that could go.

    Raises:
        RecordsLostError: one is missing.
        TallystickError, OSError: a file cannot be read.
    """
    reading = system(source.system).read(source, options.reading)
    if not isinstance(reading, Ordered):
        return
    files, before = in_order(reading, source.files), None
    for number, path in files:
        missing = reading.missing(path, before)
        if missing is not None and not missing.usual:
            raise RecordsLostError(
                "records are missing", file=source.path, expected=missing.expected,
                found=missing.found, advice=_ADVICE,
            )  # fmt: skip
        before = Reached(number, None, since=files[-1][0])


_BOUND = {False: "startingVersion", True: "endingVersion"}


def require_start(source: LogSource, options: SourceOptions) -> None:
    """Check that a log still has the version with which a reading begins.

    Nothing tells that of H2's log, nor what an Artemis journal gave up by itself.

    Raises:
        RecordsLostError: the log has given it up.
        TallystickError, OSError: a file cannot be read.
    """
    bounds = options.bounds
    # Without a start a reading begins with what is there; an end before that leaves nothing of it.
    wanted = bounds.last_version if bounds.first_version is None else bounds.first_version
    if wanted is None:
        return
    reading = system(source.system).read(source, options.reading)
    if not isinstance(reading, Ordered):
        return
    files = in_order(reading, source.files)
    missing = reading.missing(files[0][1], Reached(0, None)) if files else None
    if missing is None or missing.usual:
        return
    first = _first_version(reading, [path for _, path in files], options)
    if first is not None and wanted < first:
        raise RecordsLostError(
            "records were given up before they were read",
            file=source.path,
            expected=f"version {wanted}, of {_BOUND[bounds.first_version is None]}",
            found=f"version {first} as the first",
            advice="Begin there, or from a full reading; failOnDataLoss=false gives what is left",
        )


def _first_version(reading: LogReading, files: Iterable[str], options: SourceOptions) -> int | None:
    """Return the least version that a log has; None where it has none."""
    if options.table == "changes" and not system(reading.source.system).commits_by_lsn:
        return next((one.commit_sequence for one in reading.changes()), None)
    wanted = selected("records", ("outcome", "sequence"))
    for path in files:
        rows = [
            row
            for batch in batches_of(reading, "records", Split(path, 0, END), schema=wanted)
            for row in batch.to_pylist()
        ]
        numbers = [row["sequence"] for row in rows if row["outcome"] == Outcome.VALID.value]
        told: list[int] = [one for one in numbers if one is not None]
        if told:
            return min(told)
    return None


def in_order(reading: Ordered, files: Iterable[str]) -> list[tuple[int, str]]:
    """Return numbers and paths of the files of a log that may hold records, in its order."""
    numbered = ((reading.number(path), path) for path in files)
    return sorted((number, path) for number, path in numbered if number is not None)


def require_undamaged(source: LogSource, options: SourceOptions) -> None:
    """Check that a log has no finding of damage or loss that stands.

    Raises:
        RecordsLostError: it has one.
        TallystickError, OSError: it cannot be read.
    """
    whole = _found(source, options) or source  # a split has some of the files
    require_no_loss(system(source.system).read(whole, options.reading), options)


def require_no_loss(reading: LogReading, options: SourceOptions) -> None:
    """Check what `require_undamaged` does, of a log that is open.

    Raises:
        RecordsLostError: it has such a finding.
        TallystickError, OSError: it cannot be read.
    """
    known = {one.name: one for one in systems()}
    for one in settled_findings(reading, known, options.reading):
        if is_severe(one):
            raise RecordsLostError(
                one.message, file=one.file or reading.source.path, offset=one.offset,
                expected=one.expected, found=one.found, advice=_ADVICE,
            )  # fmt: skip


def current(piece: Piece, options: SourceOptions) -> Piece:
    """Return a piece with the files that its log has now.

    Raises:
        LogUnreadableError: what it was to read is gone.
        TallystickError, OSError: a file cannot be read.
    """
    if not (away := went(piece.source, options)):
        return piece
    if piece.split is None and (there := _found(piece.source, options)) is not None:
        require_no_hole(there, options)
        return replace(piece, source=there)
    if piece.split is None or piece.split.file in away:
        raise LogUnreadableError(
            "the file is gone since this read was planned",
            file=away[0] if piece.split is None else piece.split.file,
            advice="Read again; a log whose files come and go is read whole by a larger splitBytes",
        )
    left = tuple(path for path in piece.source.files if path not in away)
    return replace(piece, source=replace(piece.source, files=left))


def went(source: LogSource, options: SourceOptions) -> list[str]:
    """Return the files of a log that are gone since it was found."""
    away = gone_of(source.files)
    for path in away:
        forget_listings(path)
    there = _found(source, options) if away else None
    listed = () if there is None else there.files  # a link to nothing is listed for ever
    return [path for path in away if path not in listed]


def _found(source: LogSource, options: SourceOptions) -> LogSource | None:
    """Return a log with all files that it has now; None where it is not found."""
    try:
        logs = find(options.paths).logs
    except LogUnreadableError:  # the path itself is gone
        return None
    name = source.system, log_name(source)
    return next((one for one in logs if (one.system, log_name(one)) == name), None)
