"""Both judgements of one file: as the engine would, and as the bytes prove.

In: the state of a file, its findings. Out: a `Verdict` whose engine part has the oracle's keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tallystick.records import Difference, Finding, Outcome, Severity, State, Verdict
from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.engine.state import LogState
from tallystick.systems.h2.format.entries import INCOMPLETE, UNKNOWN
from tallystick.systems.h2.format.layout import SYSTEM_NAME
from tallystick.systems.h2.format.xid import parse_name
from tallystick.systems.h2.read.records import oracle_form, outcome_of
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.stream import LogStream
from tallystick.systems.h2.read.transactions import groups


def verdict_of(state: LogState, path: str, form: str, findings: Sequence[Finding]) -> Verdict:
    """The verdict of one file."""
    return Verdict(
        SYSTEM_NAME,
        path,
        form,
        engine_part(state),
        strict_part(state, findings),
        differences(findings),
    )


def engine_part(state: LogState) -> dict[str, Any]:
    """What the engine's recovery reads and decides, in the oracle's words."""
    if state.stream is None or state.recovery is None:
        return {
            "records": [],
            "stage_ends": [],
            "first_section": None,
            "last_section": None,
            "recovery": state.opening.to_json(),
        }
    recovery = state.recovery
    return {
        "records": _records(state, state.stream, recovery),
        "stage_ends": [_stage(stage, recovery) for stage in state.opening.stages],
        "first_section": None if recovery.last_section is None else 0,
        "last_section": recovery.last_section,
        "recovery": state.opening.to_json(),
    }


def _records(state: LogState, stream: LogStream, recovery: Recovery) -> list[dict[str, Any]]:
    entries = Scan(stream, state.zone).entries()
    return [oracle_form(entry, stream, recovery) for entry in entries]


def _stage(stage: int, recovery: Recovery) -> dict[str, Any]:
    return {
        "stage": stage,
        "end": recovery.end.text,
        "empty": recovery.empty,
        "sessions": [
            {
                "session": state.session,
                "last_commit_section": state.commit_section,
                "last_commit_pos": state.commit_pos,
                "in_doubt": state.in_doubt,
            }
            for state in recovery.ordered_sessions()
        ],
    }


def strict_part(state: LogState, findings: Sequence[Finding]) -> dict[str, Any]:
    """Counts of records and transactions, what is in doubt, what a restart would lose."""
    records: Counter[Outcome] = Counter()
    states: Counter[State] = Counter()
    in_doubt: list[dict[str, Any]] = []
    if state.stream is not None:
        records = _outcomes(state, state.stream)
        for group in groups(Scan(state.stream, state.zone).entries(), keep_rows=False):
            states[group.state] += 1
            if group.state is State.PREPARED:
                in_doubt.append(_in_doubt(group.session, group.names[-1], len(group.changes)))
    return {
        "records": {outcome.value: records[outcome] for outcome in Outcome if records[outcome]},
        "transactions": {one.value: states[one] for one in State if states[one]},
        "in_doubt": in_doubt,
        "lost": [_loss(one) for one in findings if one.severity is Severity.LOSS],
        "findings": dict(sorted(Counter(one.code for one in findings).items())),
        "opens": state.opening.opened,
    }


def _outcomes(state: LogState, stream: LogStream) -> Counter[Outcome]:
    counts: Counter[Outcome] = Counter()
    for entry in Scan(stream, state.zone).entries():
        counts[outcome_of(entry, stream)] += entry.count
        if entry.type in (INCOMPLETE, UNKNOWN):
            break  # what follows is a guess of the engine, not a fact
    return counts


def _in_doubt(session: int, name: str, changes: int) -> dict[str, Any]:
    xid = parse_name(name)
    form: dict[str, Any] = {"transaction": name, "session": session, "changes": changes}
    if xid is not None:
        form |= {"format_id": xid.format_id, "gtrid": xid.gtrid, "bqual": xid.bqual}
    return form


def _loss(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "what": finding.message,
        "offset": finding.offset,
        "bytes_at_risk": finding.bytes_at_risk,
    }


_ENGINE_SAYS = {
    "lost-behind-damage": "opens the database and says nothing",
    "log-cut-short": "takes it for the end of the log and says nothing",
    "unknown-record-type": "skips the bytes and goes on",
    "damaged-undo-image": "restores the page half and says nothing",
    "damaged-row": "uses the row as it comes out",
    "partial-redo": "opens the database with part of the changes",
    "file-would-be-replaced": "starts a new, empty database in this file",
    "in-doubt": "keeps it in doubt and opens read-only",
    "changes-behind-prepare": "drops them",
    "name-hidden": "lists the last name only",
}


def differences(findings: Sequence[Finding]) -> tuple[Difference, ...]:
    """Where the engine's judgement and the strict one part."""
    return tuple(
        Difference(
            one.code,
            engine=_ENGINE_SAYS[one.code],
            strict=one.message,
            meaning=_meaning(one),
            severity=one.severity,
            file=one.file,
            offset=one.offset,
        )
        for one in findings
        if one.code in _ENGINE_SAYS
    )


def _meaning(finding: Finding) -> str:
    if finding.severity is Severity.LOSS:
        return "A restart loses or alters acknowledged data here, silently. " + (
            finding.advice or "Copy the file first"
        )
    return finding.advice or "Look at it before the restart"
