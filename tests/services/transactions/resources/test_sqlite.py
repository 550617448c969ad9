"""SQLite databases by URL: what their options do, who waits for whom, and what a session keeps."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tallystick.errors import BusyError, RolledBackError, TransactionUsageError
from tallystick.services.driver_errors import is_conflict
from tallystick.services.transactions import (
    AsyncTransactionManager,
    IdempotencyKey,
    TransactionManager,
)
from tallystick.services.transactions.resource import BranchRolledBack, ResourceUnreachable
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.resources.connection_resource import shut_down
from tallystick.services.transactions.resources.sqlite import SqliteResource


def manager(folder: Path, options: str = "", **more: Any) -> TransactionManager:
    """A manager over one database, with a table ``c`` of one row."""
    with sqlite3.connect(folder / "a.db") as made:
        made.execute("CREATE TABLE IF NOT EXISTS c (v)")
        made.execute("INSERT INTO c SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM c)")
    made.close()
    resources = {"a": f"sqlite:///{folder}/a.db{options}"} | more
    return TransactionManager(folder / "tm", resources, recovery_interval=None)


def seen(tm: TransactionManager, question: str) -> Any:
    with tm.begin() as tx:
        (found,) = tx["a"].execute(question).fetchone()
        return found


@pytest.mark.parametrize(
    ("option", "question", "wanted"),
    [
        ("foreign_keys=1", "PRAGMA foreign_keys", 1),
        ("foreign_keys=off", "PRAGMA foreign_keys", 0),
        ("journal_mode=WAL", "PRAGMA journal_mode", "wal"),
        ("synchronous=EXTRA", "PRAGMA synchronous", 3),
        ("", "PRAGMA synchronous", 2),
        ("timeout=7.5", "PRAGMA busy_timeout", 7500),
        ("cache_size=-4000&temp_store=2", "PRAGMA cache_size", -4000),
        ("recursive_triggers=on", "PRAGMA recursive_triggers", 1),
    ],
)
def test_an_option_holds_in_every_transaction(
    tmp_path: Path, option: str, question: str, wanted: object
) -> None:
    with manager(tmp_path, f"?{option}") as tm:
        assert not tm.preflight()
        assert [seen(tm, question) for _ in range(2)] == [wanted, wanted]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("forein_keys=1", "'forein_keys' of 'a' is not known"),
        ("foreign_keys=perhaps", "'perhaps' is no value of the option 'foreign_keys'"),
        ("journal_mode=fast", "'fast' is no value"),
        ("synchronous=sometimes", "'sometimes' is no value"),
        ("begin=soon", "'soon' is no value"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_its_name(
    tmp_path: Path, option: str, message: str
) -> None:
    with pytest.raises(TransactionUsageError, match=message):
        adapt("a", f"sqlite:///{tmp_path}/a.db?{option}")


def test_less_than_durable_is_named_by_preflight(tmp_path: Path) -> None:
    with manager(tmp_path, "?synchronous=normal&journal_mode=memory") as tm:
        assert {word for one in tm.preflight() for word in one.what.split()} >= {
            "synchronous",
            "journal_mode",
        }


READ_AND_WRITE = """
import sys, tallystick
with tallystick.TransactionManager(sys.argv[1] + "/shared", {"a": sys.argv[2]}, shared=True) as tm:
    for _ in range(8):
        with tm.begin() as tx:
            (value,) = tx["a"].execute("SELECT v FROM c").fetchone()
            tx["a"].execute("UPDATE c SET v = ?", (value + 1,))
