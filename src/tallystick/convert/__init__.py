"""Logs of one system converted to logs of another one that plays the same role.

In: one closed log, which is only read. Out: a new log, and a report of what was carried over.
"""

from __future__ import annotations

from tallystick.convert.command import ConversionReport, convert

__all__ = ["ConversionReport", "convert"]
