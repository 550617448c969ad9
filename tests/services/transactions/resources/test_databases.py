"""The transaction manager over real servers: PostgreSQL, MariaDB, SQLite."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sqlite3
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
import sqlalchemy.orm
from psycopg.rows import dict_row
from sqlalchemy import make_url

from tallystick.errors import (
    InDoubtError,
    RolledBackError,
    TallystickError,
    TransactionUsageError,
)
from tallystick.reconcile.gid import format_gid, parse_gid
from tallystick.records import Xid
from tallystick.services.transactions import (
    AsyncTransactionManager,
    Status,
    Transaction,
    TransactionManager,
)
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.resources.mysql import MySqlResource, branch, statements
from tallystick.services.transactions.resources.postgres import PostgresResource
from tallystick.services.transactions.resources.sqlalchemy import from_engine
from tallystick.services.transactions.xids import FORMAT_ID, XidFactory
from tests.need import MYSQL
from tests.servers import MARIADB_ENGINE, Server, make_postgres, running
from tests.services.transactions.faces import FACES, Face
from tests.services.transactions.model import DurableState, ModelLog
from tests.services.transactions.test_commit import Crash

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

_TABLE = "CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)"
TOO_OLD = {"maria"} if MYSQL else set[str]()
"""What preflight may warn of: a MySQL before 8.0.29 is the only one that can be had here."""
_ids = itertools.count(1)


class Bank:
    """One account in each of three databases."""

    def __init__(self, folder: Path, postgres: Server, mariadb: Server) -> None:
        self.account = next(_ids)
        self.folder = folder
        self.state = DurableState()
        self.urls = {
            "pg": postgres.url,
            "maria": mariadb.url,
            "lite": f"sqlite:///{folder}/lite.db",
        }
        with psycopg.connect(postgres.url) as pg:
            pg.execute(_TABLE)
            pg.execute("INSERT INTO accounts VALUES (%s, 0)", (self.account,))
        with self.maria() as maria, maria.cursor() as cursor:
            cursor.execute(_TABLE)
            cursor.execute("INSERT INTO accounts VALUES (%s, 0)", (self.account,))
            maria.commit()
        with sqlite3.connect(folder / "lite.db") as lite:
            lite.execute(_TABLE)
            lite.execute("INSERT INTO accounts VALUES (?, 0)", (self.account,))

    def maria(self) -> Any:
        adapted = MySqlResource.from_url("maria", self.urls["maria"])
        return adapted.connect()

    def manager(
        self, *names: str, face: Face = FACES["blocking"], **settings: Any
    ) -> TransactionManager:
        return face(
            TransactionManager(
                self.folder / "coordinator",
                {name: self.urls[name] for name in names},
                log=ModelLog(self.state),
                orphan_interval=0.0,
                recovery_interval=None,
                **settings,
            )
        )

    def pay(self, tx: Any, name: str, amount: int) -> None:
        mark = "?" if name == "lite" else "%s"
        tx[name].execute(
            f"UPDATE accounts SET balance = balance + {mark} WHERE id = {mark}",
            (amount, self.account),
        )

    def balances_of(self, name: str) -> int:
        """The balance in PostgreSQL or MariaDB; the other one is not asked."""
        query = f"SELECT balance FROM accounts WHERE id = {self.account}"
        if name == "pg":
            with psycopg.connect(self.urls["pg"]) as pg:
                row = pg.execute(query).fetchone()
                assert row is not None
                return int(row[0])
        with self.maria() as maria, maria.cursor() as cursor:
            cursor.execute(query)
            return int(cursor.fetchone()[0])

    def balances(self) -> dict[str, int]:
        query = f"SELECT balance FROM accounts WHERE id = {self.account}"
        with psycopg.connect(self.urls["pg"]) as pg, self.maria() as maria:
            with maria.cursor() as cursor:
                cursor.execute(query)
                in_maria = cursor.fetchone()[0]
            in_pg = pg.execute(query).fetchone()
            assert in_pg is not None
            in_lite = sqlite3.connect(self.folder / "lite.db").execute(query).fetchone()[0]
            return {"pg": in_pg[0], "maria": in_maria, "lite": in_lite}


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("names", [("pg", "maria"), ("pg", "maria", "lite"), ("pg",), ("lite",)])
def test_commit_reaches_every_database(
    bank: Bank, names: tuple[str, ...], server_face: Face
) -> None:
    with bank.manager(*names, face=server_face) as tm:
        assert {one.resource for one in tm.preflight()} <= TOO_OLD
        for _ in range(2):  # the second transaction runs over connections used before
            with tm.begin() as tx:
                for name in names:
                    bank.pay(tx, name, 5)
        assert tm.recover().clean
    assert bank.balances() == {name: 10 if name in names else 0 for name in bank.balances()}


def test_a_server_that_takes_one_statement_at_a_time_commits_with_its_outcome(
    bank: Bank, server_face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MySQL does: MariaDB alone is sent several before an answer is read."""
    monkeypatch.setattr(branch, "takes_several", lambda _: False)
    asked, ask = list[str](), statements.ask

    def note(connection: Any, statement: str) -> None:
        asked.append(" ".join(statement.split()[:2]))
        ask(connection, statement)

    monkeypatch.setattr(branch, "ask", note)
    with bank.manager("pg", "maria", face=server_face) as tm, tm.begin() as tx:
        bank.pay(tx, "pg", -5)
        bank.pay(tx, "maria", 5)
    assert asked == ["XA START", "INSERT INTO", "XA END", "XA PREPARE", "XA COMMIT"]
    assert bank.balances() == {"pg": -5, "maria": 5, "lite": 0}


