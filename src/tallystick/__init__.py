"""Tallystick: the transaction log for Python.

The public names, nothing else. See the README for ten lines of use.
"""

from __future__ import annotations

from tallystick.errors import TallystickError
from tallystick.records import (
    Change,
    Clock,
    Difference,
    Finding,
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

__version__ = "0.1.0"

__all__ = [
    "Change",
    "Clock",
    "Difference",
    "Finding",
    "Kind",
    "LogFile",
    "Outcome",
    "Record",
    "Severity",
    "Span",
    "State",
    "TallystickError",
    "Transaction",
    "Verdict",
    "Xid",
    "__version__",
]
