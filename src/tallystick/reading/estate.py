"""The logs below one path judged together: one log may hold the decision for another.

In: readings of single logs, one at a time. Out: an `EstateAnswer`: what is due for global
transactions, the gravest first, and the logs whose own answers it changes. Nothing is written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tallystick.printable import counted, shell_words
from tallystick.reading.coordinators import add_closed, add_coordinators, coordinators_of
from tallystick.reading.names import log_name
from tallystick.reconcile import alarms, copies
from tallystick.reconcile.coverage import hides_records
from tallystick.reconcile.decision_table import Decision, Resolution
from tallystick.reconcile.estate import Estate
from tallystick.records import Answer, AtStake, Finding, Judgement, Severity, Transaction, jsonable
from tallystick.systems.answers import ENDS_IN_PREPARE, NOTHING, Reason, reasons
from tallystick.systems.findings import NOT_SAFE
from tallystick.systems.protocol import LogReading, LogSealedError, LogSource

Row = dict[str, Any]

JUDGED_MAX = 50_000
"""Transactions and branches of logs that are judged in memory; the pipeline judges more."""
NOTHING_DUE = "nothing-due"
_NAMED_MAX = 3

REASONS = reasons(
    Reason(
        "commit-lost",
        Answer.LOSES,
        "A coordinator has closed its decision to commit, and a branch is only prepared: a restart "
        "of the coordinator rolls it back without a word.",
    ),
    Reason(
        "went-against",
        Answer.LOSES,
        "A branch has ended against the decision, or a heuristic outcome is recorded. It has "
        "happened already; no restart mends it.",
    ),
    Reason(
        "log-unread",
        Answer.CANNOT_TELL,
        "Not all of a log can be read: a prepared branch or a decision may stand there.",
        "that log, whole",
    ),
    Reason(
        "decisions-absent",
        Answer.CANNOT_TELL,
        "The directory of a coordinator is here, and its decisions are not.",
        "the log of that coordinator",
    ),
    Reason(
        "decision-unread",
        Answer.CANNOT_TELL,
        "No decision to commit can be read of a branch in doubt, and the log of its coordinator is "
        "damaged.",
        "a copy of the coordinator's log from before the damage",
    ),
    Reason(
        "too-many",
        Answer.CANNOT_TELL,
        "The logs hold more global transactions than are judged in memory.",
        "the table global_transactions of tallystick pipeline run",
    ),
    Reason(
        "due",
        Answer.SAFE,
        "The logs tell of branches in doubt what their coordinators do with them at their start.",
        after_crash=True,
    ),
    Reason(
        "decided-elsewhere",
        Answer.SAFE,
        "No log tells whether branches in doubt are committed: an outcome row in another database "
        "does, where their coordinator asks when it starts.",
        after_crash=True,
    ),
    Reason(
        "foreign",
        Answer.SAFE,
        "Branches wait for a coordinator whose log is not here, and keep their locks until it "
        "decides.",
        after_crash=True,
    ),
    Reason(
        "unnamed",
        Answer.SAFE,
        "Branches are prepared under names that are no XA ids: no log of a coordinator tells of "
        "them.",
        after_crash=True,
    ),
    Reason(NOTHING_DUE, Answer.SAFE, "No global transaction waits for anything."),
    Reason(
        "later-commit-missing",
        Answer.CANNOT_TELL,
        "The log ends in a prepared transaction, and has nothing of a later one that was committed "
        "there, as its coordinator says: it may have stood where nothing stands now.",
        "a copy of the log; the rows of the later transaction",
    ),
)
"""The reasons of the answers about an estate; the last one is of a log in it."""


@dataclass(frozen=True, slots=True)
class EstateLine:
    """One thing that the logs say together.

    Attributes:
        judgement: the answer, with its text.
        logs: system and name of each log that it is about.
        gtrids: the global transactions.
    """

    judgement: Judgement
    logs: tuple[tuple[str, str], ...] = ()
    gtrids: tuple[bytes, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        logs = [{"system": system or None, "log": log} for system, log in self.logs]
        return {**self.judgement.to_dict(), "logs": logs, "gtrids": jsonable(self.gtrids)}


@dataclass(frozen=True, slots=True)
class EstateAnswer:
    """What the logs below one path say together.

    Attributes:
        lines: what they say, the gravest first; there is one at least.
        transactions: the global transactions that wait for something or went wrong, as rows of
            the table ``global_transactions``.
        findings: the alarms among them, and which logs are copies.
        logs: by name, the answers about single logs that others change.
        command: what to type next, for all of them.
        count: how many logs there are.
    """

    lines: tuple[EstateLine, ...]
    transactions: tuple[Row, ...] = ()
    findings: tuple[Finding, ...] = ()
    logs: Mapping[str, Judgement] = field(default_factory=dict)
    command: str = ""
    count: int = 0

    @property
    def judgement(self) -> Judgement:
        """The gravest of the answers; at stake is what all lines with it count."""
        first = self.lines[0].judgement
        if first.answer is not Answer.LOSES:
            return first
        lost = [one.judgement.at_stake.transactions or 0 for one in self.lines]
        return replace(first, at_stake=AtStake(sum(lost)))

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints as ``estate``."""
        return {
            **self.judgement.to_dict(),
            "lines": [line.to_dict() for line in self.lines],
            "global_transactions": [jsonable(row) for row in self.transactions],
            "next": self.command,
        }