"""


def test_processes_that_read_and_then_write_wait_for_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db?journal_mode=wal&timeout=300"
    with manager(tmp_path, "?journal_mode=wal") as tm:
        command = [sys.executable, "-c", READ_AND_WRITE, str(tmp_path), url]
        workers = [subprocess.Popen(command) for _ in range(3)]
        assert [one.wait(300) for one in workers] == [0, 0, 0]
        assert seen(tm, "SELECT v FROM c") == 24


@pytest.mark.parametrize("reading", ["", "?begin=deferred", "?query_only=1"])
def test_who_only_reads_need_not_wait_for_a_writer(tmp_path: Path, reading: str) -> None:
    readers = f"sqlite:///{tmp_path}/a.db{reading}"
    with manager(tmp_path, "?journal_mode=wal&timeout=0.05", readers=readers) as tm:
        with tm.begin() as writing:
            writing["a"].execute("UPDATE c SET v = 7")
            if not reading:
                with pytest.raises(sqlite3.OperationalError, match="locked") as caught:
                    blocked(tm)
                assert is_conflict(caught.value)
                return
            with tm.begin(independent=True) as tx:
                assert tx["readers"].execute("SELECT v FROM c").fetchone() == (0,)
        with tm.begin() as tx:
            assert tx["readers"].execute("SELECT v FROM c").fetchone() == (7,)


@pytest.mark.parametrize("through", ["a", "engine"])
def test_a_branch_waits_for_the_lock_no_longer_than_its_transaction(
    tmp_path: Path, through: str
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db", connect_args={"timeout": 300})
    with manager(tmp_path, "?timeout=300", engine=engine) as tm:
        with tm.begin() as writing:
            writing["a"].execute("UPDATE c SET v = 7")
            with (
                pytest.raises(RolledBackError, match="timed out"),
                tm.begin(independent=True, timeout=0.2) as late,
            ):
                late[through]
        with tm.begin(timeout=1000) as tx:  # the session waits as before
            assert tx["a"].execute("PRAGMA busy_timeout").fetchone() == (300_000,)
        with tm.begin(timeout=1000) as tx:
            found = tx["engine"].exec_driver_sql("PRAGMA busy_timeout").one()
            assert tuple(found) == (300_000,)
    engine.dispose()


HAMMER = """
import faulthandler, sys, threading
import tallystick
faulthandler.dump_traceback_later(120, exit=True)  # a thread of its own: it needs no interpreter
with tallystick.TransactionManager(sys.argv[1] + "/tm", {"a": sys.argv[2]}) as tm:
    with tm.begin() as tx:
        handle, done = tx["a"], threading.Event()
        handle.execute("CREATE TABLE IF NOT EXISTS numbers (n)")
        handle.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(2000)])

        def read():
            while not done.is_set():
                for _ in handle.execute("SELECT n, n + 1, n + 2 FROM numbers"):
                    pass

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(3000):
            handle.execute(f"SELECT {number} FROM numbers LIMIT 1").fetchone()
        done.set()
        reader.join()
