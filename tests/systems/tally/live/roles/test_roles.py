"""The native log fulfils the contracts of its roles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.roles import DecisionLog, PersistLog, RecordJournal, UndoRedoLog
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import (
    TallyDecisionLog,
    TallyPersistLog,
    TallyRecordJournal,
)
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tests.roles.contract_decision_log import DecisionLogContract
from tests.roles.contract_persist_log import PersistLogContract
from tests.roles.contract_record_journal import Opener, RecordJournalContract
from tests.roles.contract_undo_redo_log import UndoRedoLogContract

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


class TestTallyRecordJournal(RecordJournalContract):
    """See `RecordJournalContract`."""

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        def open_it() -> RecordJournal:
            return TallyRecordJournal(TallyLog(str(tmp_path / "log"), settings=SMALL))

        return open_it


class TestTallyUndoRedoLog(UndoRedoLogContract):
    """See `UndoRedoLogContract`."""

    def open_log(self, folder: str, fs: FileSystem = LOCAL) -> UndoRedoLog:
        return TallyUndoRedoLog(TallyLog(folder, settings=SMALL, fs=fs))
