"""Write-behind: durable at once in a log, in the stores a little later, whatever crashes.

In: transactions of operations on keys. Out: each of them in every target, in order per key, at
least once, exactly once where the target keeps the numbers it has applied. `service` is what
applications use; `schedule` and `lane` bring transactions to targets, `backlog` holds the limits,
`sequencer` the order from the log; `target`, `sql` and `rows` are the targets.
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