"""


def test_two_threads_in_one_session_stop_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HAMMER, str(tmp_path), f"sqlite:///{tmp_path}/a.db"]
    assert subprocess.run(command, check=False, timeout=300).returncode == 0


async def test_a_task_waits_for_the_lock_no_longer_than_its_transaction(tmp_path: Path) -> None:
    with manager(tmp_path, "?timeout=300") as plain:
        tm = AsyncTransactionManager(plain)
        async with tm, tm.begin() as writing:
            await writing.enlist("a")
            with pytest.raises(RolledBackError, match="timed out"):
                async with tm.begin(independent=True, timeout=0.2) as late:
                    await late.enlist("a")


def blocked(tm: TransactionManager) -> None:
    with tm.begin(independent=True) as tx:
        tx["a"].execute("SELECT v FROM c")


def test_a_listener_of_an_engine_chooses_how_its_branches_begin(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db", connect_args={"timeout": 0.01})
    deferred: list[str] = []

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if deferred:
            connection.exec_driver_sql("BEGIN DEFERRED")

    with manager(tmp_path, "?timeout=0.01&journal_mode=wal", engine=engine) as tm:

        def both() -> None:
            with tm.begin() as tx, tm.begin(independent=True) as other:
                tx["engine"].exec_driver_sql("SELECT v FROM c")
                other["a"].execute("SELECT v FROM c")

        blocked(tm)  # by nobody yet; sets the mode
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            both()
        deferred.append("from now on")
        both()
    engine.dispose()


def test_a_request_with_a_key_waits_as_long_as_its_key_says(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()
    with manager(tmp_path, "?timeout=300") as tm:

        @tm.transactional(key=IdempotencyKey("a", of="request", wait=0.05))
        def handle(request: str) -> str:
            entered.set()
            assert leave.wait(300)
            return request

        thread = threading.Thread(target=handle, args=("a",))
        thread.start()
        assert entered.wait(300)
        with pytest.raises(BusyError):
            handle("a")
        leave.set()
        thread.join()
        assert handle("a") == "a"
        with tm.begin(timeout=1000) as tx:
            assert tx["a"].execute("PRAGMA busy_timeout").fetchone() == (300_000,)


def raw(tx: Any) -> sqlite3.Connection:
    found: sqlite3.Connection = tx["a"].cursor().connection
    return found


TRACES: dict[str, tuple[Callable[[Any], object], str]] = {
    "temporary table": (
        lambda tx: tx["a"].execute("CREATE TEMP TABLE left_behind (i)"),
        "SELECT count(*) FROM sqlite_temp_master",
    ),
    "temporary view": (
        lambda tx: tx["a"].execute("CREATE TEMPORARY VIEW left_behind AS SELECT 1"),
        "SELECT count(*) FROM sqlite_temp_master",
    ),
    "pragma": (
        lambda tx: tx["a"].execute("pragma case_sensitive_like(1)"),
        "SELECT 'a' NOT LIKE 'A'",
    ),
    "hidden pragma": (
        lambda tx: tx["a"].execute("/* ; */ PRAGMA recursive_triggers = 1"),
        "PRAGMA recursive_triggers",
    ),
    "busy timeout": (
        lambda tx: tx["a"].execute("PRAGMA busy_timeout = 1"),
        "SELECT timeout <> 30000 FROM pragma_busy_timeout",
    ),
    "factory": (
        lambda tx: setattr(raw(tx), "row_factory", lambda _, row: (len(row),)),
        "SELECT 0",
    ),
}


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("trace", TRACES)
def test_what_a_transaction_changed_in_its_session_does_not_reach_the_next(
    tmp_path: Path, trace: str, end: str
) -> None:
    change, question = TRACES[trace]
    with manager(tmp_path) as tm:
        assert not seen(tm, question)
        with tm.begin() as tx:
            change(tx)
            if end == "rollback":
                tx.rollback()
        assert not seen(tm, question)


def test_a_database_that_was_attached_is_not_there_in_the_next_transaction(tmp_path: Path) -> None:
    resource = SqliteResource("a", tmp_path / "a.db", begin="deferred")
    with TransactionManager(tmp_path / "tm", {"a": resource}, recovery_interval=None) as tm:
        with tm.begin() as tx:
            tx["a"].execute(f"ATTACH '{tmp_path}/other.db' AS other")
        assert seen(tm, "SELECT count(*) FROM pragma_database_list") == 1


def test_an_unchanged_session_is_used_again(tmp_path: Path) -> None:
    sessions = []
    with manager(tmp_path) as tm:
        for number in range(3):
            with tm.begin() as tx:
                tx["a"].execute("UPDATE c SET v = ?", (number,))
                tx["a"].execute("PRAGMA foreign_keys").fetchone()
                sessions.append(raw(tx))
    assert sessions[0] is sessions[1] is sessions[2]


@pytest.mark.parametrize("mode", ["immediate", "deferred"])
def test_a_transaction_that_is_late_gives_its_lock_up_while_its_thread_is_elsewhere(
    tmp_path: Path, mode: str
) -> None:
    holding, written = threading.Event(), threading.Event()
    late: list[BaseException] = []

    def hold() -> None:
        try:
            with tm.begin() as tx:
                tx["a"].execute("UPDATE c SET v = 1")
                branch: Any = tx._protocol.branches["a"]
                session = branch.raw
                holding.set()
                tx._protocol.deadline = 0.0
                assert written.wait(600)
                # It is not one of a transaction any more, and would be committed by itself.
                with pytest.raises(sqlite3.OperationalError, match="took too long"):
                    session.execute("UPDATE c SET v = 2")
        except RolledBackError as error:
            late.append(error)

    with manager(tmp_path, f"?begin={mode}&timeout=600") as tm:
        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        assert holding.wait(300)
        with tm.begin(timeout=600) as tx:
            tx["a"].execute("UPDATE c SET v = v + 10")
        written.set()
        thread.join()
        assert "took too long" in str(late)
        assert seen(tm, "SELECT v FROM c") == 10


@pytest.mark.parametrize("new", [True, False], ids=["a new session", "one that was used"])
def test_no_statement_waits_for_a_lock_longer_than_its_transaction(
    tmp_path: Path, new: bool
) -> None:
    with manager(tmp_path, "?begin=deferred&timeout=600") as tm:
        if not new:
            assert seen(tm, "SELECT v FROM c") == 0
        other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RolledBackError), tm.begin(timeout=0.5) as tx:
            tx["a"].execute("UPDATE c SET v = 1")
        other.execute("ROLLBACK")
        other.close()
        with tm.begin(timeout=1000) as tx:  # the session waits as before
            assert tx["a"].execute("PRAGMA busy_timeout").fetchone() == (600_000,)


def test_a_late_commit_is_whole_or_nothing(tmp_path: Path) -> None:
    """The outcome row is not written after what it stands for was rolled back."""
    with manager(tmp_path) as tm, pytest.raises(RolledBackError), tm.begin() as tx:
        tx["a"].execute("UPDATE c SET v = 1")
        branch: Any = tx._protocol.branches["a"]
        branch.abort()
        with pytest.raises(BranchRolledBack):
            branch.commit()
    with sqlite3.connect(tmp_path / "a.db") as found:
        assert found.execute("SELECT v FROM c").fetchall() == [(0,)]
        assert not found.execute("SELECT * FROM tallystick_outcomes").fetchall()
    found.close()


def test_a_file_that_was_put_in_place_of_another_one_is_the_database(tmp_path: Path) -> None:
    """A restored backup: SQLite calls what is open still a database that only reads."""
    path, url = tmp_path / "lite.db", f"sqlite:///{tmp_path}/lite.db"
    with TransactionManager(tmp_path / "tm", {"lite": url}) as tm:
        with tm.begin() as tx:
            tx["lite"].execute("CREATE TABLE t (id INTEGER)")
        (tmp_path / "backup.db").write_bytes(path.read_bytes())
        with tm.begin() as tx:
            tx["lite"].execute("INSERT INTO t VALUES (1)")
        (tmp_path / "backup.db").replace(path)
        with tm.begin() as tx:
            tx["lite"].execute("INSERT INTO t VALUES (2)")
        assert tm.recover().clean
    with contextlib.closing(sqlite3.connect(path)) as there:
        assert there.execute("SELECT id FROM t").fetchall() == [(2,)]


def test_a_file_that_is_gone_is_named_and_no_empty_one_takes_its_place(tmp_path: Path) -> None:
    path, url = tmp_path / "lite.db", f"sqlite:///{tmp_path}/lite.db"
    with TransactionManager(tmp_path / "tm", {"lite": url}) as tm:
        with tm.begin() as tx:
            tx["lite"].execute("CREATE TABLE t (id INTEGER)")
        path.rename(tmp_path / "away.db")
        with pytest.raises(ResourceUnreachable, match="deleted or moved"), tm.begin() as tx:
            tx["lite"].execute("INSERT INTO t VALUES (1)")
        assert list(tm.recover().unreachable) == ["lite"]
        assert not path.exists()
        (tmp_path / "away.db").rename(path)
        with tm.begin() as tx:
            tx["lite"].execute("INSERT INTO t VALUES (2)")


@pytest.mark.parametrize(("given", "longest"), [("inf", 60_000), ("1e9", 60_000), ("0", 0)])
def test_a_lock_is_waited_for_as_long_as_the_address_says_and_sqlite_can(
    tmp_path: Path, given: str, longest: int
) -> None:
    url = f"sqlite:///{tmp_path / 'lite.db'}?timeout={given}"
    tm = TransactionManager(tmp_path / "tm", {"a": url}, recovery_interval=None)
    with tm, tm.begin() as tx:  # in which nothing waits longer than for the transaction
        (wait,) = tx["a"].execute("PRAGMA busy_timeout").fetchone()
    assert 0.9 * longest <= wait <= longest


@pytest.mark.parametrize("given", ["nan", "-1", "soon"])
def test_an_address_with_no_time_to_wait_is_refused(tmp_path: Path, given: str) -> None:
    url = f"sqlite:///{tmp_path / 'lite.db'}?timeout={given}"
    with pytest.raises(TransactionUsageError, match="no value of the option 'timeout'"):
        TransactionManager(tmp_path / "tm", {"a": url}, recovery_interval=None)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted there")
def test_a_number_that_is_no_session_any_more_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - to count
        shut_down(file.fileno())
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
        file.write(b"still open")
