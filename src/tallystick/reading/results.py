"""The answers about all logs below a path: both verdicts, or a summary in figures.

In: verdicts, findings and readings of single logs. Out: one answer for a person, a program
(``to_dict``) and a script (``exit_code``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.printable import counted, printable
from tallystick.reading.databases import SCHEMA, Database
from tallystick.reading.discovery import PATH_UNREAD
from tallystick.reading.estate import EstateAnswer
from tallystick.records import (
    Answer,
    Finding,
    Outcome,
    Severity,
    State,
    Surroundings,
    Verdict,
)
from tallystick.systems.answers import PART_LOST
from tallystick.systems.findings import NOT_SAFE
from tallystick.systems.protocol import LogReading


@dataclass(slots=True)
class Explanation:
    """Both verdicts of every log below a path, and what could not be judged."""

    path: str
    logs: list[Verdict]
    findings: list[list[Finding]]
    """Findings of each of ``logs``, in their order."""
    problems: list[Finding]
    others: list[str]
    estate: EstateAnswer | None = None
    """What the logs say together; None where there is one, or none of global transactions."""
    databases: list[Database] = field(default_factory=list)
    """What the logs belong to: of ``logs``, the answer is that of the database."""

    def __str__(self) -> str:
        return lines_of(self.path, self.logs, self.problems)

    @property
    def exit_code(self) -> int:
        """0 all safe and whole, 1 anything else, 2 nothing could be read."""
        fine = all(map(is_fine, self.logs, self.findings)) and is_calm(self.estate)
        return exit_code_of(self.logs, self.problems, fine=fine)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick explain --json`` prints."""
        return {
            "schema": SCHEMA,
            "estate": estate_dict(self.estate),
            "databases": [one.to_dict() for one in self.databases],
            "logs": [verdict.to_dict() for verdict in self.logs],
            "problems": [finding.to_dict() for finding in self.problems],
            "others": list(self.others),
        }


@dataclass(slots=True)
class Summary:
    """One log in figures."""

    path: str
    system: str
    title: str
    format: str
    name: str
    files: int
    bytes: dict[str, int]
    """Bytes by outcome."""
    records: dict[str, int]
    """Records by outcome."""
    transactions: dict[str, int]
    """Transactions by state."""
    findings: list[Finding]
    surroundings: Surroundings | None = None
    """What a restart opens besides the log; None of systems that look for nothing."""
    held_back: dict[str, Any] | None = None
    """Which transaction keeps the log from giving up old files; None where none does."""

    def __str__(self) -> str:
        counts = {"files": self.files, "bytes": sum(self.bytes.values())}
        counts |= {"records": sum(self.records.values()), "findings": len(self.findings)}
        said = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return printable(f"{self.path} ({self.title}): {said}")

    def to_dict(self) -> dict[str, Any]:
        """Return one entry of ``tallystick inspect --json``."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        around = self.surroundings
        return plain | {
            "findings": [finding.to_dict() for finding in self.findings],
            "surroundings": [one.to_dict() for one in around.parts] if around else [],
        }


@dataclass(slots=True)
class Inspection:
    """Every log below a path in figures, what is no log, and what could not be read."""

    path: str
    logs: list[Summary]
    problems: list[Finding]
    others: list[str]
    estate: EstateAnswer | None = None
    """What the logs say together; None where there is one, or none of global transactions."""

    def __str__(self) -> str:
        return lines_of(self.path, self.logs, self.problems)

    @property
    def exit_code(self) -> int:
        """0 fine, 1 damage found, 2 nothing could be read."""
        found = [one for log in self.logs for one in log.findings]
        found += self.estate.findings if self.estate is not None else ()
        parts = [one for log in self.logs if log.surroundings for one in log.surroundings.parts]
        unfit = any(one.answer in (Answer.REFUSES, Answer.LOSES) for one in parts)
        fine = not unfit and not any(map(is_severe, found))
        return exit_code_of(self.logs, self.problems, fine=fine)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick inspect --json`` prints."""
        return {
            "schema": SCHEMA,
            "estate": estate_dict(self.estate),
            "logs": [log.to_dict() for log in self.logs],
            "problems": [finding.to_dict() for finding in self.problems],
            "others": list(self.others),
        }


@dataclass(slots=True)
class Verification:
    """The findings of all logs below a path."""

    path: str
    logs: int
    """How many logs there are."""
    findings: list[Finding]
    """First those of the logs together, then those of each, then what could not be read."""
    estate: EstateAnswer | None = None
    """What the logs say together; None where there is one, or none of global transactions."""

    @property
    def exit_code(self) -> int:
        """That of `Explanation`: 0 all safe and whole, 1 anything else, 2 nothing could be read."""
        safe = all(one.code != NOT_SAFE.code for one in self.findings)
        return exit_code_of(self.logs, self.findings, fine=safe and is_calm(self.estate))


def lines_of(path: str, logs: Iterable[object], problems: Iterable[object]) -> str:
    """Return what was found below a path as text: a line or more for each."""
    return "\n".join(map(str, [*logs, *problems])) or f"{printable(path)}: no log"


