"""Readings of logs that are written meanwhile: what was seen under change is no damage yet.

In: a log, and what to take from a reading of it. Out: what was taken, with the findings that stand.
A severe finding, and an answer other than safe, stands if no file of the log changed while it was
read. Otherwise the log is read again, a few times and later each time. What was seen every time in
a file that never changed stands as well; of the rest only that the log is being written can be
told (`BEING_WRITTEN`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from tallystick.errors import (
    FileShrankError,
    LogBeingWrittenError,
    LogUnreadableError,
)
from tallystick.printable import counted, shell_quoted
from tallystick.reading.discovery import search
from tallystick.reading.names import log_name
from tallystick.reading.results import is_severe
from tallystick.records import Answer, Difference, Finding, Judgement, Verdict
from tallystick.storage.source import is_remote, packing_damage, require_whole
from tallystick.systems.answers import NO_REASONS, being_written, judgement_of
from tallystick.systems.findings import BEING_WRITTEN, PACKED, UNREADABLE
from tallystick.systems.protocol import LogReading, LogSource, ReadOptions, System

PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Time before each further reading of a log that changed while it was read."""
LEAST_READINGS = 3
READINGS_S = 20.0
"""A log is read at least so often; after that time (seconds) not again."""
TICK_NS = 20_000_000
"""Two changes of a file within this time may leave the same time stamp."""
RECENT_NS = 60_000_000_000
"""A log that was written within this time is taken for one that is being written."""
HELD_MAX = 4 << 20
"""Bytes of records of such a log that are held back until its end shows whether they stand."""

Status = tuple[int, int, int] | None
"""Inode, size in bytes and time of the last change in ns; None for a file that is not there."""
Suspect = Finding | Difference
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Picture:
    """The files of a log at one moment; ``taken_ns`` is that moment, in ns since 1970."""

    source: LogSource
    states: Mapping[str, Status]
    taken_ns: int

    def stands(self, path: str) -> bool:
        """Return True if the file has not changed since."""
        state = self.states.get(path)
        in_doubt = state is not None and 0 <= self.taken_ns - state[2] < TICK_NS
        return not in_doubt and state == status(path)

    @property
    def recent(self) -> bool:
        """True if a file was written shortly before."""
        return any(one and self.taken_ns - one[2] < RECENT_NS for one in self.states.values())


def status(path: str) -> Status:
    """Return the state of a file; of a remote one nothing is known, so it never changes."""
    try:
        state = os.stat(path.removeprefix("file://"))  # noqa: PTH116 - a path may be a URL
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def picture(source: LogSource) -> Picture:
    """Return the state of the log's files as they are now."""
    # Before the files are looked at: what is written from now on is not older than the picture.
    taken_ns = time.time_ns()
    return Picture(source, {path: status(path) for path in source.files}, taken_ns)


@dataclass(frozen=True, slots=True)
class Observed(Generic[T]):
    """What was taken from a reading, and the findings that stand.

    ``settled`` is False where the log changed too fast: then `BEING_WRITTEN` is among the findings.
    """

    reading: LogReading
    value: T
    findings: list[Finding]
    settled: bool


