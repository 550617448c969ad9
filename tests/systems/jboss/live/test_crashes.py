"""Crashes, faults and kills: acknowledged records are there, no others, and no half transactions.

The crash states of `tallystick.testing` tear and reorder unsynced sectors. In the plain format a
record of more than two sectors can be torn in its middle without a trace, which the format's own
documents admit; records here are smaller, or written with ``checksum="hash"``.
"""

from __future__ import annotations

import errno
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import LogFullError, LogPoisonedError, TallystickError
from tallystick.storage.files import Bytes, FileSystem
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.testing import (
    SYNCS,
    WRITES,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    Reporter,
    check_kills,
    check_recovery,
    every_fault,
)
from tallystick.testing.faults import FaultyFile

FOLDER = "/journal"
FORMATS = {
    "g3": JournalSettings(file_size=1024),
    "g1a": JournalSettings(generation="g1a", prefix="jbm-data", extension="jbm", file_size=1024),
    "hash": JournalSettings(checksum="hash", file_size=1024),
}
EVERY_FORMAT = pytest.mark.parametrize("name", FORMATS)


def recorded(name: str) -> tuple[JournalSettings, RecordingFileSystem, JBossRecordJournal]:
    """A new journal of that format on a file system that records its writes."""
    settings, fs = FORMATS[name], RecordingFileSystem()
    return settings, fs, JBossRecordJournal(FOLDER, settings, fs=fs)


def items(fs: FileSystem, settings: JournalSettings) -> list[Hashable]:
    """(id, body) of the live records of a journal, by opening it."""
    journal = JBossRecordJournal(FOLDER, settings, fs=fs)
    found: list[Hashable] = [(record.record_id, record.body) for record in journal.live_records()]
    journal.close()
    return found


def numbers(fs: FileSystem, settings: JournalSettings) -> list[int]:
    """The ids of live records, by opening the journal."""
    journal = JBossRecordJournal(FOLDER, settings, fs=fs)
    found = [record.record_id for record in journal.live_records()]
    journal.close()
    return found


@EVERY_FORMAT
@pytest.mark.parametrize("fill", [b"J", b"\0"], ids=["J", "zeros"])
@pytest.mark.parametrize("number", [7, 1 << 50])
def test_a_file_that_was_never_begun_gives_no_file_id(name: str, fill: bytes, number: int) -> None:
    settings = FORMATS[name]
    path = f"{FOLDER}/{settings.prefix}-{number}.{settings.extension}"
    fs = MemoryFileSystem({path: fill * settings.file_size})
    for record in (1, 2):
        journal = JBossRecordJournal(FOLDER, settings, fs=fs)
        journal.add(record, b"x" * 600).wait()
        journal.close()
    assert numbers(fs, settings) == [1, 2]
    assert f"{FOLDER}/{settings.prefix}-{1 << 50 | 1}.{settings.extension}" not in fs.contents()


@pytest.mark.sampled(1)
@EVERY_FORMAT
def test_adds_survive_every_crash(name: str) -> None:
    settings, fs, journal = recorded(name)
    for number in range(1, 9):
        item = (number, bytes([number]) * 230)
        fs.submitted(item)
        journal.add(*item).wait()
        fs.acknowledged(item)
    journal.close()
    report = check_recovery(
        fs, lambda disk: items(disk, settings), limit=40, writer_of=lambda _: 0, again=6
    )
    assert report.recoveries_crashed > 100


@EVERY_FORMAT
def test_group_of_adds_is_a_subset_after_every_crash(name: str) -> None:
    settings, fs, journal = recorded(name)
    tickets = []
    for number in range(1, 13):
        item = (number, bytes([number]) * 150)
        fs.submitted(item)
        tickets.append((item, journal.add(*item)))
    for item, ticket in tickets:
        ticket.wait()
        fs.acknowledged(item)
    journal.close()
    report = check_recovery(fs, lambda disk: items(disk, settings), limit=60)
    assert report.states > 40


