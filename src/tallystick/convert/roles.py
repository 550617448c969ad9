"""What is carried from an open log to a new one, role by role, and what both hold.

In: a log opened as its system opens it, and a new one of another system. Out: the new log with
everything that still matters, and an account of what had no counterpart. `Holdings` of both, taken
by the same calls, have to agree before the new log gets its name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tallystick.errors import LogFullError, LogWriteError, TallystickError, TransactionUsageError
from tallystick.roles import (
    DecisionOutcome,
    HoldsPlainRecords,
    JournalRecord,
    JournalStep,
    PreparedTransaction,
    Role,
    StepKind,
    Ticket,
)

_TICKETS_MAX = 1000
"""Records that wait for the disk at a time."""


@dataclass(slots=True)
class ConversionReport:
    """What a conversion carried over.

    Attributes:
        source: the log.
        source_system: its system.
        target: the folder of the new log.
        target_system: its system.
        role: the role of both.
        carried: what went over, by kind.
        over: what is over and needs no counterpart, by kind: transactions that have ended.
        left: what has no counterpart in the new log, by kind.
        named: each of what has none, with the reason, by kind.
        notes: what else an operator should know.
        next: how to open the new log.
    """

    source: str
    source_system: str
    target: str
    target_system: str
    role: str
    carried: Counter[str] = field(default_factory=Counter)
    over: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    named: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    next: str = ""

    def leave(self, kind: str, name: str, why: str | Exception = "") -> None:
        """Count and name something that has no counterpart, as the error of the new log says.

        Raises:
            LogFullError: that is the error; it is not about what was to be written.
        """
        if isinstance(why, LogFullError):
            raise why
        if isinstance(why, TallystickError):
            why.file = None  # the unfinished folder
        self.left[kind] += 1
        self.named.setdefault(kind, []).append(f"{name} ({why})" if why else name)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            name: dict(value) if isinstance(value := getattr(self, name), Counter) else value
            for name in self.__slots__
        }


class _Digest:
    """A running checksum of values, so that two logs can be compared in little memory."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, *values: object) -> None:
        self.count += 1
        self._hash.update(repr(values).encode())

    def value(self) -> tuple[int, str]:
        return self.count, self._hash.hexdigest()


Holdings = dict[str, Any]
"""What a log holds: for each kind of it a value that is equal for equal content."""


class _Writer:
    """Submits to the new log, and lets at most `_TICKETS_MAX` records wait for the disk."""

    def __init__(self) -> None:
        self._count = 0
        self._last: Ticket | None = None

    def wrote(self, ticket: Ticket) -> None:
        self._last, self._count = ticket, self._count + 1
        if self._count % _TICKETS_MAX == 0:
            ticket.wait()

    def wait(self) -> None:
        if self._last is not None:
            self._last.wait()


# -- decision logs --------------------------------------------------------------------------


def _carry_decisions(source: Any, target: Any, report: ConversionReport, kept: Holdings) -> None:
    writer = _Writer()
    decisions, heuristics = {}, {}
    # Before the decisions: an outcome closes one that stands before it.
    for gtrid, resources in source.heuristics().items():
        try:
            target.finish(gtrid, sorted(resources), DecisionOutcome.HEURISTIC)
        except (LogWriteError, ValueError) as error:
            report.leave("heuristic outcomes", gtrid.hex(), error)
            continue
        heuristics[gtrid] = resources
        report.carried["heuristic outcomes"] += 1
    for gtrid, decision in source.open_decisions().items():
        try:
            writer.wrote(target.decide(gtrid, sorted(decision.resources)))
        except (LogWriteError, ValueError) as error:
            report.leave("open decisions", gtrid.hex(), error)
            continue
        decisions[gtrid] = decision.resources
        report.carried["open decisions"] += 1
    writer.wait()
    kept |= {"open decisions": decisions, "heuristic outcomes": heuristics}


def _held_decisions(log: Any) -> Holdings:
    return {
        "open decisions": {
            gtrid: frozenset(one.resources) for gtrid, one in log.open_decisions().items()
        },
        "heuristic outcomes": dict(log.heuristics()),
    }


# -- record journals ------------------------------------------------------------------------


def _carry_journal(source: Any, target: Any, report: ConversionReport, kept: Holdings) -> None:
    writer = _Writer()
    live: dict[int, _Digest] = {}
    for one in source.live_records():
        try:
            write = target.update if one.update else target.add
            ticket = write(one.record_id, one.body, one.user_type)
        except (LogWriteError, TransactionUsageError) as error:
            report.leave("records", f"id {one.record_id}", error)
            continue
        writer.wrote(ticket)
        _add_live(live, one)
        report.carried["updates" if one.update else "records"] += 1
    kept["live records"] = _values(live)
    kept["plain records"] = _carry_plain(source, target, writer, report)
    kept["prepared transactions"] = _carry_prepared(source, target, writer, report)
    writer.wait()


def _add_live(live: dict[int, _Digest], one: JournalRecord) -> None:
    live.setdefault(one.record_id, _Digest()).add(one.user_type, one.body, one.update)


def _values(live: dict[int, _Digest]) -> dict[int, tuple[int, str]]:
    return {key: digest.value() for key, digest in live.items()}


