"""The engine's verdict in the words and keys of the oracle, once per policy on damage.

In: the `LogAnalysis` of the files. Out: a dictionary with ``stop_policy`` (a start refuses at the
first loss) and ``report_policy`` (what a start that goes on finds pending, lost and disposable).
"""

from __future__ import annotations

from typing import Any

from tallystick.systems.cloudtran.runs.analysis import LogAnalysis, Loss


def engine_verdict(analysis: LogAnalysis) -> dict[str, Any]:
    """Return what a start does under both policies."""
    return {"stop_policy": _stop_policy(analysis), "report_policy": _report_policy(analysis)}


def _stop_policy(analysis: LogAnalysis) -> dict[str, Any]:
    if not analysis.losses:
        return {"ok": True}
    loss = analysis.losses[0]
    return {"ok": False, "error": loss.state, "file": loss.name, "offset": loss.offset}


def _report_policy(analysis: LogAnalysis) -> dict[str, Any]:
    names = [file.name for file in analysis.files]
    redundant = [name for name, flag in zip(names, analysis.redundant(), strict=True) if flag]
    return {
        "pending": [
            {"txid": number, "targets": list(one.pending), "operations": one.operations}
            for number, one in sorted(analysis.open.items())
        ],
        "lost": [loss_json(loss) for loss in analysis.losses],
        "warnings": [
            {"code": warning.code, "file": warning.name, "offset": warning.offset}
            for warning in analysis.warnings
        ],
        "redundant": redundant,
        "disposable": names[: analysis.disposable()],
    }


def loss_json(loss: Loss) -> dict[str, Any]:
    """Return a loss in the oracle's keys."""
    row: dict[str, Any] = {
        "file": loss.name,
        "offset": loss.offset,
        "state": loss.state,
        "blocks": loss.blocks,
    }
    if loss.suspects is not None:
        row["count"] = loss.count
        row["suspects"] = [
            {"kind": suspect.kind.name.lower(), "txid": suspect.number} for suspect in loss.suspects
        ]
    return row
