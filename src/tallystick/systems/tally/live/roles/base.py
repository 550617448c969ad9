"""What the roles of a native log have in common.

In: a log, or the path of one. Out: the log, and its segments freed as it rolls.
"""

from __future__ import annotations

from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.columns import Draft
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings


class Role:
    """Common to all: one log, open or to be opened at a path, and recycling once it rolled."""

    settings = Settings()
    """How a log is written that the role opens by itself."""

    def __init__(self, log: TallyLog | str, *, fs: FileSystem = LOCAL) -> None:
        self.log = (
            log if isinstance(log, TallyLog) else TallyLog(log, settings=self.settings, fs=fs)
        )
        self._seen = self.log.last_segment

    def _recycle(self) -> None:
        if self.log.last_segment != self._seen:
            self._seen = self.log.last_segment
            self.log.reclaim_soon()

    def roll_back_open(self) -> None:
        """End transactions that an earlier owner left open and had not prepared, so that their
        numbers can be used again. Not forced: it only has to come before any later record."""
        with self.log.state() as state:
            left = [number for number, one in state.open.items() if one.ending is None]
        for number in left:
            self.log.submit(Draft(Code.ROLLBACK, b"", number), sync=False)

    def close(self) -> None:
        """Close the log; a second call does nothing."""
        self.log.close()
