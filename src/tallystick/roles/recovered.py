"""What opening a log found: the answer about the log as it lay there, before anything was changed.

In: an open log of any role, and counts of what its service brought back. Out: a `RecoveryResult`,
with the answers, reasons and stakes of `tallystick explain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tallystick.printable import logger
from tallystick.records import Answer, Judgement

NOT_JUDGED = Judgement(
    reason="not-judged",
    text="The opening proves nothing about the log.",
    decided_by="tallystick explain on the log, before it is opened",
)
"""The answer where a log says nothing of its own recovery."""

_log = logger("tallystick.recovery")


@runtime_checkable
class JudgedLog(Protocol):
    """An open log that says what its recovery proved."""

    @property
    def judgement(self) -> Judgement:
        """The answer about the log as its opening found it."""
        ...


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What the opening of a service found and brought back.

    Attributes:
        path: the service's folder, or file.
        judgement: the answer about its log, why it is given, and what is at stake.
        recovered: what was brought back: counts by name, such as ``records`` and ``in_doubt``.
    """

    path: str
    judgement: Judgement = NOT_JUDGED
    recovered: Mapping[str, int] = field(default_factory=dict)

    @property
    def answer(self) -> Answer:
        """The answer about the log."""
        return self.judgement.answer

    @property
    def judged(self) -> bool:
        """Whether the log says what its recovery proved."""
        return self.judgement is not NOT_JUDGED

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against the log: it is safe, or says nothing of its recovery."""
        return self.answer is Answer.SAFE or not self.judged

    def to_dict(self) -> dict[str, Any]:
        """Return the answer, its reason, what is at stake and what was brought back, as JSON."""
        return self.judgement.to_dict() | {"recovered": dict(self.recovered)}

    def __str__(self) -> str:
        counts = [f"{count:,} {name.replace('_', ' ')}" for name, count in self.recovered.items()]
        brought = f" Recovered: {', '.join(counts)}." if counts else ""
        return f"{self.judgement}{brought}"

    @property
    def suffix(self) -> str:
        """What a service adds to its ``repr``: nothing where the log is safe or not judged."""
        one = self.judgement
        return "" if self.sound else f": {one.words}, {one.reason}"


def recovery_result(path: str, log: object, **recovered: int) -> RecoveryResult:
    """Return what the opening of a log found, and log it: a warning unless it is safe.

    Args:
        path: the service's folder, or file.
        log: the open log, in any role.
        recovered: counts of what was brought back.
    """
    found = found_by_opening(path, log, **recovered)
    (_log.info if found.sound else _log.warning)("opened %s: %s", path, found)
    return found


def found_by_opening(path: str, log: object, **recovered: int) -> RecoveryResult:
    """Return what `recovery_result` does, and log nothing."""
    judgement = log.judgement if isinstance(log, JudgedLog) else NOT_JUDGED
    return RecoveryResult(path, judgement, recovered)
