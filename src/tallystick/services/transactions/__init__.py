"""Atomic commit over several databases, stores and queues, across crashes.

In: resources by name and work on them. Out: all of it committed, or none, whichever process
or machine stops at whichever moment; what only an operator can settle is a record.

* `manager`: begins transactions and keeps the living; `global_transaction`: one of them at work,
  for a thread in `transaction`, for tasks in `aio` and `threaded`
* `commit`: two-phase commit by presumed abort, as `steps`; `recovery`, `background`: what a crash
  left
* `resource`: what a resource must do; `resources`: PostgreSQL, MariaDB, SQLite, and others
* `embedded`: what resources in this process share
* `xids`: ids and their node; `home`: the coordinator's directory; `metrics`: its numbers
"""

from __future__ import annotations

from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.transactions.recovery import BranchInDoubt, RecoveryReport
from tallystick.services.transactions.resource import Problem, Resource, Vote
from tallystick.services.transactions.transaction import Status, Transaction

__all__ = [
    "BranchInDoubt",
    "Problem",
    "RecoveryReport",
    "Resource",
    "Status",
    "Transaction",
    "TransactionManager",
    "Vote",
]
