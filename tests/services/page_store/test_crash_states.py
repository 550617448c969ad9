"""Every legal crash state of scripted runs of the page store, on each of its logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick.roles import UndoRedoLog
from tallystick.services.page_store import PageStore, Session
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import RecordingFileSystem, check_recovery

WIDTH = 3
"""Rows that each transaction writes: seen together, or not at all."""


def small_store(folder: str | Path, system: str, **options: Any) -> PageStore:
    """A store whose log is small, so that a state is cheap to copy."""
    if system == "tally":
        return PageStore(folder, open_log=_open_small, **options)
    return PageStore(folder, system=system, **options)


def _open_small(folder: Path, fs: FileSystem) -> UndoRedoLog:
    settings = Settings(segment_size=64 << 10, preallocate=False, idle_mark_s=None)
    return TallyUndoRedoLog(TallyLog(str(folder), settings=settings, fs=fs))


def store_on(fs: FileSystem, system: str) -> PageStore:
    return small_store("/store", system, cache_bytes=0, fs=fs)


def add(store: PageStore, number: int, size: int = 20) -> None:
    with store.begin() as tx:
        table = tx.table("t")
        for place in range(WIDTH):
            table[place * 1000 + number] = b"%d" % number + bytes(size)
            point = tx.savepoint()
            table[place * 1000 + UNDONE] = b"never"
            table[place * 1000 + number] = b"never"
            tx.rollback_to(point)


BRANCH = 50
"""The transaction that is prepared; `PREPARED` is the mark of it."""
PREPARED = 51
UNDONE = 900
"""Keys from here on were undone at a savepoint."""


def recover(system: str, fs: FileSystem, *, settle: bool = True) -> list[int]:
    """Return the numbers of the transactions found; each is complete, and the store is sound.

    With ``settle`` one in doubt is rolled back, and must then be gone.
    """
    with store_on(fs, system) as store:
        assert not store.check()
        if doubtful := [one.name for one in store.in_doubt()]:
            assert doubtful == ["branch"]
            found = _numbers(store)
            if settle:
                store.settle("branch", commit=False)
                assert _numbers(store) == found
            assert BRANCH not in found
            return [*found, PREPARED]
        found = _numbers(store)
        return [*found, PREPARED] if BRANCH in found else found


def _numbers(store: PageStore) -> list[int]:
    if "t" not in store.tables():
        return []
    keys = [key for key, _ in store._transactions.batch(store.table_id("t"), 0, 1000, 1 << 20)[0]]
    assert all(key % 1000 < UNDONE for key in keys), "undone at a savepoint, and yet there"
    parts = [{key % 1000 for key in keys if key // 1000 == place} for place in range(WIDTH)]
    assert parts.count(parts[0]) == WIDTH, "a transaction in part"
    return sorted(parts[0])


def _prepared(fs: RecordingFileSystem, store: PageStore) -> Session:
    tx = store.begin()
    for place in range(WIDTH):
        tx.table("t")[place * 1000 + BRANCH] = b"prepared"
    fs.submitted(PREPARED)
    tx.prepare("branch")
    fs.acknowledged(PREPARED)
    return tx


def _run_branch(system: str, limit: int, again: int) -> None:
    """Keep a branch prepared over two checkpoints, and commit it before the third.

    If recovery is interrupted and run ``again``, the branch is not decided in between.
    """
    fs = RecordingFileSystem()
    store = store_on(fs, system)
    store.create_table("t")
    branch = _prepared(fs, store)
    for number in range(1, 5):
        fs.submitted(number)
        add(store, number)
        fs.acknowledged(number)
        if number == 3:
            fs.submitted(BRANCH)
            branch.commit()
            fs.acknowledged(BRANCH)
        store.checkpoint()
    report = check_recovery(
        fs,
        lambda state: recover(system, state, settle=not again),
        limit=limit,
        again=again,
    )
    print(system, "branch", report)  # noqa: T201 - the figures of the run


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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("system", ["tally", "h2"])
@pytest.mark.parametrize("script", ["commits", "checkpoints", "long rows"])
def test_acknowledged_is_recovered_at_every_crash_state(system: str, script: str) -> None:
    _run(system, script, limit=12, again=0)


@pytest.mark.parametrize("system", ["tally", "h2"])
def test_a_branch_prepared_over_checkpoints_is_in_doubt_at_every_crash_state(system: str) -> None:
    _run_branch(system, limit=12, again=0)


@pytest.mark.soak
@pytest.mark.parametrize("system", ["tally", "h2"])
def test_recovery_of_a_branch_crashed_at_every_call_is_run_again(system: str) -> None:
    _run_branch(system, limit=60, again=1)


@pytest.mark.soak
@pytest.mark.parametrize("system", ["tally", "h2"])
@pytest.mark.parametrize("script", ["commits", "checkpoints", "long rows"])
def test_recovery_crashed_at_every_call_is_run_again(system: str, script: str) -> None:
    _run(system, script, limit=200, again=1)
