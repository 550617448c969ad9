"""What people do with connections of drivers is right in a branch, or a clear error."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tallystick.errors import TallystickError, TransactionError, TransactionUsageError
from tallystick.reconcile.ids import literal
from tallystick.services.transactions import AsyncTransactionManager, Status, TransactionManager
from tallystick.services.transactions.resources.postgres import PostgresResource
from tests.servers import Server

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

_names = itertools.count(1)


@pytest.fixture
def tm(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> Iterator[TransactionManager]:
    urls = {"pg": postgres_server.url, "maria": mariadb_server.url}
    with TransactionManager(tmp_path / "tm", urls, recovery_interval=None) as made:
        yield made


@pytest.fixture
def table(postgres_server: Server) -> str:
    name = f"habits{next(_names)}"
    with psycopg.connect(postgres_server.url) as pg:
        pg.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)")
    return name


def rows(tm: TransactionManager, table: str) -> list[int]:
    with tm.begin() as tx:
        return [row[0] for row in tx["pg"].execute(f"SELECT id FROM {table} ORDER BY id")]


@pytest.mark.parametrize("others", [(), ("maria",)], ids=["alone", "with another"])
def test_a_nested_transaction_of_psycopg_is_a_savepoint(
    tm: TransactionManager, table: str, others: tuple[str, ...]
) -> None:
    with tm.begin() as tx:
        for other in others:
            tx[other].execute("DO 0")
        pg = tx.connection("pg", psycopg.Connection)
        pg.execute(f"INSERT INTO {table} VALUES (1)")
        with pytest.raises(psycopg.errors.UniqueViolation), pg.transaction():
            pg.execute(f"INSERT INTO {table} VALUES (1)")
        with pg.transaction():
            pg.execute(f"INSERT INTO {table} VALUES (2)")
    assert rows(tm, table) == [1, 2]


def test_a_nested_transaction_that_is_left_open_reaches_nobody_else(
    tm: TransactionManager, table: str
) -> None:
    """psycopg counts them for each connection, and refuses much while there is one."""
    with tm.begin() as tx:
        left = tx["pg"].transaction()
        left.__enter__()
        tx["pg"].execute(f"INSERT INTO {table} VALUES (1)")
    assert tm.recover().clean
    with tm.begin() as tx:
        tx["pg"].execute(f"INSERT INTO {table} VALUES (2)")
        assert tx["pg"]._num_transactions == 0
    assert rows(tm, table) == [1, 2]


def in_block(connection: psycopg.Connection[Any]) -> None:
    with connection:
        connection.execute("SELECT 1")


def set_autocommit(connection: psycopg.Connection[Any]) -> None:
    connection.autocommit = True


@pytest.mark.parametrize(
    "habit",
    [psycopg.Connection.commit, psycopg.Connection.rollback, in_block, set_autocommit],
)
def test_what_would_end_the_branch_is_an_error_of_psycopg_and_nothing_is_kept(
    tm: TransactionManager, table: str, habit: Callable[[Any], object]
) -> None:
    with pytest.raises(psycopg.ProgrammingError, match=r"two-phase|autocommit"), tm.begin() as tx:
        tx["pg"].execute(f"INSERT INTO {table} VALUES (1)")
        habit(tx["pg"])
    assert rows(tm, table) == []


KEEP = ["COMMIT", "END", "/* a, b */ commit", "-- end\nCOMMIT", "COMMIT AND CHAIN", "COMMIT; BEGIN"]
DROP = ["ROLLBACK", "ABORT", "ROLLBACK AND CHAIN", "PREPARE TRANSACTION 'by hand {table}'"]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("others", [(), ("maria",)], ids=["alone", "with another"])
@pytest.mark.parametrize("more", [False, True], ids=["last", "and more"])
@pytest.mark.parametrize("statement", KEEP + DROP)
def test_a_statement_that_ends_the_transaction_is_found_before_anything_is_called_committed(
    tm: TransactionManager,
    table: str,
    postgres_server: Server,
    statement: str,
    more: bool,
    others: tuple[str, ...],
) -> None:
    """psycopg begins another transaction for the statement that follows."""
    with pytest.raises(TransactionUsageError, match="ended the transaction of 'pg'"):  # noqa: SIM117
        with tm.begin() as tx:
            for other in others:
                tx[other].execute("DO 0")
            tx["pg"].execute(f"INSERT INTO {table} VALUES (1)")
            tx["pg"].execute(statement.format(table=table))
            if more:
                tx["pg"].execute(f"INSERT INTO {table} VALUES (2)")
    if statement.startswith("PREPARE"):
        with psycopg.connect(postgres_server.url, autocommit=True) as pg:
            pg.execute(f"ROLLBACK PREPARED 'by hand {table}'")
    assert rows(tm, table) == ([1] if statement in KEEP else [])  # the connection is as before
    assert tm.recover().clean


@pytest.mark.sampled(7)
@pytest.mark.parametrize("way", ["block", "rollback"])
@pytest.mark.parametrize("more", [False, True], ids=["last", "and more"])
@pytest.mark.parametrize("statement", KEEP + DROP)
def test_nothing_is_called_rolled_back_after_a_statement_that_ended_the_transaction(
    tm: TransactionManager,
    table: str,
    postgres_server: Server,
    statement: str,
    more: bool,
    way: str,
) -> None:
    """A block that is left by an error would else seem to have undone what was committed."""
    with pytest.raises(TransactionUsageError, match="ended the transaction of 'pg'") as raised:  # noqa: SIM117
        with tm.begin() as tx:
            tx["maria"].execute("DO 0")
            tx["pg"].execute(f"INSERT INTO {table} VALUES (1)")
            tx["pg"].execute(statement.format(table=table))
            if more:
                tx["pg"].execute(f"INSERT INTO {table} VALUES (2)")
            if way == "rollback":
                tx.rollback()
            raise KeyError("of the program")
    assert isinstance(raised.value.__context__, KeyError) == (way == "block")
    assert tx.status is Status.ROLLED_BACK
    if statement.startswith("PREPARE"):
        with psycopg.connect(postgres_server.url, autocommit=True) as pg:
            pg.execute(f"ROLLBACK PREPARED 'by hand {table}'")
    assert rows(tm, table) == ([1] if statement in KEEP else [])
    assert tm.recover().clean


async def test_a_task_is_told_so_as_well(tm: TransactionManager, table: str) -> None:
    async def work() -> None:
        manager = AsyncTransactionManager(tm)
        async with manager.begin() as tx:
            await tx.execute("pg", f"INSERT INTO {table} VALUES (1)")
            await tx.execute("pg", "COMMIT")
            raise KeyError("of the program")

    with pytest.raises(TransactionUsageError, match="ended the transaction of 'pg'"):
        await work()
    assert rows(tm, table) == [1]


@pytest.mark.parametrize("others", [(), ("maria",)], ids=["alone", "with another"])
@pytest.mark.parametrize("more", [False, True], ids=["last", "and more"])
async def test_a_task_that_ends_the_transaction_by_a_statement_is_told(
    tm: TransactionManager, table: str, more: bool, others: tuple[str, ...]
) -> None:
    async def work() -> None:
        manager = AsyncTransactionManager(tm)
        async with manager.begin() as tx:
            for other in others:
                await tx.execute(other, "DO 0")
            for statement in (f"INSERT INTO {table} VALUES (1)", "COMMIT"):
                await tx.execute("pg", statement)
            if more:
                await tx.execute("pg", f"INSERT INTO {table} VALUES (2)")

    with pytest.raises(TransactionUsageError, match="ended the transaction of 'pg'"):
        await work()
    assert rows(tm, table) == [1]


@pytest.mark.parametrize("statement", ["BEGIN", "START TRANSACTION", "SAVEPOINT one"])
def test_a_statement_that_ends_nothing_does_no_harm(
    tm: TransactionManager, table: str, statement: str
) -> None:
    with tm.begin() as tx:
        tx["maria"].execute("DO 0")
        tx["pg"].execute(statement)
        tx["pg"].execute(f"INSERT INTO {table} VALUES (1)")
    assert rows(tm, table) == [1]


def test_a_branch_that_seems_to_have_read_only_is_asked_whether_it_was_ended(
    tmp_path: Path, postgres_server: Server, table: str
) -> None:
    resources = {
        name: PostgresResource(
            name, lambda: psycopg.connect(postgres_server.url), detect_read_only=True
        )
        for name in ("a", "b")
    }
    with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as tm:
        with tm.begin() as tx:
            for name in resources:
                tx[name].execute("SELECT 1")
        with pytest.raises(TransactionUsageError, match="ended the transaction of 'b'"):  # noqa: SIM117
            with tm.begin() as tx:
                tx["a"].execute(f"INSERT INTO {table} VALUES (1)")
                tx["b"].execute(f"INSERT INTO {table} VALUES (2)")
                tx["b"].execute("COMMIT")
                tx["b"].execute("SELECT 1")


def test_sqlite_tells_of_a_statement_that_ended_its_transaction(tmp_path: Path) -> None:
    with TransactionManager(
        tmp_path / "tm", {"lite": f"sqlite:///{tmp_path}/lite.db"}, recovery_interval=None
    ) as tm:
        with tm.begin() as tx:
            tx["lite"].execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        for number, statement in enumerate(["COMMIT", "ROLLBACK", "END -- it"]):
            for more in ("", "BEGIN"):
                ended = pytest.raises(TransactionUsageError, match="ended the transaction of 'l")
                with ended:  # noqa: SIM117
                    with tm.begin() as tx:
                        tx["lite"].execute("INSERT INTO t VALUES (?)", (number,))
                        tx["lite"].execute("DELETE FROM t")
                        tx["lite"].execute(statement)
                        if more:
                            tx["lite"].execute(more)
                            tx["lite"].execute("INSERT INTO t VALUES (100)")
        with tm.begin() as tx:
            assert tx["lite"].execute("SELECT id FROM t").fetchall() == []


ENDS_OF_SQLITE: dict[str, Callable[[Any], object]] = {
    "commit": lambda lite: lite.execute("COMMIT"),
    "end": lambda lite: lite.execute("/* a */ end transaction"),
    "rollback": lambda lite: lite.execute("rollback"),
    "executescript": lambda lite: lite.cursor().executescript("INSERT INTO t VALUES (2)"),
    "connection.commit": lambda lite: lite.cursor().connection.commit(),
    "connection.rollback": lambda lite: lite.cursor().connection.rollback(),
}


@pytest.mark.parametrize("is_handled", [False, True], ids=["raised", "handled"])
@pytest.mark.parametrize("habit", ENDS_OF_SQLITE.values(), ids=ENDS_OF_SQLITE)
def test_no_statement_ends_a_branch_of_sqlite(
    tmp_path: Path, habit: Callable[[Any], object], is_handled: bool
) -> None:
    """What was committed so could not be undone with the rest, whatever the block raises later."""
    ended = partial(pytest.raises, TransactionUsageError, match="ended the transaction of 'lite'")
    with TransactionManager(
        tmp_path / "tm", {"lite": f"sqlite:///{tmp_path}/lite.db"}, recovery_interval=None
    ) as tm:
        with tm.begin() as tx:
            tx["lite"].execute("CREATE TABLE t (id INTEGER)")
        for turn in (1, 2):  # the second time over a connection used before
            with pytest.raises((TransactionUsageError, ZeroDivisionError)) as raised:  # noqa: SIM117
                with tm.begin() as tx:
                    tx["lite"].execute("INSERT INTO t VALUES (?)", (turn,))
                    with pytest.raises(
                        TransactionUsageError, match="ended the transaction of 'lite'"
                    ):
                        habit(tx["lite"])
                    tx["lite"].execute("INSERT INTO t VALUES (3)")
                    if is_handled:
                        _ = 1 // 0
                    habit(tx["lite"])
            assert raised.type is (ZeroDivisionError if is_handled else TransactionUsageError)
        with tm.begin() as tx:
            assert tx["lite"].execute("SELECT id FROM t").fetchall() == []
            tx["lite"].execute("SAVEPOINT one")
            tx["lite"].execute("INSERT INTO t VALUES (4)")
            tx["lite"].execute("ROLLBACK TO one")
            tx["lite"].execute("INSERT INTO t VALUES (5)")
            with ended():
                habit(tx["lite"])
        with tm.begin() as tx:
            assert tx["lite"].execute("SELECT id FROM t").fetchall() == [(5,)]


@pytest.mark.parametrize("habit", ["autocommit", "begin", "close", "ping", "commit", "rollback"])
def test_what_would_end_a_branch_of_mariadb_is_a_clear_error(
    tm: TransactionManager, habit: str
) -> None:
    with pytest.raises(TransactionUsageError, match=habit), tm.begin() as tx:
        getattr(tx["maria"], habit)()
    with tm.begin() as tx:
        assert tx["maria"].execute("SELECT 7").fetchall() == ((7,),)
        with pytest.raises(AttributeError, match="nothing"):
            _ = tx["maria"].nothing


@pytest.mark.parametrize(
    "statement",
    ["COMMIT", "ROLLBACK AND CHAIN", "START TRANSACTION", "CREATE TABLE x (i int)", "XA START 'x'"],
)
def test_mariadb_refuses_statements_that_would_end_its_branch(
    tm: TransactionManager, statement: str
) -> None:
    with pytest.raises(Exception, match="XAER_RMFAIL"), tm.begin() as tx:
        tx["maria"].cursor().connection.query(statement)
    assert tm.recover().clean


@pytest.mark.parametrize("others", [(), ("pg",)], ids=["alone", "with another"])
def test_a_branch_of_mariadb_that_was_ended_by_hand_is_told(
    tm: TransactionManager, others: tuple[str, ...]
) -> None:
    with pytest.raises(TallystickError, match=r"ended the transaction|XA END"), tm.begin() as tx:
        for other in others:
            tx[other].execute("SELECT 1")
        handle = tx["maria"]
        xid = literal(tx.branches["maria"].xid)
        handle.execute(f"XA END {xid}")
        tx["maria"].execute(f"XA COMMIT {xid} ONE PHASE")
    assert tm.recover().clean


def test_a_session_whose_mode_was_changed_is_not_used_again(tm: TransactionManager) -> None:
    for name in ("a", "b"):
        with tm.begin() as tx:
            assert tx["maria"].execute("SELECT @@autocommit").fetchone() == (1,), name
            tx["maria"].execute("SET autocommit=0")
    assert tm.recover().clean


def left_stream(pg: Any, table: str) -> object:
    rows = pg.cursor().stream(f"SELECT 1 FROM generate_series(1, 1000) LEFT JOIN {table} ON true")
    next(rows)
    return rows


def left_copy_in(pg: Any, table: str) -> object:
    copying = pg.cursor().copy(f"COPY {table} FROM STDIN")
    copying.__enter__().write_row((5,))
    return copying


def left_copy_out(pg: Any, table: str) -> object:
    copying = pg.cursor().copy(f"COPY (SELECT id FROM {table}) TO STDOUT")
    return copying, next(iter(copying.__enter__()))


def ended(work: Callable[[], object]) -> BaseException | None:
    """Return what work in a thread of its own raised; an `AssertionError` if it hangs."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60.0)
    assert raised, "it hangs"
    return raised[0]


