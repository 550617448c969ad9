"""Base class of the roles of a native log."""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar, Generic, TypeVar, cast

from tallystick.records import Judgement
from tallystick.roles import Role
from tallystick.storage.files import FileSystem
from tallystick.storage.fork import Uncopied
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tallystick.systems.tally.read.claim import Claim

AnyLog = TallyLog | SharedTallyLog
"""A log that this process has open alone, or with others."""
Log = TypeVar("Log", bound=AnyLog)


class TallyRole(Uncopied, Generic[Log]):
    """A native log in a role: an open log, which the role owns and closes, or the path of one.

    Attributes:
        settings: how a log is written that the role opens by its path.
        role: what such a log is used for.
    """

    settings = Settings()
    role: ClassVar[Role]

    def __init__(self, log: Log | str, *, fs: FileSystem = LOCAL, owner: str = "") -> None:
        if isinstance(log, str):
            claim = Claim(self.role, owner)
            self.log = cast(Log, TallyLog(log, settings=self.settings, fs=fs, claim=claim))
        else:
            self.log = log
        self._last_segment = self.log.first_segment  # an earlier owner may have left more
        with ExitStack() as undo:
            undo.callback(self.log.close)
            self._load()
            undo.pop_all()

    def _load(self) -> None:
        """Read what the role has to know of the log, which is closed if this fails."""

    @property
    def identity(self) -> str:
        """The name of the log, as 32 hexadecimal digits."""
        return self.log.identity.hex()

    @property
    def owner(self) -> str:
        """Whose log it is; empty if anyone's."""
        return self.log.owner

    @property
    def judgement(self) -> Judgement:
        """The answer about the log as its opening, or that of its leader, found it."""
        return self.log.judgement

    def require_in_place(self) -> None:
        """Check that the path still leads to the log; see `Placed.require_in_place`."""
        self.log.fs.require_in_place()

    def _reclaim_after_roll(self) -> None:
        if isinstance(self.log, SharedTallyLog):
            return  # whose leader does it by itself, and which would have to ask where it stands
        if self.log.last_segment != self._last_segment:
            self._last_segment = self.log.last_segment
            self.log.reclaim_soon()

    def roll_back_open(self) -> None:
        """Roll back transactions that an earlier owner of the log neither prepared nor ended.

        Their numbers can then be used again. Not forced: it is written before any later record.
        """
        for number in self.log.left_open():
            self.log.submit(UnplacedRecord(Code.ROLLBACK, b"", number), sync=False)

    def close(self) -> None:
        """Close the log; a second call does nothing."""
        self.log.close()
