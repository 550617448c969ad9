"""The live journal after every crash and every failing call: nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import pytest

from tallystick.errors import LogPoisonedError, TallystickError
from tallystick.storage.files import FileSystem
from tallystick.systems.bitronix.engine.opening import starts_of_lines
from tallystick.systems.bitronix.format.layout import ACTIVE, COMMITTED, COMMITTING
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.testing import (
    CrashState,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    every_fault,
)
from tests.systems.bitronix.logs import NAMES, SMALL, gtrid, number_of, open_numbers


def _work(fs: FileSystem, submitted: Any, acknowledged: Any, count: int) -> None:
    journal = DiskJournal("/log", fs=fs, max_log_size=SMALL)
    for number in range(count):
        journal.log(ACTIVE, gtrid(number), ())
        submitted(("decide", number))
        journal.log_forced(COMMITTING, gtrid(number), NAMES).wait()
        acknowledged(("decide", number))
        if number % 4:
            submitted(("finish", number))
            journal.log(COMMITTED, gtrid(number), NAMES)
    journal.close()


def _sets(marks: Iterable[Any], kind: str) -> set[int]:
    return {number for name, number in marks if name == kind}


@pytest.fixture(scope="module")
def recorded() -> RecordingFileSystem:
    fs = RecordingFileSystem()
    _work(fs, fs.submitted, fs.acknowledged, 24)
    return fs


def test_every_crash_state_recovers_every_decision(recorded: RecordingFileSystem) -> None:
    tried = 0
    for state in recorded.crash_states(limit=30, seed=1):
        fs = state.fs()
        journal = DiskJournal("/log", fs=fs)
        found = open_numbers(journal)
        journal.close()
        again = DiskJournal("/log", fs=fs)
        assert open_numbers(again) == found, state.describe()
        again.close()
        _check(state, found)
        tried += 1
    assert tried > 150


def test_the_original_loses_nothing_silently_of_a_crash_state(
    recorded: RecordingFileSystem,
) -> None:
    """The original may refuse a torn tail; if it opens, every acknowledged decision is there."""
    opened = 0
    for state in recorded.crash_states(limit=30, seed=2):
        contents = state.fs().contents()
        if contents.keys() != {"/log/btm1.tlog", "/log/btm2.tlog"}:
            continue
        parts = (memoryview(contents["/log/btm1.tlog"]), memoryview(contents["/log/btm2.tlog"]))
        opening = starts_of_lines(parts, (None, None))[0].without
        if opening.collect_error is None:
            _check(state, {number_of(one) for one in opening.decisions})
            opened += 1
    assert opened > 100


def _check(state: CrashState, found: set[int]) -> None:
    decided, finished = _sets(state.submitted, "decide"), _sets(state.submitted, "finish")
    assert found <= decided, state.describe()
    assert _sets(state.acknowledged, "decide") - finished <= found, state.describe()


def test_a_crash_while_recovering_changes_nothing(recorded: RecordingFileSystem) -> None:
    states = list(recorded.crash_states(limit=4, seed=3))
    for state in states[:: max(1, len(states) // 12)]:
        recording = state.recording()
        journal = DiskJournal("/log", fs=recording)
        found = open_numbers(journal)
        journal.close()
        for second in recording.crash_states(limit=6, seed=4):
            journal = DiskJournal("/log", fs=second.fs())
            assert open_numbers(journal) == found, (state.describe(), second.describe())
            journal.close()


@pytest.mark.parametrize("partial", [0.0, 0.5])
def test_every_failing_call_leaves_a_journal_that_opens(partial: float) -> None:
    for faulty in every_fault(RecordingFileSystem, lambda nth: Fault(nth, partial=partial)):
        _survives(faulty)


@pytest.mark.parametrize("kind", [FailedSync.ORDERED, FailedSync.REVERTED])
def test_a_failed_sync_poisons_and_is_not_retried(kind: FailedSync) -> None:
    def fault(nth: int) -> Fault:
        return Fault(nth, calls={"datasync"}, sync=kind)

    for faulty in every_fault(RecordingFileSystem, fault):
        _survives(faulty)


def _survives(faulty: FaultyFileSystem) -> None:
    tried: list[tuple[str, int]] = []
    sure: list[tuple[str, int]] = []
    with contextlib.suppress(TallystickError, OSError):
        _work(faulty, tried.append, sure.append, 16)
    assert isinstance(faulty.inner, MemoryFileSystem)
    journal = DiskJournal("/log", fs=MemoryFileSystem(faulty.inner.contents()))
    found = open_numbers(journal)
    journal.close()
    assert found <= _sets(tried, "decide")
    assert _sets(sure, "decide") - _sets(tried, "finish") <= found


def test_nothing_is_acknowledged_after_a_failed_write() -> None:
    faulty = FaultyFileSystem(RecordingFileSystem())
    journal = DiskJournal("/log", fs=faulty)
    faulty.fault = Fault(1, calls={"pwrite"}, lasting=True)
    with pytest.raises(LogPoisonedError):
        journal.log_forced(COMMITTING, gtrid(1), NAMES).wait()
    with pytest.raises(LogPoisonedError):
        journal.log_forced(COMMITTING, gtrid(2), NAMES).wait()
    journal.close()
