"""A page store on failing disks refuses further work, and is correct once reopened."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

import pytest

from tallystick.errors import LogClosedError, LogFullError, TallystickError
from tallystick.services.page_store import PageStore
from tallystick.testing import (
    CHANGES,
    NAMES,
    READS,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    every_fault,
)
from tests.services.page_store.test_crash_states import small_store

SYSTEMS = ["tally", "h2"]
STEPS = 6
ROWS = 40
"""More leaves than the smallest cache holds pages, with rows of `SIZE` bytes."""
SIZE = 900


def opened(fs: FaultyFileSystem | MemoryFileSystem, system: str) -> PageStore:
    return small_store("/store", system, cache_bytes=0, checkpoint_bytes=60_000, fs=fs)


def step(store: PageStore, number: int) -> None:
    """Commit a transaction that changes rows in every leaf."""
    with store.begin() as tx:
        table = tx.table("t")
        for key in range(number % 3, ROWS, 3):
            table[key] = b"%d " % number + bytes(SIZE)


def state_after(done: int) -> dict[int, int]:
    state = {}
    for number in range(1, done + 1):
        state.update(dict.fromkeys(range(number % 3, ROWS, 3), number))
    return state


def state_of(store: PageStore) -> dict[int, int]:
    if "t" not in store.tables():
        return {}
    with store.begin() as tx:
        return {key: int(row.split()[0]) for key, row in tx.table("t").items()}


def run(fs: FaultyFileSystem, system: str) -> int:
    """Work until the fault; return the number of the last acknowledged step."""
    done, store = 0, None
    try:
        store = opened(fs, system)
        store.create_table("t")
        for number in range(1, STEPS + 1):
            step(store, number)
            done = number
            if number == 4:
                store.checkpoint()
        state_of(store)
        store.close()
    except LogFullError:
        assert fs.struck, "no room without a fault"
        if store is not None:  # it goes on, see `test_full_disk`
            with contextlib.suppress(TallystickError):
                store.close()
    except TallystickError:
        assert fs.struck, "an error without a fault"
        if store is not None:
            refuses(store)
    return done


def refuses(store: PageStore) -> None:
    """Check that every call is refused, and that closing writes no pages."""
    uses: list[Callable[[], object]] = [store.begin, store.tables, store.checkpoint, store.check]
    for use in uses:
        with pytest.raises(LogClosedError, match=r"failed|closed"):
            use()
    try:
        store.close()
    except TallystickError:
        with pytest.raises(LogClosedError, match="closed"):
            store.begin()


def reopened(fs: FaultyFileSystem) -> MemoryFileSystem:
    """Return the files as the next process reads them."""
    inner = fs.inner
    assert isinstance(inner, MemoryFileSystem)
    for path in inner.contents():
        inner.open(path).close()  # what a failed sync has lost is gone now
    return MemoryFileSystem(inner.contents())


def check_after(fs: FaultyFileSystem, system: str) -> None:
    done = run(fs, system)
    with opened(reopened(fs), system) as store:
        assert state_of(store) in (state_after(done), state_after(done + 1))
        assert not store.check()


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    "make",
    [
        lambda nth: Fault(nth, CHANGES),
        lambda nth: Fault(nth, CHANGES, errno.ENOSPC, lasting=True),
        lambda nth: Fault(nth, {"datasync"}, sync=FailedSync.ORDERED),
        lambda nth: Fault(nth, {"datasync"}, sync=FailedSync.REVERTED),
        lambda nth: Fault(nth, NAMES | READS),
    ],
    ids=["EIO", "disk full", "ext4 sync", "btrfs sync", "names and reads"],
)
def test_after_any_failing_call_it_refuses_and_reopens_correctly(
    system: str, make: Callable[[int], Fault]
) -> None:
    tried = 0
    for fs in every_fault(MemoryFileSystem, make):
        check_after(fs, system)
        tried += 1
    assert tried > 10


def test_half_a_write_on_a_full_disk_is_no_loss() -> None:
    # Not on H2's log: it relies on whole sectors, and half a write of one sector tears it.
    for fs in every_fault(
        MemoryFileSystem, lambda nth: Fault(nth, CHANGES, errno.ENOSPC, partial=0.5, lasting=True)
    ):
        check_after(fs, "tally")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_failing_backup_does_not_stop_the_store_and_is_refused_itself(system: str) -> None:
    memory = MemoryFileSystem()
    store = opened(memory, system)
    store.create_table("t")
    step(store, 1)
    store.checkpoint()
    for nth in range(1, 100):
        calls = FaultyFileSystem(memory, Fault(nth, CHANGES, errno.ENOSPC, lasting=True))
        store._fs = calls  # the disk of the copy only
        try:
            store.backup(f"/copy{nth}")
        except LogFullError as error:
            assert "the backup could not be written" in str(error)  # noqa: PT017 - or it succeeds
            step(store, 1)
        if not calls.struck:
            break
        try:
            backup = small_store(f"/copy{nth}", system, fs=memory)
        except TallystickError as error:
            assert "never finished" in str(error)  # noqa: PT017 - the other outcome is fine too
        else:
            assert state_of(backup) in ({}, state_after(1))
            backup.close()
    assert nth > 5
    assert state_of(store) == state_after(1)
    store.close()


def left_in_doubt() -> MemoryFileSystem:
    memory = MemoryFileSystem()
    with opened(memory, "tally") as store:
        store.create_table("t")
        tx = store.begin()
        tx.table("t")[1] = b"2 "
        tx.prepare("left")
    return memory


def test_a_store_that_could_not_be_recovered_after_a_settlement_says_so_and_closes() -> None:
    refused = 0
    for fs in every_fault(left_in_doubt, lambda nth: Fault(nth, NAMES, errno.ENOSPC, lasting=True)):
        fault, fs.fault = fs.fault, None
        store = opened(fs, "tally")
        fs.fault = fault
        failed = True
        with contextlib.suppress(TallystickError):
            store.settle("left", commit=True)
            failed = False
        fs.fault = None
        if failed and not store.in_doubt():
            refused += 1
            with pytest.raises(LogClosedError, match="the page store failed"):
                store.begin()
            store.close()
            with opened(fs, "tally") as store, store.begin() as tx:
                assert tx.table("t")[1] == b"2 "
    assert refused
