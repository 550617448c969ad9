"""Logs that are in trouble: mended on a copy, saved into something that loads, packed for a ticket.

In: a path. Out: a copy, files or a zip, and what was done. The logs themselves are only read.
"""

from __future__ import annotations

from tallystick.rescue.bundling import bundle
from tallystick.rescue.mending import Mend, MendedLog, Repair, repair
from tallystick.rescue.salvaging import Salvage, salvage

__all__ = ["Mend", "MendedLog", "Repair", "Salvage", "bundle", "repair", "salvage"]
