"""The runs of plain records of a log, for every judge of it.

In: log files that are not encrypted. Out: what recovery, analysis and spans take of their runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tallystick.systems.derby.columns.analysis import count_run, take_run
from tallystick.systems.derby.columns.change_feed import after_runs, open_at
from tallystick.systems.derby.columns.plain import RunReader
from tallystick.systems.derby.columns.redo import CompiledRedo
from tallystick.systems.derby.engine.page_versions import PageVersions
from tallystick.systems.derby.engine.recovery import Recovery
from tallystick.systems.derby.read.analysis import LogAnalysis
from tallystick.systems.derby.read.changes import Pending
from tallystick.systems.derby.read.files import LogBytes, LogFiles
from tallystick.systems.derby.read.plain import RunCount
from tallystick.systems.derby.read.scan import FileScan, LogScan
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.read.transactions import TransactionCollector


class CompiledRuns(RunReader):
    """Reads the runs of one log."""

    def __init__(self, log: LogFiles) -> None:
        super().__init__()
        self._log = log

    def redo(self, result: Recovery, versions: PageVersions) -> CompiledRedo:
        """Return what redoes runs."""
        return CompiledRedo(self._log, self, result, versions)

    def count(self, collector: TransactionCollector, file: LogBytes) -> RunCount:
        """Collect the transactions of the run that a file begins with; return what is in it."""
        return count_run(self, collector, file)

    def left(self, scan: LogScan) -> tuple[Pending, Iterator[ByteRange]]:
        """Return what is open after the runs that a log begins with, and all ranges after them."""
        return after_runs(self, scan)

    def open_at(self, begin: int, end: int, numbers: Collection[int]) -> tuple[Pending, int]:
        """Return what transactions changed between two instants, and how far that was read."""
        return open_at(self, self._log, begin, end, numbers)

    def take(self, found: LogAnalysis, scan: FileScan) -> int:
        """Take the run that a file begins with into the analysis; return the offset after it."""
        return take_run(self, found, scan)
