"""Every log below a path by its answer, the gravest first, with the next command to type.

In: a path. Out: a `Triage` of one light row per log. Nothing is written; verdicts are not kept, so
memory does not grow with the content of the logs.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tallystick.printable import printable
from tallystick.reading.results import counts, is_fine, is_severe
from tallystick.reading.settled import Observer
from tallystick.reading.survey import Path, Progress, Survey, survey
from tallystick.records import Answer, Finding, Judgement, State
from tallystick.systems.protocol import LogSource, ReadOptions

GRAVEST_FIRST = (Answer.LOSES, Answer.REFUSES, Answer.CANNOT_TELL, Answer.SAFE)
"""A restart makes the first of them worse; the others keep what is there."""
_IN_DOUBT = (State.PREPARED, State.COMMITTING, State.UNDECIDED)
_ENCRYPTED = "encrypted"


@dataclass(frozen=True, slots=True)
class TriagedLog:
    """One log in one row.

    Attributes:
        path: its folder, or its file where the folder holds several logs.
        system: the name of its system.
        judgement: the answer and its reason.
        in_doubt: number of transactions that wait for a decision, or for its end.
        verdicts_agree: what its own engine would do is what its bytes prove.
        fine: it is safe and whole, and its verdicts agree: as `explain` exits with 0.
        command: what to type next, quoted for a POSIX shell.
    """

    path: str
    system: str
    judgement: Judgement
    in_doubt: int
    verdicts_agree: bool
    fine: bool
    command: str

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

    @property
    def exit_code(self) -> int:
        """That of `Explanation`: 0 all safe and whole, 1 anything else, 2 nothing could be read."""
        if not self.logs:
            return 2
        fine = all(one.fine for one in self.logs)
        return int(not fine or any(map(is_severe, self.problems)))

    def counts(self) -> dict[str, int]:
        """Return how many logs have each answer, in its words, gravest first."""
        return dict(Counter(one.judgement.words for one in self.logs))

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick triage --json`` prints."""
        return {
            "logs": [one.to_dict() for one in self.logs],
            "problems": [finding.to_dict() for finding in self.problems],
            "others": list(self.others),
        }


def triage(
    path: Path, *, options: ReadOptions | None = None, progress: Progress | None = None
) -> Triage:
    """Return every log below ``path``, gravest first.

    Args:
        path: a file, a folder or a tree, local or remote.
        options: as for ``explain``.
        progress: called with the path of each log before it is read.

    Raises:
        LogUnreadableError: the path itself cannot be read.
        UnsupportedFormatError: no system found here knows a setting of ``options``.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    result = Triage(found.path, [], found.problems, found.others)
    for log in found.observers(progress):
        with found.guard(log.source):
            result.logs.append(_triaged(found, log))
    result.logs.sort(key=_gravity)
    return result


def shell_quoted(text: str) -> str:
    """Return a path as one word of a POSIX shell; control characters as bash and zsh read them."""
    if text.startswith("-"):
        text = f"./{text}"
    if printable(text) == text:
        return shlex.quote(text)
    escaped = "".join(_escaped(letter) for letter in text)
    return f"$'{escaped}'"


def _escaped(letter: str) -> str:
    if letter in "'\\":
        return f"\\{letter}"
    if printable(letter) == letter:
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogateescape"))


def _gravity(one: TriagedLog) -> tuple[int, int, bool, bool, int, str]:
    judgement = one.judgement
    order = GRAVEST_FIRST.index(judgement.answer)
    lost = judgement.at_stake.transactions or 0
    return order, -lost, judgement.words == "SAFE", one.fine, -one.in_doubt, one.path


def _triaged(found: Survey, log: Observer) -> TriagedLog:
    seen, source = log.observe(lambda reading: reading.verdict()), log.source
    verdict, fine = seen.value, is_fine(seen.value, seen.findings)
    states = counts(verdict.strict.get("transactions"))
    in_doubt = sum(states.get(state.value, 0) for state in _IN_DOUBT)
    path = _path(source)
    agree, answer = not verdict.differences, verdict.judgement
    command = _command(found, source, answer, in_doubt, shell_quoted(path), fine=fine)
    return TriagedLog(path, source.system, answer, in_doubt, agree, fine, command)


def _path(source: LogSource) -> str:
    alone = source.name and len(source.files) == 1
    return source.files[0] if alone else source.path


def _command(
    found: Survey, source: LogSource, judgement: Judgement, in_doubt: int, path: str, *, fine: bool
) -> str:
    if judgement.reason == _ENCRYPTED:
        secrets = sorted(found.known[source.system].secrets)
        options = [f"--{name.replace('_', '-')} SECRET" for name in secrets[:1]]
        return " ".join(["tallystick explain", *options, path])
    if judgement.answer is not Answer.SAFE:
        return f"tallystick explain {path}"
    if in_doubt:
        return f"tallystick indoubt list {path}"
    return f"tallystick {'inspect' if fine else 'explain'} {path}"
