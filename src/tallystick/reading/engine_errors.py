"""What an error of an original means, and which databases below a path show it.

In: the error's code, or a text that holds it, and a path. Out: a `LookedUp` for a person, a program
(``to_dict``) and a script (``exit_code``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.reading.survey import explain, survey
from tallystick.records import Judgement
from tallystick.systems.engine_errors import EngineError
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import systems


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What is known of an error.

    Attributes:
        errors: the system and the row of each code that the text holds, in its order.
        answers: for each database of such a system its path, its answer, and whether that shows
            the error.
        codes: the codes that could have been asked for, by system.
        repair: the command that mends these databases in a copy; empty where nothing proves a mend.
    """

    errors: tuple[tuple[str, EngineError], ...]
    answers: tuple[tuple[str, Judgement, bool], ...]
    codes: Mapping[str, tuple[str, ...]]
    repair: str = ""

    @property
    def known(self) -> tuple[str, ...]:
        """The codes of all systems."""
        return tuple(code for codes in self.codes.values() for code in codes)

    @property
    def exit_code(self) -> int:
        """0 for a known error, 1 where a database shows it, 2 for an unknown one."""
        return 2 if not self.errors else int(any(shows for _, _, shows in self.answers))

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
        }


def look_up(text: str, path: str | None = None, options: ReadOptions | None = None) -> LookedUp:
    """Return what is known of the errors in a text.

    Args:
        text: a code, or a message or stack trace with codes in it.
        path: where databases lie that may show them; None looks at none.
        options: how to read these.
    """
    tables = {one.name: one.error_table for one in systems()}
    words = dict.fromkeys(re.findall(r"\w+", text.lower()))
    found = tuple(
        (name, one)
        for word in words
        for name, table in tables.items()
        for code, one in table.items()
        if code.lower() == word
    )
    codes = {name: tuple(table) for name, table in tables.items() if table}
    if path is None or not found:
        return LookedUp(found, (), codes)
    answers: dict[str, tuple[str, Judgement, bool]] = {}
    for verdict in explain(path, options=options).logs:
        reasons = {code for name, one in found if name == verdict.system for code in one.reasons}
        if any(name == verdict.system for name, _ in found):
            around = verdict.surroundings
            folder = verdict.path if around is None else around.path
            shows = verdict.judgement.reason in reasons
            answers[folder] = (folder, verdict.judgement, shows)
    asked = {name for name, _ in found}
    here = survey(path, options=options)
    here.logs = [one for one in here.logs if one.system in asked]
    return LookedUp(found, tuple(answers.values()), codes, here.repair_command())