@pytest.mark.parametrize("names", [("pg", "maria"), ("pg", "maria", "lite"), ("maria",)])
def test_rollback_reaches_every_database(
    bank: Bank, names: tuple[str, ...], server_face: Face
) -> None:
    with bank.manager(*names, face=server_face) as tm:
        with pytest.raises(ZeroDivisionError), tm.begin() as tx:
            for name in names:
                bank.pay(tx, name, 5)
            _ = 1 // 0
        with tm.begin() as tx:
            bank.pay(tx, names[0], 1)
    assert bank.balances()[names[0]] == 1
    assert sum(bank.balances().values()) == 1


def test_a_failed_statement_that_was_swallowed_still_rolls_everything_back(
    bank: Bank, server_face: Face
) -> None:
    """PostgreSQL answers the PREPARE of a failed transaction with a silent rollback."""
    with bank.manager("pg", "maria", face=server_face) as tm:
        with pytest.raises(RolledBackError, match="a statement failed"), tm.begin() as tx:
            bank.pay(tx, "maria", 5)
            bank.pay(tx, "pg", 5)
            with pytest.raises(psycopg.errors.UndefinedTable):
                tx["pg"].execute("SELECT * FROM nowhere")
        assert tm.recover().clean
    assert set(bank.balances().values()) == {0}


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", [("pg", "maria"), ("pg", "maria", "lite")])
def test_whole_or_absent_when_the_coordinator_stops_at_any_step(
    bank: Bank, names: tuple[str, ...], server_face: Face
) -> None:
    class Stop(BaseException):
        pass

    for at in itertools.count():
        steps = itertools.count()

        def stop(_: str, steps: itertools.count[int] = steps, at: int = at) -> None:
            if next(steps) == at:
                raise Stop

        before = bank.balances()
        tm = bank.manager(*names, on_step=stop, face=server_face)
        try:
            with tm.begin() as tx:
                for name in names:
                    bank.pay(tx, name, 1)
        except Stop:
            pass
        else:
            break
        finally:
            tm.close()
        with bank.manager(*names, face=server_face) as tm:
            assert tm.recover().clean, at
        moved = {after - before[name] for name, after in bank.balances().items() if name in names}
        assert moved in ({0}, {1}), f"stopped at step {at}"
    assert at > 6


