"""What a person has to do, as the first screen of a page says it.

In: `ReportData`. Out: a sentence on what not to start, counts of what is due, and cards: each a
global transaction or a log, with what is to be typed. The statements are those of a runbook.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from tallystick.arrow.texts import given_name
from tallystick.indoubt.listing import InDoubt, in_doubt_of
from tallystick.indoubt.runbook import Act, acts_of, name_of
from tallystick.printable import counted, shell_quoted
from tallystick.reading.filters import time_text
from tallystick.reconcile.alarms import ADVICE, LOST_COMMIT
from tallystick.reconcile.decision_table import Resolution
from tallystick.records import Answer, Clock, State
from tallystick.report.data import TOLD_BY_OTHERS, ReportData, Row

RESOLUTIONS = {
    Resolution.COMMIT: "to commit",
    Resolution.ROLLBACK: "to roll back",
    Resolution.HEURISTIC_MISMATCH: "to mend by hand",
    Resolution.FOREIGN: "of another coordinator",
}
"""What is due, in words; in this order on the page."""

BAD, DOUBT, GOOD = "bad", "doubt", "good"

_TITLES = {
    Resolution.COMMIT: "Commit",
    Resolution.ROLLBACK: "Roll back",
    Resolution.HEURISTIC_MISMATCH: "Mend by hand",
    Resolution.FOREIGN: "Leave it to its coordinator",
}
_DUE = {
    Resolution.COMMIT: "commit",
    Resolution.ROLLBACK: "roll back",
    Resolution.FOREIGN: "leave it alone",
    Resolution.HEURISTIC_MISMATCH: "mend by hand",
}
_UNSAFE = (Answer.LOSES, Answer.REFUSES, Answer.CANNOT_TELL)
_NAMED_MAX = 2


@dataclass(frozen=True, slots=True)
class Headline:
    """The first sentence of a page, how grave it is, and the counts after it."""

    text: str
    tone: str
    counts: str


@dataclass(frozen=True, slots=True)
class Card:
    """One thing to do.

    Attributes:
        kind: its resolution, or the answer about its log; what a filter asks for.
        tone: how grave it is.
        title: what to do, or what a restart does.
        about: where: the coordinator's log, or the log.
        why: one sentence.
        acts: what is typed to end each branch by hand.
        command: what shows more of it.
        gtrid: the id as hex digits; empty of a log.
        since: when it was prepared, where a clock tells that; with its age.
        branches: resource, state, log where it is open, and what is due for it.
        evidence: what tells so, an entry each.
        urgent: it cannot wait for any start; what is typed is shown at once.
    """

    kind: str
    tone: str
    title: str
    about: str
    why: str
    acts: tuple[Act, ...]
    command: str
    gtrid: str = ""
    since: str = ""
    branches: tuple[tuple[str, str, str, str], ...] = ()
    evidence: tuple[str, ...] = ()
    urgent: bool = False


class Names:
    """Names of logs below the folder that all of them share, which is said once.

    Args:
        systems: the system of each log.
    """

    def __init__(self, systems: Mapping[str, str]) -> None:
        self._systems, self._count = systems, Counter(systems.values())
        logs, self.common = list(systems), ""
        if len({log.startswith("/") for log in logs}) == 1:
            one = len(logs) == 1
            self.common = logs[0].rpartition("/")[0] if one else os.path.commonpath(logs)

    def __call__(self, path: str | None) -> str:
        """Return a path as it is below the common folder."""
        text = path or ""
        return text.removeprefix(f"{self.common}/") if self.common else text

    def of_system(self, log: str) -> str:
        """Return the system of a log, with its path where it is not the only one."""
        system = self._systems.get(log, "")
        return system if self._count[system] == 1 else f"{system} ({self(log)})".strip()

    @property
    def place(self) -> str:
        """The path below which commands look, for a POSIX shell."""
        return shell_quoted(given_name(self.common) or ".")


def headline(data: ReportData, names: Names) -> Headline:
    """Return what a person has to know first."""
    text, tone = _first_sentence(data, names)
    due = [f"{n:,} {words}" for one, words in RESOLUTIONS.items() if (n := data.resolutions[one])]
    unknown = data.answered[Answer.CANNOT_TELL.value]
    if unknown and tone == BAD:
        due.append(f"{counted(unknown, 'log')} that cannot be judged yet")
    return Headline(text, tone, f"{', '.join(due)}." if due else "")


def _first_sentence(data: ReportData, names: Names) -> tuple[str, str]:
    if data.losing:
        what = counted(data.lost, "commit") if data.lost else "commits"
        return f"Do not start {_listed(data.losing, names)} yet: {what} would be lost.", BAD
    if data.refusing:
        one = len(data.refusing) == 1
        verb = "does not start with its log" if one else "do not start with their logs"
        return f"{_listed(data.refusing, names)} {verb}.", BAD
    if count := data.resolutions[Resolution.HEURISTIC_MISMATCH]:
        what = counted(count, "global transaction")
        return f"{what} went against the decision: mend the data by hand.", BAD
    if count := data.answered[Answer.CANNOT_TELL.value]:
        of = counted(data.logs, "log")
        return f"What a restart does to {count:,} of {of} cannot be told yet.", DOUBT
    if any(data.severities[one] for one in ("loss", "damage")):
        return "Logs are damaged: read the findings before anything starts.", BAD
    if not data.logs:
        return "No log was found.", DOUBT
    if sum(data.resolutions.values()) > data.resolutions["none"]:
        return "Nothing is lost by a start: coordinators do what is due.", GOOD
    return "Nothing is due, and nothing would be lost.", GOOD


def _listed(logs: Collection[str], names: Names) -> str:
    """Return the first of these logs by their systems, and how many more there are."""
    shown, rest = list(map(names.of_system, islice(logs, _NAMED_MAX))), len(logs) - _NAMED_MAX
    return f"{', '.join(shown)} and {rest:,} more" if rest > 0 else " and ".join(shown)


def cards(data: ReportData, names: Names, now: datetime) -> list[Card]:
    """Return what is to be done, the gravest first: transactions, and logs that are not safe."""
    logs = list(_of_logs(data, names))
    made = [_of_transaction(row, names, now) for row in data.due]
    order = (BAD, DOUBT, GOOD)
    return sorted([*made, *logs], key=lambda one: (not one.urgent, order.index(one.tone)))


def _of_logs(data: ReportData, names: Names) -> Iterator[Card]:
    for row in data.answers:
        if row["answer"] not in _UNSAFE or row["reason"] == TOLD_BY_OTHERS:
            continue
        stake = row["transactions_at_stake"]
        at_stake = f" {counted(stake, 'transaction')}" if stake else ""
        decided = f" What would decide it: {row['decided_by']}." if row["decided_by"] else ""
        yield Card(
            row["answer"],
            DOUBT if row["answer"] == Answer.CANNOT_TELL else BAD,
            f"{row['answer'].replace('-', ' ').upper()}{at_stake}: {row['system']}",
            names(row["log"]),
            f"{row['text']}{decided}",
            (),
            f"tallystick explain {shell_quoted(given_name(row['log']))}",
        )


def _of_transaction(row: Row, names: Names, now: datetime) -> Card:
    one = in_doubt_of(row)
    gtrid = one.gtrid.hex()
    grave = one.alarm == LOST_COMMIT or one.resolution == Resolution.HEURISTIC_MISMATCH
    return Card(
        one.resolution,
        BAD if grave else DOUBT if one.alarm else GOOD,
        _title(one),
        names(one.coordinator) or f"owner {one.owner or 'unknown'}, whose log is not here",
        _why(one),
        tuple(acts_of(one, {})),
        f"tallystick indoubt explain {gtrid} {names.place}",
        gtrid,
        _since(row, now),
        tuple(_branch(branch, names) for branch in one.branches),
        tuple(one.evidence.split("; ")),
        one.alarm == LOST_COMMIT,
    )


def _branch(branch: Mapping[str, Any], names: Names) -> tuple[str, str, str, str]:
    name, due = names(name_of(branch)), _DUE.get(branch["due"], "")
    log = names(branch["log"]) if branch["state"] == State.PREPARED else ""
    return name, branch["state"].replace("_", " "), log if log != name else "", due


def _title(one: InDoubt) -> str:
    title = _TITLES.get(Resolution(one.resolution), one.resolution)
    held = [
        str(branch["resource"] or branch["system"] or "?")
        for branch in one.branches
        if branch["state"] == "prepared"
    ]
    where = f" in {', '.join(held)}" if held and one.resolution in ("commit", "rollback") else ""
    before = " before its coordinator starts" if one.alarm == LOST_COMMIT else ""
    return f"{title}{where}{before}"


def _why(one: InDoubt) -> str:
    if one.alarm == LOST_COMMIT:
        return "Its coordinator has closed it as committed; a start rolls this branch back."
    advice = f"{ADVICE[one.alarm]}." if one.alarm else ""
    if one.resolution == Resolution.HEURISTIC_MISMATCH:  # which branch it was comes first
        return f"{one.evidence.partition('; ')[0]}. {advice}".rstrip()
    if advice:
        return advice
    return "Its coordinator does this when it starts. Type it only if that cannot be started."


def _since(row: Row, now: datetime) -> str:
    """Return when it was last heard of, by the time of day only."""
    clock = Clock(row["clock"] or Clock.NONE.value)
    text = time_text(row["last_time"], clock)
    if text is None:
        return ""
    age = (now - datetime.fromisoformat(text)).total_seconds()
    return text if age < 0 else f"{text}, {_age(age)} before this page was made"


def _age(seconds: float) -> str:
    for size, noun in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(int(seconds // size), noun)
    return counted(int(seconds), "second")
