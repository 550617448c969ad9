"""A page store shared by threads, forks and second openers; transactions of any size."""

from __future__ import annotations

import os
import random
import shutil
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import (
    BusyError,
    CorruptLogError,
    LogClosedError,
    LogLockedError,
    RecordTooLargeError,
    TransactionUsageError,
)
from tallystick.services.page_store import PageStore, Session, Table
from tallystick.services.page_store.pages.layout import PAGE_SIZE
from tallystick.testing import FaultyFileSystem, MemoryFileSystem

SYSTEMS = ["tally", "h2"]
ACCOUNTS = 200


def accounts(path: Path, system: str = "tally", *, rows: int = ACCOUNTS) -> PageStore:
    store = PageStore(path, system=system, cache_bytes=0, checkpoint_bytes=200_000)
    store.create_table("t")
    with store.begin() as tx:
        for key in range(rows):
            tx.table("t")[key] = b"100".ljust(300)
    return store


def total(table: Table) -> int:
    return sum(int(row) for row in table.values())


def transfers(store: PageStore, seed: int, count: int, spread: int = ACCOUNTS) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        with store.begin() as tx:
            for change, key in zip((1, -1), sorted(chance.sample(range(spread), 2)), strict=True):
                row = tx.table("t").for_update(key)
                tx.table("t")[key] = b"%d".ljust(300) % (int(row) + change)


def in_threads(*works: object) -> list[BaseException]:
    failures: list[BaseException] = []

    def guarded(work: object) -> None:
        try:
            assert callable(work)
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.parametrize("system", SYSTEMS)
def test_rows_locked_before_they_are_read_lose_no_update(tmp_path: Path, system: str) -> None:
    store = accounts(tmp_path / "s", system)
    works = [lambda seed=seed: transfers(store, seed, 60, spread=8) for seed in range(6)]
    assert in_threads(*works) == []
    with store.begin() as tx:
        assert total(tx.table("t")) == 100 * ACCOUNTS
    assert not store.check()
    store.close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_reads_scans_checkpoints_and_backups_during_commits(tmp_path: Path, system: str) -> None:
    store = accounts(tmp_path / "s", system)
    over = threading.Event()

    def work() -> None:
        try:
            transfers(store, 1, 150)
        finally:
            over.set()

    def read() -> None:
        while not over.is_set():
            with store.begin() as tx:
                assert [key for key, _ in tx.table("t").range(5, 190)] == list(range(5, 190))

    def copy() -> None:
        for number in range(5):
            store.backup(tmp_path / f"copy{number}")
            over.wait(0.03)

    assert in_threads(work, lambda: transfers(store, 2, 100), read, copy) == []
    for folder in tmp_path.glob("copy*"):
        with PageStore(folder, system=system) as backup, backup.begin() as tx:
            assert total(tx.table("t")) == 100 * ACCOUNTS, "a backup between two transactions"
            assert not backup.check()
    store.close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_second_opener_is_refused_and_changes_nothing(tmp_path: Path, system: str) -> None:
    store = accounts(tmp_path / "s", system)
    with pytest.raises(LogLockedError):
        PageStore(tmp_path / "s", system=system)
    transfers(store, 3, 3)
    store.close()
    PageStore(tmp_path / "s", system=system).close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_forked_child_is_refused_and_the_parent_continues(tmp_path: Path, system: str) -> None:
    store = accounts(tmp_path / "s", system)
    tx = store.begin()
    tx.table("t")[1] = b"90"
    # As if other threads were at work.
    with store._latches.latch, store._making_tables, store._transactions.ending:
        child = os.fork()
        if not child:
            code = 3
            try:
                code = _child(store, tx.commit)
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tx.commit()
    transfers(store, 4, 5)
    store.close()
    with PageStore(tmp_path / "s", system=system) as again:
        assert not again.check()


def _child(store: PageStore, commit: object) -> int:
    """Return 0 if every use is refused, as it should be."""
    assert callable(commit)
    make = partial(store.create_table, "another")
    for use in (store.begin, store.tables, store.checkpoint, make, commit):
        try:
            use()
        except LogClosedError as error:
            if "forked" not in str(error):
                return 2
        else:
            return 1
    store.close()
    return 0


