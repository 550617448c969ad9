"""The errors with which the originals refuse to start, and which answers of ours show them.

In: the rows of a system. Out: its table, by code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineError:
    """One error of an original.

    Attributes:
        code: as the original prints it.
        meaning: what is the case, one sentence.
        advice: what to do, and what not to.
        reasons: codes of `Judgement.reason` that show it; none where no log or file beside it does.
        wraps: it says nothing but that another error follows, which is the one to look up.
    """

    code: str
    meaning: str
    advice: str
    reasons: tuple[str, ...] = ()
    wraps: bool = False


EngineErrors = Mapping[str, EngineError]


def engine_errors(*rows: EngineError) -> EngineErrors:
    """Return the rows as a table. Raises `ValueError` where a code stands twice."""
    table = {row.code: row for row in rows}
    if len(table) != len(rows):
        raise ValueError("an error stands twice in the table")
    return table


NO_ERRORS: EngineErrors = engine_errors()
"""The table of a system whose errors are not listed."""
