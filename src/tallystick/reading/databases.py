"""Databases and brokers: what one restart starts, with all of its logs.

In: verdicts of logs. Out: one `Database` for each that they belong to; a log of a system that
looks for nothing beside it is one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.records import Judgement, Part, Surroundings, Verdict
from tallystick.systems.answers import DECIDES_FIRST
from tallystick.systems.surroundings import ALONE

SCHEMA = 2
"""Of what ``--json`` prints: 2 tells of databases, and of logs the answer of their database."""


@dataclass(frozen=True, slots=True)
class Database:
    """What one restart starts.

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


def databases(
    logs: Iterable[tuple[str, Surroundings | None, Judgement]],
) -> tuple[list[Database], list[Judgement]]:
    """Return the databases of logs, and for each log the answer of its database.

    Args:
        logs: the path, the surroundings and the answer of each log.
    """
    known = list(logs)
    groups: dict[tuple[str, str, int], list[int]] = {}
    for number, (path, around, _) in enumerate(known):
        single = around is None or around.kind == ALONE
        key = (path, ALONE, number) if around is None or single else (around.path, around.kind, -1)
        groups.setdefault(key, []).append(number)
    found, answers = list[Database](), [judgement for _, _, judgement in known]
    for (path, kind, _), members in groups.items():
        gravest = min((answers[one] for one in members), key=_gravity)
        parts = {part: None for one in members for part in _parts(known[one][1])}
        paths = tuple(dict.fromkeys(known[one][0] for one in members))
        found.append(Database(path, kind, gravest, tuple(parts), paths))
        for one in members:
            answers[one] = gravest
    return found, answers


def whole_databases(verdicts: Sequence[Verdict]) -> tuple[list[Database], list[Verdict]]:
    """Return the databases of verdicts, and the verdicts with the answers of their databases."""
    logs = ((one.path, one.surroundings, one.judgement) for one in verdicts)
    found, answers = databases(logs)
    return found, [one.judged(of) for one, of in zip(verdicts, answers, strict=True)]


def _parts(around: Surroundings | None) -> tuple[Part, ...]:
    return () if around is None else around.parts


def _gravity(one: Judgement) -> int:
    return DECIDES_FIRST.index(one.answer)
