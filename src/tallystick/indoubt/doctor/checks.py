"""One thing that was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tallystick.printable import shell_quoted
from tallystick.refusals import file_of, reason_of


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """It works, and will not on a bad day."""
    PROBLEM = "problem"
    """Transactions fail, or recovery does."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        subject: the coordinator's node id, or the name of a resource.
        what: the thing.
        level: how it came out.
        found: what is the case, and what follows.
        type_next: what to type; empty if nothing is to be done.
    """

    subject: str
    what: str
    level: Level
    found: str
    type_next: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def looked_at(subject: str, what: str, path: str, checks: Iterable[Check]) -> Iterator[Check]:
    """Yield checks, and a problem where this user may not look; what comes after goes on.

    Args:
        subject: as of `Check`.
        what: as of `Check`.
        path: what is looked at.
        checks: what is found there.
    """
    try:
        yield from checks
    except OSError as error:
        line = f"ls -ld {shell_quoted(file_of(error, path))}  # the user of the service may read it"
        yield Check(subject, what, Level.PROBLEM, f"cannot be read: {reason_of(error)}", line)


def judged(
    subject: str, what: str, good: str, bad: str | None, type_next: str, level: Level
) -> Check:
    """Return a check that is fine with ``good``, unless there is something ``bad``."""
    if bad is None:
        return Check(subject, what, Level.OK, good)
    return Check(subject, what, level, bad, type_next)
