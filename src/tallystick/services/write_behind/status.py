"""The state of a pending transaction, as operators see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.printable import printable
from tallystick.roles import PersistEntry


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target of a pending transaction; ``state``: ``queued``, ``retrying``, ``set aside``."""

    target: str
    state: str
    attempts: int = 0
    error: str = ""

    def __str__(self) -> str:
        error = f", the last time {self.error}" if self.error else ""
        tried = f" after {self.attempts:,} attempts{error}" if self.attempts else ""
        return printable(f"{self.target}: {self.state}{tried}")


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A transaction by number and reference; ``time`` in microseconds since 1970-01-01 UTC."""

    number: int
    reference: str
    time: int
    operations: int
    targets: tuple[TargetStatus, ...] = field(default=())

    def __str__(self) -> str:
        name = f" ({self.reference})" if self.reference else ""
        waits = "; ".join(map(str, self.targets)) or "no target waits for it"
        return printable(
            f"transaction {self.number}{name}, {self.operations:,} operations: {waits}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "number": self.number,
            "reference": self.reference,
            "time": self.time,
            "operations": self.operations,
            "targets": [
                {"target": one.target, "state": one.state, "attempts": one.attempts,
                 "error": one.error}
                for one in self.targets
            ],
        }  # fmt: skip


def pending_transaction(
    entry: PersistEntry, conditions: Mapping[str, tuple[str, int, str]]
) -> PendingTransaction:
    """Build the status of an entry from the condition of each target it waits for."""
    targets = tuple(TargetStatus(name, *conditions[name]) for name in sorted(conditions))
    return PendingTransaction(
        entry.number, entry.reference, entry.time, len(entry.operations), targets
    )
