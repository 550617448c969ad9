"""What the bytes of a log prove, and the `Verdict` put together.

In: the analysis of all bytes, the engine's recovery and the findings. Out: a `Verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tallystick.records import Deferred, Finding, Judgement, Verdict
from tallystick.systems.answers import judgement_of
from tallystick.systems.derby.codes import CODES, REASONS
from tallystick.systems.derby.engine.analysis import End, LogAnalysis
from tallystick.systems.derby.engine.report import report
from tallystick.systems.derby.engine.result import OpenTransaction, Recovery
from tallystick.systems.derby.format.field_types import global_id_text
from tallystick.systems.derby.format.layout import SYSTEM_NAME, instant_text
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.transactions import ACTIVE
from tallystick.systems.derby.verdict.answer import grounds
from tallystick.systems.derby.verdict.differences import differences

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import Runs

Json = dict[str, Any]


def verdict(
    path: str,
    form: str,
    scan: LogScan,
    analysis: LogAnalysis,
    recovery: Recovery,
    findings: Sequence[Finding],
    judgement: Judgement,
    runs: Runs | None = None,
) -> Verdict:
    """Return both judgements and their differences; ``form`` is the log's format.

    The engine's, which counts all records by lengths alone, is made when it is asked for.

    ``runs`` reads plain records faster.
    """
    return Verdict(
        SYSTEM_NAME,
        path,
        form,
        Deferred(lambda: report(scan.log, recovery, runs)),
        strict(analysis, recovery, findings),
        differences(analysis, recovery),
        judgement,
    )


def judgement(
    scan: LogScan,
    analysis: LogAnalysis,
    recovery: Recovery,
    findings: Sequence[Finding],
    runs: Runs | None = None,
) -> Judgement:
    """Return the answer about the log."""
    return judgement_of(REASONS, CODES, grounds(scan, analysis, recovery, runs), findings)


def strict(analysis: LogAnalysis, recovery: Recovery, findings: Iterable[Finding]) -> Json:
    """Return what can be known from the bytes."""
    transactions = analysis.transactions
    kept = transactions.kept.values()
    internal = Counter(one.state for one in kept if one.internal and one.state == ACTIVE)
    return {
        "records": dict(analysis.records),
        "transactions": dict(transactions.states - internal)
        | ({"active_internal": internal.total()} if internal else {}),
        "in_doubt": [global_id_text(one.xid) for one in transactions.prepared()],
        "lost": {
            "bytes": analysis.lost_bytes,
            "records": analysis.lost_records,
            "ends": [_end_text(one) for one in analysis.lost_ends],
        }
        | ({"files": [f"log{recovery.lost_file}.dat"]} if recovery.lost_file else {}),
        "findings": dict(Counter(one.code for one in findings)),
        "recovery": _recovery(recovery),
    }


def _end_text(one: End) -> str:
    return f"{one.kind.value} of transaction {one.transaction} at {instant_text(one.place)}"


def _recovery(recovery: Recovery) -> Json:
    return {
        "boots": recovery.boots,
        "reason": recovery.reason,
        "control": recovery.control,
        "checkpoint": instant_text(recovery.checkpoint),
        "redo_mark": instant_text(recovery.redo_mark),
        "undo_mark": instant_text(recovery.undo_mark),
        "start": instant_text(recovery.start),
        "log_end": instant_text(recovery.log_end),
        "fuzzy": recovery.fuzzy,
        "redo": recovery.redone,
        "undo": [_open(one) for one in recovery.undo],
        "in_doubt": [_open(one) for one in recovery.in_doubt],
        "new_log": recovery.new_log,
    }


def _open(one: OpenTransaction) -> Json:
    return {
        "transaction": one.number,
        "first": instant_text(one.first),
        "last": instant_text(one.last),
        "records": one.records,
        "internal": one.internal,
        "gid": global_id_text(one.xid),
    }