@dataclass(frozen=True, slots=True)
class Observer:
    """Reads one log, again where it changed while it was read.

    Attributes:
        source: the log as it was found.
        known: the systems, by name, among which it was found.
        options: the options of its reader.
    """

    source: LogSource
    known: Mapping[str, System]
    options: ReadOptions = field(default_factory=ReadOptions)

    @property
    def system(self) -> System:
        """The system of the log."""
        return self.known[self.source.system]

    def observe(self, take: Callable[[LogReading], T]) -> Observed[T]:
        """Return what ``take`` returns of a reading, and its findings.

        Raises:
            FileShrankError: a file became shorter while it was read.
            LogBeingWrittenError: the log could not be read to its end, as it changed all the time.
            TallystickError: the log, which does not change, cannot be read.
        """
        seen: list[list[Suspect]] = []
        first: Picture | None = None
        observed: Observed[T] | None = None
        cause: Exception | None = None
        for before in self._pictures():
            # What stands must have stood since the first reading.
            first = first or before
            try:
                reading = self.system.read(before.source, self.options)
                findings = _findings(reading, self.system)
                value = _judged_whole(take(reading), findings)
                # After the last look at the bytes: those that a file lost meanwhile were read as
                # zeros.
                require_whole(before.source.files)
            except FileShrankError:
                raise
            except Exception as error:  # of a file read twice, changed meanwhile, any may come
                if not self._changed(before):
                    raise
                cause = error
                continue
            suspects = _suspects(value, findings)
            if not (suspects or _is_unsafe(value)) or not self._changed(before):
                return Observed(reading, value, findings, settled=True)
            seen.append(suspects)
            observed = Observed(reading, value, findings, settled=False)
        if observed is None or first is None:
            raise self._being_written(cause)
        return self._tempered(observed, _standing(seen, first))

    def stream(
        self,
        items: Callable[[LogReading], Iterable[T]],
        damaged: Callable[[T], Iterable[str]],
        size: Callable[[T], int],
    ) -> Iterator[T]:
        """Yield the items of a reading; ``damaged`` returns the files in which one is corrupt.

        Of a log that was written shortly before, `HELD_MAX` bytes are held back until the end of
        the log, or of these bytes, so that they can be read again. ``size`` returns the bytes of
        an item.

        Raises:
            FileShrankError: a file became shorter while it was read.
            LogBeingWrittenError: the log changes, and items after the yielded ones do not stand.
            TallystickError: the log, which does not change, cannot be read.
        """
        cause: Exception | None = None
        held: list[T] = []
        for before in self._pictures():
            held = []
            total, holding = 0, before.recent
            try:
                for item in items(self.system.read(before.source, self.options)):
                    # Damage in a file that has changed since may be a record that was half written.
                    if not all(map(before.stands, damaged(item))):
                        raise self._being_written(None)
                    if holding:
                        held.append(item)
                        total += size(item)
                        holding = total < HELD_MAX
                    if not holding:
                        yield from held or (item,)
                        held = []
                require_whole(before.source.files)
            except FileShrankError:
                yield from held
                raise
            except Exception as error:
                if not self._changed(before):
                    yield from held
                    raise
                if not holding:
                    # Items were given already, and cannot be taken back for another reading.
                    raise self._being_written(error) from error
                cause = error
            else:
                yield from held
                return
        yield from held
        raise self._being_written(cause)

    def _pictures(self) -> Iterator[Picture]:
        """Yield the state of the log before each of its readings."""
        yield picture(self.source)
        start = time.monotonic()
        for number, pause in enumerate(PAUSES_S, 1):
            if number >= LEAST_READINGS and time.monotonic() - start > READINGS_S:
                return
            time.sleep(pause)
            yield picture(self._latest())

    def _changed(self, before: Picture) -> bool:
        same_files = self._latest().files == before.source.files
        return not (same_files and all(map(before.stands, before.states)))

    def _latest(self) -> LogSource:
        """Return the log with the files that it has now; as it was found where it is gone."""
        if is_remote(self.source.path):
            return self.source
        for one in search(self.source.path, tuple(self.known.values())).logs:
            if (one.system, one.name) == (self.source.system, self.source.name):
                return replace(one, database=self.source.database)
        return self.source

    def _being_written(self, cause: Exception | None) -> LogBeingWrittenError:
        error = LogBeingWrittenError(
            "the log is being written, and changed while it was read",
            file=getattr(cause, "file", None) or next(iter(self.source.files), None),
            found=str(cause) if cause else None,
            advice=BEING_WRITTEN.advice,
        )
        error.__cause__ = cause
        return error

    def _tempered(self, seen: Observed[T], standing: Sequence[Suspect]) -> Observed[T]:
        findings = [one for one in seen.findings if not is_severe(one) or one in standing]
        left = len(seen.findings) - len(findings)
        findings.append(
            self.system.findings_of(log_name(self.source))(
                BEING_WRITTEN.code,
                "the log is being written: it changed while it was read, and what looked damaged "
                "may only have been half written",
                found=f"{counted(left, 'finding')} that may not stand",
            )
        )
        value: Any = seen.value
        if isinstance(value, Verdict):
            value = _tempered_verdict(value, standing, findings)
        return replace(seen, value=value, findings=findings)


def settled_findings(
    reading: LogReading, known: Mapping[str, System], options: ReadOptions
) -> list[Finding]:
    """Return the findings of a reading.

    If one is severe and a file was written just now, the log is read again, and only what is found
    again is returned.
    """
    findings = _findings(reading, known[reading.source.system])
    if any(map(is_severe, findings)) and picture(reading.source).recent:
        return Observer(reading.source, known, options).observe(lambda _: None).findings
    return findings


def settled_judgement(
    reading: LogReading, known: Mapping[str, System], options: ReadOptions
) -> Judgement:
    """Return the answer about a log; any but safe is asked again if a file was just written."""
    one = reading.judgement
    if one.answer is not Answer.SAFE and picture(reading.source).recent:
        observer = Observer(reading.source, known, options)
        return observer.observe(lambda again: again.verdict()).value.judgement
    return one


