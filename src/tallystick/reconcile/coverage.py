"""What a coordinator's log proves by what it lacks: how far back it reaches, and its damage.

In: its transactions and findings. Out: times, and whether a decision may be missing.
"""

from __future__ import annotations

from typing import Any

from tallystick.records import Severity
from tallystick.systems.findings import BEING_WRITTEN
from tallystick.systems.registry import systems

WHOLE_RECORDS = 3
"""Records from which on a coordinator's transaction is there from its beginning: a decision
that was copied into a new file stands alone."""

SEVERE = (Severity.DAMAGE, Severity.LOSS)


def whole_since(transaction: dict[str, Any]) -> int | None:
    """Return when a transaction began that is there from its beginning."""
    first: int | None = transaction["first_time"]
    return first if transaction["records"] >= WHOLE_RECORDS else None


def harmless() -> frozenset[tuple[str, str]]:
    """Return (system, code) of severe findings that hide no record: every file is read whole."""
    return frozenset(
        (one.name, row.code) for one in systems() for row in one.code_table.values() if row.whole
    )


def hides_records(system: str, code: str, severity: Severity) -> bool:
    """Return True for a finding after which a record may be missing from what was read."""
    severe = severity in SEVERE and (system, code) not in harmless()
    return severe or code == BEING_WRITTEN.code
