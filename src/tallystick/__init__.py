"""Tallystick: the transaction log for Python.

The public names, nothing else. See the README for ten lines of use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from tallystick.investigate.sql import (
        sql,
    )
    from tallystick.reading import (
        explain,
        inspect,
        read_arrow,
        scan,
        scrub,
        triage,
    )
    from tallystick.reading.results import (
        Explanation,
        Inspection,
        Summary,
    )
    from tallystick.reading.triaging import (
        Triage,
    )
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
        NumberedRecord,
        Outcome,
        Record,
        Severity,
        Span,
        State,
        Transaction,
        Verdict,
        Xid,
    )
    from tallystick.rescue import (
        Repair,
        Salvage,
        bundle,
        repair,
        salvage,
    )
    from tallystick.services.journal import (
        AsyncJournal,
        Journal,
    )
    from tallystick.services.page_store import (
        PageStore,
    )
    from tallystick.services.transactions import (
        AsyncTransactionManager,
        IdempotencyKey,
        Outbox,
        Relay,
        ResourceUnreachable,
        Retry,
        TransactionManager,
    )
    from tallystick.services.write_behind import (
        WriteBehind,
    )

__version__ = "0.2.0"

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
    "NumberedRecord",
    "Outbox",
    "Outcome",
    "PageStore",
    "Record",
    "RecordIdError",
    "RecordTooLargeError",
    "Relay",
    "Repair",
    "ResourceUnreachable",
    "Retry",
    "RolledBackError",
    "Salvage",
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
    "bundle",
    "explain",
    "inspect",
    "read_arrow",
    "repair",
    "salvage",
    "scan",
    "scrub",
    "sql",
    "triage",
]

_MODULES = {
    "errors": """
        BusyError CorruptLogError FileShrankError HeuristicError IncompleteLogError InDoubtError
        LogBeingWrittenError LogClosedError LogFormatError LogFullError LogLockedError
        LogPoisonedError LogUnreadableError LogWriteError MissingExtraError NotALogError
        RecordIdError RecordTooLargeError RolledBackError TallystickError TransactionError
        TransactionUsageError UnsupportedFormatError
    """,
    "investigate.sql": "sql",
    "reading": "explain inspect read_arrow scan scrub triage",
    "reading.results": "Explanation Inspection Summary",
    "reading.triaging": "Triage",
    "records": """
        Answer AtStake Change Clock Difference Finding Judgement Kind LogFile NumberedRecord
        Outcome Record Severity Span State Transaction Verdict Xid
    """,
    "rescue": "Repair Salvage bundle repair salvage",
    "services.journal": "AsyncJournal Journal",
    "services.page_store": "PageStore",
    "services.transactions": """
        AsyncTransactionManager IdempotencyKey Outbox Relay ResourceUnreachable Retry
        TransactionManager
    """,
    "services.write_behind": "WriteBehind",
}
"""Which module has which public names: it is imported when one of them is used first."""

_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}
_PACKAGES = ("errors", "reading", "records")
"""What a program may name after ``import tallystick`` alone."""


if not TYPE_CHECKING:  # else a type checker would take any name for one of ours

    def __getattr__(name):
        """Import a public name when it is used first: nobody needs all of them."""
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOME:
            # With these two the interpreter says which name it may have been.
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}",
                name=name,
                obj=sys.modules[__name__],
            )
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return found


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
