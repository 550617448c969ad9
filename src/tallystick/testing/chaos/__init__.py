"""For users of the transaction manager: every fault at every step, over databases of your own.

In: a `Scenario`, which does one global transaction, recovers, and looks what became of it. Out: a
trial in a process of its own for each step and each fault (`faults`): the process is killed or
stopped there, the network is lost, a statement is refused … After each, recovery must come to an
end, and the transaction must be everywhere or nowhere, as was reported (`trials`). `plugin` is for
pytest; see ``docs/guide/testing.md``.
"""

from __future__ import annotations

from tallystick.testing.chaos.faults import (
    DISK_FULL,
    FORK,
    KILL,
    STOP,
    Away,
    Fault,
    cut,
    half_open,
    refused,
)
from tallystick.testing.chaos.trials import Chaos, ChaosReport, Scenario

__all__ = [
    "DISK_FULL",
    "FORK",
    "KILL",
    "STOP",
    "Away",
    "Chaos",
    "ChaosReport",
    "Fault",
    "Scenario",
    "cut",
    "half_open",
    "refused",
]
