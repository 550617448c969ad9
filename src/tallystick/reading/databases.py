"""Databases and brokers: what one restart starts, with all of its logs.

In: verdicts of logs. Out: one `Database` for each that they belong to; a log of a system that
looks for nothing beside it is one of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tallystick.reading.discovery import parent, real
from tallystick.records import Judgement, Part, Surroundings, Verdict
from tallystick.systems.answers import DECIDES_FIRST
from tallystick.systems.surroundings import ALONE, joined

SCHEMA = 2
"""Of what ``--json`` prints: since 2 with databases, and with each log its database's answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Database:
    """What one restart starts; no two are the same, though all that is said of them may be.

    Attributes:
        path: its folder, or that of its log where there is nothing but the log.
        kind: ``database``, ``broker`` or ``log``.
        judgement: the gravest of the answers of its logs, each with its surroundings.
        parts: what a restart opens besides the logs.
        logs: their paths.
    """

    path: str
    kind: str
    judgement: Judgement
    parts: tuple[Part, ...]
    logs: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return one entry of ``databases`` in ``tallystick explain --json``."""
        return {
            "path": self.path,
            "kind": self.kind,
            **self.judgement.to_dict(),
            "surroundings": [one.to_dict() for one in self.parts],
            "logs": list(self.logs),
        }


Answered: TypeAlias = tuple[str, Surroundings | None, Judgement]
"""The path, the surroundings and the answer of a log."""


def databases(logs: Iterable[Answered]) -> tuple[list[Database], list[Database]]:
    """Return the databases of logs, and for each log its database, whose answer is the log's."""
    known = with_other_logs(logs)
    groups: dict[tuple[str, str, int], list[int]] = {}
    for number, (path, around, _) in enumerate(known):
        single = around is None or around.kind == ALONE
        # With its number, so that two logs of one folder that stand alone are not joined.
        key = (path, ALONE, number) if around is None or single else (around.path, around.kind, -1)
        groups.setdefault(key, []).append(number)
    found, of = list[Database](), dict[int, Database]()
    for (path, kind, _), members in groups.items():
        gravest = min((known[one][2] for one in members), key=_gravity)
        parts = {part: None for one in members for part in _parts(known[one][1])}
        paths = tuple(dict.fromkeys(known[one][0] for one in members))
        found.append(Database(path, kind, gravest, tuple(parts), paths))
        of |= dict.fromkeys(members, found[-1])
    return found, [of[one] for one in range(len(known))]


def whole_databases(verdicts: Sequence[Verdict]) -> tuple[list[Database], list[Verdict]]:
    """Return the databases of verdicts, and the verdicts with the answers of their databases."""
    logs = ((one.place, one.surroundings, one.judgement) for one in verdicts)
    found, each = databases(logs)
    return found, [one.judged(of.judgement) for one, of in zip(verdicts, each, strict=True)]


def strangers(others: Iterable[str], known: Iterable[Database]) -> list[str]:
    """Return the files, of those that are no logs, that lie in no database or broker."""
    folders = tuple(one.path.rstrip("/") + "/" for one in known if one.kind != ALONE)
    return [one for one in others if not one.startswith(folders)]


def restarted(verdict: Verdict) -> str:
    """Return what a restart starts: the database or broker of a log, or the log alone."""
    around = verdict.surroundings
    return verdict.place if around is None or around.kind == ALONE else around.path


def with_other_logs(logs: Iterable[Answered]) -> list[Answered]:
    """Return logs; of one whose rest another one judges, with that as a part where it did not."""
    given = list(logs)
    # A log that shares its folder is named by a file in it; one alone was judged without the rest.
    whole = [path for path, around, _ in given if around is not None and around.kind != ALONE]
    judged = {real(one) for path in whole for one in (path, parent(path))}
    return [(path, *_with_other_log(around, answer, judged)) for path, around, answer in given]


def _with_other_log(
    around: Surroundings | None, answer: Judgement, judged: Container[str]
) -> tuple[Surroundings | None, Judgement]:
    other = None if around is None else around.other_log
    if around is None or other is None or real(other.path) in judged:
        return around, answer
    beside = replace(around, parts=(*around.parts, other))
    return beside, joined(answer, beside)


def _parts(around: Surroundings | None) -> tuple[Part, ...]:
    return () if around is None else around.parts


def _gravity(one: Judgement) -> int:
    return DECIDES_FIRST.index(one.answer)
