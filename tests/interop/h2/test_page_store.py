"""A page store that lives in a database of H2: 1.4.200 opens what we leave, and we what it leaves.

Ours is left in every way: closed, copied in the middle of its work, killed, at any crash state. H2
then recovers it by itself: images that we logged go to its pages, rows that we logged are redone.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tallystick.errors import LogWriteError
from tallystick.services.page_store import PageStore
from tallystick.services.page_store.pages.layout import KEY_MAX, KEY_MIN
from tallystick.systems.registry import system
from tallystick.testing import RecordingFileSystem
from tests.interop.java import classpath, compile_java, run_java
from tests.services.page_store import killed

pytestmark = pytest.mark.interop
Rows = dict[int, bytes]
FILE = system("h2").log_file
CLOSED = ("error\t90098", "error\t90121")
"""What H2 says when it is asked to leave at once."""


@dataclass
class Answer:
    """What the real engine says of one database."""

    tables: dict[str, Rows] = field(default_factory=dict)
    doubt: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    read_only: bool | None = None


@cache
def _classpath() -> str:
    jars = classpath(["com.h2database:h2:1.4.200"])
    return f"{compile_java(Path(__file__).parent, jars)}:{jars}"


def h2(*arguments: object) -> str:
    return run_java("H2OnStore", *arguments, classpath=_classpath(), timeout_s=180)


def opened_by_h2(*folders: Path) -> list[Answer]:
    """An answer per store, which H2 has then recovered, and left without an orderly end."""
    answers: list[Answer] = []
    for line in h2("tell", *(folder / FILE for folder in folders)).splitlines():
        what, *rest = line.split("\t")
        if what == "path":
            answers.append(Answer())
        elif what == "opened":
            answers[-1].read_only = rest[0] == "true"
        elif what == "doubt":
            answers[-1].doubt[rest[0]] = rest[1]
        elif what == "table":
            rows = answers[-1].tables[rest[0]] = {}
        elif what == "count":
            count = int(rest[0])
        elif what == "row":
            key = int(rest[0])
            assert not rows or key > max(rows), "out of order"
            rows[key] = bytes.fromhex(rest[1])
            count -= 1
            assert count >= 0, "more rows than it counts"
        elif not line.startswith(CLOSED):
            answers[-1].errors.append(line)
    return answers


def all_rows(store: PageStore, name: str = "t") -> Rows:
    with store.begin() as tx:
        return dict(tx.table(name).range())


def small(folder: Path) -> PageStore:
    """A store whose pages go in place all the time, with a checkpoint every few transactions."""
    return PageStore(folder, system="h2", cache_bytes=0, checkpoint_bytes=250_000)


def random_key(chance: random.Random, rows: Rows) -> int:
    if rows and chance.random() < 0.5:
        return chance.choice(list(rows))
    wide = chance.random() < 0.2
    return chance.randrange(KEY_MIN, KEY_MAX) if wide else chance.randrange(-900, 900)


def work(store: PageStore, rows: Rows, seed: int, count: int) -> None:
    """Random transactions; ``rows`` follows what is committed."""
    chance = random.Random(seed)
    for _ in range(count):
        tx, state = store.begin(), dict(rows)
        table = tx.table("t")
        for _ in range(chance.randrange(1, 12)):
            key = random_key(chance, state)
            if chance.random() < 0.3 and key in state:
                del table[key], state[key]
            else:
                sizes = (0, 5, 31, 32, 100, 900, 3000, 4070, 9000, 40_000)
                table[key] = state[key] = chance.randbytes(chance.choice(sizes))
        if chance.random() < 0.2:
            tx.rollback()
            continue
        tx.commit()
        rows.clear()
        rows.update(state)


# -- we, then H2 ------------------------------------------------------------------------------


def test_h2_opens_a_store_that_is_closed_or_was_left_at_any_moment(tmp_path: Path) -> None:
    store, expected, folders = small(tmp_path / "s"), list[Rows](), list[Path]()
    for name in ('quo"ted é €', "t"):
        store.create_table(name)
    rows: Rows = {}
    for moment in range(12):
        work(store, rows, moment, 15)
        folders.append(Path(shutil.copytree(store.path, tmp_path / f"left{moment}")))
        expected.append(dict(rows))
    with store.begin() as tx:
        for key in (KEY_MIN, -1, 0, 7, 8, KEY_MAX):
            tx.table('quo"ted é €')[key] = b"%d" % key
    store.close()
    closed = opened_by_h2(store.path)[0]
    assert closed == Answer({'quo"ted é €': _numbers(), "t": rows}, read_only=False)
    for answer, left in zip(opened_by_h2(*folders), expected, strict=True):
        assert answer == Answer({'quo"ted é €': {}, "t": left}, read_only=False)


def _numbers() -> Rows:
    return {key: b"%d" % key for key in (KEY_MIN, -1, 0, 7, 8, KEY_MAX)}


def test_a_table_that_is_all_new_is_redone_with_its_root_on_a_page_that_was_another(
    tmp_path: Path,
) -> None:
    store = small(tmp_path / "s")
    store.create_table("a")
    with store.begin() as tx:
        tx.table("a").update({key: bytes(900) for key in range(200)})
    store.checkpoint()
    with store.begin() as tx:
        tx.table("a").clear()
    store.create_table("b")
    with store.begin() as tx:
        tx.table("b").update({key: bytes(900) for key in range(100)})
    shutil.copytree(store.path, tmp_path / "left")
    store.close()
    expected = {"a": {}, "b": {key: bytes(900) for key in range(100)}}
    with PageStore(tmp_path / "left", system="h2") as again:
        assert {name: all_rows(again, name) for name in again.tables()} == expected
        assert not again.check()
        shutil.copytree(again.path, tmp_path / "again")
    for answer in opened_by_h2(store.path, tmp_path / "left", tmp_path / "again"):
        assert answer == Answer(dict(expected), read_only=False)


def test_h2_opens_a_store_at_every_crash_state(tmp_path: Path) -> None:
    fs = RecordingFileSystem()
    store = PageStore("/store", system="h2", cache_bytes=0, fs=fs)
    store.create_table("t")
    for number in range(1, 7):
        fs.submitted(number)
        with store.begin() as tx:
            for place in range(3):
                tx.table("t")[place * 1000 + number] = b"%d" % number + bytes(700 * number)
        fs.acknowledged(number)
        if number % 2:
            store.checkpoint()
    store.close()
    _check_states(fs, tmp_path, limit=30, seed=3)


def test_h2_opens_a_store_whose_own_recovery_was_cut_short(tmp_path: Path) -> None:
    before = RecordingFileSystem()
    store = PageStore("/store", system="h2", cache_bytes=0, fs=before)
    store.create_table("t")
    for number in range(1, 7):
        with store.begin() as tx:
            for place in range(3):
                tx.table("t")[place * 1000 + number] = b"%d" % number + bytes(700 * number)
        if number == 3:
            store.checkpoint()
    fs = RecordingFileSystem(before.contents())
    for number in range(1, 7):
        fs.submitted(number)
        fs.acknowledged(number)
    PageStore("/store", system="h2", cache_bytes=0, fs=fs).close()
    _check_states(fs, tmp_path, limit=30, seed=4)


def _check_states(fs: RecordingFileSystem, folder: Path, limit: int, seed: int) -> None:
    """At every crash state H2 finds what was acknowledged, each transaction whole."""
    states = [
        state
        for state in fs.crash_states(limit=limit, seed=seed)
        if state.fs().exists(f"/store/{FILE}")
    ]
    folders = []
    for number, state in enumerate(states):
        state.fs().write_to(folder / str(number))
        folders.append(next((folder / str(number)).rglob(FILE)).parent)
    for state, answer in zip(states, opened_by_h2(*folders), strict=True):
        assert not answer.errors, state.describe()
        keys = set(answer.tables.get("t", {}))
        parts = [{key % 1000 for key in keys if key // 1000 == place} for place in range(3)]
        assert parts[0] == parts[1] == parts[2], state.describe()
        assert set(state.acknowledged) <= parts[0] <= set(state.submitted), state.describe()
    assert len(states) > 10


# -- in doubt ---------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("by_h2", [True, False])
def test_a_transaction_in_doubt_is_decided_on_either_side(
    tmp_path: Path, commit: bool, by_h2: bool
) -> None:
    store = small(tmp_path / "s")
    store.create_table("t")
    rows: Rows = {}
    work(store, rows, 1, 20)
    branch = store.begin()
    for key in (5000, 5001):
        branch.table("t")[key] = bytes(5000)
    branch.table("t")[next(iter(rows))] = b"changed by the branch"
    branch.prepare("XID_1_62_67")
    store.checkpoint()
    with store.begin() as tx:
        tx.table("t")[6000] = rows[6000] = b"meanwhile"
    folder = Path(shutil.copytree(store.path, tmp_path / "left"))
    store.close()
    for one in (folder, store.path):
        (answer,) = opened_by_h2(one)
        assert answer == Answer({"t": rows}, {"XID_1_62_67": "IN_DOUBT"}, read_only=True)
        if by_h2:
            word = "COMMIT" if commit else "ROLLBACK"
            h2("run", one / FILE, f"{word} TRANSACTION XID_1_62_67")
        else:
            with PageStore(one, system="h2") as again:
                assert [doubt.name for doubt in again.in_doubt()] == ["XID_1_62_67"]
                again.settle("XID_1_62_67", commit=commit)
        expected = dict(rows)
        if commit:
            expected |= {5000: bytes(5000), 5001: bytes(5000)}
            expected[next(iter(rows))] = b"changed by the branch"
        (answer,) = opened_by_h2(one)
        assert answer == Answer({"t": expected}, read_only=False)
        with PageStore(one, system="h2") as again:
            assert all_rows(again) == expected
            assert not again.check()


def _decide_one_by_one(folder: Path, seed: int) -> None:
    """While anything is in doubt H2 redoes the log with every opening, and writes what it redid
    in place: it has to find every page as it was, whatever it did the time before."""
    chance, rows = random.Random(seed), dict[int, bytes]()
    with PageStore(folder / "s", system="h2") as store:
        store.create_table("t")
        work(store, rows, chance.randrange(1 << 30), 60)
    store = PageStore(folder / "s", system="h2", cache_bytes=0)
    work(store, rows, chance.randrange(1 << 30), 10)
    branches: list[Rows] = []
    for number in range(3):
        tx, changes = store.begin(), {}
        for key in chance.sample(sorted(rows.keys() - {k for one in branches for k in one}), 12):
            tx.table("t")[key] = changes[key] = chance.randbytes(chance.choice((9, 900, 9000)))
        tx.prepare(f"BRANCH{number}")
        branches.append(changes)
        fixed = {key for one in branches for key in one}
        for _ in range(25):
            with store.begin() as tx:
                for key in chance.sample(sorted(rows.keys() - fixed), 8):
                    tx.table("t")[key] = rows[key] = chance.randbytes(chance.choice((9, 900, 3900)))
                for key in chance.sample(sorted(rows.keys() - fixed), 3):
                    del tx.table("t")[key], rows[key]
                for _ in range(4):
                    key = chance.randrange(-(10**9), 10**9)
                    tx.table("t")[key] = rows[key] = chance.randbytes(chance.choice((9, 900)))
    left = Path(shutil.copytree(store.path, folder / "left"))
    store.close()
    for number, changes in enumerate(branches):
        waiting = {f"BRANCH{other}": "IN_DOUBT" for other in range(number, 3)}
        for _ in range(2):
            assert opened_by_h2(left) == [Answer({"t": rows}, waiting, read_only=True)], (
                f"seed {seed}"
            )
        commit = chance.random() < 0.7
        h2("run", left / FILE, f"{'COMMIT' if commit else 'ROLLBACK'} TRANSACTION BRANCH{number}")
        rows.update(changes if commit else {})
    shutil.copytree(left, folder / "ours")
    assert opened_by_h2(left) == [Answer({"t": rows}, read_only=False)], f"seed {seed}"
    with PageStore(folder / "ours", system="h2") as again:
        assert all_rows(again) == rows, f"seed {seed}"
        assert not again.check()


def test_transactions_in_doubt_are_decided_one_by_one_over_many_openings(tmp_path: Path) -> None:
    _decide_one_by_one(tmp_path, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
def test_many_transactions_in_doubt_are_decided_one_by_one(tmp_path: Path, seed: int) -> None:
    _decide_one_by_one(tmp_path, seed)


# -- in turns ---------------------------------------------------------------------------------


def _h2_works(folder: Path, seed: int, count: int, end: str) -> Rows:
    rows: Rows = {}
    for line in h2("work", folder / FILE, "t", seed, count, end).splitlines():
        what, *rest = line.split("\t")
        if what == "row":
            rows[int(rest[0])] = bytes.fromhex(rest[1])
    return rows


def _in_turns(folder: Path, seed: int, rounds: int) -> None:
    """We work, closed or left; H2 works, closed or killed; and so on: neither misses anything."""
    chance, rows = random.Random(seed), dict[int, bytes]()
    with small(folder / "0") as store:
        store.create_table("t")
    for number in range(rounds):
        here, there = folder / str(number), folder / str(number + 1)
        store = small(here)
        assert all_rows(store) == rows, f"seed {seed}, round {number}"
        assert not store.check(), f"seed {seed}, round {number}"
        work(store, rows, chance.randrange(1 << 30), chance.randrange(5, 40))
        if number % 2:
            shutil.copytree(here, there)
            store.close()
        else:
            store.close()
            shutil.copytree(here, there)
        end = "close" if number % 3 == 0 else "halt"
        (answer,) = opened_by_h2(Path(shutil.copytree(there, folder / f"looked at {number}")))
        assert answer == Answer({"t": rows}, read_only=False), f"seed {seed}, round {number}"
        rows = _h2_works(there, chance.randrange(1 << 30), chance.randrange(5, 60), end)
    with small(there) as store:
        assert all_rows(store) == rows
        assert not store.check()


def test_in_turns_with_h2_nothing_is_lost(tmp_path: Path) -> None:
    _in_turns(tmp_path, seed=1, rounds=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
def test_in_many_turns_with_h2_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    _in_turns(tmp_path, seed, rounds=12)


@pytest.mark.parametrize("page_size", [512, 2048])
def test_a_database_that_h2_made_is_a_store_of_its_fitting_tables(
    tmp_path: Path, page_size: int
) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    run_java("RealH2", "create", folder / FILE, page_size, classpath=_classpath())
    ours = 'CREATE TABLE PUBLIC."t"(K BIGINT PRIMARY KEY, V VARBINARY NOT NULL)'
    more = "INSERT INTO T SELECT X, 'row ' || X FROM SYSTEM_RANGE(21, 2000)"
    h2("run", folder / FILE, ours, "CREATE INDEX BY_NAME ON T(NAME)", more)
    rows: Rows = {}
    with PageStore(folder, cache_bytes=0, checkpoint_bytes=250_000) as store:
        assert store.tables() == ["t"]
        with pytest.raises(LogWriteError, match="cannot be named"):
            store.create_table("T")
        work(store, rows, 5, 40)
        assert not store.check()
        left = Path(shutil.copytree(folder, tmp_path / "left"))
    assert opened_by_h2(folder, left) == 2 * [Answer({"t": rows}, read_only=False)]
    rows = _h2_works(folder, 3, 40, "halt")
    with PageStore(folder) as store:
        assert all_rows(store) == rows
        assert not store.check()
    # A division by zero ends the program unless H2's own table and its index are as they were.
    h2(
        "run", folder / FILE, "SELECT 1 / CASEWHEN(COUNT(*) = 2000, 1, 0) FROM T",
        "SELECT 1 / COUNT(*) FROM T WHERE NAME = 'row 1999'",
    )  # fmt: skip


# -- kills ------------------------------------------------------------------------------------


def _kill_and_ask(folder: Path, times: int, seed: int) -> None:
    """A store that counts is killed at work; H2 finds every acknowledged count, and no part of
    another transaction; we find the same."""
    chance, acknowledged = random.Random(seed), 0
    for number in range(times):
        program = subprocess.Popen(
            [sys.executable, "-m", killed.__name__, str(folder / "s"), "h2", str(number)],
            stdout=subprocess.PIPE, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.02, 0.6))
        os.kill(program.pid, signal.SIGKILL)
        done = [int(line) for line in program.communicate()[0].split()]
        copy = Path(shutil.copytree(folder / "s", folder / f"left{number}"))
        (answer,) = opened_by_h2(copy)
        assert not answer.errors
        counts = {int(answer.tables["t"][key]) for key in range(killed.ROWS)}
        assert len(counts) == 1, "a transaction in part"
        assert counts.pop() >= max(done, default=0), "an acknowledged transaction is gone"
        with small(folder / "s") as store:
            assert all_rows(store) == answer.tables["t"]
            assert not store.check()
        shutil.rmtree(copy)
        acknowledged += len(done)
    assert acknowledged


def test_h2_recovers_a_killed_store(tmp_path: Path) -> None:
    _kill_and_ask(tmp_path, 4, seed=1)


@pytest.mark.soak
def test_h2_recovers_a_store_killed_a_hundred_times(tmp_path: Path) -> None:
    _kill_and_ask(tmp_path, 100, seed=2)
