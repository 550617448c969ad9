"""The native log fulfils the contracts of its roles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.roles import DecisionLog, PersistLog, RecordJournal, UndoRedoLog
from tallystick.roles.decision_log import DecisionOutcome
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
from tallystick.testing import MemoryFileSystem
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


@pytest.mark.parametrize("role", ["decisions", "records"])
def test_owners_that_write_one_item_each_give_up_what_is_redundant(role: str) -> None:
    """The segment ends with the last write of one owner; the next one must reclaim."""
    fs = MemoryFileSystem()
    most = 0
    for number in range(1, 120):
        log = TallyLog("/log", settings=SMALL, fs=fs)
        if role == "decisions":
            decisions = TallyDecisionLog(log)
            decisions.decide(b"%d" % number, ("a" * 200,)).wait()
            decisions.finish(b"%d" % number, ("a" * 200,), DecisionOutcome.COMMITTED)
        else:
            records = TallyRecordJournal(log)
            records.add(number, bytes(300)).wait()
            records.delete(number)
        log.close()
        most = max(most, len(fs.list("/log")))
    assert int(log.last_segment) > 4
    assert most < 9  # lock, control block, two spares, and what is in use