def _carry_plain(
    source: Any, target: Any, writer: _Writer, report: ConversionReport
) -> tuple[int, str]:
    plain = _Digest()
    if isinstance(source, HoldsPlainRecords):
        for number, body in source.plain_records():
            if not isinstance(target, HoldsPlainRecords):
                report.leave("plain records", f"record {number}", "they have no id")
                continue
            writer.wrote(target.append(body))
            plain.add(body)
            report.carried["plain records"] += 1
    return plain.value()


def _carry_prepared(
    source: Any, target: Any, writer: _Writer, report: ConversionReport
) -> list[tuple[Any, ...]]:
    kept = []
    for one in source.prepared():
        gtrid = f", gtrid {one.xid.gtrid.hex()}" if one.xid else ""
        name = f"transaction {one.transaction}{gtrid}"
        if why := _unsayable(one, target):
            report.leave("prepared transactions", name, why)
            continue
        try:
            for step in one.steps:
                _write_step(target, one.transaction, step)
            writer.wrote(target.prepare(one.transaction, one.extra, one.xid))
        except (LogWriteError, TransactionUsageError) as error:
            # What it has begun stays without an end: opening the new log gives it up.
            report.leave("prepared transactions", name, error)
            continue
        kept.append(_branch(one))
        report.carried["prepared transactions"] += 1
    return sorted(kept, key=repr)


def _unsayable(one: PreparedTransaction, target: Any) -> str:
    """Return why the new log cannot hold this transaction; empty if it can."""
    if isinstance(target, HoldsPlainRecords):
        return ""
    if any(step.kind is StepKind.APPEND for step in one.steps):
        return "it has plain records"
    deleted: set[int | None] = set()
    for step in one.steps:
        if step.kind is StepKind.DELETE:
            deleted.add(step.record_id)
        elif step.record_id in deleted:
            return "it adds a record again that it deletes, and here deletes come last"
    return ""


def _write_step(target: Any, number: int, step: JournalStep) -> None:
    if step.kind is StepKind.APPEND:
        target.append_in(number, step.body)
    elif step.kind is StepKind.DELETE:
        target.delete_in(number, step.record_id, step.body)
    elif step.kind is StepKind.UPDATE:
        target.update_in(number, step.record_id, step.body, step.user_type)
    else:
        target.add_in(number, step.record_id, step.body, step.user_type)


def _branch(one: PreparedTransaction) -> tuple[Any, ...]:
    """Return what a prepared transaction is: its Xid, extra data, and what a commit would do."""
    effects: dict[int | None, list[tuple[Any, ...]]] = {}
    for step in one.steps:
        value = (step.kind.value, step.user_type, step.body)
        effects.setdefault(step.record_id, []).append(value)
    extra = b"" if one.xid is not None else one.extra
    return one.xid, extra, sorted(effects.items(), key=repr)


def _held_journal(log: Any) -> Holdings:
    live: dict[int, _Digest] = {}
    for one in log.live_records():
        _add_live(live, one)
    plain = _Digest()
    for _, body in log.plain_records() if isinstance(log, HoldsPlainRecords) else ():
        plain.add(body)
    return {
        "live records": _values(live),
        "plain records": plain.value(),
        "prepared transactions": sorted(map(_branch, log.prepared()), key=repr),
    }


# -- persist logs -----------------------------------------------------------------------------


def _carry_entries(source: Any, target: Any, report: ConversionReport, kept: Holdings) -> None:
    writer, entries = _Writer(), _Digest()
    for entry, rest in source.pending():
        operations = list(entry.operations)
        try:
            number, ticket = target.persisting(entry.targets, operations, entry.reference)
        except (LogWriteError, ValueError) as error:
            report.leave("pending entries", f"number {entry.number}", error)
            continue
        writer.wrote(ticket)
        if held := set(entry.targets) - rest:
            target.persisted(number, held)
        _add_entry(entries, entry, rest)
        report.carried["pending entries"] += 1
        if number != entry.number and not report.notes:
            report.notes.append(
                "entries have new numbers, in the same order: a target that keeps the numbers it "
                "has applied takes for new what it holds and the log does not know of"
            )
    writer.wait()
    kept["pending entries"] = entries.value()


def _add_entry(entries: _Digest, entry: Any, rest: frozenset[str]) -> None:
    values = [
        (one.code.value, one.collection, one.key, one.value, one.target) for one in entry.operations
    ]
    entries.add(tuple(entry.targets), entry.reference, values, sorted(rest))


def _held_entries(log: Any) -> Holdings:
    entries = _Digest()
    for entry, rest in log.pending():
        _add_entry(entries, entry, rest)
    return {"pending entries": entries.value()}


# -- both -------------------------------------------------------------------------------------

Carry = Callable[[Any, Any, ConversionReport, Holdings], None]
CARRIERS: dict[Role, tuple[Carry, Callable[[Any], Holdings]]] = {
    Role.DECISION_LOG: (_carry_decisions, _held_decisions),
    Role.RECORD_JOURNAL: (_carry_journal, _held_journal),
    Role.PERSIST_LOG: (_carry_entries, _held_entries),
}
"""For each role what carries a log over, and what tells what a log holds."""


def differences(expected: Holdings, found: Holdings) -> Iterator[str]:
    """Yield what two logs do not hold alike, in words."""
    for kind, value in expected.items():
        other = found.get(kind)
        if other == value:
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            places = [key for key in {**value, **other} if value.get(key) != other.get(key)]
            yield f"{kind}: {len(places)} differ, {places[0]!r} among them"
        else:
            yield f"{kind}: {value!r:.200} became {other!r:.200}"
