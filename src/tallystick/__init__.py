"""Tallystick: the transaction log for Python.

The public names, nothing else. See the README for ten lines of use.
"""

from __future__ import annotations

from tallystick.answers import Explanation, Inspection, Summary
from tallystick.errors import TallystickError
from tallystick.reading import explain, inspect, read_arrow, scan
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
    "Explanation",
    "Finding",
    "Inspection",
    "Kind",
    "LogFile",
    "Outcome",
    "Record",
    "Severity",
    "Span",
    "State",
    "Summary",
    "TallystickError",
    "Transaction",
    "Verdict",
    "Xid",
    "__version__",
    "explain",
    "inspect",
    "read_arrow",
    "scan",
]
