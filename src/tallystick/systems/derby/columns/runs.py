"""The runs of plain records of a log, for every judge of it.

In: log files that are not encrypted. Out: what recovery, analysis and spans take of their runs.
"""

from __future__ import annotations

from tallystick.systems.derby.columns.analysis import take_run
from tallystick.systems.derby.columns.plain import RunReader
from tallystick.systems.derby.columns.redo import CompiledRedo
from tallystick.systems.derby.engine.page_versions import PageVersions
from tallystick.systems.derby.engine.recovery import Recovery
from tallystick.systems.derby.read.analysis import LogAnalysis
from tallystick.systems.derby.read.files import LogFiles
from tallystick.systems.derby.read.scan import FileScan


class CompiledRuns(RunReader):
    """Reads the runs of one log."""

    def __init__(self, log: LogFiles) -> None:
        super().__init__()
        self._log = log

    def redo(self, result: Recovery, versions: PageVersions) -> CompiledRedo:
        """Return what redoes runs."""
        return CompiledRedo(self._log, self, result, versions)

    def take(self, found: LogAnalysis, scan: FileScan) -> int:
        """Take the run that a file begins with into the analysis; return the offset after it."""
        return take_run(self, found, scan)
