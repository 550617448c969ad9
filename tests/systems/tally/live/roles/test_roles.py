"""The native log fulfils the contracts of its roles."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import TallystickError
from tallystick.roles import DecisionLog, PersistLog, RecordJournal, UndoRedoLog
from tallystick.roles.decision_log import DecisionOutcome
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.storage.shared.client import Client
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import (
    TallyDecisionLog,
    TallyPersistLog,
    TallyRecordJournal,
)
from tallystick.systems.tally.live.roles.base import TallyRole
from tallystick.systems.tally.live.roles.journal import SharedTallyJournal, TallyJournal
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tallystick.testing import READS, Fault, MemoryFileSystem, every_fault
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


@pytest.mark.parametrize("role", ["decisions", "records", "transactions"])
def test_only_the_first_item_of_a_segment_asks_for_reclaiming(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked by each, every commit would write a second item: no caller was alone any more."""
    asked = 0
    reclaim = TallyLog.reclaim_soon

    def counted(log: TallyLog) -> None:
        nonlocal asked
        asked += 1
        reclaim(log)

    monkeypatch.setattr(TallyLog, "reclaim_soon", counted)
    with TallyLog("/log", settings=SMALL, fs=MemoryFileSystem()) as log:
        records, decisions = TallyRecordJournal(log), TallyDecisionLog(log)
        records.add(10_000, b"keeps the first segment").wait()
        while log.last_segment < log.first_segment + 3:
            log.append_durably(bytes(4_000))
        for number in range(30):
            if role == "decisions":
                decisions.decide(b"%d" % number, ("a",)).wait()
                decisions.finish(b"%d" % number, ("a",), DecisionOutcome.COMMITTED)
            elif role == "records":
                records.add(number, b"").wait()
                records.delete(number).wait()
            else:
                records.add_in(number + 1, number, b"")
                records.commit(number + 1).wait()
        segments = 1 + log.last_segment - log.first_segment
    assert 1 <= asked <= segments


@pytest.mark.parametrize("role", ["decisions", "records"])
def test_an_item_of_a_shared_log_is_submitted_without_a_look_for_its_leader(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop submits it, and would lead after the end of the leader, or wait for it."""
    settings = replace(SMALL, preallocate=False)
    first = SharedTallyLog(str(tmp_path), settings=settings)
    with first, SharedTallyLog(str(tmp_path), settings=settings) as log:
        decisions, records = TallyDecisionLog(log), SharedTallyJournal(log)
        records.add(1, b"").wait()
        first.close()
        with monkeypatch.context() as patch:
            for name in ("seen", "current", "ask"):
                patch.delattr(Client, name)
            if role == "decisions":
                ticket = decisions.decide(b"g", ("a",))
            else:
                records.add_in(7, 2, b"")
                ticket = records.commit(7)
                ticket = records.delete(1)
        ticket.wait()


@pytest.mark.parametrize(
    "role", [TallyDecisionLog, TallyPersistLog, TallyRecordJournal, TallyJournal, TallyUndoRedoLog]
)
def test_a_log_that_a_role_could_not_read_is_not_left_open(role: type[TallyRole[Any]]) -> None:
    memory = MemoryFileSystem()
    with TallyLog("/log", settings=SMALL, fs=memory) as log:
        log.append_durably(b"record")
    for fs in every_fault(lambda: memory, lambda nth: Fault(nth, READS)):
        with contextlib.suppress(TallystickError, OSError):
            role("/log", fs=fs).close()
        TallyLog("/log", fs=memory).close()


def test_a_session_that_has_ended_leaves_nothing_in_memory() -> None:
    log = TallyUndoRedoLog(TallyLog("log", fs=MemoryFileSystem()))
    for session in range(1, 1001):
        log.log_row(session, 1, session, b"row")
        log.prepare_commit(session, f"branch {session}").wait()
        (log.commit if session % 2 else log.rollback)(session).wait()
    left = sum(type(one) is UnplacedEnding for one in gc.get_objects())
    log.close()
    assert left < 200