@pytest.mark.long
def test_recovery_waits_for_a_server_that_is_down(
    tmp_path: Path, mariadb_server: Server, server_face: Face
) -> None:
    with running(make_postgres()) as server:
        bank = Bank(tmp_path, server, mariadb_server)

        def kill(step: str) -> None:
            if step == "after decision":
                server.kill()

        with bank.manager("pg", "maria", on_step=kill, face=server_face) as tm:
            with tm.begin() as tx:
                bank.pay(tx, "pg", 3)
                bank.pay(tx, "maria", 3)
            report = tm.recover()
            assert list(report.unreachable) == ["pg"]
            assert report.open_decisions == 1
            server.start()
            assert tm.recover().clean
        assert bank.balances() == {"pg": 3, "maria": 3, "lite": 0}


@contextmanager
def _as_a_standby(bank: Bank) -> Iterator[None]:
    """Have PostgreSQL seem a standby, which lists no prepared transaction, as real ones do."""
    address = bank.urls["pg"]
    with psycopg.connect(address, autocommit=True) as pg:
        pg.execute("CREATE SCHEMA follower")
        pg.execute(
            "CREATE FUNCTION follower.pg_is_in_recovery() RETURNS boolean LANGUAGE sql "
            "AS 'SELECT true'; CREATE VIEW follower.pg_prepared_xacts AS "
            "SELECT * FROM pg_catalog.pg_prepared_xacts WHERE false"
        )
        bank.urls["pg"] = f"{address}?options=-csearch_path%3Dfollower,pg_catalog,public"
        try:
            yield
        finally:
            bank.urls["pg"] = address
            pg.execute("DROP SCHEMA follower CASCADE")


@contextmanager
def _as_a_replica(bank: Bank) -> Iterator[None]:
    with bank.maria() as maria, maria.cursor() as cursor:
        cursor.execute("SET GLOBAL read_only = 1")
        try:
            yield
        finally:
            cursor.execute("SET GLOBAL read_only = 0")


@pytest.mark.parametrize(("name", "follows"), [("pg", _as_a_standby), ("maria", _as_a_replica)])
def test_a_server_that_follows_another_is_not_asked_for_branches_in_doubt(
    bank: Bank, name: str, follows: Callable[[Bank], AbstractContextManager[None]]
) -> None:
    """The row of the last resource, which is the decision, would be deleted."""

    def stop(step: str) -> None:
        if step == "after last lite":
            raise Crash(step)

    def open_again() -> TransactionManager:
        return bank.manager(name, "lite")

    tm = bank.manager(name, "lite", on_step=stop)
    with pytest.raises(Crash), tm.begin() as tx:
        bank.pay(tx, name, 5)
        bank.pay(tx, "lite", -5)
    tm.close()
    with follows(bank), open_again() as tm:
        report = tm.recover()
        assert not report.clean
        assert "its primary" in report.unreachable[name]
    with open_again() as tm:
        assert len(tm.recover().committed) == 1
    assert (bank.balances()[name], bank.balances()["lite"]) == (5, -5)


def test_preflight_names_what_is_not_set_up_and_the_error_shows_it(tmp_path: Path) -> None:
    with running(make_postgres(max_prepared_transactions="0")) as server:
        resource = adapt("pg", server.url)
        (problem,) = resource.preflight()
        resource.close()
        resources = {"pg": server.url, "lite": f"sqlite:///{tmp_path}/lite"}
        with (
            TransactionManager(tmp_path / "tm", resources) as tm,
            pytest.raises(RolledBackError) as caught,
            tm.begin() as tx,
        ):
            for name in resources:
                tx[name].execute("CREATE TABLE things (id INTEGER)")
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.startswith(
        "psycopg.errors.ObjectNotInPrerequisiteState: prepared transactions are"
    )
    assert "disabled\nHINT:  Set" in shown
    assert "disabled; HINT:  Set" in str(caught.value)
    assert shown.count("Traceback") == 1
    assert shown.count("  File") <= 7, shown
    assert "max_prepared_transactions is 0" in problem.what
    assert "postgresql.conf" in problem.mend
    assert tmp_path.is_dir()


def test_foreign_branches_are_seen_with_all_their_bytes(bank: Bank) -> None:
    foreign = Xid(1114926712, b"\xffnode\x00'\\" + bytes(range(200, 220)), b"\x00\x80b")
    for name in ("pg", "maria"):
        resource = adapt(name, bank.urls[name])
        _leave_prepared(bank, name, foreign)
        assert foreign in resource.in_doubt()
        resource.rollback(foreign)
        assert foreign not in resource.in_doubt()
        resource.close()


