"""Atomic commit over several databases, stores and queues, across crashes.

In: resources by name (`resource`, `resources`) and work on them, of threads (`manager`,
`transaction`) or tasks (`aio`). Out: all of it committed (`two_phase_commit`, run by `steps`) or
none, whichever process stops whenever (`recovery`); heuristic outcomes stay on record.
"""

from __future__ import annotations

from tallystick.services.transactions.aio import AsyncTransaction, AsyncTransactionManager
from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.transactions.messaging.keys import IdempotencyKey, forget_keys
from tallystick.services.transactions.messaging.outbox import Message, Outbox, Pending
from tallystick.services.transactions.messaging.relay import Relay, from_journal
from tallystick.services.transactions.messaging.retry import Retry
from tallystick.services.transactions.recovery import BranchInDoubt, RecoveryReport
from tallystick.services.transactions.resource import Problem, Resource, ResourceUnreachable, Vote
from tallystick.services.transactions.transaction import Status, Transaction

__all__ = [
    "AsyncTransaction",
    "AsyncTransactionManager",
    "BranchInDoubt",
    "IdempotencyKey",
    "Message",
    "Outbox",
    "Pending",
    "Problem",
    "RecoveryReport",
    "Relay",
    "Resource",
    "ResourceUnreachable",
    "Retry",
    "Status",
    "Transaction",
    "TransactionManager",
    "Vote",
    "forget_keys",
    "from_journal",
]
