"""Tallystick: the transaction log for Python.

The public names, nothing else. See the README for ten lines of use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tallystick.errors import (
    BusyError,
    CorruptLogError,
    FileShrankError,
    HeuristicError,
    IncompleteLogError,
    InDoubtError,
    LogBeingWrittenError,
    LogClosedError,
    LogFormatError,
    LogFullError,
    LogLockedError,
    LogPoisonedError,
    LogUnreadableError,
    LogWriteError,
    MissingExtraError,
    NotALogError,
    RecordIdError,
    RecordTooLargeError,
    RolledBackError,
    TallystickError,
    TransactionError,
    TransactionUsageError,
    UnsupportedFormatError,
)
from tallystick.reading import explain, inspect, read_arrow, scan, scrub, triage
from tallystick.reading.results import Explanation, Inspection, Summary
from tallystick.reading.triaging import Triage
from tallystick.records import (
    Answer,
    AtStake,
    Change,
    Clock,
    Difference,
    Finding,
    Judgement,
    Kind,
    LogFile,
    Outcome,
    Record,
    Severity,
    Span,
    State,
    Transaction,
    Verdict,
    Xid,
)

if TYPE_CHECKING:
    from tallystick.services.journal import AsyncJournal as AsyncJournal
    from tallystick.services.journal import Journal as Journal
    from tallystick.services.page_store import PageStore as PageStore
    from tallystick.services.transactions import AsyncTransactionManager as AsyncTransactionManager
    from tallystick.services.transactions import IdempotencyKey as IdempotencyKey
    from tallystick.services.transactions import Outbox as Outbox
    from tallystick.services.transactions import Relay as Relay
    from tallystick.services.transactions import ResourceUnreachable as ResourceUnreachable
    from tallystick.services.transactions import Retry as Retry
    from tallystick.services.transactions import TransactionManager as TransactionManager
    from tallystick.services.write_behind import WriteBehind as WriteBehind

__version__ = "0.1.0"

_SERVICES = {
    "AsyncJournal": "journal",
    "Journal": "journal",
    "PageStore": "page_store",
    "TransactionManager": "transactions",
    "AsyncTransactionManager": "transactions",
    "IdempotencyKey": "transactions",
    "Outbox": "transactions",
    "Relay": "transactions",
    "ResourceUnreachable": "transactions",
    "Retry": "transactions",
    "WriteBehind": "write_behind",
}

__all__ = [
    "Answer",
    "AsyncJournal",
    "AsyncTransactionManager",
    "AtStake",
    "BusyError",
    "Change",
    "Clock",
    "CorruptLogError",
    "Difference",
    "Explanation",
    "FileShrankError",
    "Finding",
    "HeuristicError",
    "IdempotencyKey",
    "InDoubtError",
    "IncompleteLogError",
    "Inspection",
    "Journal",
    "Judgement",
    "Kind",
    "LogBeingWrittenError",
    "LogClosedError",
    "LogFile",
    "LogFormatError",
    "LogFullError",
    "LogLockedError",
    "LogPoisonedError",
    "LogUnreadableError",
    "LogWriteError",
    "MissingExtraError",
    "NotALogError",
    "Outbox",
    "Outcome",
    "PageStore",
    "Record",
    "RecordIdError",
    "RecordTooLargeError",
    "Relay",
    "ResourceUnreachable",
    "Retry",
    "RolledBackError",
    "Severity",
    "Span",
    "State",
    "Summary",
    "TallystickError",
    "Transaction",
    "TransactionError",
    "TransactionManager",
    "TransactionUsageError",
    "Triage",
    "UnsupportedFormatError",
    "Verdict",
    "WriteBehind",
    "Xid",
    "__version__",
    "explain",
    "inspect",
    "read_arrow",
    "scan",
    "scrub",
    "triage",
]


def __getattr__(name: str) -> object:
    """Import a service when it is used: reading a log needs none of them."""
    if name not in _SERVICES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"tallystick.services.{_SERVICES[name]}")
    return getattr(module, name)