def _leave_prepared(bank: Bank, name: str, xid: Xid) -> None:
    if name == "pg":
        with psycopg.connect(bank.urls["pg"], autocommit=True) as pg:
            pg.execute("BEGIN")
            pg.execute("UPDATE accounts SET balance = 7 WHERE id = %s", (bank.account,))
            pg.execute(f"PREPARE TRANSACTION '{format_gid(xid)}'")
        return
    branch = MySqlResource.from_url("maria", bank.urls["maria"]).begin(xid)
    branch.handle.execute("UPDATE accounts SET balance = 7 WHERE id = %s", (bank.account,))
    branch.prepare()
    branch.close()


def is_at_work(bank: Bank, statement: str) -> bool:
    """Tell whether the server of MariaDB is at work on a statement."""
    with bank.maria() as maria, maria.cursor() as cursor:
        cursor.execute("SHOW FULL PROCESSLIST")
        return any(row[7] == statement for row in cursor.fetchall())


SLOW = {
    "pg": "SELECT 7 FROM pg_sleep(0.5)",
    "maria": "SELECT 6 + GET_LOCK('slow', 60)",
    "lite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000) "
    "SELECT max(i) * 0 + 7 FROM n",
}


@contextmanager
def under_way(
    bank: Bank, name: str, execute: Callable[[str], Any], pool: Executor
) -> Iterator[tuple[Future[Any], Callable[[], None]]]:
    """Run a slow statement in another thread; give its answer to come, and what lets it end.

    The one of MariaDB is under way from the start, and waits until it is let.
    """
    with bank.maria() as holder, holder.cursor() as cursor, ExitStack() as kept:
        if name == "maria":
            cursor.execute("DO GET_LOCK('slow', 0)")
            kept.callback(lambda: cursor.execute("DO RELEASE_ALL_LOCKS()"))
        first = pool.submit(lambda: execute(SLOW[name]).fetchone()[0])
        while name == "maria" and not is_at_work(bank, SLOW[name]):
            assert not first.done()
        yield first, kept.close


Reach = Callable[[TransactionManager, str, str], Callable[[Any], Any]]


@pytest.fixture
def reach(bank: Bank) -> Iterator[Reach]:
    """Has a database be reached by its URL or by an engine; returns what runs statements."""
    with ExitStack() as engines:

        def reached(tm: TransactionManager, name: str, way: str) -> Callable[[Any], Any]:
            if way == "url":
                return lambda handle: handle.execute
            url = bank.urls[name].replace("postgresql", "postgresql+psycopg")
            engine = sqlalchemy.create_engine(url.replace("mariadb", MARIADB_ENGINE))
            engines.callback(engine.dispose)
            tm.resources[name].close()
            tm.resources[name] = resource = from_engine(name, engine)
            engines.callback(resource.close)
            return lambda handle: handle.exec_driver_sql

        yield reached


@pytest.mark.parametrize("way", ["url", "engine"])
@pytest.mark.parametrize("name", ["pg", "maria", "lite"])
def test_a_statement_of_a_second_thread_waits_for_the_first_or_is_refused(
    bank: Bank, reach: Reach, name: str, way: str
) -> None:
    with bank.manager(name, "pg") as tm, ThreadPoolExecutor(1) as pool:
        of = reach(tm, name, way)
        with tm.begin() as tx:
            execute = of(tx[name])
            execute(f"UPDATE accounts SET balance = 1 WHERE id = {bank.account}")
            with under_way(bank, name, execute, pool) as (first, let_end):
                if name == "maria":
                    with pytest.raises(TransactionUsageError, match="two threads"):
                        execute("SELECT 8")
                else:
                    assert tuple(execute("SELECT 8").fetchone()) == (8,)
                let_end()
                assert first.result() == 7
    assert bank.balances()[name] == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["url", "engine"])