@pytest.mark.parametrize("system", SYSTEMS)
def test_of_threads_that_close_at_the_same_time_none_fails(tmp_path: Path, system: str) -> None:
    for turn in range(5):
        store = accounts(tmp_path / f"s{turn}", system)
        with ThreadPoolExecutor(4) as closers:
            for call in [closers.submit(store.close) for _ in range(4)]:
                call.result(60)


@pytest.mark.parametrize("end", [Session.commit, Session.rollback])
def test_a_scan_ends_with_its_transaction(tmp_path: Path, end: Callable[[Session], None]) -> None:
    with accounts(tmp_path / "s", rows=2) as store:
        tx = store.begin()
        tx.table("t")[1] = b"new"
        rows = tx.table("t").range()
        next(rows)
        end(tx)
        with pytest.raises(TransactionUsageError, match="is over"):
            next(rows)


@pytest.mark.parametrize("commit", ["no", "", None, 0])
def test_what_is_neither_true_nor_false_settles_nothing(tmp_path: Path, commit: Any) -> None:
    with accounts(tmp_path / "s", rows=1) as store:
        tx = store.begin()
        tx.table("t")[0] = b"new"
        tx.prepare("p")
        with pytest.raises(TypeError, match="commit is of type"):
            store.settle("p", commit=commit)
        assert [one.name for one in store.in_doubt()] == ["p"]
        store.settle("p", commit=False)


def test_a_scan_while_its_own_transaction_changes_rows(tmp_path: Path) -> None:
    store = accounts(tmp_path / "s", rows=1000)
    with store.begin() as tx:
        table, seen = tx.table("t"), []
        for key in table:
            seen.append(key)
            if key % 2 == 0 and key + 1 in table:
                del table[key + 1]
            table[5000 + key] = b"new"
            if key > 5100:
                break
        assert [key for key in seen if key < 1000] == list(range(0, 1000, 2))
        table.clear()
        assert list(table) == []
    with store.begin() as tx:
        assert list(tx.table("t")) == []
    assert not store.check()
    store.close()


def test_a_scan_of_long_rows_holds_few_of_them(tmp_path: Path) -> None:
    store = PageStore(tmp_path / "s", cache_bytes=0, checkpoint_bytes=1 << 20)
    store.create_table("t")
    for key in range(40):
        with store.begin() as tx:
            tx.table("t")[key] = bytes(1 << 20)
    store.close()
    store = PageStore(tmp_path / "s", cache_bytes=0)
    tracemalloc.start()
    with store.begin() as tx:
        assert sum(len(row) for _, row in tx.table("t").range()) == 40 << 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20
    store.close()


def test_one_transaction_of_very_many_rows(tmp_path: Path) -> None:
    store = PageStore(tmp_path / "s", cache_bytes=64 * PAGE_SIZE, checkpoint_bytes=1 << 20)
    store.create_table("t")
    with store.begin() as tx:
        table = tx.table("t")
        for key in range(20_000):
            table[key * 7919 % 20_011] = b"%d" % key
    assert len(store._cache.nodes) <= 64 + 8
    with store.begin() as tx:
        tx.table("t").clear()
    assert not store.check()
    store.close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_refused_name_ends_the_session_and_the_store_continues(
    tmp_path: Path, system: str
) -> None:
    store = accounts(tmp_path / "s", system)
    tx = store.begin()
    tx.table("t")[1] = b"1"
    tx.prepare("name")
    other = store.begin()
    other.table("t")[2] = b"2"
    with pytest.raises(TransactionUsageError, match="already"):
        other.prepare("name")
    if system == "h2":
        with pytest.raises(RecordTooLargeError):
            other.prepare("n" * 2000)
    with pytest.raises(TransactionUsageError):
        other.prepare("")
    other.rollback()
    tx.rollback()
    transfers(store, 5, 3)
    store.close()
    with PageStore(tmp_path / "s", system=system) as again, again.begin() as tx:
        assert total(tx.table("t")) == 100 * ACCOUNTS
        assert again.in_doubt() == []


