"""Every log below a path by its answer, the gravest first, with the next command to type.

In: a path. Out: a `Triage` of one light row per log. Nothing is written; verdicts are not kept, so
memory does not grow with the content of the logs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.printable import printable, shell_quoted, shell_words
from tallystick.reading.databases import SCHEMA, Database, databases
from tallystick.reading.estate import EstateAnswer, Gatherer
from tallystick.reading.names import log_name, path_alone, places_apart
from tallystick.reading.results import (
    counts,
    estate_dict,
    exit_code_of,
    is_calm,
    is_severe,
    lines_of,
)
from tallystick.reading.settled import Observer
from tallystick.reading.survey import Paths, Progress, Survey, survey
from tallystick.records import Answer, Finding, Judgement, State, Surroundings
from tallystick.storage.source import is_remote
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.surroundings import ALONE

GRAVEST_FIRST = (Answer.LOSES, Answer.REFUSES, Answer.CANNOT_TELL, Answer.SAFE)
"""A restart makes the first of them worse; the others keep what is there."""
_IN_DOUBT = (State.PREPARED, State.COMMITTING, State.UNDECIDED)
_ENCRYPTED = "encrypted"


@dataclass(frozen=True, slots=True)
class TriagedLog:
    """One log in one row.

    Attributes:
        database: the database or broker that it belongs to, or it alone.
        path: its folder, or its file where the folder holds several logs.
        system: the name of its system.
        judgement: the answer and its reason.
        in_doubt: number of transactions that wait for a decision, or for its end.
        verdicts_agree: what its own engine would do is what its bytes prove.
        fine: it is safe and whole, and its verdicts agree: as `explain` exits with 0.
        command: what to type next, quoted for a POSIX shell.
        alone: nothing of its database or broker was found beside it, and would be looked for.
    """

    database: Database
    path: str
    system: str
    judgement: Judgement
    in_doubt: int
    verdicts_agree: bool
    fine: bool
    command: str
    alone: bool = False

    def __str__(self) -> str:
        return f"{printable(f'{self.path} ({self.system})')}: {self.judgement} Next: {self.command}"

    def to_dict(self) -> dict[str, Any]:
        """Return one entry of ``tallystick triage --json``."""
        return {
            "path": self.path,
            "system": self.system,
            **self.judgement.to_dict(),
            "in_doubt": self.in_doubt,
            "verdicts_agree": self.verdicts_agree,
            "next": self.command,
        }


@dataclass(slots=True)
class Triage:
    """All logs below a path, gravest first, and what could not be judged."""

    path: str
    logs: list[TriagedLog] = field(default_factory=list)
    problems: list[Finding] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    estate: EstateAnswer | None = None
    """What the logs say together; None where there is one, or none of global transactions."""
    databases: list[Database] = field(default_factory=list)
    """What the logs belong to: of ``logs``, the answer is that of the database."""
    command: str = ""
    """What to type to see every log."""

    def __str__(self) -> str:
        return lines_of(self.path, self.logs, self.problems)

    @property
    def exit_code(self) -> int:
        """That of `Explanation`: 0 all safe and whole, 1 anything else, 2 nothing could be read."""
        fine = all(one.fine for one in self.logs) and is_calm(self.estate)
        return exit_code_of(self.logs, self.problems, fine=fine)

    def counts(self) -> dict[str, int]:
        """Return how many logs have each answer, in its words, gravest first."""
        return dict(Counter(one.judgement.words for one in self.logs))

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick triage --json`` prints."""
        return {
            "schema": SCHEMA,
            "estate": estate_dict(self.estate),
            "databases": [one.to_dict() for one in self.databases],
            "logs": [one.to_dict() for one in self.logs],
            "problems": [finding.to_dict() for finding in self.problems],
            "others": list(self.others),
        }