@pytest.mark.parametrize("name", ["pg", "maria", "lite"])
def test_the_end_of_a_transaction_never_gets_the_answer_to_a_statement_of_another_thread(
    bank: Bank, reach: Reach, name: str, way: str
) -> None:
    other = "maria" if name == "pg" else "pg"
    with bank.manager(name, other) as tm, ThreadPoolExecutor(1) as pool:
        of = reach(tm, name, way)
        tx = tm.begin()
        execute = of(tx[name])
        execute(f"UPDATE accounts SET balance = 1 WHERE id = {bank.account}")
        bank.pay(tx, other, 1)
        with under_way(bank, name, execute, pool) as (first, let_end):
            soon = threading.Timer(0.5, let_end)
            soon.start()
            try:
                tx.commit()
            except TallystickError:
                assert tx.status is not Status.COMMITTED
            soon.join()
            first.exception()
        assert tm.recover().clean
        found = bank.balances()
        assert found[name] == found[other] == (tx.status is Status.COMMITTED)
        with tm.begin() as tx:
            assert of(tx[name])("SELECT 9").fetchone()[0] == 9


async def test_the_end_of_a_transaction_of_tasks_waits_for_a_statement_of_another_task(
    bank: Bank,
) -> None:
    async with AsyncTransactionManager(bank.manager("pg", "maria")) as tm:
        for names in (("pg",), ("pg", "maria")):
            async with tm.begin() as tx:
                connection = await tx.enlist("pg")
                for name in names:
                    statement = f"UPDATE accounts SET balance = 1 WHERE id = {bank.account}"
                    await tx.execute(name, statement)
                slow = asyncio.create_task(connection.execute(SLOW["pg"]))
                while not connection.lock.locked():
                    await asyncio.sleep(0)
            assert await (await slow).fetchone() == (7,)
        assert (await tm.recover()).clean
    assert bank.balances() == {"pg": 1, "maria": 1, "lite": 0}


def test_our_ids_are_spelled_as_psycopg_spells_them() -> None:
    ids = XidFactory("orders-1")
    xid = ids.branch(ids.gtrid())
    theirs = psycopg.Xid.from_parts(xid.format_id, xid.gtrid.decode(), xid.bqual.decode())
    assert format_gid(xid) == str(theirs)
    assert parse_gid(format_gid(xid)) == xid


@pytest.mark.parametrize(
    "gid",
    [
        "",
        "x",
        "1_2",
        "django_1_2",
        "5_a_b",
        "5_YQ==_Yg",
        "_YQ==_YQ==",
        "²_YQ==_YQ==",
        "--5_YQ==_YQ==",
    ],
)
def test_texts_that_are_no_xa_id_are_left_out(gid: str) -> None:
    assert parse_gid(gid) is None


def test_autocommit_connections_are_refused(bank: Bank, server_face: Face) -> None:
    resource = PostgresResource("pg", lambda: psycopg.connect(bank.urls["pg"], autocommit=True))
    with bank.manager(face=server_face) as tm:
        tm.resources["pg"] = resource
        with pytest.raises(TransactionUsageError, match="autocommit"), tm.begin() as tx:
            tx["pg"]


def test_a_handle_cannot_end_its_branch(bank: Bank, server_face: Face) -> None:
    with bank.manager("maria", "pg", face=server_face) as tm, tm.begin() as tx:
        with pytest.raises(TransactionUsageError, match="would break the transaction"):
            tx["maria"].commit()
        with pytest.raises(psycopg.ProgrammingError):
            tx["pg"].commit()
        handle = tx["maria"]
        tx.rollback()
        with pytest.raises(TransactionUsageError, match="is over"):
            handle.execute("SELECT 1")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["pg", "maria", "lite"])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_handle_and_its_cursors_are_dead_after_their_transaction(
    bank: Bank, server_face: Face, name: str, ends: str
) -> None:
    with bank.manager(name, face=server_face) as tm:
        mark = "?" if name == "lite" else "%s"
        write = f"UPDATE accounts SET balance = 99 WHERE id = {mark}", (bank.account,)
        with tm.begin() as tx:
            handle = tx[name]
            cursors = [handle.cursor(), handle.execute("SELECT 1")]
            getattr(tx, ends)()
        refusals = TransactionUsageError, sqlite3.ProgrammingError, pymysql.ProgrammingError

        def call(use: Any) -> None:
            answer = use.execute(*write)
            if inspect.iscoroutine(answer):  # of a cursor for tasks
                asyncio.run(answer)

        for use in (handle, *cursors):
            with pytest.raises(refusals, match=r"is over|closed"):
                call(use)
        with tm.begin() as other:  # over the same session
            bank.pay(other, name, 1)
            with pytest.raises(refusals, match=r"is over|closed"):
                call(cursors[0])
    assert bank.balances()[name] == 1


