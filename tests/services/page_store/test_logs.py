"""The page store on its real logs, the native one and H2's: openings, branches, kills."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import IncompleteLogError, TransactionUsageError
from tallystick.reading.survey import survey
from tallystick.records import State, Xid
from tallystick.roles import branch_name, branch_of
from tallystick.services.page_store import PageStore
from tallystick.services.page_store.pages.cache import PageCache
from tallystick.systems.h2.database.paged_log import H2PagedLog
from tests.services.page_store import killed
from tests.services.page_store.test_concurrency import in_threads
from tests.services.page_store.test_crash_states import small_store

SYSTEMS = ["tally", "h2"]


def rows(store: PageStore) -> dict[int, bytes]:
    with store.begin() as tx:
        return dict(tx.table("t").range())


def small(path: Path, system: str) -> PageStore:
    return PageStore(path, system=system, cache_bytes=0, checkpoint_bytes=100_000)


@pytest.mark.parametrize("system", SYSTEMS)
def test_rows_survive_closing_and_many_checkpoints(tmp_path: Path, system: str) -> None:
    chance, model = random.Random(3), dict[int, bytes]()
    store = small(tmp_path / "s", system)
    store.create_table("t")
    for _ in range(6):
        for _ in range(20):
            with store.begin() as tx:
                for _ in range(chance.randrange(1, 20)):
                    key = chance.randrange(500)
                    tx.table("t")[key] = model[key] = chance.randbytes(chance.choice((9, 700)))
        store.close()
        store = small(tmp_path / "s", system)
        assert rows(store) == model
        assert not store.check()
    store.close()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_prepared_transaction_waits_across_openings(
    tmp_path: Path, system: str, commit: bool
) -> None:
    store = small(tmp_path / "s", system)
    store.create_table("t")
    with store.begin() as tx:
        tx.table("t")[1] = b"one"
    tx = store.begin()
    tx.table("t")[2] = b"two"
    tx.prepare("XID_1_62_67")
    store.close()
    for _ in range(2):
        store = small(tmp_path / "s", system)
        assert [one.name for one in store.in_doubt()] == ["XID_1_62_67"]
        store.close()
    store = small(tmp_path / "s", system)
    store.settle("XID_1_62_67", commit=commit)
    expected = {1: b"one", 2: b"two"} if commit else {1: b"one"}
    assert rows(store) == expected
    with store.begin() as tx:
        tx.table("t")[3] = b"three"
    store.close()
    store = small(tmp_path / "s", system)
    assert rows(store) == expected | {3: b"three"}
    store.close()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("system", SYSTEMS)
def test_rows_can_be_read_while_branches_are_in_doubt(
    tmp_path: Path, system: str, commit: bool
) -> None:
    store = small(tmp_path / "s", system)
    store.create_table("t")
    with store.begin() as tx:
        for key in range(400):
            tx.table("t")[key] = b"%d" % key * 100
    for number in (1, 2):
        tx = store.begin()
        tx.table("t")[number] = b"in doubt"
        tx.prepare(f"branch {number}")
    store.close()
    committed = {key: b"%d" % key * 100 for key in range(400)}
    for _ in range(2):
        store = small(tmp_path / "s", system)
        with pytest.raises(IncompleteLogError, match="read_only=True"):
            store.begin()
        with store.begin(read_only=True) as tx:
            table = tx.table("t")
            assert dict(table.range()) == committed
            assert table[2] == b"2" * 100
            for change in (partial(table.pop, 1), partial(table.for_update, 1), table.clear):
                with pytest.raises(TransactionUsageError, match="read-only"):
                    change()
            with pytest.raises(TransactionUsageError, match="read-only"):
                tx.prepare("a name")
        store.close()
    store = small(tmp_path / "s", system)
    reader = store.begin(read_only=True)
    store.settle("branch 1", commit=commit)
    assert dict(reader.table("t").range()) == committed
    table = reader.table("t")
    store.settle("branch 2", commit=not commit)
    for read in (lambda: table[1], lambda: list(table), lambda: reader.table("t")):
        with pytest.raises(TransactionUsageError, match="settled"):
            read()
    reader.rollback()
    changed = {1 if commit else 2: b"in doubt"}
    with store.begin(read_only=True) as tx:
        assert dict(tx.table("t").range()) == committed | changed
    store.close()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_branch_that_ends_while_a_checkpoint_writes_pages_keeps_its_rows(
    tmp_path: Path, system: str, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = small_store(tmp_path / "s", system, cache_bytes=0)
    store.create_table("t")
    tx = store.begin()
    tx.table("t")[1] = b"prepared before, committed after the start of the section"
    tx.prepare("branch")
    real = PageCache.write_back

    def write_back(cache: PageCache, *guards: Any) -> None:
        real(cache, *guards)
        if not tx.over:
            assert not in_threads(tx.commit if commit else tx.rollback)

    monkeypatch.setattr(PageCache, "write_back", write_back)
    store.checkpoint()
    for copy in ("killed now", "killed after another checkpoint"):
        shutil.copytree(tmp_path / "s", tmp_path / copy)
        with small_store(tmp_path / copy, system) as again:
            assert list(rows(again)) == ([1] if commit else [])
            assert not again.check()
        store.checkpoint()
    store.close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_log_grows_while_a_transaction_stays_prepared_and_then_no_more(
    tmp_path: Path, system: str
) -> None:
    store = small_store(tmp_path / "s", system, cache_bytes=0, checkpoint_bytes=50_000)
    store.create_table("t")

    def size_after(transactions: int) -> int:
        for number in range(transactions):
            with store.begin() as tx:
                for key in range(10):
                    tx.table("t")[key * 37 + number % 30] = bytes(500)
        store.checkpoint()
        if isinstance(store._log, H2PagedLog):
            return store._log._log.size  # the file allocates more than the log uses
        return sum(file.stat().st_size for file in (tmp_path / "s" / "log").iterdir())

    steady = size_after(60)
    tx = store.begin()
    tx.table("t")[-1] = b"prepared"
    tx.prepare("open for long")
    grown = size_after(60)
    assert grown > steady + 500_000
    tx.commit()
    settled = [size_after(20), size_after(60)]
    assert max(settled) <= grown, "the space is used again"
    store.close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_prepared_and_rolled_back_makes_checkpoints_due(
    tmp_path: Path, system: str
) -> None:
    store = small_store(tmp_path / "s", system, checkpoint_bytes=50_000)
    store.create_table("t")
    sections = set()
    for number in range(200):
        tx = store.begin()
        tx.table("t")[number % 7] = bytes(5000)
        tx.prepare(f"branch {number}")
        if number % 2:
            tx.rollback()
        else:
            store.settle(f"branch {number}", commit=False)
        sections.add(store._transactions.checkpoints.section)
    assert len(sections) > 15
    assert not list(rows(store))
    store.close()


@pytest.mark.parametrize("system", SYSTEMS)
def test_readers_of_the_log_find_the_branch_of_a_global_transaction(
    tmp_path: Path, system: str
) -> None:
    xid = Xid(7, b"global", b"branch")
    store = small(tmp_path / "s", system)
    store.create_table("t")
    tx = store.begin()
    tx.table("t")[1] = b"x"
    tx.prepare(branch_name(xid))
    store.close()
    (log,) = survey(tmp_path / "s").readings()
    found = [one for one in log.transactions() if one.state is State.PREPARED]
    assert [(one.format_id, one.gtrid, one.bqual) for one in found] == [(7, b"global", b"branch")]
    with small(tmp_path / "s", system) as again:
        assert [branch_of(one.name) for one in again.in_doubt()] == [xid]


@pytest.mark.parametrize(
    "name",
    ["", "XID", "XID_1_2", "XID_1_2_3", "XID_x_00_00", "XID_9999999999_00_00", "A_1_00_00",
     "XID_1__" + "00" * 65],
)  # fmt: skip
def test_names_chosen_by_people_are_not_branches(name: str) -> None:
    assert branch_of(name) is None


def _killed_run(path: Path, system: str, seed: int, seconds: float) -> list[int]:
    """Return the numbers of the transactions that were acknowledged before the kill."""
    program = subprocess.Popen(
        [sys.executable, "-m", killed.__name__, str(path), system, str(seed)],
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    time.sleep(seconds)
    os.kill(program.pid, signal.SIGKILL)
    printed, _ = program.communicate()
    assert program.returncode == -signal.SIGKILL
    return [int(line) for line in printed.split()]


def _kill_often(path: Path, system: str, times: int) -> None:
    chance, acknowledged = random.Random(5), 0
    for seed in range(times):
        done = _killed_run(path, system, seed, chance.uniform(0.02, 0.3))
        with small(path, system) as store:
            assert not store.check()
            state = rows(store)
            counters = [int(state[key]) for key in range(killed.ROWS)]
        assert len(set(counters)) == 1, "a transaction was applied in part"
        assert counters[0] >= max(done, default=0), "an acknowledged transaction is gone"
        acknowledged += len(done)
    assert acknowledged


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_it_holds_every_acknowledged_transaction_whole(tmp_path: Path, system: str) -> None:
    _kill_often(tmp_path / "s", system, 4)


@pytest.mark.soak
@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_a_hundred_times(tmp_path: Path, system: str) -> None:
    _kill_often(tmp_path / "s", system, 100)