@pytest.mark.parametrize("fails", [False, True], ids=["commit", "rollback"])
@pytest.mark.parametrize("leave", [left_stream, left_copy_in, left_copy_out])
def test_rows_that_are_still_read_or_copied_end_the_transaction_and_not_the_program(
    tmp_path: Path,
    postgres_server: Server,
    table: str,
    leave: Callable[[Any, str], object],
    fails: bool,
) -> None:
    """They have the connection's lock until they are closed, which nobody does."""
    left = []
    with TransactionManager(
        tmp_path / "tm", {"pg": postgres_server.url}, recovery_interval=None, call_timeout=0.5
    ) as tm:

        def work() -> None:
            with tm.begin(timeout=30 if fails else 1) as tx:
                tx["pg"].execute(f"INSERT INTO {table} VALUES (1)")
                left.append(leave(tx["pg"], table))
                if fails:
                    raise KeyError(fails)

        error = ended(work)
        assert isinstance(error, KeyError if fails else TransactionError)
        if not fails:
            assert "COPY or a stream of rows" in str(error.__cause__)
        assert rows(tm, table) == []
        assert tm.recover().clean


async def test_a_stream_that_a_task_leaves_open_ends_its_transaction_and_not_the_program(
    tmp_path: Path, postgres_server: Server, table: str
) -> None:
    resources = {"pg": postgres_server.url}
    manager = TransactionManager(tmp_path / "tm", resources, recovery_interval=None)
    async with AsyncTransactionManager(manager) as tm:
        with pytest.raises(TransactionError) as raised:
            async with asyncio.timeout(60), tm.begin(timeout=1) as tx:
                pg = await tx.connection("pg", psycopg.AsyncConnection)
                await pg.execute(f"INSERT INTO {table} VALUES (1)")
                left = pg.cursor().stream("SELECT generate_series(1, 1000)")
                await anext(left)
        assert "COPY or a stream of rows" in str(raised.value.__cause__)
        assert await tm.run(lambda tx: tx["pg"].execute("SELECT 1").fetchall()) == [(1,)]