def test_read_only_branches_take_no_part(bank: Bank, server_face: Face) -> None:
    reading = PostgresResource(
        "pg", lambda: psycopg.connect(bank.urls["pg"]), detect_read_only=True
    )
    with bank.manager("maria", face=server_face) as tm:
        tm.resources["pg"] = reading
        with tm.begin() as tx:
            tx["pg"].execute("SELECT 1")
            bank.pay(tx, "maria", 2)
        assert tm.statistics.decisions == 0
    assert bank.balances()["maria"] == 2


def test_a_lost_connection_before_the_decision_rolls_back(bank: Bank, server_face: Face) -> None:
    with bank.manager("pg", "maria", face=server_face) as tm:
        with pytest.raises(RolledBackError), tm.begin() as tx:
            bank.pay(tx, "maria", 5)
            bank.pay(tx, "pg", 5)
            _terminate(bank, tx["pg"].info.backend_pid)
        assert tm.recover().clean
        with tm.begin() as tx:
            bank.pay(tx, "pg", 1)
    assert bank.balances() == {"pg": 1, "maria": 0, "lite": 0}


def test_a_prepare_refused_while_the_other_database_prepares_rolls_both_back(
    bank: Bank, server_face: Face
) -> None:
    """PostgreSQL checks deferred constraints at PREPARE, which is under way by then."""
    with psycopg.connect(bank.urls["pg"]) as pg:
        pg.execute(f"CREATE TABLE once{bank.account} (id INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with bank.manager("pg", "maria", face=server_face) as tm:
        with pytest.raises(psycopg.errors.UniqueViolation), tm.begin() as tx:
            bank.pay(tx, "maria", 5)
            for _ in range(2):
                tx["pg"].execute(f"INSERT INTO once{bank.account} VALUES (1)")
        assert not _in_doubt(tm)
    assert bank.balances()["maria"] == 0


def test_a_prepare_under_way_is_undone_when_the_other_database_is_lost(
    bank: Bank, server_face: Face
) -> None:
    with bank.manager("pg", "maria", face=server_face) as tm:
        with pytest.raises(RolledBackError), tm.begin() as tx:
            bank.pay(tx, "pg", 5)
            bank.pay(tx, "maria", 5)
            _kill(bank, _session(tx))
        assert not _in_doubt(tm)
        with tm.begin() as tx:
            bank.pay(tx, "pg", 1)
    assert bank.balances() == {"pg": 1, "maria": 0, "lite": 0}


def _session(tx: Transaction) -> int:
    return int(tx["maria"].execute("SELECT CONNECTION_ID()").fetchone()[0])


def _kill(bank: Bank, session: int) -> None:
    with bank.maria() as admin, admin.cursor() as cursor:
        cursor.execute(f"KILL {session}")


def _in_doubt(tm: TransactionManager) -> list[Xid]:
    return [xid for one in tm.resources.values() for xid in one.in_doubt()]


def test_a_connection_that_died_while_idle_is_replaced(bank: Bank, server_face: Face) -> None:
    with bank.manager("pg", "maria", face=server_face) as tm:
        with tm.begin() as tx:
            bank.pay(tx, "pg", 1)
            bank.pay(tx, "maria", 1)
            backend, session = tx["pg"].info.backend_pid, _session(tx)
        _terminate(bank, backend)
        _kill(bank, session)
        with tm.begin() as tx:
            bank.pay(tx, "pg", 1)
            bank.pay(tx, "maria", 1)
    assert bank.balances() == {"pg": 2, "maria": 2, "lite": 0}


@pytest.mark.parametrize("names", [("pg", "maria"), ("pg",)], ids=["both", "one phase"])
def test_a_connection_that_the_application_closed_is_named(
    bank: Bank, server_face: Face, names: tuple[str, ...]
) -> None:
    with bank.manager("pg", "maria", face=server_face) as tm:
        with pytest.raises(TransactionUsageError, match="'pg' was closed"), tm.begin() as tx:
            for name in names:
                bank.pay(tx, name, 5)
            tx["pg"].close()
        assert not _in_doubt(tm)
    assert set(bank.balances().values()) == {0}


def test_an_id_longer_than_the_server_takes_is_refused() -> None:
    assert len(format_gid(Xid(1, bytes(64), bytes(64)))) < 199
    with pytest.raises(TransactionUsageError, match="too long for PostgreSQL"):
        format_gid(Xid(FORMAT_ID, bytes(80), bytes(64)))


def test_a_one_phase_commit_whose_answer_is_lost_is_in_doubt(bank: Bank, server_face: Face) -> None:
    def cut(step: str) -> None:
        if step == "before one-phase pg":
            _terminate(bank, backend)

    with (
        bank.manager("pg", on_step=cut, face=server_face) as tm,
        pytest.raises(InDoubtError),
        tm.begin() as tx,
    ):
        bank.pay(tx, "pg", 5)
        backend = tx["pg"].info.backend_pid


def _terminate(bank: Bank, backend: int) -> None:
    with psycopg.connect(bank.urls["pg"]) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))