class Gatherer:
    """Gathers what logs hold of global transactions, while they are read for something else.

    Args:
        paths: below which the logs lie.
        logs: all that were found there.
        estate: what else is known; a new one by default.
        least: of fewer logs nothing is gathered: there is nothing to judge together.
        most: more transactions are not kept.
    """

    def __init__(
        self,
        paths: Sequence[str],
        logs: Sequence[LogSource],
        estate: Estate | None = None,
        *,
        least: int = 2,
        most: float = JUDGED_MAX,
    ) -> None:
        self.estate = Estate() if estate is None else estate
        self.coordinators = coordinators_of(paths, logs)
        """Those whose directories are here."""
        self.systems: dict[str, str] = {}
        """The system of each log, by its name."""
        self.logs = logs
        self.too_many = False
        self._paths = paths
        self._gathers = len(logs) >= least
        self._most = most
        self._own: dict[str, Judgement] = {}
        add_coordinators(self.estate, self.coordinators)

    def add(
        self, reading: LogReading, findings: Iterable[Finding], own: Judgement | None = None
    ) -> None:
        """Add what a log holds.

        Args:
            reading: of the log.
            findings: those of the log that stand.
            own: the answer about the log alone.
        """
        if not self._gathers:
            return
        log = log_name(reading.source)
        self.systems[log] = reading.source.system
        if own is not None:
            self._own[log] = own
        self.add_unread(findings, log)
        if self.too_many:
            return
        for one in _known_transactions(reading):
            self.estate.add_transaction(one, log, reading.clock.value)
            # Looked at after each one: a single log may hold more than fit.
            if len(self.estate) > self._most:
                self.too_many = True
                self.estate.clear()
                return

    def add_unread(self, findings: Iterable[Finding], log: str = "") -> None:
        """Note what findings say cannot all be read: their logs, or ``log``, if they are of one.

        A finding of a system names the folder alone, which may hold several logs.
        """
        for one in findings:
            if hides_records(one.system, one.code, one.severity):
                self.estate.damaged.add(log or one.log)

    def add_closed(self) -> None:
        """Add the closed decisions that the logs of coordinators have forgotten."""
        add_closed(self.estate, self.coordinators)

    def judged(self, problems: Iterable[Finding]) -> EstateAnswer | None:
        """Return the answer; None where no log knows of a global transaction.

        Args:
            problems: why logs could not be read.
        """
        if not self.too_many and not len(self.estate):
            return None
        self.add_unread(problems)
        self.add_closed()
        rows = list(self.estate.judged())
        waiting = gravest_first(rows)
        lines = _lines(waiting, self)
        found = alarms.finding_rows_of(waiting, self.estate.copies)
        whole = ", ".join(self._paths)
        found += [_not_safe(whole, one) for one in lines if one.judgement.reason in _UNFOUND]
        return EstateAnswer(
            lines,
            tuple(waiting),
            tuple(_finding(row) for row in found),
            answers_of(rows, self._own, self.systems),
            self._command(),
            len(self.logs),
        )

    def _command(self) -> str:
        words = shell_words(self._paths)
        if self.too_many:
            return f"tallystick pipeline run {words} --out TABLES"
        return f"tallystick indoubt list {words}"


