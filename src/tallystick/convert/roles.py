"""What is carried from a log to one of another system, role by role.

In: a reading of the old log, the folder of the new one. Out: the new log, closed, and the counts of
what went over and what did not. `tallystick.convert.command.convert` calls these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tallystick.records import Kind, Outcome, Record, State
from tallystick.roles import DecisionOutcome, JournalRecord
from tallystick.systems.protocol import LogReading, StoredEntry
from tallystick.systems.registry import (
    open_decision_log,
    open_persist_log,
    open_record_journal,
    system,
)

ELEMENTS = (Kind.ADD, Kind.UPDATE, Kind.DELETE)
_UNSIGNED = (1 << 64) - 1
"""Numbers of entries are compared as unsigned: some tables hold their signed twins."""
_ENDS = (Kind.COMMIT, Kind.ROLLBACK)


@dataclass(slots=True)
class ConversionReport:
    """What a conversion carried over, and what has no counterpart."""

    source: str
    source_system: str
    target: str
    target_system: str
    role: str
    carried: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            name: dict(value) if isinstance(value := getattr(self, name), Counter) else value
            for name in self.__slots__
        }


# -- decision logs --------------------------------------------------------------------------


def convert_decisions(reading: LogReading, folder: str, to: str, report: ConversionReport) -> None:
    """Write open decisions and unsettled heuristic outcomes to a new decision log."""
    log = open_decision_log(folder, to)
    ticket = None
    try:
        for one in reading.transactions():
            assert one.gtrid is not None
            if one.state is State.COMMITTING:
                ticket = log.decide(one.gtrid, one.open_participants)
                report.carried["open decisions"] += 1
            elif one.state is State.HEURISTIC and not one.attributes.get("settled"):
                log.finish(one.gtrid, one.participants, DecisionOutcome.HEURISTIC)
                report.carried["heuristic outcomes"] += 1
            else:
                report.left[f"transactions {one.state.value.replace('_', ' ')}"] += 1
        if ticket is not None:
            ticket.wait()
    finally:
        log.close()


# -- record journals ------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    elements: list[Record] = field(default_factory=list)
    prepared: Record | None = None


@dataclass(slots=True)
class _Live:
    """The state of a journal: live records by id, and transactions that have not ended."""

    incomplete: set[tuple[str, int]]
    records: dict[int, list[JournalRecord]] = field(default_factory=dict)
    open: dict[int, _Open] = field(default_factory=dict)
    over: Counter[str] = field(default_factory=Counter)

    def replay(self, records: Iterator[Record]) -> None:
        for record in records:
            if record.outcome is not Outcome.VALID:
                continue
            if record.transaction is None:
                self._apply(record)
            elif record.kind in ELEMENTS:
                self.open.setdefault(record.transaction, _Open()).elements.append(record)
            elif record.kind is Kind.PREPARE:
                self.open.setdefault(record.transaction, _Open()).prepared = record
            elif record.kind in _ENDS:
                self._end(record)

    def _end(self, record: Record) -> None:
        one = self.open.pop(record.transaction or 0, None)
        if one is None or record.kind is Kind.ROLLBACK:
            return
        if (record.file, record.offset) in self.incomplete:
            self.over["transactions with holes"] += 1
            return
        deletes = [element for element in one.elements if element.kind is Kind.DELETE]
        for element in one.elements:
            if element.kind is not Kind.DELETE:
                self._apply(element)
        for element in deletes:
            self._apply(element)

    def _apply(self, record: Record) -> None:
        if record.record_id is None or record.kind not in ELEMENTS:
            return
        if record.kind is Kind.DELETE:
            gone = self.records.pop(record.record_id, [])
            self.over["deleted records"] += bool(gone)
            return
        self.records.setdefault(record.record_id, []).append(_journal_record(record))


def _journal_record(record: Record) -> JournalRecord:
    assert record.record_id is not None
    user_type = int(record.attributes.get("user_type") or 0)
    update = record.kind is Kind.UPDATE
    return JournalRecord(record.record_id, user_type, record.body or b"", update)


def convert_journal(reading: LogReading, folder: str, to: str, report: ConversionReport) -> None:
    """Write live records and prepared transactions to a new record journal."""
    holes = {
        one.evidence
        for one in reading.transactions()
        if one.state is State.INCOMPLETE and one.evidence is not None
    }
    live = _Live(holes)
    live.replay(reading.records())
    report.left.update(live.over)
    journal = open_record_journal(folder, to)
    try:
        ticket = None
        for versions in live.records.values():
            for one in versions:
                write = journal.update if one.update else journal.add
                ticket = write(one.record_id, one.body, one.user_type)
                report.carried["updates" if one.update else "records"] += 1
        for number, waiting in sorted(live.open.items()):
            if waiting.prepared is None:
                report.left["transactions without an end"] += 1
                continue
            ticket = _prepare_again(journal, number, waiting)
            report.carried["prepared transactions"] += 1
        if ticket is not None:
            ticket.wait()
    finally:
        journal.close()


def _prepare_again(journal: Any, number: int, waiting: _Open) -> Any:
    for element in waiting.elements:
        if element.kind is Kind.DELETE:
            journal.delete_in(number, element.record_id, element.body or b"")
            continue
        one = _journal_record(element)
        write = journal.update_in if one.update else journal.add_in
        write(number, one.record_id, one.body, one.user_type)
    assert waiting.prepared is not None
    return journal.prepare(number, waiting.prepared.attributes.get("extra") or b"")


# -- persist logs -----------------------------------------------------------------------------


def convert_entries(reading: LogReading, folder: str, to: str, report: ConversionReport) -> None:
    """Write pending entries, in their order, to a new persist log."""
    pending = {}
    for one in reading.transactions():
        if one.state is State.PENDING:
            assert one.transaction is not None
            pending[one.transaction & _UNSIGNED] = frozenset(one.open_participants)
        else:
            report.left["entries that are persisted"] += 1
    stored = system(reading.source.system).stored_entry
    log = open_persist_log(folder, to)
    ticket = None
    try:
        for record in reading.records():
            if record.kind is not Kind.PERSISTING:
                continue
            entry = stored(record)
            number = None if entry.number is None else entry.number & _UNSIGNED
            if number not in pending:
                continue
            held = set(record.resources) - pending.pop(number)
            ticket = _carry_entry(log, record, entry, held)
            report.carried["pending entries"] += 1
            report.left["transaction numbers (new ones are given, in the same order)"] += 1
        if ticket is not None:
            ticket.wait()
    finally:
        log.close()


def _carry_entry(log: Any, record: Record, entry: StoredEntry, held: set[str]) -> Any:
    number, ticket = log.persisting(record.resources, list(entry.operations), entry.reference)
    if held:
        log.persisted(number, held)
    return ticket
