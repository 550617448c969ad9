"""What an error of an original means, and which databases below a path show it.

In: the error's code, or a text that holds it, and paths. Out: a `LookedUp` for a person, a program
(``to_dict``) and a script (``exit_code``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tallystick.errors import LogUnreadableError
from tallystick.reading.databases import restarted
from tallystick.reading.results import reads_nothing
from tallystick.reading.survey import Paths, explain, survey
from tallystick.records import Finding, Judgement
from tallystick.systems.engine_errors import EngineError
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import systems

_WORD = re.compile(r"(?<=sqlstate: )\w{5}|\w+", re.IGNORECASE)
"""Words of a text; a client of Derby writes the code of the next error and its text as one word."""
_OF_HORNETQ = re.compile(r"hq(?=[0-9]{6}$)")
_LIKE_A_CODE = re.compile(r"X[0-9A-Z]{4}|AMQ[0-9]{6}|HQ[0-9]{6}|[0-9]{5}")
_PART_OF_MORE = "/\\.-"
"""Before a number that is part of a path, an address or a version, and no code."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What is known of an error.

    Attributes:
        errors: the system and the row of each code that the text holds, in its order.
        answers: for each database of such a system its path, its answer, and whether that shows
            the error.
        codes: the codes that could have been asked for, by system.
        repair: the commands that mend these databases in a copy, one a line; empty where nothing
            proves a mend.
        unread: what could not be read below the paths.
    """

    errors: tuple[tuple[str, EngineError], ...]
    answers: tuple[tuple[str, Judgement, bool], ...]
    codes: Mapping[str, tuple[str, ...]]
    repair: str = ""
    unread: tuple[Finding, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """The codes of all systems."""
        return tuple(code for codes in self.codes.values() for code in codes)

    @property
    def exit_code(self) -> int:
        """0 for a known error, 1 where a database shows it, 2 for an unknown one, or no path."""
        if not self.errors or reads_nothing(True, self.unread):
            return 2
        return int(any(shows for _, _, shows in self.answers))

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick explain --error CODE --json`` prints."""
        return {
            "errors": [
                {
                    "system": system,
                    "code": one.code,
                    "meaning": one.meaning,
                    "advice": one.advice,
                    "reasons": list(one.reasons),
                    "wraps": one.wraps,
                }
                for system, one in self.errors
            ],
            "databases": [
                {"path": path, **judgement.to_dict(), "shows_error": shows}
                for path, judgement, shows in self.answers
            ],
            "known": list(self.known),
            "codes": {system: list(codes) for system, codes in self.codes.items()},
            "repair": self.repair or None,
            "problems": [one.to_dict() for one in self.unread],
        }


def look_up(text: str, path: Paths | None = None, options: ReadOptions | None = None) -> LookedUp:
    """Return what is known of the errors in a text.

    Args:
        text: a code, or a message or stack trace with codes in it.
        path: where databases lie that may show them, or several; None looks at none.
        options: how to read these.
    """
    tables = {one.name: one.error_table for one in systems()}
    found = tuple(
        (name, one)
        for word in dict.fromkeys(_words(text))
        for name, table in tables.items()
        for code, one in table.items()
        if code.lower() == word
    )
    codes = {name: tuple(table) for name, table in tables.items() if table}
    if path is None or not found:
        return LookedUp(found, (), codes)
    answers: dict[str, tuple[str, Judgement, bool]] = {}
    explained = explain(path, options=options)
    for verdict in explained.logs:
        reasons = {code for name, one in found if name == verdict.system for code in one.reasons}
        if any(name == verdict.system for name, _ in found):
            folder = restarted(verdict)
            shows = verdict.judgement.reason in reasons
            answers[folder] = (folder, verdict.judgement, shows)
    repair = "\n".join(_repairs(path, {name for name, _ in found}, options))
    return LookedUp(found, tuple(answers.values()), codes, repair, tuple(explained.problems))


def like_codes(text: str) -> list[str]:
    """Return the words of a text that look like codes of errors, in its order."""
    words = (one.upper() for one in _words(text))
    return [*dict.fromkeys(one for one in words if _LIKE_A_CODE.fullmatch(one))]


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text that may be codes, in small letters; HornetQ's as Artemis' own."""
    for word in _WORD.finditer(text):
        before = text[: word.start()][-1:]
        if not (word[0].isdecimal() and before and before in _PART_OF_MORE):
            yield _OF_HORNETQ.sub("amq", word[0].lower())


def _repairs(path: Paths, asked: set[str], options: ReadOptions | None) -> Iterator[str]:
    """Yield the command that mends the logs of these systems, for each path that has any."""
    every = survey(path, options=options)
    for one in every.paths:
        with suppress(LogUnreadableError):  # the problems of reading them all say so
            here = survey(one, options=options) if len(every.paths) > 1 else every
            here.logs = [log for log in here.logs if log.system in asked]
            if command := here.repair_command():
                yield command