def _known_transactions(reading: LogReading) -> Iterator[Transaction]:
    """Yield the transactions of a log; none of one whose key is not known, as its findings say."""
    with suppress(LogSealedError):
        yield from reading.transactions()


def gravest_first(rows: Iterable[Row]) -> list[Row]:
    """Return the global transactions that need a person's attention, in the order of `REASONS`."""
    waiting = [row for row in rows if is_waiting(row)]
    order = list(REASONS)
    return sorted(waiting, key=lambda row: order.index(kind_of(row)))


def is_waiting(row: Row) -> bool:
    """Return True if a branch is in doubt, or has ended against the decision."""
    waiting = any(branch["state"] == "prepared" for branch in row["branches"])
    return waiting or row["resolution"] == Resolution.HEURISTIC_MISMATCH


_UNFOUND = ("decisions-absent", "too-many")
"""Reasons that nothing else is found for."""


def _not_safe(path: str, line: EstateLine) -> Row:
    one = line.judgement
    return {
        "code": NOT_SAFE.code, "severity": NOT_SAFE.severity.value, "log": path,
        "message": f"{one.words}: {one.text}", "advice": f"It would be decided by {one.decided_by}",
    }  # fmt: skip


def _finding(row: Row) -> Finding:
    return Finding(
        row["code"],
        Severity(row["severity"]),
        row.get("system", ""),
        row["log"] or "",
        row["message"],
        advice=row.get("advice"),
        gtrid=row.get("gtrid"),
    )


# -- what is said of all logs ------------------------------------------------------------------


def kind_of(row: Row) -> str:
    """Return the reason that a global transaction gives for the answer."""
    if row["alarm"] == alarms.LOST_COMMIT:
        return "commit-lost"
    if row["resolution"] == Resolution.HEURISTIC_MISMATCH:
        return "went-against"
    if row["alarm"] == alarms.DOUBTFUL:
        return "decision-unread"
    if row["alarm"] == alarms.ELSEWHERE:
        return "decided-elsewhere"
    return "foreign" if row["resolution"] == Resolution.FOREIGN else "due"


def _lines(waiting: Sequence[Row], gathered: Gatherer) -> tuple[EstateLine, ...]:
    """Return what is to be said, in the order of `REASONS`."""
    estate, systems = gathered.estate, gathered.systems
    alike: dict[tuple[str, tuple[str, ...]], list[Row]] = defaultdict(list)
    for row in waiting:
        kind = kind_of(row)
        alike[kind, concerned(row) if REASONS[kind].answer is Answer.LOSES else ()].append(row)
    lines = [
        EstateLine(
            _judgement(kind, _TEXTS[kind](rows, systems), len(rows)),
            tuple((systems.get(log, ""), log) for log in logs),
            tuple(row["gtrid"] for row in rows),
        )
        for (kind, logs), rows in alike.items()
    ]
    absent = [one.folder for one in gathered.coordinators if one.log not in systems]
    unnamed = sorted({one["log"] for one in estate.unnamed} - set(estate.copies))
    for kind, logs in (
        ("log-unread", sorted(estate.damaged)),
        ("decisions-absent", absent),
        ("unnamed", unnamed),
    ):
        if logs:
            about = tuple((systems.get(log, ""), log) for log in logs)
            lines.append(EstateLine(_judgement(kind), about))
    if gathered.too_many:
        lines.append(EstateLine(_judgement("too-many")))
    order = list(REASONS)
    lines.sort(key=lambda line: order.index(line.judgement.reason))
    return tuple(lines) or (EstateLine(_judgement(NOTHING_DUE)),)


def concerned(row: Row) -> tuple[str, ...]:
    """Return the logs of a loss: the coordinator's, and those of the branches that it is about."""
    states: tuple[str, ...] = ("prepared",)
    if row["alarm"] != alarms.LOST_COMMIT:
        against_commit = row["decision"] == Decision.COMMIT
        states = ("rolled_back", "active") if against_commit else ("rolled_back", "committed")
    held = [one["log"] for one in row["branches"] if one["state"] in states and one["log"]]
    return tuple(dict.fromkeys([*filter(None, [row["coordinator"]]), *held]))


