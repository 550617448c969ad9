"""A page store on a disk that is full for a moment: who comes then is told, and it goes on."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from tallystick.errors import LogFullError, LogWriteError
from tallystick.services.page_store import PageStore
from tallystick.testing import CHANGES, SYNCS, Fault, FaultyFileSystem, MemoryFileSystem
from tests.services.page_store.test_crash_states import small_store
from tests.services.page_store.test_faults import ROWS, opened, state_after, state_of, step
from tests.sweeps import Sweep
from tests.systems.tally.build import say

ROOM = CHANGES - SYNCS - {"mkdir", "remove"}
"""Calls that need room on the disk."""
STEPS = 7


def prepared_step(store: PageStore, number: int) -> None:
    """Commit in two phases, however often the log refuses it; the rows stay locked meanwhile."""
    tx = store.begin()
    try:
        for key in range(number % 3, ROWS, 3):
            tx.table("t")[key] = b"%d " % number + bytes(900)
        tx.prepare("name")
    except LogFullError:
        tx.rollback()
        raise
    refused = 0
    while not tx.over:
        try:
            tx.commit()
        except LogFullError:
            assert tx.prepared
            assert [one.name for one in store.in_doubt()] == ["name"]
            refused += 1
            if refused > 2:
                _full(store).fault = None


def _full(store: PageStore) -> FaultyFileSystem:
    fs = store._fs
    assert isinstance(fs, FaultyFileSystem)
    return fs


def run(nth: int, full_for: int) -> tuple[int, FaultyFileSystem]:
    """Return how often a store was refused, which then has all that it took, and goes on."""
    memory = MemoryFileSystem()
    fs = FaultyFileSystem(memory)
    store = opened(fs, "tally")
    store.create_table("t")
    fs.fault = Fault(nth, ROOM, errno.ENOSPC, partial=0.5, lasting=True)
    refused = 0
    for number in range(1, STEPS + 1):
        while True:
            try:
                if number % 3 == 2:
                    prepared_step(store, number)
                else:
                    step(store, number)
                break
            except LogFullError:
                refused += 1
                assert state_of(store) == state_after(number - 1)
                if refused >= full_for:
                    fs.fault = None
        if number == 4:
            with contextlib.suppress(LogFullError):
                store.checkpoint()
        assert state_of(store) == state_after(number)
        with opened(MemoryFileSystem(memory.contents()), "tally") as killed:
            assert state_of(killed) == state_after(number)
    fs.fault = None
    store.checkpoint()
    assert not store.check()
    store.close()
    with opened(MemoryFileSystem(memory.contents()), "tally") as again:
        assert state_of(again) == state_after(STEPS)
        assert not again.check()
    return refused, fs


@pytest.mark.both_cores
def test_a_disk_that_is_full_for_a_moment_loses_and_poisons_nothing(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = tried = 0
    for nth in sweep.of(range(1, 62), 6):
        for full_for in (1, 3):
            count, fs = run(nth, full_for)
            refused, tried = refused + count, tried + fs.struck
    say(capsys, f"page store: {tried} moments of a full disk, {refused} refusals, nothing lost")
    assert tried > 5
    assert refused > 3


def test_a_store_in_a_moved_folder_refuses_new_segments_and_goes_on(tmp_path: Path) -> None:
    place, moved = tmp_path / "store", tmp_path / "moved"
    store = small_store(str(place), "tally", cache_bytes=0, checkpoint_bytes=60_000)
    store.create_table("t")
    place.rename(moved)
    number = 1
    with pytest.raises(LogWriteError, match=r"the folder of this log was moved.*nothing is lost"):
        while number < 50:
            step(store, number)
            number += 1
    assert state_of(store) == state_after(number - 1)
    with contextlib.suppress(LogWriteError):
        store.close()
    with small_store(str(moved), "tally", cache_bytes=0, checkpoint_bytes=60_000) as again:
        assert state_of(again) == state_after(number - 1)
        step(again, number)
