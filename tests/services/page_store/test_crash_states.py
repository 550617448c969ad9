"""Every legal crash state of scripted runs of the page store, on each of its logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.services.page_store import PageStore
from tallystick.services.page_store.layout import PAGE_SIZE
from tallystick.services.page_store.recovery import OpenLog
from tallystick.services.roles import UndoRedoLog
from tallystick.storage.files import FileSystem
from tallystick.systems.opening import open_undo_redo_log
from tallystick.systems.tally.log import TallyLog
from tallystick.systems.tally.settings import Settings
from tallystick.systems.tally.undoredo import TallyUndoRedoLog
from tallystick.testing import RecordingFileSystem, check_recovery

WIDTH = 3
"""Rows that each transaction writes: seen together, or not at all."""


def open_small(system: str) -> OpenLog:
    """An opener of a small log, so that a state is cheap to copy."""

    def open_log(folder: Path, fs: FileSystem) -> UndoRedoLog:
        if system == "tally":
            settings = Settings(segment_size=64 << 10, preallocate=False, idle_mark_s=None)
            return TallyUndoRedoLog(TallyLog(str(folder), settings=settings, fs=fs))
        return open_undo_redo_log(folder, system, fs, page_size=PAGE_SIZE)

    return open_log


def store_on(fs: FileSystem, system: str) -> PageStore:
    return PageStore("/store", open_log=open_small(system), cache_bytes=0, fs=fs)


def add(store: PageStore, number: int, size: int = 20) -> None:
    with store.begin() as tx:
        table = tx.table("t")
        for place in range(WIDTH):
            table[place * 1000 + number] = b"%d" % number + bytes(size)


def recover(system: str, fs: FileSystem) -> list[int]:
    """Numbers of the transactions found, each whole, and the store sound."""
    with store_on(fs, system) as store:
        assert not store.check()
        if "t" not in store.tables():
            return []
        with store.begin() as tx:
            keys = list(tx.table("t"))
    parts = [{key % 1000 for key in keys if key // 1000 == place} for place in range(WIDTH)]
    assert parts.count(parts[0]) == WIDTH, "a transaction in part"
    return sorted(parts[0])


def _run(system: str, script: str, limit: int, again: int) -> None:
    fs = RecordingFileSystem()
    store = store_on(fs, system)
    store.create_table("t")
    for number in range(1, 5):
        fs.submitted(number)
        add(store, number, 6000 if script == "long rows" else 20)
        fs.acknowledged(number)
        if script == "checkpoints" and number % 2:
            store.checkpoint()
    report = check_recovery(fs, lambda state: recover(system, state), limit=limit, again=again)
    print(system, script, report)  # noqa: T201 - the figures of the run


@pytest.mark.parametrize("system", ["tally", "h2"])
@pytest.mark.parametrize("script", ["commits", "checkpoints", "long rows"])
def test_acknowledged_is_recovered_at_every_crash_state(system: str, script: str) -> None:
    _run(system, script, limit=12, again=0)


@pytest.mark.soak
@pytest.mark.parametrize("system", ["tally", "h2"])
@pytest.mark.parametrize("script", ["commits", "checkpoints", "long rows"])
def test_recovery_crashed_at_every_call_is_run_again(system: str, script: str) -> None:
    _run(system, script, limit=200, again=1)