def _judgement(kind: str, text: str = "", lost: int = 0) -> Judgement:
    row = REASONS[kind]
    stakes = {Answer.SAFE: NOTHING, Answer.LOSES: AtStake(lost)}
    stake = stakes.get(row.answer, AtStake())
    return Judgement(row.answer, kind, text or row.meaning, row.after_crash, stake, row.decided_by)


def _lost_text(rows: Sequence[Row], systems: Mapping[str, str]) -> str:
    coordinator, *held = (systems.get(log, log) for log in concerned(rows[0]))
    where, it = _list(held), "it" if len(rows) == 1 else "them"
    return (
        f"{_count(rows)}: closed by {coordinator}, only prepared in {where}; commit {it} in {where}"
        f" before you start {coordinator}"
    )


def _against_text(rows: Sequence[Row], _: Mapping[str, str]) -> str:
    why = _list(sorted({row["evidence"].partition("; ")[0] for row in rows}))
    return f"{_count(rows)}: {why}; it has happened: mend the data by hand"


def _due_text(rows: Sequence[Row], _: Mapping[str, str]) -> str:
    due = Counter(row["resolution"] for row in rows)
    words = {Resolution.COMMIT: "commit", Resolution.ROLLBACK: "roll back"}
    what = " and ".join(f"{due[name]:,} to {word}" for name, word in words.items() if due[name])
    return f"{what} when coordinators start"


def _foreign_text(rows: Sequence[Row], _: Mapping[str, str]) -> str:
    owners = _list(sorted({row["owner"] or "an unknown coordinator" for row in rows}))
    return f"{len(rows):,} of {owners}, which is not here: ask there"


def _unread_text(rows: Sequence[Row], _: Mapping[str, str]) -> str:
    return f"{_count(rows)}: {rows[0]['evidence'].partition('; ')[0]}"


_TEXTS = {
    "commit-lost": _lost_text,
    "went-against": _against_text,
    "decision-unread": _unread_text,
    "decided-elsewhere": _unread_text,
    "due": _due_text,
    "foreign": _foreign_text,
}


def _count(rows: Sequence[Row]) -> str:
    return counted(len(rows), "global transaction")


def _list(words: Sequence[str]) -> str:
    shown = words[:_NAMED_MAX]
    rest = [f"{len(words) - _NAMED_MAX:,} more"] if len(words) > _NAMED_MAX else []
    *firsts, last = [*shown, *rest] or [""]
    return f"{', '.join(firsts)} and {last}" if firsts else last


# -- what all logs say of one ------------------------------------------------------------------


def answers_of(
    rows: Iterable[Row], own: Mapping[str, Judgement], systems: Mapping[str, str]
) -> dict[str, Judgement]:
    """Return the answers about single logs that the others change.

    Args:
        rows: global transactions; those that have ended need only be here where a log has nothing
            of a branch that was decided to commit.
        own: the answer about each log alone.
        systems: the system of each log.
    """
    lost: Counter[str] = Counter()
    texts: dict[str, str] = {}
    prepared: dict[str, bytes] = {}
    missing: dict[str, bytes] = {}
    for row in rows:
        if row["alarm"] == alarms.LOST_COMMIT:
            for log in concerned(row):
                lost[log] += 1
                texts[log] = _lost_text([row], systems)
        # What is after the node in a gtrid grows with time.
        age = copies.age(row["gtrid"])
        for branch in row["branches"]:
            log = branch["log"] or ""
            if branch["state"] == "prepared":
                prepared[log] = max(prepared.get(log, b""), age)
            elif branch["state"] == "unknown" and row["decision"] == Decision.COMMIT:
                missing[log] = max(missing.get(log, b""), age)
    found = {}
    for log, judgement in own.items():
        if judgement.answer in (Answer.LOSES, Answer.REFUSES):
            continue
        if lost[log]:
            found[log] = _judgement("commit-lost", texts[log] if lost[log] == 1 else "", lost[log])
        elif judgement.reason == ENDS_IN_PREPARE and missing.get(log, b"") > prepared.get(log, b""):
            found[log] = _judgement("later-commit-missing")
    return found
