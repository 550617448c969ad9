"""Runs of plain records: whole, decoded to their end, every checksum right, at their own instants.

A reader of runs may take many records at once; what is not plain is left to the scans that go
record by record, which decide alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tallystick.systems.derby.read.files import LogBytes


class PlainRun(NamedTuple):
    """What a scan has to know of a run of plain records. Places are offsets in the file.

    Attributes:
        end: offset after the last record of the run.
        records: how many there are, without checksum records.
        last, last_end: the last one of these, begin and end.
        covered: the end of the last group that begins in the run; 0 if none does.
    """

    end: int
    records: int = 0
    last: int = 0
    last_end: int = 0
    covered: int = 0


class RunCount(NamedTuple):
    """How much is in a run: records, groups, and bytes of the largest group."""

    end: int
    records: int = 0
    groups: int = 0
    largest: int = 0


Skip = Callable[[LogBytes, int], PlainRun | None]
"""Takes a run from an offset of a file on, and returns it; None where runs are no longer taken."""
