"""`storage.segments`: names, spares, rolling, retiring, crashes and faults at every step."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import LogClosedError, LogFullError, LogWriteError, TallystickError
from tallystick.storage.files import File, FileSystem, read_file
from tallystick.storage.local import LOCAL
from tallystick.storage.segments import Naming, Segments
from tallystick.testing import (
    CHANGES,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    check_recovery,
    every_fault,
)
from tests.interrupts import bytecodes_of, handlers, interrupted

NAMING = Naming("segment-", ".log", digits=4)
FOLDER = "/log"
SIZE = 2048


def _segments(fs: FileSystem, *, background: bool = False, folder: str = FOLDER) -> Segments:
    fs.mkdir(folder)
    return Segments(fs.hold(folder), folder, NAMING, size=SIZE, background=background)


def _begin(number: int) -> Callable[[File], None]:
    return lambda file: file.pwrite(b"segment %4d" % number, 0)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("segment-0001.log", 1),
        ("segment-12345.log", 12345),
        ("segment-01.log", None),
        ("segment-00001.log", None),
        ("segment-00x1.log", None),
        ("segment-٠٠٠١.log", None),
        ("segment--001.log", None),
        ("segment-0001.log.gz", None),
        ("spare-1", None),
        ("", None),
    ],
)
def test_only_exact_names_are_segments(name: str, number: int | None) -> None:
    assert NAMING.number(name) == number
    if number is not None:
        assert NAMING.name(number) == name


@pytest.mark.parametrize("background", [False, True])
def test_segments_roll_and_are_used_again(background: bool) -> None:
    fs = MemoryFileSystem()
    segments = _segments(fs, background=background)
    for number in range(1, 8):
        file = segments.roll(number, _begin(number))
        assert file.path == segments.path(number)
        assert file.size() == SIZE
        assert file.pread(12, 0) == b"segment %4d" % number
        segments.retire_below(number - 1)
    segments.close()
    assert segments.numbers() == [6, 7]
    spares = [name for name in fs.list(FOLDER) if name.startswith("spare-")]
    assert 1 <= len(spares) <= 3
    assert len(fs.disk.inodes) <= 6, "retired files are used again, not made anew"


def test_a_fresh_segment_is_zeros_after_its_beginning() -> None:
    fs = MemoryFileSystem()
    segments = _segments(fs)
    segments.roll(1, _begin(1))
    assert read_file(fs, segments.path(1)) == (b"segment    1").ljust(SIZE, b"\0")


def test_spares_are_made_in_the_background(tmp_path: Path) -> None:
    segments = _segments(LOCAL, background=True, folder=str(tmp_path))
    segments.prepare()
    segments.close()
    assert [path.name for path in tmp_path.iterdir()] == ["spare-1"]
    assert (tmp_path / "spare-1").stat().st_blocks * 512 >= SIZE
    again = _segments(LOCAL, background=True, folder=str(tmp_path))
    again.roll(1, _begin(1)).close()
    again.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["segment-0001.log", "spare-2"]


def test_a_segment_is_never_made_twice() -> None:
    segments = _segments(MemoryFileSystem())
    segments.roll(1, _begin(1))
    with pytest.raises(LogWriteError, match=r"segment-0001\.log: this segment exists already"):
        segments.roll(1, _begin(1))


def test_half_made_files_and_odd_spares_are_swept_at_opening() -> None:
    fs = MemoryFileSystem(
        {
            f"{FOLDER}/spare-1.new": bytes(100),
            f"{FOLDER}/spare-2": bytes(SIZE),
            f"{FOLDER}/spare-3": bytes(SIZE - 1),
            f"{FOLDER}/segment-0005.log": b"x",
            f"{FOLDER}/other": b"y",
        }
    )
    segments = _segments(fs)
    assert fs.list(FOLDER) == ["other", "segment-0005.log", "spare-2"]
    assert segments.numbers() == [5]
    segments.roll(6, _begin(6))
    assert fs.list(FOLDER) == ["other", "segment-0005.log", "segment-0006.log"]


def test_retiring_goes_by_age_and_keeps_what_is_held_or_wanted() -> None:
    segments = _segments(MemoryFileSystem())
    for number in range(1, 9):
        segments.roll(number, _begin(number))
    with segments.hold(4), segments.hold(6):
        assert segments.retire_below(7) == [1, 2, 3]
    assert segments.retire_below(7, keep=2) == [4]
    assert segments.retire_below(7) == [5, 6]
    assert segments.numbers() == [7, 8]


@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGALRM)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a generator's end
def test_what_was_held_when_signals_came_is_retired_later(
    numbers: tuple[signal.Signals, ...],
) -> None:
    segments = _segments(MemoryFileSystem())

    def read() -> None:
        with segments.hold(number):
            pass

    number = 1
    segments.roll(number, _begin(number))
    with handlers():
        for point in range(bytecodes_of(read)):
            interrupted(read, point, *map(int, numbers))
            gc.collect(0)  # what is left is young; all would take half a second of a worker's time
            number += 1
            segments.roll(number, _begin(number))
            assert segments.retire_below(number) == [number - 1]


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_is_reported_and_may_be_tried_again(background: bool) -> None:
    inner = MemoryFileSystem()
    fs = FaultyFileSystem(inner, Fault(1, calls={"pwrite"}, error=errno.ENOSPC, lasting=True))
    segments = _segments(fs, background=background)
    segments.prepare()
    while background and not fs.struck:
        time.sleep(0.001)
    with pytest.raises(LogFullError, match="no space for another segment"):
        segments.roll(1, _begin(1))
    assert inner.list(FOLDER) == []
    fs.fault = None  # at once: nothing is left of what failed in the background
    segments.roll(1, _begin(1))
    assert segments.numbers() == [1]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("background", [False, True])
def test_missing_descriptors_are_reported_and_may_be_tried_again(
    background: bool, error: int
) -> None:
    inner = MemoryFileSystem()
    fs = FaultyFileSystem(inner, Fault(1, calls={"open", "create"}, error=error, lasting=True))
    segments = _segments(fs, background=background)
    segments.prepare()
    while background and not fs.struck:
        time.sleep(0.001)
    with pytest.raises(LogFullError, match="no file descriptor for another segment"):
        segments.roll(1, _begin(1))
    fs.fault = None
    segments.roll(1, _begin(1))
    assert segments.numbers() == [1]


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("a bug")])
def test_a_failed_background_job_is_an_error_of_the_next_roll(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: str) -> File:
        raise error

    fs = MemoryFileSystem()
    monkeypatch.setattr(fs, "create", fail)
    segments = _segments(fs, background=True)
    segments.prepare()
    outcome: list[BaseException] = []

    def roll() -> None:
        try:
            segments.roll(1, _begin(1))
        except (OSError, ValueError) as caught:
            outcome.append(caught)

    roller = threading.Thread(target=roll, daemon=True)
    roller.start()
    roller.join(20)
    assert not roller.is_alive(), "roll hangs"
    assert outcome == [error]
    segments.close()


def test_closed_segments_neither_roll_nor_retire() -> None:
    segments = _segments(MemoryFileSystem())
    segments.close()
    segments.prepare()
    for refused in (lambda: segments.roll(1, _begin(1)), lambda: segments.retire_below(1)):
        with pytest.raises(LogClosedError, match="the log is closed"):
            refused()


def test_a_forked_child_makes_and_retires_no_segment(tmp_path: Path) -> None:
    segments = _segments(LOCAL, background=True, folder=str(tmp_path))
    segments.roll(1, _begin(1)).close()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for refused in (lambda: segments.roll(2, _begin(2)), lambda: segments.retire_below(2)):
                with pytest.raises(LogClosedError, match="forked"):
                    refused()
            segments.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert segments.retire_below(2) == [1]
    segments.close()


# -- crashes and faults -------------------------------------------------------------------


def _script(fs: FileSystem, done: Callable[[int], None]) -> None:
    segments = _segments(fs)
    for number in range(1, 5):
        segments.roll(number, _begin(number))
        done(number)
        segments.retire_below(number - 1)


def _recover(fs: FileSystem) -> list[int]:
    segments = _segments(fs)
    for number in segments.numbers():
        head = read_file(fs, segments.path(number))
        assert head.startswith(b"segment %4d" % number), "named before its beginning was durable"
        assert len(head) == SIZE
    if segments.numbers():
        new = max(segments.numbers()) + 1
        segments.roll(new, _begin(new))
        assert segments.numbers()[-1] == new
    return segments.numbers()[:-1]


def test_no_crash_leaves_a_segment_without_its_beginning(
    record_property: Callable[[str, object], None],
) -> None:
    fs = RecordingFileSystem()
    _script(fs, lambda _number: None)
    states = 0
    for state in fs.crash_states():
        numbers = _recover(state.fs())
        assert numbers == sorted(numbers)
        states += 1
    assert fs.sampled_points() == 0
    record_property("figure", f"{states} crash states (exhaustive)")


def test_every_segment_that_roll_returned_survives_every_crash(
    record_property: Callable[[str, object], None],
) -> None:
    fs = RecordingFileSystem()
    segments = _segments(fs)
    for number in range(1, 4):
        fs.submitted(number)
        segments.roll(number, _begin(number))
        fs.acknowledged(number)
    report = check_recovery(fs, lambda disk: _segments(disk).numbers(), again=50)
    assert report.sampled_points == 0
    record_property("figure", str(report))


def _history(fs: RecordingFileSystem, steps: tuple[str, ...]) -> None:
    segments = _segments(fs)
    for step in steps:
        newest = max(segments.numbers(), default=0)
        if step == "roll":
            fs.submitted(newest + 1)
            segments.roll(newest + 1, _begin(newest + 1))
        elif step == "retire":
            segments.retire_below(newest)
        else:
            segments = _segments(fs)


def test_every_short_history_survives_every_crash(
    record_property: Callable[[str, object], None],
) -> None:
    """Run all sequences of five steps; after each crash the next segment can be made."""
    histories = states = 0
    for steps in itertools.product(("roll", "retire", "reopen"), repeat=5):
        fs = RecordingFileSystem()
        _history(fs, steps)
        histories += 1
        for state in fs.crash_states():
            assert set(_recover(state.fs())) <= set(state.submitted), state.describe()
            states += 1
        assert fs.sampled_points() == 0
    record_property("figure", f"{histories} histories, {states} crash states (exhaustive)")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_no_fault_loses_or_half_makes_a_segment(error: int) -> None:
    faults = 0
    for fs in every_fault(MemoryFileSystem, lambda nth: Fault(nth, CHANGES, error, partial=0.5)):
        done: list[int] = []
        try:
            _script(fs, done.append)
        except (OSError, TallystickError):
            assert fs.struck
        found = _recover(fs.inner)
        assert set(done[-2:-1]) <= set(found)
        faults += 1
    assert faults > 30
