"""What the bytes of a log prove, and the `Verdict` put together.

In: the analysis of all bytes, the engine's recovery and the findings. Out: a `Verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tallystick.records import Deferred, Finding, Judgement, Verdict
from tallystick.systems.answers import judgement_of
from tallystick.systems.derby.codes import CODES, REASONS
from tallystick.systems.derby.engine.analysis import End, LogAnalysis
from tallystick.systems.derby.engine.report import Json, report
from tallystick.systems.derby.engine.result import OpenTransaction, Recovery
from tallystick.systems.derby.format.field_types import global_id_text
from tallystick.systems.derby.format.layout import SYSTEM_NAME, instant_text
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.scan import LogScan
from tallystick.systems.derby.read.transactions import ACTIVE, STATES
from tallystick.systems.derby.verdict.answer import grounds, has_intact_control
from tallystick.systems.derby.verdict.differences import differences
from tallystick.systems.held_back import held_back

if TYPE_CHECKING:
    from tallystick.systems.derby.runs.chunk import Runs

_CONTROL_DAMAGED = "control-damaged"
HELD_MIN = 2
"""Files, from which on a transaction holds old ones: the newest is in use anyway."""


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
        strict(scan.log, analysis, recovery, findings),
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
    """Return the answer about the log.

    Where one control file is intact, damage to the other decides nothing: the mirror is read only
    where log.ctrl is damaged, and is there for that.
    """
    decided = _CONTROL_DAMAGED if has_intact_control(scan.log) else None
    asked = [one for one in findings if one.code != decided]
    return judgement_of(REASONS, CODES, grounds(scan, analysis, recovery, runs), asked)


def strict(
    log: LogFiles, analysis: LogAnalysis, recovery: Recovery, findings: Iterable[Finding]
) -> Json:
    """Return what can be known from the bytes."""
    transactions = analysis.transactions
    kept = transactions.kept.values()
    internal = Counter(one.state for one in kept if one.internal and one.state == ACTIVE)
    states = transactions.states - internal
    return {
        "records": dict(analysis.records),
        "transactions": {STATES[one].value: count for one, count in states.items()}
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
        "redo": redo_bytes(log, recovery),
    } | ({"held_back": held} if (held := held_by_open(log, recovery)) else {})


def redo_bytes(log: LogFiles, recovery: Recovery) -> int | None:
    """Return how many bytes of the log a boot reads to redo it; None where it does not boot."""
    if not recovery.boots or not recovery.start:
        return None
    (first, begin), (last, end) = (
        (one >> 32, one & 0xFFFFFFFF) for one in (recovery.start, recovery.log_end)
    )
    between = (file.size for file in log.files.values() if first <= file.number < last)
    return max(0, sum(between) + end - begin)


def held_by_open(log: LogFiles, recovery: Recovery) -> Json | None:
    """Return what the oldest open transaction holds: all files from that of its first record on.

    None where that is the newest file only.
    """
    opened = [one for one in recovery.table.values() if not one.internal]
    if not opened:
        return None
    oldest = min(opened, key=lambda one: one.first)
    number, offset = oldest.first >> 32, oldest.first & 0xFFFFFFFF
    held = [file for file in log.files.values() if file.number >= number]
    if len(held) < HELD_MIN or held[0].number != number:
        return None
    sizes = [held[0].size - offset, *(file.size for file in held[1:])]
    return held_back(f"transaction {oldest.number}", held[0].name, offset, sizes)


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
