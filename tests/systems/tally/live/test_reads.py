"""How much of its files a log reads: preallocated segments are mostly zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tallystick.services.journal import Journal
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing.memory import MemoryFile, MemoryFileSystem

SEGMENT = Settings().segment_size
HEADS = SEGMENT // 20
"""At most as many bytes of headers, control blocks and places to begin at."""
PLACE = "/log"


@pytest.fixture
def disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    with Journal(PLACE, fs=fs) as journal:
        journal.add(1, b"x" * 1000)
    return fs


@contextmanager
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Give the sizes of what is read in the block."""
    sizes: list[int] = []
    pread = MemoryFile.pread

    def counted(file: MemoryFile, size: int, offset: int) -> bytes:
        data = pread(file, size, offset)
        sizes.append(len(data))
        return data

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "pread", counted)
        yield sizes


def test_opening_reads_a_segment_once(
    disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reading(monkeypatch) as sizes, Journal(PLACE, fs=disk):
        pass
    assert SEGMENT <= sum(sizes) <= SEGMENT + HEADS


def test_recovery_of_rows_reads_a_segment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    log = TallyUndoRedoLog(PLACE, fs=disk)
    log.commit_rows(1, {(1, 1): b"row"})
    log.close()
    with reading(monkeypatch) as sizes:
        TallyUndoRedoLog(PLACE, fs=disk).close()
    assert SEGMENT <= sum(sizes) <= SEGMENT + HEADS


@pytest.mark.parametrize(
    "read",
    [
        lambda journal: [one.body for one in journal.live_records()],
        lambda journal: [one.body for one in journal.replay()],
    ],
    ids=["live records", "replay"],
)
def test_an_open_log_reads_back_what_is_written_alone(
    read: Callable[[Journal], list[bytes]],
    disk: MemoryFileSystem,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Journal(PLACE, fs=disk) as journal:
        journal.add(2, b"y")
        with reading(monkeypatch) as sizes:
            assert read(journal) == [b"x" * 1000, b"y"]
        assert sum(sizes) <= HEADS


def test_a_journal_of_the_other_system_reads_its_ids_once_after_its_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryFileSystem()
    Journal(PLACE, system="jboss", fs=disk).close()
    files = sum(disk.open(f"{PLACE}/{name}").size() for name in disk.list(PLACE) if "amq" in name)
    with reading(monkeypatch) as sizes, Journal(PLACE, system="jboss", fs=disk):
        pass
    assert sum(sizes) <= 3 * files + HEADS
