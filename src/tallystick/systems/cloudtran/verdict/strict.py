"""What the bytes of a block log prove, and the `Verdict` put together.

In: the `LogAnalysis` of the files, the number of records per outcome, and the findings. Out: the
engine's part for each policy on damage, the strict part, and the differences between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.records import Deferred, DeferredList, Finding, Judgement, Verdict
from tallystick.systems.answers import judgement_of
from tallystick.systems.cloudtran.codes import CODES, REASONS
from tallystick.systems.cloudtran.engine.report import engine_verdict, loss_json
from tallystick.systems.cloudtran.format.layout import FORMAT_NAME, SYSTEM_NAME
from tallystick.systems.cloudtran.runs.analysis import LogAnalysis
from tallystick.systems.cloudtran.verdict.answer import grounds
from tallystick.systems.cloudtran.verdict.differences import differences
from tallystick.systems.cloudtran.verdict.findings import lost_numbers


def verdict(
    analysis: LogAnalysis,
    log: str,
    outcomes: Mapping[str, int],
    findings: Sequence[Finding],
    judgement: Judgement,
) -> Verdict:
    """Return the whole verdict; ``outcomes`` counts the records of the log by outcome."""
    return Verdict(
        SYSTEM_NAME,
        log,
        FORMAT_NAME,
        Deferred(lambda: engine_verdict(analysis)),
        _strict(analysis, outcomes, findings),
        tuple(differences(analysis)),
        judgement,
    )


def judgement(analysis: LogAnalysis, findings: Sequence[Finding]) -> Judgement:
    """Return the answer about the log."""
    return judgement_of(REASONS, CODES, grounds(analysis), findings)


def _strict(
    analysis: LogAnalysis, outcomes: Mapping[str, int], findings: Sequence[Finding]
) -> dict[str, Any]:
    """Return what the bytes prove; a target may or may not hold what is ``in_doubt``."""
    return {
        "records": {outcome: count for outcome, count in outcomes.items() if count},
        "transactions": {"pending": len(analysis.open), "committed": len(analysis.closed)},
        "in_doubt": DeferredList(lambda: _in_doubt(analysis)),
        "lost": [loss_json(loss) for loss in analysis.losses]
        + [{"transactions": [one[0], one[-1]]} for one in lost_numbers(analysis)],
        "findings": dict(Counter(finding.code for finding in findings)),
    }


def _in_doubt(analysis: LogAnalysis) -> list[dict[str, Any]]:
    return [
        {"transaction": number, "targets": list(one.pending)}
        for number, one in sorted(analysis.open.items())
    ]
