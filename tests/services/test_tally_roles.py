"""The native log fulfils the contracts of its roles."""

from __future__ import annotations

from dataclasses import replace

from tallystick.services.roles import DecisionLog, PersistLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.log import TallyLog
from tallystick.systems.tally.roles import TallyDecisionLog, TallyPersistLog
from tallystick.systems.tally.settings import Settings
from tests.services.contract_decision_log import DecisionLogContract
from tests.services.contract_persist_log import PersistLogContract

SMALL = Settings(segment_size=24 << 10, preallocate=False, idle_mark_s=None)
DISPOSED = replace(SMALL, segment_size=256 << 10, recycle=False)


class TestTallyDecisionLog(DecisionLogContract):
    """See `DecisionLogContract`."""

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> DecisionLog:
        return TallyDecisionLog(TallyLog(folder, settings=SMALL, fs=fs))


class TestTallyPersistLog(PersistLogContract):
    """See `PersistLogContract`."""

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> PersistLog:
        return TallyPersistLog(TallyLog(folder, settings=DISPOSED, fs=fs))