def headline(verdict: Verdict) -> str:
    """Return one sentence: what a restart would keep, finish, undo, leave in doubt and lose.

    Or that the system would not start, or that nothing can be said without the key. Calm words
    stand in it only where the answer is safe.
    """
    if "encrypted" in counts(verdict.strict.get("findings")):
        return "What a restart would do cannot be told: the log is encrypted, and no key opens it."
    if "being_written" in verdict.strict:
        return "What a restart would do cannot be told: the log is being written."
    states = counts(verdict.strict.get("transactions"))
    totals = [
        (words, sum(states.get(state.value, 0) for state in members))
        for words, members in _FATES.items()
    ]
    found = [(words, total) for words, total in totals if total]
    parts = [
        words.format(f"{total:,}" if at else counted(total, "transaction"))
        for at, (words, total) in enumerate(found)
    ]
    if verdict.judgement.answer is Answer.REFUSES:
        return f"A restart would fail. What the bytes say is due: {_fates(parts)}."
    return f"A restart would {_fates(parts)}, {_end(verdict)}."


def _fates(parts: list[str]) -> str:
    return ", ".join(parts) or "find no transaction"


def _end(verdict: Verdict) -> str:
    answer, stake = verdict.judgement.answer, verdict.judgement.at_stake
    if answer is Answer.SAFE:
        return "and lose nothing silently"
    if answer is Answer.CANNOT_TELL:
        return "and whether it loses anything cannot be told"
    if stake.transactions:
        return f"and silently lose {stake.transactions:,}"
    if stake.rows and (amount(verdict.strict.get("lost")) or _loses_part(verdict)):
        return f"and silently lose {counted(stake.rows, 'record')}"
    return "and lose changes that cannot be counted"


def _loses_part(verdict: Verdict) -> bool:
    """Return whether a part beside the log is what is lost."""
    return verdict.judgement.reason == PART_LOST.code


_FATES: dict[str, tuple[State, ...]] = {
    "keep {} committed": (State.COMMITTED,),
    "finish committing {}": (State.COMMITTING,),
    "persist {} again": (State.PENDING,),
    "leave {} in doubt": (State.PREPARED,),
    "undo {}": (State.ACTIVE, State.UNDECIDED, State.ROLLING_BACK),
    "keep {} rolled back": (State.ROLLED_BACK,),
    "leave {} to an operator": (State.HEURISTIC,),
    "meet {} incomplete": (State.INCOMPLETE,),
    "know nothing of {}": (State.UNKNOWN,),
}
"""What a restart does with transactions in each state, around their number."""


def amount(value: Any) -> int:
    """Return how many things a verdict's entry speaks of: a count itself, or the size of a list.

    Of a mapping its ``records`` count, or else all of its entries together.
    """
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, dict):
        parts = [value["records"]] if "records" in value else value.values()
        return sum(map(amount, parts))
    return 1 if value and isinstance(value, str) else len(value or ())


def estate_dict(estate: EstateAnswer | None) -> dict[str, Any] | None:
    """Return what ``--json`` prints as ``estate``."""
    return None if estate is None else estate.to_dict()


def reads_nothing(logs: object, problems: Iterable[Finding]) -> bool:
    """Return True where no log was read, or one of the paths could not be read itself."""
    return not logs or any(one.code == PATH_UNREAD for one in problems)


def exit_code_of(logs: object, problems: Sequence[Finding], *, fine: bool) -> int:
    """Return 2 where `reads_nothing`, else 0 if all is fine and no problem severe, or 1."""
    return 2 if reads_nothing(logs, problems) else int(not fine or any(map(is_severe, problems)))


def is_calm(estate: EstateAnswer | None) -> bool:
    """Return True unless the logs together say anything but safe."""
    return estate is None or estate.judgement.answer is Answer.SAFE


def is_severe(finding: Finding) -> bool:
    """Return True for findings that make a command exit with 1."""
    return finding.severity in (Severity.DAMAGE, Severity.LOSS)


def is_fine(verdict: Verdict, findings: Iterable[Finding]) -> bool:
    """Return True for a log that is safe and whole, and of which both judgements are the same."""
    safe = verdict.judgement.answer is Answer.SAFE
    return safe and not verdict.differences and not any(map(is_severe, findings))


def summary_of(reading: LogReading, title: str) -> Summary:
    """Return the figures of one log; ``title`` is what people call its system."""
    source = reading.source
    totals = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    files = reading.files()
    for file in files:
        for outcome, size in file.bytes_by_outcome().items():
            totals[outcome.value] += size
    verdict = reading.verdict()
    strict = verdict.strict
    return Summary(
        source.path,
        source.system,
        title,
        reading.format,
        source.name,
        len(files),
        totals,
        counts(strict.get("records")),
        counts(strict.get("transactions"), [state.value for state in State]),
        list(reading.findings()),
        verdict.surroundings,
        strict.get("held_back"),
    )


def counts(value: Any, order: Sequence[str] = ()) -> dict[str, int]:
    """Return a mapping of counts from a verdict, without zeros, known names first."""
    if not isinstance(value, dict):
        return {}
    names = [*(name for name in order if name in value), *(n for n in value if n not in order)]
    return {
        str(name): value[name] for name in names if isinstance(value[name], int) and value[name]
    }