# -- SQLAlchemy -------------------------------------------------------------------------------


def test_engines_and_sessions_take_part(bank: Bank) -> None:
    engines = {
        "pg": sqlalchemy.create_engine(bank.urls["pg"].replace("ql://", "ql+psycopg://")),
        "maria": sqlalchemy.create_engine(bank.urls["maria"].replace("mariadb", MARIADB_ENGINE, 1)),
        "lite": sqlalchemy.create_engine(bank.urls["lite"]),
    }
    statement = sqlalchemy.text("UPDATE accounts SET balance = balance + 4 WHERE id = :id")
    values = {"id": bank.account}
    with TransactionManager(
        bank.folder / "coordinator", engines, log=ModelLog(bank.state), recovery_interval=None
    ) as tm:
        for _ in range(2):
            with tm.begin() as tx:
                tx["pg"].execute(statement, values)
                with sqlalchemy.orm.Session(bind=tx["maria"]) as session:
                    session.execute(statement, values)
                tx["lite"].execute(statement, values)
        with pytest.raises(KeyError), tm.begin() as tx:
            tx["pg"].execute(statement, values)
            tx["lite"].execute(statement, values)
            raise KeyError
    for engine in engines.values():  # they are the application's
        engine.dispose()
    assert bank.balances() == {"pg": 8, "maria": 8, "lite": 8}


def test_an_engine_without_two_phase_commit_is_refused() -> None:
    with pytest.raises(TransactionUsageError, match="no two-phase commit through sqlite"):
        from_engine("x", sqlalchemy.create_engine("sqlite://"))


def test_connections_of_the_application_may_give_dictionaries(bank: Bank) -> None:
    url = make_url(bank.urls["maria"])

    def pg() -> psycopg.Connection[Any]:
        return psycopg.connect(bank.urls["pg"], row_factory=dict_row)

    def maria() -> Any:
        return pymysql.connect(
            host=url.host, port=url.port or 0, user=url.username, database=url.database,
            cursorclass=pymysql.cursors.DictCursor,
        )  # fmt: skip

    resources: dict[str, Any] = {
        "pg": PostgresResource("pg", pg),
        "maria": MySqlResource("maria", maria),
    }
    with TransactionManager(bank.folder / "node", resources, recovery_interval=None) as tm:
        assert {one.resource for one in tm.preflight()} <= TOO_OLD
        with tm.begin() as tx:
            bank.pay(tx, "pg", 3)
            bank.pay(tx, "maria", 3)
            rows = tx["pg"].execute("SELECT 1 AS one"), tx["maria"].execute("SELECT 1 AS one")
            assert [row.fetchone() for row in rows] == [{"one": 1}, {"one": 1}]
        assert tm.recover().clean
    assert bank.balances() == {"pg": 3, "maria": 3, "lite": 0}
