"""Failing disks: acknowledged entries are there, full disks recover, failed syncs move on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from time import monotonic, sleep

import pytest

from tallystick.errors import (
    BusyError,
    CorruptLogError,
    LogClosedError,
    LogFullError,
    LogPoisonedError,
    LogWriteError,
    TallystickError,
)
from tallystick.storage.files import FileSystem
from tallystick.systems.cloudtran.format.layout import SIGNATURE
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.read.header_repair import BlockFinder
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.testing import (
    SYNCS,
    WRITES,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    check_recovery,
)

SETTINGS = LogSettings(disk_block_size=512, file_size_mb=1, on_incomplete="replay")


def open_log(fs: FileSystem) -> BlockLog:
    return BlockLog("/log", SETTINGS, fs=fs, disposer=None)


def acknowledged(log: BlockLog, count: int = 6) -> list[int]:
    """Numbers of commits that returned; errors are ignored."""
    found = []
    for _ in range(count):
        try:
            number, ticket = log.persisting(["a"], [])
            ticket.wait()
        except (LogFullError, LogPoisonedError, BusyError):
            continue
        found.append(number)
    return found


def shut(log: BlockLog) -> None:
    """Close a log whose disk may fail even now."""
    try:
        log.close()
    except (TallystickError, OSError):
        log.close()


def recovered(fs: FileSystem) -> list[int]:
    log = open_log(fs)
    found = [entry.number for entry, _ in log.pending()]
    log.close()
    return found


@pytest.mark.parametrize("nth", range(1, 12))
@pytest.mark.parametrize("calls", [WRITES, SYNCS])
@pytest.mark.parametrize("lasting", [False, True])
def test_failed_call_loses_nothing_that_was_acknowledged(
    calls: frozenset[str], nth: int, lasting: bool
) -> None:
    disk = MemoryFileSystem()
    faulty = FaultyFileSystem(disk, Fault(nth, calls, lasting=lasting))
    try:
        log = open_log(faulty)
    except TallystickError:
        return
    numbers = acknowledged(log)
    shut(log)
    faulty.fault = None
    assert set(numbers) <= set(recovered(disk))
    if not lasting:
        assert len(numbers) >= 5


@pytest.mark.parametrize("kind", [FailedSync.ORDERED, FailedSync.REVERTED])
def test_failed_sync_moves_to_the_next_file_and_repeats_the_blocks(kind: FailedSync) -> None:
    disk = MemoryFileSystem()
    faulty = FaultyFileSystem(disk, None)
    log = open_log(faulty)
    first = acknowledged(log, 2)
    faulty.fault = Fault(1, SYNCS, sync=kind)
    faulty._calls = 0
    second = acknowledged(log, 3)
    faulty.fault = None
    log.close()
    assert len(second) == 3
    names = [name for name in disk.list("/log") if name.endswith(".ctlog")]
    assert len(names) == 2
    assert recovered(disk) == first + second
    sequences = []
    for name in names:
        file = disk.open(f"/log/{name}")
        data = memoryview(file.pread(file.size(), 0))
        blocks = FileScan(BlockFinder(data, SIGNATURE, 512)).blocks()
        sequences.append([block.prologue.sequence for block in blocks if block.readable])
    assert sequences[1][0] == 3
    assert sequences[1] == sorted(set(sequences[1]))


def test_sync_that_lied_is_detected_at_the_next_start() -> None:
    """No log can keep what the disk reported as durable and lost; this one detects it."""
    disk = MemoryFileSystem()
    faulty = FaultyFileSystem(disk, None)
    log = open_log(faulty)
    acknowledged(log, 2)
    faulty.fault = Fault(1, SYNCS, sync=FailedSync.JOURNALED)
    acknowledged(log, 3)
    faulty.fault = None
    log.close()
    with pytest.raises(CorruptLogError, match="missing-blocks"):
        open_log(disk)


def test_full_disk_refuses_commits_and_recovers_when_there_is_space() -> None:
    disk = MemoryFileSystem()
    faulty = FaultyFileSystem(disk, None)
    log = open_log(faulty)
    first = acknowledged(log, 2)
    faulty.fault = Fault(1, {"pwrite"}, errno.ENOSPC, partial=0.5, lasting=True)
    with pytest.raises(LogFullError):
        log.persisting(["a"], [])[1].wait()
    log.persisted(first[0], ["a"])
    with pytest.raises(LogFullError):
        log.sync().wait()
    faulty.fault = None
    second = acknowledged(log, 2)
    log.sync().wait()
    log.close()
    assert recovered(disk) == [first[1], *second]


def test_second_failure_in_a_row_ends_the_log_and_reopening_recovers() -> None:
    disk = MemoryFileSystem()
    faulty = FaultyFileSystem(disk, None)
    log = open_log(faulty)
    first = acknowledged(log, 2)
    faulty.fault = Fault(1, SYNCS, lasting=True)
    for _ in range(2):
        with pytest.raises(LogPoisonedError):
            log.persisting(["a"], [])[1].wait()
    faulty.fault = None
    shut(log)
    assert set(first) <= set(recovered(disk))
    with pytest.raises(LogClosedError):
        log.persisting(["a"], [])


@pytest.mark.parametrize("nth", [4, 5, 6, 7])
def test_every_crash_around_a_failed_sync_keeps_what_was_acknowledged(nth: int) -> None:
    recording = RecordingFileSystem()
    faulty = FaultyFileSystem(recording, Fault(nth, SYNCS))
    log = open_log(faulty)
    for index in range(4):
        recording.submitted(index)
        log.persisting(["a"], [], str(index))[1].wait()
        recording.acknowledged(index)
    log.close()

    def recover(fs: FileSystem) -> list[int]:
        log = open_log(fs)
        found = [int(entry.reference) for entry, _ in log.pending()]
        log.close()
        return found

    check_recovery(recording, recover, limit=40)


def test_every_crash_of_a_longer_log_keeps_the_order() -> None:
    recording = RecordingFileSystem()
    log = open_log(recording)
    for index in range(5):
        recording.submitted(index)
        _, ticket = log.persisting(["a"], [], str(index) + "x" * 60_000)
        ticket.wait()
        recording.acknowledged(index)
    log.close()

    def recover(fs: FileSystem) -> list[int]:
        log = open_log(fs)
        found = [int(entry.reference.rstrip("x")) for entry, _ in log.pending()]
        log.close()
        return found

    check_recovery(recording, recover, limit=8, writer_of=lambda _: 0)


@pytest.mark.parametrize("sync", [FailedSync.ORDERED, FailedSync.REVERTED])
def test_a_file_whose_last_sync_failed_leaves_no_gap(sync: FailedSync) -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    log = open_log(fs)
    found = acknowledged(log, 2)
    fs.fault = Fault(1, {"datasync"}, sync=sync)
    log._writer._series._roll()
    assert fs.struck
    found += acknowledged(log, 2)
    log.close()
    assert recovered(disk) == found == [1, 2, 3, 4]


class MovedFileSystem(MemoryFileSystem):
    """One whose folder is away for a time."""

    away = False

    def require_in_place(self) -> None:
        if self.away:
            raise LogWriteError("the folder was moved")


def test_marks_that_a_moved_folder_refused_are_written_once_it_is_back() -> None:
    fs = MovedFileSystem()
    log = open_log(fs)
    (number,) = acknowledged(log, 1)
    log.close()
    log = BlockLog("/log", replace(SETTINGS, persisted_flush_millis=10), fs=fs, disposer=None)
    fs.away = True  # and the first block needs a file
    log.persisted(number, ["a"])
    wait_until(lambda: log._writer.has_refused)
    fs.away = False
    wait_until(lambda: not log.pending())
    log.close()
    assert recovered(fs) == []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 5
    while not condition():
        assert monotonic() < deadline
        sleep(0.01)
