"""Base class of the roles of a native log."""

from __future__ import annotations

from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings


class TallyRole:
    """A native log in a role: an open log, which the role owns and closes, or the path of one.

    Attributes:
        settings: how a log is written that the role opens by its path.
    """

    settings = Settings()

    def __init__(self, log: TallyLog | str, *, fs: FileSystem = LOCAL) -> None:
        self.log = (
            log if isinstance(log, TallyLog) else TallyLog(log, settings=self.settings, fs=fs)
        )
        self._last_segment = self.log.last_segment

    def _reclaim_after_roll(self) -> None:
        if self.log.last_segment != self._last_segment:
            self._last_segment = self.log.last_segment
            self.log.reclaim_soon()

    def roll_back_open(self) -> None:
        """Roll back transactions that an earlier owner of the log neither prepared nor ended.

        Their numbers can then be used again. Not forced: it is written before any later record.
        """
        with self.log.state() as state:
            left = [number for number, one in state.open.items() if one.ending is None]
        for number in left:
            self.log.submit(UnplacedRecord(Code.ROLLBACK, b"", number), sync=False)

    def close(self) -> None:
        """Close the log; a second call does nothing."""
        self.log.close()
