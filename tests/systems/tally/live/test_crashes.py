"""Every legal crash state of runs over every operation, and of the recoveries themselves.

What is recovered is always the state after some prefix of the steps: not shorter than what was
acknowledged, not longer than what was begun.
"""

from __future__ import annotations

import dataclasses

import pytest

from tallystick.services.journal import Journal
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.runs import pieces
from tallystick.testing import CrashState, RecordingFileSystem, check_recovery
from tests.systems.tally.build import FOLDER, TINY, bodies, reading, say
from tests.systems.tally.script import Live, Script, recover, short_script


def _run(fs: RecordingFileSystem, *, close: bool = True) -> Script:
    script = Script(Journal(FOLDER, fs=fs, settings=TINY), fs.submitted, fs.acknowledged)
    short_script(script)
    if close:
        script.journal.close()
    return script


def _is_prefix(found: Live, models: list[Live], state: CrashState) -> bool:
    least = max((int(str(one)) for one in state.acknowledged), default=0)
    most = max((int(str(one)) for one in state.submitted), default=0)
    return any(found == models[step] for step in range(least, most + 1))


def _check(limit: int, again: int) -> str:
    fs = RecordingFileSystem()
    models = _run(fs).models
    states = interrupted = 0
    for state in fs.crash_states(limit=limit):
        states += 1
        recording = state.recording()
        found = recover(recording)
        assert _is_prefix(found, models, state), state.describe()
        if states % 7:
            continue
        for inner in recording.crash_states(limit=again):
            interrupted += 1
            second = recover(inner.fs())
            assert second == found, f"{state.describe()}; then {inner.describe()}"
    return f"{states} crash states at {fs.points} moments, {interrupted} interrupted recoveries"


def test_every_operation_recovers_to_a_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    report = _check(limit=12, again=2)
    say(capsys, f"tally journal: {report}")


@pytest.mark.soak
def test_every_operation_recovers_to_a_prefix_exhaustively(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = _check(limit=200, again=20)
    say(capsys, f"tally journal: {report}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("in_runs", [False, True])
def test_every_crash_state_of_appends_and_rolls(
    in_runs: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "pay_at_opening", lambda _size: in_runs)
    fs = RecordingFileSystem()
    log = TallyLog(FOLDER, settings=TINY, fs=fs)
    for number in range(8):
        body = b"%d" % number + bytes(1800)
        fs.submitted(body)
        log.append(body).wait()
        fs.acknowledged(body)
    log.close()

    def items(disk: RecordingFileSystem) -> list[bytes]:
        TallyLog(FOLDER, settings=TINY, fs=disk).close()
        return bodies(reading(disk).records())

    report = check_recovery(fs, items, limit=40, again=2, writer_of=lambda _: 0)  # type: ignore[arg-type]
    say(capsys, f"tally log: {report}")


def test_torn_groups_of_a_sector_each_are_cut_or_kept_whole() -> None:
    """Every subset of the sectors of one group in flight."""
    fs = RecordingFileSystem()
    settings = dataclasses.replace(TINY)
    log = TallyLog(FOLDER, settings=settings, fs=fs)
    log.append(b"first").wait()
    fs.acknowledged("first")
    log.append(b"second" + bytes(2500)).wait()
    tried = 0
    for state in fs.crash_states(limit=300):
        disk = state.fs()
        TallyLog(FOLDER, settings=settings, fs=disk).close()
        found = [body[:6] for body in bodies(reading(disk).records())]
        assert found in ([], [b"first"], [b"first", b"second"])
        assert found or not state.acknowledged
        tried += 1
    assert tried > 64
