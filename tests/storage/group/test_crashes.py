"""The group writer over a disk that crashes everywhere: threads and tasks, groups torn anywhere."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Hashable

import pytest

from tallystick.errors import LogPoisonedError
from tallystick.storage.files import FileSystem
from tallystick.testing import (
    CHANGES,
    FailedSync,
    Fault,
    RecordingFileSystem,
    check_recovery,
    every_fault,
)
from tests.testing.toy import ToyLog, recover_reading

WRITERS, STEPS = 5, 3


def _body(writer: int, step: int) -> bytes:
    return b"%d:%d " % (writer, step) * (1 + 60 * (step == 1))


def _writer_of(item: Hashable) -> Hashable:
    assert isinstance(item, bytes)
    return item[:1]


def _threads(log: ToyLog, marks: RecordingFileSystem) -> None:
    _in_threads(lambda body: log.append(body).wait(), marks)


def _committers(log: ToyLog, marks: RecordingFileSystem) -> None:
    _in_threads(log.commit, marks)


def _in_threads(commit: Callable[[bytes], int], marks: RecordingFileSystem) -> None:
    def work(writer: int) -> None:
        for step in range(STEPS):
            body = _body(writer, step)
            marks.submitted(body)
            try:
                commit(body)
            except LogPoisonedError:
                return
            marks.acknowledged(body)

    threads = [threading.Thread(target=work, args=[n], daemon=True) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a waiter hangs"


def _tasks(log: ToyLog, marks: RecordingFileSystem) -> None:
    async def work(writer: int) -> None:
        for step in range(STEPS):
            body = _body(writer, step)
            marks.submitted(body)
            try:
                await log.append(body)
            except LogPoisonedError:
                return
            marks.acknowledged(body)

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*map(work, range(WRITERS))), 20)

    asyncio.run(run())


Face = Callable[[ToyLog, RecordingFileSystem], None]


@pytest.mark.parametrize("face", [_threads, _committers, _tasks])
def test_every_writer_finds_a_prefix_that_holds_all_its_acknowledgements(
    face: Face, record_property: Callable[[str, object], None]
) -> None:
    fs = RecordingFileSystem()
    log = ToyLog(fs)
    face(log, fs)
    log.close()
    report = check_recovery(fs, recover_reading, writer_of=_writer_of)
    record_property("figure", str(report))


def _faulty(face: Face, fs: FileSystem, marks: RecordingFileSystem) -> None:
    try:
        log = ToyLog(fs)
    except OSError:
        return
    face(log, marks)
    log.close()


@pytest.mark.parametrize("face", [_threads, _committers, _tasks])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_fault_ends_in_errors_for_all_and_losses_for_none(face: Face, error: int) -> None:
    for fs in every_fault(RecordingFileSystem, lambda n: Fault(n, CHANGES, error, partial=0.5)):
        assert isinstance(fs.inner, RecordingFileSystem)
        _faulty(face, fs, fs.inner)
        check_recovery(fs.inner, recover_reading, limit=40, writer_of=_writer_of)


@pytest.mark.parametrize("face", [_threads, _committers, _tasks])
@pytest.mark.parametrize("kind", [FailedSync.ORDERED, FailedSync.REVERTED])
def test_no_failed_sync_is_acknowledged(face: Face, kind: FailedSync) -> None:
    for fs in every_fault(RecordingFileSystem, lambda n: Fault(n, {"datasync"}, sync=kind)):
        assert isinstance(fs.inner, RecordingFileSystem)
        _faulty(face, fs, fs.inner)
        check_recovery(fs.inner, recover_reading, limit=40, writer_of=_writer_of)