def test_a_lock_is_released_with_its_session_even_if_nothing_changed(tmp_path: Path) -> None:
    store = PageStore(tmp_path / "s", lock_timeout=0.05)
    store.create_table("t")
    one, other = store.begin(), store.begin()
    with pytest.raises(KeyError):
        one.table("t").for_update(1)
    with pytest.raises(BusyError):
        other.table("t")[1] = b""
    one.commit()
    other.table("t")[1] = b"x"
    other.commit()
    store.close()


@pytest.mark.parametrize("part", ["pages", "log"])
def test_a_store_with_a_missing_part_is_refused(tmp_path: Path, part: str) -> None:
    accounts(tmp_path / "s").close()
    accounts(tmp_path / "whole").backup(tmp_path / "copy")
    PageStore(tmp_path / "copy").close()
    for folder in (tmp_path / "s", tmp_path / "copy"):
        place = folder / part
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        with pytest.raises(CorruptLogError, match="missing"):
            PageStore(folder)


class HeldSync(FaultyFileSystem):
    """A disk whose next sync waits until ``go`` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryFileSystem())
        self.held, self.go = threading.Event(), threading.Event()
        self.holding = False

    def strikes(self, call: str) -> bool:
        if self.holding and call == "datasync":
            self.held.set()
            assert self.go.wait(60)
        return False


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_read_does_not_wait_for_the_sync_of_a_commit(system: str) -> None:
    disk = HeldSync()
    with PageStore("/store", system=system, fs=disk) as store:
        store.create_table("t")
        with store.begin() as tx:
            tx.table("t")[1] = b"before"
        disk.holding = True

        def change() -> None:
            with store.begin() as tx:
                tx.table("t")[1] = b"after"

        committing = threading.Thread(target=change)
        committing.start()
        try:
            assert disk.held.wait(60)
            with store.begin(read_only=True) as tx:
                assert list(tx.table("t").items()) == [(1, b"before")]
            assert committing.is_alive()
        finally:
            disk.go.set()
            committing.join()
        with store.begin(read_only=True) as tx:
            assert tx.table("t")[1] == b"after"


def test_rows_of_a_forgotten_transaction_are_free_for_the_next_and_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with PageStore(tmp_path, lock_timeout=0.0) as store:
        store.create_table("t")
        forgotten = store.begin()
        table = forgotten.table("t")
        table[1] = b"gone"
        del forgotten
        with store.begin() as tx, pytest.raises(BusyError):  # the table has its transaction
            tx.table("t")[1] = b"kept"
        assert not caplog.text
        del table
        with store.begin() as tx:
            tx.table("t")[1] = b"kept"
        assert "left without an end; its row is free" in caplog.text
        prepared = store.begin()
        prepared.table("t")[2] = b"in doubt"
        prepared.prepare("later")
        del prepared
        with store.begin() as tx, pytest.raises(BusyError):
            tx.table("t")[2] = b"kept"
        store.settle("later", commit=True)
        left = store.begin()
        left.table("t")[1] = b"gone"
    del left
    with PageStore(tmp_path) as store, store.begin() as tx:
        assert dict(tx.table("t").range()) == {1: b"kept", 2: b"in doubt"}


def test_who_waits_for_a_row_gets_it_when_its_transaction_is_forgotten(tmp_path: Path) -> None:
    waiting = threading.Event()

    def write() -> None:
        with store.begin() as tx:
            waiting.set()
            tx.table("t")[1] = b"kept"

    with PageStore(tmp_path, lock_timeout=600.0) as store:
        store.create_table("t")
        forgotten = [store.begin()]
        forgotten[0].table("t")[1] = b"gone"
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        assert waiting.wait(300)
        forgotten.clear()
        writer.join(300)
        assert not writer.is_alive()
        with store.begin() as tx:
            assert tx.table("t")[1] == b"kept"
