"""What a judgement warns of: severity and next step of every alarm.

In: codes, as the decision table gives them, and judgements. Out: how grave it is, what to do, and
rows of the table ``findings``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tallystick.records import Severity

ALARM_BEGINS = "global transaction "
"""How the message of an alarm begins; the gtrid and the evidence follow."""

COPY_CODE = "copy"
"""Code of the finding that a log is a copy of another one."""

COPY_BEGINS = "a copy of "
COPY_ENDS = ", which is ahead of it or the same: left out of the global transactions"
"""The message of that finding, around the name of the original."""

LOST_COMMIT = "lost-commit"
DOUBTFUL = "doubtful-abort"
ELSEWHERE = "decided-elsewhere"
UNPROVED = (DOUBTFUL, ELSEWHERE)
"""Alarms of branches of which it is not proved that they are to be rolled back."""

SEVERITIES = {
    LOST_COMMIT: Severity.LOSS,
    "heuristic-mismatch": Severity.DAMAGE,
    "heuristic-outcome": Severity.DAMAGE,
    DOUBTFUL: Severity.DAMAGE,
    ELSEWHERE: Severity.WARNING,
    "foreign-branch": Severity.WARNING,
    "missing-decision": Severity.WARNING,
}

ADVICE = {
    LOST_COMMIT: "Commit the branch by hand before its coordinator starts",
    "heuristic-mismatch": "Compare the resources and correct the data by hand",
    "heuristic-outcome": "Compare the resources and correct the data by hand",
    DOUBTFUL: "Roll back only if the application knows that it did not commit",
    ELSEWHERE: "Start its coordinator with all of its resources, as it asks there; do not decide "
    "in its place",
    "foreign-branch": "Ask the coordinator named by the owner; do not decide in its place",
    "missing-decision": "Ask why the journal has no decision; the resources agree with each other",
}


def finding_rows_of(
    judged: Iterable[Mapping[str, Any]], copies: Mapping[str, tuple[str, str]]
) -> list[dict[str, Any]]:
    """Return a finding for every alarm of the judgements, and for every log that is a copy.

    ``copies`` has the system and the original of each such log. Columns that are null are left out.
    """
    alarms = [
        {
            "code": row["alarm"],
            "severity": SEVERITIES[row["alarm"]].value,
            "log": row["coordinator"],
            "message": f"{ALARM_BEGINS}{bytes(row['gtrid']).hex()}: {row['evidence']}",
            "advice": ADVICE.get(row["alarm"]),
            "bytes_at_risk": 0,
            "gtrid": row["gtrid"],
        }
        for row in judged
        if row["alarm"] is not None
    ]
    copied = [
        {
            "code": COPY_CODE,
            "severity": Severity.INFO.value,
            "system": system,
            "log": log,
            "message": f"{COPY_BEGINS}{original}{COPY_ENDS}",
            "bytes_at_risk": 0,
        }
        for log, (system, original) in copies.items()
    ]
    return alarms + copied
