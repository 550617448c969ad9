"""What a judgement warns of: severity and next step of every alarm.

In: codes, as the decision table gives them. Out: how grave it is, and what to do.
"""

from __future__ import annotations

from tallystick.records import Severity

LOST_COMMIT = "lost-commit"
DOUBTFUL = "doubtful-abort"

SEVERITIES = {
    LOST_COMMIT: Severity.LOSS,
    "heuristic-mismatch": Severity.DAMAGE,
    "heuristic-outcome": Severity.DAMAGE,
    DOUBTFUL: Severity.DAMAGE,
    "foreign-branch": Severity.WARNING,
    "missing-decision": Severity.WARNING,
}

ADVICE = {
    LOST_COMMIT: "Commit the branch by hand before its coordinator starts",
    "heuristic-mismatch": "Compare the resources and correct the data by hand",
    "heuristic-outcome": "Compare the resources and correct the data by hand",
    DOUBTFUL: "Roll back only if the application knows that it did not commit",
    "foreign-branch": "Ask the coordinator named by the owner; do not decide in its place",
    "missing-decision": "Ask why the journal has no decision; the resources agree with each other",
}
