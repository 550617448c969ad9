"""Write-behind: commits durable at once in a log, applied to the targets later, whatever crashes.

In: transactions of operations on keys. Out: each in every target, in order per key, at least once;
exactly once where the target keeps the numbers it has applied. `service` is the API; `admission`,
`backlog` and `sequencer` are the way of a commit, `schedule` and `targets` the way to the targets.
"""

from __future__ import annotations

from tallystick.services.write_behind.metrics import BacklogSize
from tallystick.services.write_behind.service import WriteBehind
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.services.write_behind.status import PendingTransaction, TargetStatus
from tallystick.services.write_behind.targets.target import (
    CountingTarget,
    Target,
    TargetAheadError,
    TargetDownError,
)
from tallystick.services.write_behind.transaction import WriteBehindTransaction

__all__ = [
    "BacklogSize",
    "CountingTarget",
    "PendingTransaction",
    "Target",
    "TargetAheadError",
    "TargetDownError",
    "TargetStatus",
    "WriteBehind",
    "WriteBehindSettings",
    "WriteBehindTransaction",
]
