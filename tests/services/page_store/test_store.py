"""The page store over a log in memory and real files: rows, transactions, crashes."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick.errors import (
    BusyError,
    CorruptLogError,
    IncompleteLogError,
    LogClosedError,
    LogWriteError,
    RecordTooLargeError,
    TransactionUsageError,
)
from tallystick.roles import UndoRedoLog
from tallystick.services.page_store import PageStore, Session
from tallystick.services.page_store.pages.layout import KEY_MAX, KEY_MIN, PAGE_SIZE, ROW_MAX
from tallystick.storage.files import FileSystem
from tests.services.page_store.model import ModelLog, Tape

OpenLog = Callable[[Path, FileSystem], UndoRedoLog]


def on(tape: Tape) -> OpenLog:
    def open_log(path: Path, fs: FileSystem) -> UndoRedoLog:
        fs.mkdir(str(path))
        (path / "here").touch()
        return ModelLog(tape)

    return open_log


def small(path: Path, tape: Tape) -> PageStore:
    """A store with the smallest cache and sections."""
    return PageStore(
        path, open_log=on(tape), cache_bytes=0, checkpoint_bytes=20_000, lock_timeout=0.05
    )


@pytest.fixture
def tape() -> Tape:
    return Tape()


@pytest.fixture
def store(tmp_path: Path, tape: Tape) -> PageStore:
    made = small(tmp_path / "store", tape)
    made.create_table("t")
    return made


def rows(store: PageStore, table: str = "t") -> dict[int, bytes]:
    with store.begin() as tx:
        return dict(tx.table(table).range())


def crashed(store: PageStore, tape: Tape) -> PageStore:
    """Reopen as a new process: pages as they are on disk, the log as far as it was durable."""
    store._close_files = lambda **_: None  # type: ignore[method-assign]  # it will never be closed
    tape.crash()
    return small(store.path, tape)


def test_committed_rows_are_read_in_order_and_others_are_not(store: PageStore) -> None:
    with store.begin() as tx:
        for key in (5, -3, KEY_MAX, KEY_MIN, 0):
            tx.table("t")[key] = b"row %d" % key
    with pytest.raises(ZeroDivisionError), store.begin() as tx:
        tx.table("t")[6] = b"never"
        _ = 1 // 0
    assert list(rows(store)) == [KEY_MIN, -3, 0, 5, KEY_MAX]
    assert not store.check()
    store.close()


def test_a_transaction_sees_its_own_changes_and_others_do_not(store: PageStore) -> None:
    with store.begin() as tx:
        tx.table("t")[1] = b"one"
    with store.begin() as tx, store.begin() as other:
        table = tx.table("t")
        table[2] = b"two"
        del table[1]
        assert dict(table.range()) == {2: b"two"}
        assert dict(other.table("t").range()) == {1: b"one"}
        assert 1 not in table
        assert len(table) == 1


def test_savepoints_undo_what_came_after(store: PageStore) -> None:
    with store.begin() as tx:
        table = tx.table("t")
        table[1] = b"a"
        point = tx.savepoint()
        table[1] = b"b"
        table[2] = b"c"
        tx.rollback_to(point)
        assert dict(table.range()) == {1: b"a"}
        table[3] = b"d"
    assert rows(store) == {1: b"a", 3: b"d"}


def test_a_row_has_one_writer_and_a_deadlock_ends(store: PageStore) -> None:
    one, other = store.begin(), store.begin()
    one.table("t")[1] = b"x"
    other.table("t")[2] = b"y"
    with pytest.raises(BusyError, match="locked by session"):
        other.table("t")[1] = b"z"
    one.commit()
    other.table("t")[1] = b"z"
    other.commit()
    assert rows(store) == {1: b"z", 2: b"y"}


def test_a_writer_waits_for_the_row(tmp_path: Path, tape: Tape) -> None:
    store = PageStore(tmp_path / "s", open_log=on(tape))
    store.create_table("t")
    first = store.begin()
    first.table("t")[1] = b"first"

    def second() -> None:
        with store.begin() as tx:
            tx.table("t")[1] = b"second"

    thread = threading.Thread(target=second)
    thread.start()
    first.commit()
    thread.join()
    assert rows(store) == {1: b"second"}
    store.close()


@pytest.mark.parametrize("size", [0, 1, 999, 1000, PAGE_SIZE, 10 * PAGE_SIZE + 1, 1 << 20])
def test_rows_of_every_length(store: PageStore, tape: Tape, size: int) -> None:
    row = random.Random(size).randbytes(size)
    with store.begin() as tx:
        tx.table("t")[1] = row
        tx.table("t")[2] = b"beside"
    assert rows(crashed(store, tape)) == {1: row, 2: b"beside"}


def test_a_removed_long_row_frees_its_pages(store: PageStore) -> None:
    sizes = []
    for _ in range(4):
        with store.begin() as tx:
            tx.table("t")[1] = bytes(50 * PAGE_SIZE)
        with store.begin() as tx:
            del tx.table("t")[1]
        store.checkpoint()
        sizes.append((store.path / "pages").stat().st_size)
    assert len(set(sizes[1:])) == 1
    assert not store.check()


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_many_rows_split_and_empty_the_tree(store: PageStore, order: str) -> None:
    keys = list(range(3000))
    if order == "descending":
        keys.reverse()
    elif order == "random":
        random.Random(1).shuffle(keys)
    for start in range(0, len(keys), 500):
        with store.begin() as tx:
            for key in keys[start : start + 500]:
                tx.table("t")[key] = b"%d" % key * (1 + key % 40)
    assert list(rows(store)) == sorted(keys)
    assert not store.check()
    with store.begin() as tx:
        for key in keys:
            if key % 7:
                del tx.table("t")[key]
    assert list(rows(store)) == [key for key in range(3000) if key % 7 == 0]
    assert not store.check()


def test_tables_are_separate_and_survive(store: PageStore, tape: Tape) -> None:
    for name in ("b", "a", "b", "ü"):
        store.create_table(name)
    with store.begin() as tx:
        tx.table("a")[1] = b"in a"
        tx.table("b")[1] = b"in b"
    again = crashed(store, tape)
    assert again.tables() == ["a", "b", "t", "ü"]
    assert (rows(again, "a"), rows(again, "b")) == ({1: b"in a"}, {1: b"in b"})
    with pytest.raises(KeyError, match="no table 'nowhere': create_table makes one"):
        again.table_id("nowhere")


def test_wrong_use_is_reported(store: PageStore) -> None:
    with store.begin() as tx:
        with pytest.raises(KeyError):
            del tx.table("t")[1]
        with pytest.raises(KeyError):
            tx.table("t")[1]
        with pytest.raises(KeyError, match="64-bit"):
            tx.table("t")[1 << 63] = b""
        with pytest.raises(RecordTooLargeError):
            tx.table("t")[1] = bytes(ROW_MAX + 1)
        number = store.table_id("t") + 1
        for call in (lambda: tx.get(number, 1), lambda: [*tx.scan(number, 1, None)]):
            with pytest.raises(KeyError, match="no table has"):  # and not that it is damaged
                call()
    with pytest.raises(TransactionUsageError, match="is over"):
        tx.table("t")[1] = b""
    store.close()
    store.close()
    with pytest.raises(LogClosedError):
        store.begin()


def test_a_row_is_as_long_as_a_segment_holds_and_a_longer_one_is_refused_at_its_call(
    tmp_path: Path,
) -> None:
    with PageStore(tmp_path / "store", system="tally") as store:
        store.create_table("t")
        table = store.table_id("t")
        with store.begin() as tx:
            with pytest.raises(
                RecordTooLargeError, match=r"at most (16\d{6}) bytes.*several keys"
            ) as no:
                tx.table("t")[1] = bytes(17_000_000)
            longest = int(str(no.value.expected).split()[2])
            with pytest.raises(RecordTooLargeError):
                tx.put(table, 1, bytes(longest + 1))
            tx.table("t")[1] = b"x" * longest
            tx.table("t")[2] = b"another"
    with PageStore(tmp_path / "store") as store, store.begin(read_only=True) as tx:
        assert tx.table("t")[1] == b"x" * longest
        assert tx.table("t")[2] == b"another"


# -- in doubt ---------------------------------------------------------------------------------


def _prepared(store: PageStore, name: str, key: int) -> Session:
    tx = store.begin()
    tx.table("t")[key] = b"prepared"
    tx.prepare(name)
    return tx


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_survives_a_crash_as_in_doubt(
    store: PageStore, tape: Tape, commit: bool
) -> None:
    with store.begin() as tx:
        tx.table("t")[1] = b"before"
    _prepared(store, "first", 2)
    _prepared(store, "second", 3)
    with store.begin() as tx:
        tx.table("t")[4] = b"after"
    store.checkpoint()
    again = crashed(store, tape)
    assert {one.name for one in again.in_doubt()} == {"first", "second"}
    with pytest.raises(IncompleteLogError, match="first"):
        again.begin()
    again = crashed(again, tape)
    again.settle("first", commit=commit)
    with pytest.raises(KeyError):
        again.settle("unknown", commit=True)
    again.settle("second", commit=not commit)
    expected = {1: b"before", 4: b"after", 2 if commit else 3: b"prepared"}
    assert rows(again) == expected
    assert not again.check()
    assert rows(crashed(again, tape)) == expected


def test_a_prepared_transaction_of_this_opening_commits_or_rolls_back(
    store: PageStore, tape: Tape
) -> None:
    one, other = _prepared(store, "one", 1), _prepared(store, "other", 2)
    with pytest.raises(TransactionUsageError, match="is prepared"):
        one.table("t")[5] = b""
    assert [doubt.name for doubt in store.in_doubt()] == ["one", "other"]
    one.commit()
    other.rollback()
    _prepared(store, "third", 3)
    store.settle("third", commit=True)
    assert store.in_doubt() == []
    assert rows(crashed(store, tape)) == {1: b"prepared", 3: b"prepared"}


# -- crashes, backups, damage -------------------------------------------------------------------


class Cut(BaseException):
    """Raised at the simulated end of the process."""


def _cut_at(monkeypatch: pytest.MonkeyPatch, at: int) -> list[int]:
    """Crash at the ``at``-th write, sync, rename or removal of a file; count them."""
    from tallystick.storage import local

    calls = [0]

    def wrap(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: object) -> object:
            calls[0] += 1
            if calls[0] == at:
                raise Cut(name)
            return real(*args)

        monkeypatch.setattr(owner, name, call)

    for name in ("pwrite", "pwritev", "datasync"):
        wrap(local.LocalFile, name)
    for name in ("rename", "remove", "sync_dir"):
        wrap(local.LocalFileSystem, name)
    return calls


def _work(store: PageStore, seed: int, tried: list[dict[int, bytes]]) -> None:
    """Run random transactions.

    ``tried`` gets the state after each before it is committed, so all but the last were
    acknowledged.
    """
    chance = random.Random(seed)
    state = dict(tried[-1])
    for _ in range(12):
        with store.begin() as tx:
            table = tx.table("t")
            for _ in range(chance.randrange(1, 30)):
                key = chance.randrange(300)
                if chance.random() < 0.3 and key in table:
                    del table[key]
                    state.pop(key, None)
                else:
                    table[key] = state[key] = chance.randbytes(chance.choice((5, 300, 6000)))
            tried.append(dict(state))


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_every_file_operation_loses_nothing_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    at, crashes = 1, 0
    while True:
        tape, tried = Tape(), [dict[int, bytes]()]
        store = small(tmp_path / f"s{at}", tape)
        store.create_table("t")
        with pytest.MonkeyPatch.context() as patch:
            calls = _cut_at(patch, at)
            try:
                _work(store, seed, tried)
            except Cut:
                crashes += 1
            finished = calls[0] < at
        again = crashed(store, tape)
        assert rows(again) in tried[-2:]
        assert not again.check()
        shutil.rmtree(store.path)
        if finished:
            break
        at += max(at // 8, 1)
    assert crashes > 10


def test_recovery_may_be_interrupted_anywhere_and_run_again(tmp_path: Path) -> None:
    tape, tried = Tape(), [dict[int, bytes]()]
    store = PageStore(tmp_path / "s", open_log=on(tape), cache_bytes=0, checkpoint_bytes=1 << 30)
    store.create_table("t")
    _work(store, 9, tried)
    at, cuts = 1, 0
    while True:
        tape.crash()
        copy = Tape(list(tape.records), tape.durable, tape.section)
        shutil.copytree(store.path, folder := tmp_path / f"c{at}")
        with pytest.MonkeyPatch.context() as patch:
            _cut_at(patch, at)
            try:
                small(folder, copy)
            except Cut:
                cut = True
            else:
                cut = False
        copy.crash()
        again = small(folder, copy)
        assert rows(again) == tried[-1]
        assert not again.check()
        if not cut:
            break
        cuts += 1
        at += max(at // 6, 1)
    assert cuts > 10


def test_a_backup_is_the_store_as_of_its_moment(store: PageStore, tmp_path: Path) -> None:
    with store.begin() as tx:
        tx.table("t")[1] = b"kept"
    store.backup(tmp_path / "backup")
    with store.begin() as tx:
        tx.table("t")[1] = b"later"
    with small(tmp_path / "backup", Tape()) as backup:
        assert rows(backup) == {1: b"kept"}
    with pytest.raises(LogWriteError, match="absent or empty"):
        store.backup(tmp_path / "backup")


def test_pages_without_their_log_are_refused(store: PageStore) -> None:
    store.close()
    shutil.rmtree(store.path / "log")
    with pytest.raises(CorruptLogError, match="log of this page store is missing"):
        small(store.path, Tape())


def test_every_flipped_byte_of_a_page_is_found(store: PageStore, tape: Tape) -> None:
    with store.begin() as tx:
        for key in range(200):
            tx.table("t")[key] = b"x" * 100
        tx.table("t")[1000] = bytes(9000)
    store.close()
    pages = (store.path / "pages").read_bytes()
    for place in range(0, len(pages), 997):
        damaged = bytearray(pages)
        damaged[place] ^= 1
        (store.path / "pages").write_bytes(damaged)
        try:
            again = small(store.path, tape)
        except CorruptLogError:
            continue
        assert again.check(), f"a flip at {place} went unnoticed"
        again._close_files()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 60), st.sampled_from([None, 0, 40, 900, 5000]))),
        max_size=15,
    ),
    st.booleans(),
)
def test_any_history_of_transactions_is_that_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[list[tuple[int, int | None]]],
    crash: bool,
) -> None:
    tape = Tape()
    store = small(tmp_path_factory.mktemp("store"), tape)
    store.create_table("t")
    model: dict[int, bytes] = {}
    for transaction in history:
        with store.begin() as tx:
            table = tx.table("t")
            for key, size in transaction:
                if size is not None:
                    table[key] = model[key] = bytes([key]) * size
                elif key in table:
                    del table[key]
                    del model[key]
    if crash:
        store = crashed(store, tape)
    else:
        store.close()
        store = small(store.path, tape)
    assert rows(store) == model
    assert not store.check()
    store.close()
