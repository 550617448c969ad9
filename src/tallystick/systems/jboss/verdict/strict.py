"""Say what the bytes of a journal prove, and put the verdict together.

In: an `Evidence` and its findings. Out: the `Verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tallystick.records import Finding, Judgement, Outcome, State, Transaction, Verdict
from tallystick.storage.source import logical_name
from tallystick.systems.answers import judgement_of
from tallystick.systems.held_back import held_back
from tallystick.systems.jboss.codes import CODES, REASONS
from tallystick.systems.jboss.format.layout import SYSTEM_NAME
from tallystick.systems.jboss.read.analysis import GONE_MAX, Analysis
from tallystick.systems.jboss.read.transactions import transactions
from tallystick.systems.jboss.verdict.answer import grounds
from tallystick.systems.jboss.verdict.differences import Evidence, differences


def verdict(
    evidence: Evidence,
    findings: list[Finding],
    format_name: str,
    engine: Mapping[str, Any],
    own: Judgement,
) -> Verdict:
    """Return the engine's verdict, which is given, and the strict one side by side.

    ``own`` is the answer about the journal, as `judgement` returns it.
    """
    return Verdict(
        SYSTEM_NAME,
        evidence.log,
        format_name,
        engine,
        _strict(evidence, findings),
        tuple(differences(evidence)),
        own,
    )


def judgement(evidence: Evidence, findings: list[Finding]) -> Judgement:
    """Return the answer about the journal."""
    return judgement_of(REASONS, CODES, grounds(evidence), findings)


def _strict(evidence: Evidence, findings: list[Finding]) -> dict[str, Any]:
    analysis = evidence.analysis
    every = [*transactions(evidence.log, analysis), *evidence.coordinated]
    return {
        "records": {outcome.value: analysis.outcomes[outcome] for outcome in Outcome},
        "transactions": _states(analysis, every),
        "in_doubt": [_in_doubt(one) for one in every if one.state is State.PREPARED],
        "lost": list(_lost(evidence, every)),
        "findings": dict(Counter(finding.code for finding in findings)),
        "live_records": analysis.live_records,
        "missing_file_ids": analysis.missing_ids()[:GONE_MAX],
        "loaded": sum(one.file.size for one in analysis.readings),
    } | _held_back(analysis)


def _held_back(analysis: Analysis) -> dict[str, Any]:
    """Return what the oldest open transaction holds: each file with a record of it."""
    firsts = [
        (min(placed, key=lambda one: one.place), one)
        for one in analysis.open
        if (placed := [*one.records, *one.deletes])
    ]
    used = [one for one in analysis.readings if one.has_records]
    first, oldest = min(firsts, key=lambda one: one[0].place, default=(None, None))
    if first is None or oldest is None or first.path == used[-1].file.path:
        return {}
    held = [one.file.size for one in used if one.file.stamp in oldest.elements]
    name = logical_name(first.path).rpartition("/")[2]
    number = f"transaction {oldest.transaction}"
    return {"held_back": held_back(number, name, first.offset, held)}


def _states(analysis: Analysis, every: list[Transaction]) -> dict[str, int]:
    states = Counter(one.state for one in every) + analysis.closed
    return {state.value: count for state, count in states.items()}


def _in_doubt(one: Transaction) -> dict[str, Any]:
    return {
        "transaction": one.transaction,
        "format_id": one.format_id,
        "gtrid": one.gtrid,
        "bqual": one.bqual,
        "complete": one.complete,
    }


def _lost(evidence: Evidence, every: list[Transaction]) -> Iterator[dict[str, Any]]:
    if evidence.error:
        yield {"what": "everything", "why": f"the load stops: {evidence.error}"}
    for placed in evidence.analysis.dropped:
        yield {
            "what": "record",
            "id": placed.item.record_id,
            "transaction": placed.item.transaction,
            "file": placed.path,
            "offset": placed.item.offset,
            "why": "whole, but the loader does not see it",
        }
    for one in every:
        if one.holes and one.state in (State.COMMITTED, State.PREPARED):
            yield {"what": "elements", "transaction": one.transaction, "why": one.holes}
