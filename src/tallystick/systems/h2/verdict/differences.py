"""Where the engine's judgement and the strict one differ.

In: findings of one file. Out: a `Difference` for each that the engine does not report.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.records import Difference, Finding, Severity

# What the engine does where a finding tells what is wrong, by its code. Only these findings become
# differences.
_ENGINE_SAYS = {
    "lost-behind-damage": "opens the database and says nothing",
    "log-cut-short": "takes it for the end of the log and says nothing",
    "unknown-record-type": "skips the bytes and goes on",
    "damaged-undo-image": "restores the page half and says nothing",
    "damaged-row": "uses the row as it comes out",
    "partial-redo": "opens the database with part of the changes",
    "file-would-be-replaced": "starts a new, empty database in this file",
    "header-drops-log": "begins an empty log and says nothing",
    "header-names-no-log": "begins an empty log and says nothing",
    "file-cut-short": "takes a missing log page for the end of the log and says nothing",
    "trunk-chain-broken": "takes it for the end of the log and says nothing",
    "log-page-damaged": "takes it for the end of the log and says nothing",
    "table-page-zeroed": "makes an empty page of it and says nothing",
    "table-page-empty": "makes an empty page of it and says nothing",
    "in-doubt": "keeps it in doubt and opens read-only",
    "changes-behind-prepare": "drops them",
    "name-hidden": "lists the last name only",
}


def differences(findings: Sequence[Finding]) -> tuple[Difference, ...]:
    """Return the differences among the findings, in their order."""
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
    advice = finding.advice or "Look at it before the restart"
    if finding.severity is Severity.LOSS:
        return f"A restart loses or alters acknowledged data here, silently. {advice}"
    return advice
