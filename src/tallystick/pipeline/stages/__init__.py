"""Stages: pure functions DataFrame → DataFrame, without I/O, state or settings of their own.

In: the source's tables of single logs. Out: the tables that only all logs together give.
Single logs are closed by their readers inside the task, so what a stage shuffles are
transactions, never records.

* `global_transactions`: one row per gtrid over all logs; `reconciled` also tells which are copies
* `findings`: the logs' own, and those of the reconciliation
* `profile`: latencies and rates per log, resource and time
* `overdue`: what has been in doubt for too long
* `as_of`: the change feed replayed to a table
"""

from __future__ import annotations

from tallystick.pipeline.stages.changes import as_of
from tallystick.pipeline.stages.findings import findings
from tallystick.pipeline.stages.globals import Reconciled, global_transactions, reconciled
from tallystick.pipeline.stages.overdue import overdue
from tallystick.pipeline.stages.profile import profile

__all__ = [
    "Reconciled",
    "as_of",
    "findings",
    "global_transactions",
    "overdue",
    "profile",
    "reconciled",
]
