"""Read logs, also live ones, from the disk at a limited rate, to find rot before recovery does.

In: a path and a rate. Out: a `Scrub`: the answer about every log below the path, and the damage
that stands. What changed while it was read is read again, and never called rot.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tallystick.reading.names import places_apart
from tallystick.reading.results import exit_code_of, is_severe
from tallystick.reading.settled import Observer
from tallystick.reading.survey import Paths, Progress, survey
from tallystick.records import Answer, Finding, Judgement, Verdict
from tallystick.storage.pace import Pace, paced
from tallystick.systems.protocol import LogReading, ReadOptions

RATE: float = 20_000_000
"""Bytes a second that are read where no other rate is given."""


@dataclass(frozen=True, slots=True)
class ScrubbedLog:
    """What was found in one log.

    Attributes:
        path: its folder, with its name where the folder holds several.
        system: the name of its system.
        judgement: the answer about it, as of ``explain``.
        findings: its damage: file, place and what is lost with it.
        settled: False if it changed each time while it was read, so that some is left to the next
            pass.
    """

    path: str
    system: str
    judgement: Judgement
    findings: list[Finding]
    settled: bool

    @property
    def rotten(self) -> bool:
        """True if it is damaged, or a restart would lose something or be refused."""
        grave = self.judgement.answer in (Answer.LOSES, Answer.REFUSES)
        return bool(self.findings) or grave

    def to_dict(self) -> dict[str, Any]:
        """Return one entry of ``tallystick scrub --json``."""
        return {
            "path": self.path,
            "system": self.system,
            "rotten": self.rotten,
            "settled": self.settled,
            **self.judgement.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(slots=True)
class Scrub:
    """One pass over all logs below a path."""

    path: str
    logs: list[ScrubbedLog] = field(default_factory=list)
    problems: list[Finding] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    bytes: int = 0
    """Bytes that were read from disks."""
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 if nothing is damaged, 1 if something is, 2 if there was no log to read."""
        looked_at = self.logs or any(map(is_severe, self.problems))
        fine = not any(one.rotten for one in self.logs)
        return exit_code_of(looked_at, self.problems, fine=fine)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick scrub --json`` prints for a pass."""
        return {
            "logs": [one.to_dict() for one in self.logs],
            "problems": [finding.to_dict() for finding in self.problems],
            "others": list(self.others),
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


def scrub(
    path: Paths,
    *,
    rate: float = RATE,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
) -> Scrub:
    """Read every log below ``path`` from the disk and verify it; nothing is written.

    Args:
        path: a file, a folder or a tree, or several; logs in it may be open in other processes.
        rate: bytes a second at most; 0 for as fast as the disk.
        options: as for ``explain``.
        progress: called with the path of each log before it is read.

    Raises:
        LogUnreadableError: the path itself cannot be read; one of several is one of ``problems``.
        UnsupportedFormatError: no system found here knows a setting of ``options``.
    """
    start, pace = time.monotonic(), Pace(rate)
    found = survey(path, options=options).refuse_unknown_settings()
    result = Scrub(found.path, [], found.problems, found.others)
    places = places_apart(found.logs)
    for log in found.observers(progress):
        with found.guard(log.source), paced(pace):
            result.logs.append(_scrubbed(log, places[log.source]))
    result.bytes, result.seconds = pace.total, time.monotonic() - start
    return result


def _scrubbed(log: Observer, place: str) -> ScrubbedLog:
    seen = log.observe(_taken)
    value = seen.value
    judgement = value.judgement if isinstance(value, Verdict) else value
    findings = [one for one in seen.findings if is_severe(one)]
    return ScrubbedLog(place, log.source.system, judgement, findings, seen.settled)


def _taken(reading: LogReading) -> Judgement | Verdict:
    """Return the answer; the whole verdict, which counts what is at stake, if it is not safe."""
    judgement = reading.judgement
    return judgement if judgement.answer is Answer.SAFE else reading.verdict()
