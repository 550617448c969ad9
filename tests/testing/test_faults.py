"""`testing.faults`: each fault strikes where it should, and right logs survive it."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tallystick.errors import LogPoisonedError
from tallystick.storage.files import FileSystem, read_file
from tallystick.storage.local import LOCAL
from tallystick.testing import (
    CHANGES,
    NAMES,
    READS,
    SECTOR,
    SYNCS,
    WRITES,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    check_items,
    check_recovery,
    every_fault,
)
from tests.testing.toy import ToyLog, recover, recover_reading

A, B, C = (bytes([letter]) * SECTOR for letter in b"ABC")


@pytest.mark.parametrize(
    ("calls", "order"),
    [
        (WRITES, ["pwrite", "pwritev", "truncate", "allocate"]),
        (SYNCS, ["datasync", "sync_dir"]),
        (NAMES, ["mkdir", "create", "rename", "remove"]),
        (READS, ["open", "pread"]),
    ],
)
def test_every_kind_of_call_can_be_made_to_fail(calls: frozenset[str], order: list[str]) -> None:
    struck = []
    for fs in every_fault(MemoryFileSystem, lambda nth: Fault(nth, calls, errno.ENOSPC)):
        found = 0
        try:
            _one_of_each(fs)
        except OSError as error:
            found = error.errno or 0
        assert found == (errno.ENOSPC if fs.struck else 0)
        struck.append(fs.struck)
    assert struck == [True] * len(order) + [False]


def _one_of_each(fs: FileSystem) -> None:
    fs.mkdir("/l")
    file = fs.create("/l/a")
    file.pwrite(b"a", 0)
    file.pwritev([b"b"], 1)
    file.truncate(1)
    file.allocate(10)
    file.datasync()
    fs.rename("/l/a", "/l/b")
    fs.sync_dir("/l")
    fs.open("/l/b").pread(1, 0)
    fs.remove("/l/b")


def test_a_fault_strikes_once_or_lasts() -> None:
    for lasting, failures in ((False, 1), (True, 4)):
        fs = FaultyFileSystem(MemoryFileSystem(), Fault(3, {"pwrite"}, lasting=lasting))
        file = fs.create("/a")
        count = 0
        for number in range(6):
            try:
                file.pwrite(b"x", number)
            except OSError:
                count += 1
        assert count == failures


@pytest.mark.parametrize("partial", [0.0, 0.5])
def test_a_failing_write_may_leave_a_part(partial: float) -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(1, WRITES, partial=partial))
    with pytest.raises(OSError, match="injected"):
        fs.create("/a").pwritev([b"12", b"34"], 0)
    assert read_file(fs, "/a") == b"1234"[: int(4 * partial)]


def test_short_writes_show_as_several_calls() -> None:
    inner = RecordingFileSystem()
    FaultyFileSystem(inner, short_writes=True).create("/a").pwrite(bytes(range(100)), 0)
    assert read_file(inner, "/a") == bytes(range(100))
    assert inner.points == 1 + 7


# -- failed syncs ---------------------------------------------------------------------------


def _after_failed_sync(kind: FailedSync) -> tuple[FaultyFileSystem, list[str]]:
    fs = FaultyFileSystem(MemoryFileSystem({"/a": A}), Fault(1, {"datasync"}, sync=kind))
    file = fs.open("/a")
    file.pwrite(B, 0)
    outcomes = []
    for _ in range(3):
        try:
            file.datasync()
        except OSError:
            outcomes.append("failed")
        else:
            outcomes.append("fine")
    return fs, outcomes


@pytest.mark.parametrize(
    ("kind", "outcomes"),
    [
        (FailedSync.ORDERED, ["failed", "fine", "fine"]),
        (FailedSync.JOURNALED, ["fine", "failed", "fine"]),
        (FailedSync.REVERTED, ["failed", "fine", "fine"]),
    ],
)
def test_a_failed_sync_reports_as_its_file_system_does(
    kind: FailedSync, outcomes: list[str]
) -> None:
    fs, found = _after_failed_sync(kind)
    assert found == outcomes
    assert read_file(fs, "/a") == A, "no retry brings the bytes back"


@pytest.mark.parametrize("kind", FailedSync)
def test_what_reads_see_after_a_failed_sync_is_not_what_the_disk_has(kind: FailedSync) -> None:
    memory = MemoryFileSystem({"/a": A + A})
    file = FaultyFileSystem(memory, Fault(1, {"datasync"}, sync=kind)).open("/a")
    file.pwrite(B, 0)
    if kind is FailedSync.JOURNALED:
        file.datasync()
    with pytest.raises(OSError, match="injected"):
        file.datasync()
    assert file.pread(SECTOR, 0) == (A if kind is FailedSync.REVERTED else B)
    file.pwrite(C, SECTOR)
    file.datasync()
    assert read_file(memory, "/a") == A + C


def test_a_failed_sync_needs_a_model_of_the_disk(tmp_path: object) -> None:
    fs = FaultyFileSystem(LOCAL, Fault(1, {"datasync"}, sync=FailedSync.ORDERED))
    with pytest.raises(TypeError, match="needs a MemoryFileSystem"):
        fs.create(f"{tmp_path}/a").datasync()


# -- a whole log ------------------------------------------------------------------------------

SIZES = (10, 600, 10, 1500, 5)


def _run(fs: FileSystem, marks: RecordingFileSystem) -> None:
    log = ToyLog(fs)
    try:
        for number, size in enumerate(SIZES):
            body = bytes([65 + number]) * size
            marks.submitted(body)
            log.append(body).wait()
            marks.acknowledged(body)
    finally:
        log.close()


def _marks(fs: RecordingFileSystem) -> tuple[tuple[object, ...], tuple[object, ...]]:
    *_, last = fs.crash_states(limit=8)
    return last.submitted, last.acknowledged


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("partial", [0.0, 0.6])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_right_log_survives_every_fault_at_every_call(
    error: int, partial: float, lasting: bool
) -> None:
    def fault(nth: int) -> Fault:
        return Fault(nth, CHANGES, error, partial, lasting)

    faults = 0
    for fs in every_fault(RecordingFileSystem, fault):
        inner = fs.inner
        assert isinstance(inner, RecordingFileSystem)
        try:
            _run(fs, inner)
        except (OSError, LogPoisonedError):
            assert fs.struck
        submitted, acknowledged = _marks(inner)
        check_items(submitted, acknowledged, recover(inner), writer_of=lambda _item: 0)
        check_recovery(inner, recover_reading, limit=100)
        faults += 1
    assert faults == 13 + 1


def _failing_syncs(kind: FailedSync) -> Callable[[int], Fault]:
    return lambda nth: Fault(nth, {"datasync"}, sync=kind)


@pytest.mark.parametrize("kind", [FailedSync.ORDERED, FailedSync.REVERTED])
def test_a_failed_sync_is_never_acknowledged_and_reopening_reads_the_disk(
    kind: FailedSync,
) -> None:
    for fs in every_fault(RecordingFileSystem, _failing_syncs(kind)):
        inner = fs.inner
        assert isinstance(inner, RecordingFileSystem)
        try:
            _run(fs, inner)
        except LogPoisonedError:
            assert fs.struck
        check_recovery(inner, recover_reading)
        second = ToyLog(inner)
        inner.submitted(b"second life")
        second.append(b"second life").wait()
        inner.acknowledged(b"second life")
        check_recovery(inner, recover_reading)


def test_a_sync_that_lies_loses_at_most_what_it_acknowledged() -> None:
    lost = []
    for fs in every_fault(RecordingFileSystem, _failing_syncs(FailedSync.JOURNALED)):
        inner = fs.inner
        assert isinstance(inner, RecordingFileSystem)
        try:
            _run(fs, inner)
        except LogPoisonedError:
            assert fs.struck
        _, acknowledged = _marks(inner)
        recovered = recover(inner)
        assert list(acknowledged[: len(recovered)]) == recovered
        lost.append(len(acknowledged) - len(recovered))
    assert lost == [1, 1, 1, 1, 1, 0]
