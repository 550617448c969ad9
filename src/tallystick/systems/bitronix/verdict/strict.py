"""What the bytes of one journal prove, and the `Verdict` put together.

In: both files, and the findings about them. Out: the engine's part in the oracle's keys, the
strict part, and the differences between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.records import (
    Difference,
    Finding,
    Judgement,
    Outcome,
    Severity,
    State,
    Transaction,
    Verdict,
)
from tallystick.systems.answers import judgement_of
from tallystick.systems.bitronix.codes import CODES, REASONS
from tallystick.systems.bitronix.engine.opening import (
    Events,
    Opening,
    deciding_events,
    events_of_lines,
    open_pair,
)
from tallystick.systems.bitronix.engine.report import dangling_json, engine_verdict
from tallystick.systems.bitronix.format.layout import FORMAT_NAME, SYSTEM_NAME
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.files import DualFiles
from tallystick.systems.bitronix.read.transactions import transactions
from tallystick.systems.bitronix.verdict.answer import grounds
from tallystick.systems.bitronix.verdict.differences import differences

_OPEN_STATES = (State.COMMITTING, State.UNDECIDED)


def verdict(pair: DualFiles, log: str, findings: Sequence[Finding]) -> Verdict:
    """Return the whole verdict; linear in the files."""
    events, newer_events = events_of_lines(pair.data)
    strict_open = pair.dangling().records()
    starts = _starts(pair, events, newer_events)
    found = tuple(differences(pair, strict_open, starts.older))
    return Verdict(
        SYSTEM_NAME,
        log,
        FORMAT_NAME,
        engine_verdict(pair.data, events, newer_events),
        _strict(pair, log, strict_open, findings, found),
        found,
        _judgement(pair, strict_open, starts, found, findings),
    )


def judgement(pair: DualFiles, findings: Sequence[Finding]) -> Judgement:
    """Return the answer of `verdict`, without the cursor events of plain records."""
    strict_open = pair.dangling().records()
    starts = _starts(pair, *deciding_events(pair.parts))
    found = tuple(differences(pair, strict_open, starts.older))
    return _judgement(pair, strict_open, starts, found, findings)


@dataclass(frozen=True, slots=True)
class _Starts:
    """What the start of either code line comes to, of 2.1.4 without and with skipCorruptedLogs."""

    older: dict[bool, Opening]
    newer: Opening


def _starts(pair: DualFiles, events: Events, newer_events: Events) -> _Starts:
    older = {skip: open_pair(pair.data, events, skip_corrupted=skip) for skip in (False, True)}
    return _Starts(older, open_pair(pair.data, newer_events, skip_corrupted=False))


def _judgement(
    pair: DualFiles,
    strict_open: Sequence[TransactionLogRecord],
    starts: _Starts,
    found: Sequence[Difference],
    findings: Sequence[Finding],
) -> Judgement:
    holds = grounds(pair, found, (starts.older[False], starts.newer), len(strict_open))
    return judgement_of(REASONS, CODES, holds, findings)


# -- the strict verdict ------------------------------------------------------------------------


def _strict(
    pair: DualFiles,
    log: str,
    strict_open: Sequence[TransactionLogRecord],
    findings: Sequence[Finding],
    found: Iterable[Difference],
) -> dict[str, Any]:
    later = pair.order()[1]
    states: Counter[str] = Counter()
    in_doubt = []
    for one in transactions(pair, log):
        states[one.state.value] += 1
        if one.state in _OPEN_STATES:
            in_doubt.append(_in_doubt(one))
    return {
        "records": _records_by_outcome(pair),
        "transactions": dict(states),
        "in_doubt": in_doubt,
        "lost": [one.meaning for one in found if one.severity is Severity.LOSS],
        "findings": dict(Counter(one.code for one in findings)),
        "in_use": f"part{later.number}",
        "dangling": [dangling_json(record) for record in strict_open],
    }


def _records_by_outcome(pair: DualFiles) -> dict[str, int]:
    counts = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    for part in pair.parts:
        counts[Outcome.VALID.value] += 0 if part.plain is None else part.plain.count
        for span in part.odd_spans(pair.newest):
            damaged = span.outcome in (Outcome.CORRUPT, Outcome.TORN) and span.offset > 0
            if span.record is not None or damaged:
                counts[span.outcome.value] += span.count
    return counts


def _in_doubt(one: Transaction) -> dict[str, Any]:
    names = one.open_participants if one.state is State.COMMITTING else one.participants
    return {
        "gtrid": one.name,
        "state": one.state.value,
        "resources": list(names),
        "resolution": "commit" if one.state is State.COMMITTING else "rollback",
    }