def triage(
    path: Paths, *, options: ReadOptions | None = None, progress: Progress | None = None
) -> Triage:
    """Return every log below ``path``, gravest first.

    Args:
        path: a file, a folder or a tree, local or remote; or several, which are judged together.
        options: as for ``explain``.
        progress: called with the path of each log before it is read.

    Raises:
        LogUnreadableError: the path itself cannot be read; one of several is one of ``problems``.
        UnsupportedFormatError: no system found here knows a setting of ``options``.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    result = Triage(found.path, [], found.problems, found.others)
    result.command = f"tallystick triage --all {shell_words(found.paths)}"
    gathered, seen = found.gatherer(), list[_Seen]()
    for log in found.observers(progress):
        with found.guard(log.source):
            seen.append(_seen(log, gathered))
    result.estate = gathered.judged(found.problems)
    places = places_apart(one.source for one in seen)
    result.databases, each = databases(
        (places[one.source], one.around, _answer(one, result.estate)) for one in seen
    )
    rows = (_triaged(found, *one, result.estate) for one in zip(seen, each, strict=True))
    result.logs = sorted(rows, key=_gravity)
    return result


def _answer(seen: _Seen, estate: EstateAnswer | None) -> Judgement:
    """Return the estate's answer about a log where it has one, else the log's own."""
    if estate is None:
        return seen.judgement
    return estate.logs.get(log_name(seen.source), seen.judgement)


def _gravity(one: TriagedLog) -> tuple[int, int, bool, bool, int, str]:
    judgement = one.judgement
    order = GRAVEST_FIRST.index(judgement.answer)
    lost = judgement.at_stake.transactions or 0
    return order, -lost, judgement.words == "SAFE", one.fine, -one.in_doubt, one.path


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is kept of one log until all were read."""

    source: LogSource
    judgement: Judgement
    in_doubt: int
    agree: bool
    severe: bool
    around: Surroundings | None


def _seen(log: Observer, gathered: Gatherer) -> _Seen:
    seen = log.observe(lambda reading: reading.verdict())
    verdict, severe = seen.value, any(map(is_severe, seen.findings))
    states = counts(verdict.strict.get("transactions"))
    in_doubt = sum(states.get(state.value, 0) for state in _IN_DOUBT)
    gathered.add(seen.reading, seen.findings, verdict.judgement)
    agree, around = not verdict.differences, verdict.surroundings
    return _Seen(log.source, verdict.judgement, in_doubt, agree, severe, around)


def _triaged(
    found: Survey, seen: _Seen, database: Database, estate: EstateAnswer | None
) -> TriagedLog:
    source, answer = seen.source, database.judgement
    fine = answer.answer is Answer.SAFE and seen.agree and not seen.severe
    path, in_doubt = _path(source, database), seen.in_doubt
    whole = shell_quoted(path) if estate is None else shell_words(found.paths)
    command = _command(found, source, answer, shell_quoted(path), fine=fine)
    by_others = _answer(seen, estate) is not seen.judgement
    if (answer.answer is Answer.SAFE and in_doubt) or by_others:
        command = f"tallystick indoubt list {whole}"
    alone = seen.around is not None and seen.around.kind == ALONE
    return TriagedLog(
        database, path, source.system, answer, in_doubt, seen.agree, fine, command, alone
    )


def _path(source: LogSource, database: Database) -> str:
    """Return what a command about a log names, which is there.

    A file stands for a log that shares its folder with others, and the database for several logs,
    and for one whose folder is gone: a setting, or a layout, has named that.
    """
    if len(database.logs) > 1:
        return database.path
    path = path_alone(source)
    there = is_remote(path) or Path(path).exists()
    return path if there else source.database or database.path


def _command(
    found: Survey, source: LogSource, judgement: Judgement, path: str, *, fine: bool
) -> str:
    if judgement.reason == _ENCRYPTED:
        secrets = sorted(found.known[source.system].secrets)
        options = [f"--{name.replace('_', '-')} SECRET" for name in secrets[:1]]
        return " ".join(["tallystick explain", *options, path])
    if judgement.answer is not Answer.SAFE:
        return f"tallystick explain {path}"
    return f"tallystick {'inspect' if fine else 'explain'} {path}"