def require_some(reading: LogReading, known: Mapping[str, System], options: ReadOptions) -> None:
    """Check that a log gives a record, or never held one.

    The log is judged only if it gives none.

    Raises:
        LogUnreadableError: it held records, as far as its findings tell; or its files are empty,
            and nothing tells that they always were.
    """
    if next(iter(reading.records()), None) is not None:
        return
    path = next(iter(reading.source.files), reading.source.path)
    why, file, offset = None, path, None
    severe = next(filter(is_severe, settled_findings(reading, known, options)), None)
    if severe is not None:
        why, file, offset = severe.message, severe.file or path, severe.offset
    elif not any(one.size for one in reading.files()):
        judged = settled_judgement(reading, known, options)
        why = None if judged.answer is Answer.SAFE else judged.text
    if why is not None:
        raise LogUnreadableError(
            f"nothing of the log can be read: {why.rstrip('.')}", file=file, offset=offset,
            advice=f"Type tallystick explain {shell_quoted(reading.source.path)}",
        )  # fmt: skip


def damage_of(
    reading: LogReading, known: Mapping[str, System], options: ReadOptions
) -> list[Finding]:
    """Return the findings after which what a log gave may not be all, one of each code.

    Reading rows has mostly judged their log, so that a healthy one costs little more.
    """
    codes = known[reading.source.system].code_table
    first = dict[str, Finding]()
    for one in settled_findings(reading, known, options):
        code = codes[one.code]
        if is_severe(one) and not (code.whole or code.all_read):
            first.setdefault(one.code, one)
    return [*first.values()]


def add_new(problems: list[Finding], found: Iterable[Finding]) -> None:
    """Add findings but those that are there of the same place: a log is read several times."""

    def place(one: Finding) -> tuple[str, str, str | None, int | None]:
        return one.code, one.log, one.file, one.offset

    known = {place(one) for one in problems}
    problems += [one for one in found if place(one) not in known]


def _findings(reading: LogReading, system: System) -> list[Finding]:
    """Return the findings of the reading, and one for each packed file that is not whole."""
    source, found = reading.source, list(reading.findings())
    build = system.findings_of(log_name(source))
    for path in source.files:
        if not any(one.file == path and one.code == UNREADABLE.code for one in found):
            try:
                damage = packing_damage(path)
            except LogUnreadableError as error:
                found.append(build.unreadable(error))
                continue
            if damage:
                found.append(build(PACKED.code, damage, file=path))
    return found


def _judged_whole(value: Any, findings: Iterable[Finding]) -> Any:
    """Return a verdict that claims nothing of what could not be unpacked; other values as is."""
    packed = [one for one in findings if one.code == PACKED.code]
    if not packed or not isinstance(value, Verdict):
        return value
    return replace(value, judgement=judgement_of(NO_REASONS, {}, (), packed))


def _suspects(value: object, findings: Iterable[Finding]) -> list[Suspect]:
    differences = value.differences if isinstance(value, Verdict) else ()
    return [*filter(is_severe, findings), *differences]


def _is_unsafe(value: object) -> bool:
    """Return True for a verdict that does not call the log safe, whether or not by a finding."""
    return isinstance(value, Verdict) and value.judgement.answer is not Answer.SAFE


def _standing(seen: Sequence[list[Suspect]], first: Picture) -> list[Suspect]:
    """Return what every reading saw in a file that never changed."""
    return [
        one
        for one in seen[-1]
        if one.file is not None
        and len(seen) >= LEAST_READINGS
        and all(one in others for others in seen)
        and first.stands(one.file)
    ]


def _tempered_verdict(
    verdict: Verdict, standing: Sequence[Suspect], findings: Sequence[Finding]
) -> Verdict:
    """Return the verdict without what does not stand, marked ``being_written``."""
    lost = verdict.strict.get("lost")
    stands = any(map(is_severe, findings))
    strict = verdict.strict | {"being_written": True, "lost": lost if stands else _none_of(lost)}
    differences = tuple(one for one in verdict.differences if one in standing)
    judgement = verdict.judgement if stands else being_written()
    return replace(verdict, strict=strict, differences=differences, judgement=judgement)


def _none_of(lost: object) -> object:
    """Return an entry of the same form that says that nothing is lost."""
    if isinstance(lost, dict):
        return {name: _none_of(value) for name, value in lost.items()}
    return 0 if isinstance(lost, int) else []
