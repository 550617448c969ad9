"""Both verdicts of one journal and what lies between them.

In: a `Journal` (the pair as its bytes prove it). Out: the `Verdict`: the engine's part as the
oracle has it, the strict part, and differences in words for the person on call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tallystick.records import Difference, Finding, Outcome, Severity, State, Transaction, Verdict
from tallystick.systems.bitronix.engine.opening import Opening, cursor_events, open_pair
from tallystick.systems.bitronix.engine.report import dangling_json, engine_verdict
from tallystick.systems.bitronix.format.layout import SYSTEM_NAME
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.transactions import transactions
from tallystick.systems.bitronix.verdict.findings import Journal

FORMAT = "Btnx (2.1 and 3.0)"
LINE = "2.1.4"
"""The code line that is told as *the manager*: nearly every installation runs it."""

_OPEN_STATES = (State.COMMITTING, State.UNDECIDED)


def verdict(journal: Journal, findings: Sequence[Finding]) -> Verdict:
    """The whole verdict; linear in the files."""
    events = cursor_events(journal.pair.data, LINE)
    strict_open = journal.pair.dangling().records()
    outcomes = {
        skip: open_pair(journal.pair.data, events, skip_corrupted=skip) for skip in (False, True)
    }
    differences = tuple(_differences(journal, strict_open, outcomes))
    return Verdict(
        SYSTEM_NAME,
        journal.log,
        FORMAT,
        engine_verdict(journal.pair.data, events),
        _strict(journal, strict_open, findings, differences),
        differences,
    )


# -- the strict verdict ------------------------------------------------------------------------


def _strict(
    journal: Journal,
    strict_open: Sequence[TransactionLogRecord],
    findings: Sequence[Finding],
    differences: Iterable[Difference],
) -> dict[str, Any]:
    later = journal.pair.order()[1]
    states: Counter[str] = Counter()
    in_doubt = []
    for one in transactions(journal.pair, journal.log):
        states[one.state.value] += 1
        if one.state in _OPEN_STATES:
            in_doubt.append(_in_doubt(one))
    return {
        "records": _records_by_outcome(journal),
        "transactions": dict(states),
        "in_doubt": in_doubt,
        "lost": [one.meaning for one in differences if one.severity is Severity.LOSS],
        "findings": dict(Counter(one.code for one in findings)),
        "in_use": f"part{later.number}",
        "dangling": [dangling_json(record) for record in strict_open],
    }


def _records_by_outcome(journal: Journal) -> dict[str, int]:
    counts = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    for part in journal.pair.parts:
        for piece in part.pieces(journal.pair.newest):
            damaged = piece.outcome in (Outcome.CORRUPT, Outcome.TORN) and piece.offset > 0
            if piece.record is not None or damaged:
                counts[piece.outcome.value] += 1
    return counts


def _in_doubt(one: Transaction) -> dict[str, Any]:
    names = one.open_participants if one.state is State.COMMITTING else one.participants
    return {
        "gtrid": one.name,
        "state": one.state.value,
        "resources": list(names),
        "resolution": "commit" if one.state is State.COMMITTING else "rollback",
    }


# -- differences -------------------------------------------------------------------------------


def _differences(
    journal: Journal,
    strict_open: Sequence[TransactionLogRecord],
    outcomes: dict[bool, Opening],
) -> Iterator[Difference]:
    yield from _about_start(outcomes)
    skipping = outcomes[True]
    if skipping.active is None:
        return
    yield from _about_file(journal, skipping.active)
    if skipping.collect_error is None:
        how = "" if outcomes[False].collect_error is None else ", started with skipCorruptedLogs,"
        yield from _about_decisions(strict_open, skipping.dangling, how)


def _about_start(outcomes: dict[bool, Opening]) -> Iterator[Difference]:
    plain, skipping = outcomes[False], outcomes[True]
    refusal = plain.error or plain.collect_error
    if plain.hangs:
        yield _start("does not come back", "The manager hangs at start and says nothing.")
    elif refusal is not None:
        stuck = skipping.hangs or skipping.error or skipping.collect_error
        way = "It does not start with skipCorruptedLogs either."
        if not stuck:
            way = "With skipCorruptedLogs it starts, and drops what it cannot read."
        cause = refusal.message or refusal.java_class
        yield _start(f"refuses: {cause}", f"The manager does not start. {way}")


def _start(engine: str, meaning: str) -> Difference:
    strict = "the whole records can be read, and are listed"
    return Difference("start", engine, strict, meaning, Severity.DAMAGE, refuses=True)


def _about_file(journal: Journal, active: int) -> Iterator[Difference]:
    later = journal.pair.order()[1]
    if active + 1 != later.number:
        yield Difference(
            "file in use",
            f"part {active + 1}",
            f"part {later.number}",
            f"The manager opens part {active + 1}, which is the older file. Its next change of "
            f"files overwrites part {later.number}, the newer one.",
            Severity.DAMAGE,
            later.path,
            0,
        )


def _about_decisions(
    strict: Sequence[TransactionLogRecord], engine: Sequence[TransactionLogRecord], how: str
) -> Iterator[Difference]:
    proven = {record.gtrid: record for record in strict}
    believed = {record.gtrid: record for record in engine}
    for gtrid in sorted(proven.keys() | believed.keys()):
        ours, theirs = proven.get(gtrid), believed.get(gtrid)
        if ours is not None and theirs is None:
            yield _lost(gtrid, ours, how)
        elif theirs is not None and ours is None:
            yield _revived(gtrid, theirs, how)
        elif ours is not None and theirs is not None and ours.unique_names != theirs.unique_names:
            yield _other_names(gtrid, ours, theirs, how)


def _lost(gtrid: bytes, record: TransactionLogRecord, how: str) -> Difference:
    names = ", ".join(record.unique_names) or "no resource"
    return Difference(
        f"decision {_hex(gtrid)}",
        "not known: its branches are rolled back",
        f"commit, still open on {names}",
        f"A restart{how} loses the decision to commit {_hex(gtrid)}: branches prepared on {names} "
        "are rolled back, although others may have committed.",
    )


def _revived(gtrid: bytes, record: TransactionLogRecord, how: str) -> Difference:
    names = ", ".join(record.unique_names) or "no resource"
    return Difference(
        f"decision {_hex(gtrid)}",
        f"commit, still open on {names}",
        "closed: a later record says so",
        f"A restart{how} revives the decision {_hex(gtrid)} that was closed already: it commits "
        f"any branch left on {names}.",
        Severity.DAMAGE,
    )


def _other_names(
    gtrid: bytes, ours: TransactionLogRecord, theirs: TransactionLogRecord, how: str
) -> Difference:
    return Difference(
        f"decision {_hex(gtrid)}",
        f"open on {', '.join(theirs.unique_names) or 'no resource'}",
        f"open on {', '.join(ours.unique_names) or 'no resource'}",
        f"A restart{how} takes the decision {_hex(gtrid)} to be open on other resources than the "
        "records say.",
        Severity.LOSS if set(ours.unique_names) - set(theirs.unique_names) else Severity.DAMAGE,
    )


def _hex(gtrid: bytes) -> str:
    return gtrid.hex().upper() or "(empty)"