@pytest.mark.sampled(1)
@EVERY_FORMAT
def test_transaction_is_whole_or_absent_after_every_crash(name: str) -> None:
    settings, fs, journal = recorded(name)
    for transaction in range(1, 4):
        fs.submitted(transaction)
        for part in range(6):
            journal.add_in(transaction, 10 * transaction + part, bytes([part]) * 130)
        journal.commit(transaction).wait()
        fs.acknowledged(transaction)
    journal.close()

    def whole(disk: FileSystem) -> list[Hashable]:
        found = sorted(numbers(disk, settings))
        transactions = sorted({number // 10 for number in found})
        parts = [10 * number + part for number in transactions for part in range(6)]
        assert found == parts, f"a transaction in part: {found}"
        return list(transactions)

    report = check_recovery(fs, whole, limit=40, writer_of=lambda _: 0, again=4)
    assert report.recoveries_crashed > 100


@pytest.mark.sampled(1)
@EVERY_FORMAT
def test_deleted_records_stay_deleted_while_files_are_used_again(name: str) -> None:
    """Reclaiming in any order of durability must not bring a deleted record back."""
    settings, fs, journal = recorded(name)
    for number in range(1, 16):
        fs.submitted(number)
        journal.add(number, bytes([number]) * 200).wait()
        if number > 1:
            journal.delete(number - 1).wait()
        fs.acknowledged(number)
    journal.close()

    def newest(disk: FileSystem) -> list[Hashable]:
        found = sorted(numbers(disk, settings))
        assert len(found) <= 2, f"deleted records came back: {found}"
        assert not found or found == list(range(found[0], found[0] + len(found)))
        return list(range(1, max(found, default=0) + 1))

    report = check_recovery(fs, newest, limit=24, again=3)
    assert report.recoveries_crashed > 100


def test_compaction_keeps_everything_in_every_crash() -> None:
    settings = JournalSettings(file_size=1024)
    fs = RecordingFileSystem()
    journal = CircularJournal(FOLDER, settings, fs=fs)
    for number in range(12):
        journal.append_add_record(number, 0, bytes([number]) * 150).wait()
    for number in range(0, 12, 2):
        journal.append_delete_record(number).wait()
    journal.append_add_record_transactional(5, 100, 0, b"in doubt")
    journal.append_prepare_record(5, b"xid").wait()
    for number in range(1, 12, 2):
        fs.submitted(number)
        fs.acknowledged(number)
    start = fs.points
    journal.compact()
    journal.close()

    def live(disk: FileSystem) -> list[Hashable]:
        reopened = JBossRecordJournal(FOLDER, settings, fs=disk)
        assert [one.extra for one in reopened.prepared()] == [b"xid"]
        found = [record.record_id for record in reopened.live_records()]
        reopened.close()
        return list(found)

    tried = 0
    for state in fs.crash_states(limit=30):
        if state.point >= start:
            assert live(state.fs()) == [1, 3, 5, 7, 9, 11], state.describe()
            tried += 1
    assert tried > 20


def compacted(disk: FileSystem, fault: Fault) -> tuple[bool, set[int]]:
    """Whether a fault struck a compaction, and the ids that are live for those who were told."""
    settings = JournalSettings(file_size=1024, pool_files=20)
    fs = FaultyFileSystem(disk)
    journal = CircularJournal(FOLDER, settings, fs=fs)
    live = set(range(12))
    for number in live:
        journal.append_add_record(number, 0, bytes(150)).wait()
    for number in range(0, 12, 2):
        journal.append_delete_record(number).wait()
        live.remove(number)
    fs.fault = fault
    with suppress(TallystickError):
        journal.compact()
    fs.fault = None
    with suppress(TallystickError):
        for number in range(100, 140):  # in files that are free now, if any is
            journal.append_add_record(number, 0, bytes(150)).wait()
            live.add(number)
            if number % 4:
                journal.append_delete_record(number).wait()
                live.remove(number)
    with suppress(TallystickError):
        journal.close()
    return fs.struck, live


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_compaction_that_fails_loses_nothing_and_brings_nothing_back(code: int) -> None:
    settings = JournalSettings(file_size=1024, pool_files=20)
    for nth in range(1, 100):
        disk = MemoryFileSystem()
        struck, live = compacted(disk, Fault(nth, error=code))
        assert set(numbers(disk, settings)) == live, nth
        if not struck:
            assert nth > 10
            return
    raise AssertionError("the fault was always reached")


def test_a_compaction_without_space_for_its_copies_leaves_the_journal_as_it_was() -> None:
    settings = JournalSettings(file_size=1024)
    fs = FaultyFileSystem(MemoryFileSystem())
    journal = CircularJournal(FOLDER, settings, fs=fs)
    for number in range(12):
        journal.append_add_record(number, 0, bytes(150)).wait()
    for number in range(0, 12, 2):
        journal.append_delete_record(number).wait()
    journal.force_move_next_file()
    before = journal.files()
    write = FaultyFile.pwrite

    def full(self: FaultyFile, data: Bytes, offset: int) -> None:
        if self.path.endswith(".cmp"):
            raise OSError(errno.ENOSPC, "no space", self.path)
        write(self, data, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFile, "pwrite", full)
        with pytest.raises(LogFullError, match="the copies of a compaction"):
            journal.compact()
    assert [name for name in fs.list(FOLDER) if name.endswith(".cmp")] == []
    journal.append_add_record(20, 0, b"more").wait()
    journal.compact()
    assert len(journal.files()) < len(before)
    journal.close()
    assert sorted(numbers(fs.inner, settings)) == [1, 3, 5, 7, 9, 11, 20]


# -- faults ---------------------------------------------------------------------------------


def run(fs: FaultyFileSystem, settings: JournalSettings, acknowledged: list[int]) -> None:
    journal = JBossRecordJournal(FOLDER, settings, fs=fs)
    try:
        for number in range(8):
            journal.add(number, bytes(200)).wait()
            acknowledged.append(number)
            if number % 2:
                acknowledged.remove(number - 1)
                journal.delete(number - 1).wait()
    finally:
        journal.close()


@EVERY_FORMAT
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_failing_write_loses_nothing_acknowledged(name: str, code: int) -> None:
    settings = FORMATS[name]
    for faulty in every_fault(
        RecordingFileSystem, lambda n: Fault(n, calls=WRITES, error=code, partial=0.5)
    ):
        acknowledged: list[int] = []
        with suppress(TallystickError, OSError):
            run(faulty, settings, acknowledged)
        assert set(acknowledged) <= set(numbers(faulty.inner, settings))


@EVERY_FORMAT
def test_failed_sync_ends_the_journal(name: str) -> None:
    settings = FORMATS[name]
    for faulty in every_fault(
        RecordingFileSystem, lambda n: Fault(n, calls=SYNCS, sync=FailedSync.ORDERED)
    ):
        acknowledged: list[int] = []
        with suppress(TallystickError, OSError):
            run(faulty, settings, acknowledged)
        assert set(acknowledged) <= set(numbers(faulty.inner, settings))


def test_poisoned_journal_refuses_every_record() -> None:
    settings = FORMATS["g3"]
    fs = FaultyFileSystem(RecordingFileSystem())
    journal = JBossRecordJournal(FOLDER, settings, fs=fs)
    journal.add(1, b"kept").wait()
    fs.fault = Fault(1, calls=WRITES, error=errno.EIO)
    with pytest.raises(LogPoisonedError):
        journal.add(2, b"lost").wait()
    with pytest.raises(LogPoisonedError):
        journal.add(3, b"refused").wait()
    journal.close()
    assert items(fs.inner, settings) == [(1, b"kept")]


def test_killed_process_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    settings = JournalSettings(file_size=8192)
    folder = str(tmp_path / "journal")

    def work(reporter: Reporter) -> None:
        journal = JBossRecordJournal(folder, settings)
        start = journal.journal.loaded.max_id + 1
        for number in range(start, start + 400):
            reporter.submitted(number)
            journal.add(number, str(number).encode()).wait()
            reporter.acknowledged(number)

    def recover() -> list[Any]:
        journal = JBossRecordJournal(folder, settings)
        found = [record.record_id for record in journal.live_records()]
        journal.close()
        return found

    check_kills(work, recover, kills=5, seed=1)


def test_an_open_journal_keeps_ids_and_no_bodies(tmp_path: Path) -> None:
    with CircularJournal(str(tmp_path)) as journal:
        for number in (1, 2, 3):
            journal.append_add_record(number, 0, b"body").wait()
        journal.append_delete_record(2).wait()
    with CircularJournal(str(tmp_path)) as journal:
        assert journal.loaded.live == {1, 3}
