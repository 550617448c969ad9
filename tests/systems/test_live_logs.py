"""Every live log, crashed, failed and killed at random work: acknowledged ⊆ recovered ⊆ submitted.

Each trial runs in a small version always, and in a long one with the soak tests. What is random
comes from a seed that stands in the name of the test.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import TallystickError
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.testing import (
    CrashState,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    Reporter,
    every_fault,
    run_and_kill,
)
from tests.systems.live_logs import LIVE

FOLDER = "/log"
Mark = Callable[[Any], object]
EVERY_LOG = pytest.mark.parametrize("name", LIVE)


def work(
    name: str, fs: FileSystem, submitted: Mark, acknowledged: Mark, count: int, seed: int
) -> None:
    """Random puts and drops, with the log closed and opened again now and then."""
    rng = random.Random(seed)
    log = LIVE[name](fs, FOLDER)
    held: list[int] = []
    for number in range(1, count + 1):
        submitted(("put", number))
        log.put(number)
        acknowledged(("put", number))
        held.append(number)
        while len(held) > 12 or (held and rng.random() < 0.4):
            gone = held.pop(rng.randrange(len(held)))
            submitted(("drop", gone))
            log.drop(gone)
        if rng.random() < 0.1:
            log.close()
            log = LIVE[name](fs, FOLDER)
    log.close()


def held_by(name: str, fs: FileSystem, folder: str = FOLDER) -> set[int]:
    """What the log holds, by opening it."""
    log = LIVE[name](fs, folder)
    try:
        return log.numbers()
    finally:
        log.close()


def check(submitted: Iterable[Any], acknowledged: Iterable[Any], found: set[int], at: str) -> None:
    put = {number for kind, number in submitted if kind == "put"}
    dropped = {number for kind, number in submitted if kind == "drop"}
    sure = {number for kind, number in acknowledged if kind == "put"}
    assert found <= put, f"never submitted: {found - put}; {at}"
    assert sure - dropped <= found, f"lost: {sure - dropped - found}; {at}"


@EVERY_LOG
def test_everything_that_is_made_is_the_owners_alone(name: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = LIVE[name](LOCAL, f"{tmp_path}/made/log")
        for number in range(1, 4):
            log.put(number)
        log.close()
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "made").rglob("*")}
    assert len(modes) > 1
    assert [str(path) for path, mode in modes.items() if mode & 0o077] == []
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


@EVERY_LOG
def test_a_forked_child_closes_it_silently(name: str, tmp_path: Path) -> None:
    """As it does when it leaves the block of its parent, by `sys.exit` say."""
    log = LIVE[name](LOCAL, str(tmp_path / "log"))
    child = os.fork()
    if child == 0:
        try:
            log.close()
        finally:
            os._exit(1 if sys.exception() else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log.put(1)
    log.close()
    assert held_by(name, LOCAL, str(tmp_path / "log")) == {1}


def sizes(small: Any, long: Any) -> pytest.MarkDecorator:
    values = [pytest.param(small, id="small"), pytest.param(long, id="long", marks=SOAK)]
    return pytest.mark.parametrize("size", values)


SOAK = pytest.mark.soak


# -- crashes ---------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@EVERY_LOG
@sizes((8, 6, 1), (40, 30, 4))
def test_every_crash_keeps_what_was_acknowledged(name: str, size: tuple[int, int, int]) -> None:
    """Crash states of random work, and crashes of the recovery from some of them."""
    count, limit, seeds = size
    for seed in range(seeds):
        fs = RecordingFileSystem()
        work(name, fs, fs.submitted, fs.acknowledged, count, seed)
        states = list(fs.crash_states(limit=limit, seed=seed))
        for number, state in enumerate(states):
            at = f"seed {seed}, {state.describe()}"
            found = _recover(name, state, at, again=number % max(1, len(states) // 12) == 0)
            check(state.submitted, state.acknowledged, found, at)
        assert len(states) > 4 * count


def _recover(name: str, state: CrashState, at: str, *, again: bool) -> set[int]:
    """What is recovered; the same by a second opening, and after a crash of the first."""
    recording = state.recording()
    found = held_by(name, recording)
    assert held_by(name, recording) == found, at
    for second in recording.crash_states(limit=2, seed=1) if again else ():
        assert held_by(name, second.fs()) == found, (at, second.describe())
    return found


# -- faults ----------------------------------------------------------------------------------


@EVERY_LOG
@sizes([Fault(1, error=errno.EIO, partial=0.5)],
       [Fault(1, error=error, partial=part, lasting=lasting)
        for error in (errno.EIO, errno.ENOSPC) for part in (0.0, 0.5, 1.0)
        for lasting in (False, True)])  # fmt: skip
def test_any_failing_call_loses_nothing_acknowledged(name: str, size: list[Fault]) -> None:
    """Each kind of failure at the first call, the second, and so on to the last."""
    count = 6 if len(size) == 1 else 20
    for kind in size:
        for faulty in every_fault(RecordingFileSystem, partial(_at, kind)):
            _survives(name, faulty, count)


@EVERY_LOG
@pytest.mark.parametrize("kind", [FailedSync.ORDERED, FailedSync.REVERTED])
@sizes(6, 24)
def test_any_failing_sync_loses_nothing_acknowledged(
    name: str, size: int, kind: FailedSync
) -> None:
    def fault(nth: int) -> Fault:
        return Fault(nth, calls={"datasync"}, sync=kind)

    for faulty in every_fault(RecordingFileSystem, fault):
        _survives(name, faulty, size)


@EVERY_LOG
@sizes(10, 60)
def test_short_writes_and_interrupted_calls_change_nothing(name: str, size: int) -> None:
    fs = FaultyFileSystem(RecordingFileSystem(), short_writes=True)
    _survives(name, fs, size)


def _at(kind: Fault, nth: int) -> Fault:
    return Fault(nth, error=kind.error, partial=kind.partial, lasting=kind.lasting)


def _survives(name: str, faulty: FaultyFileSystem, count: int) -> None:
    submitted: list[tuple[str, int]] = []
    acknowledged: list[tuple[str, int]] = []
    with contextlib.suppress(TallystickError, OSError):
        work(name, faulty, submitted.append, acknowledged.append, count, seed=3)
    fault = faulty.fault
    assert isinstance(faulty.inner, MemoryFileSystem)
    found = held_by(name, MemoryFileSystem(faulty.inner.contents()))
    check(submitted, acknowledged, found, f"{fault}")


# -- kills -----------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@EVERY_LOG
@sizes((3, 1), (60, 2))
def test_killed_at_any_point_it_keeps_what_was_acknowledged(
    name: str, size: tuple[int, int], tmp_path: Path
) -> None:
    """Over the same log, which each run opens again and goes on with."""
    kills, seeds = size
    for seed in range(seeds):
        folder = str(tmp_path / str(seed))
        rng = random.Random(seed)
        submitted: list[Any] = []
        acknowledged: list[Any] = []
        for run in range(kills):
            killed = run_and_kill(
                partial(_until_killed, name, folder),
                after=rng.randrange(60),
                seconds=rng.uniform(0, 0.005),
                run=run,
            )
            submitted += killed.submitted
            acknowledged += killed.acknowledged
            at = f"kill {run} of seed {seed}"
            check(submitted, acknowledged, held_by(name, LOCAL, folder), at)


def _until_killed(name: str, folder: str, reporter: Reporter) -> None:
    rng = random.Random(reporter.run)
    log = LIVE[name](LOCAL, folder)
    held = sorted(log.numbers())
    for number in range(1 + 10_000 * reporter.run, 10_000 * (reporter.run + 1)):
        reporter.submitted(("put", number))
        log.put(number)
        reporter.acknowledged(("put", number))
        held.append(number)
        while len(held) > 12:
            gone = held.pop(rng.randrange(len(held)))
            reporter.submitted(("drop", gone))
            log.drop(gone)
