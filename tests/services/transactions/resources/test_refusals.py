"""What a database says at the end of a transaction reaches the caller as what it is."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tallystick.errors import InDoubtError, RolledBackError
from tallystick.services.transactions import AsyncTransactionManager, TransactionManager
from tallystick.services.transactions.integrations.sessions import SessionFactory
from tallystick.services.transactions.resources.sqlalchemy_async import AsyncDatabase
from tests.servers import Server
from tests.services.transactions.faces import Face

_names = itertools.count(1)


@pytest.fixture
def table(postgres_server: Server) -> str:
    """A table with a deferred rule of each kind."""
    name = f"refusals{next(_names)}"
    with psycopg.connect(postgres_server.url) as pg:
        pg.execute(f"CREATE TABLE {name} (id int UNIQUE DEFERRABLE INITIALLY DEFERRED, what text)")
        pg.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
            "IF NEW.what = 'rule' THEN RAISE 'a rule of the shop'; END IF; "
            "IF NEW.what = 'data' THEN PERFORM 1 / 0; END IF; "
            "IF NEW.what = 'slow' THEN PERFORM pg_sleep(9); END IF; "
            "IF NEW.what = 'conflict' THEN RAISE SQLSTATE '40001'; END IF; "
            "RETURN NULL; END$$"
        )
        pg.execute(
            f"CREATE CONSTRAINT TRIGGER rule AFTER INSERT ON {name} "
            f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {name}()"
        )
    return name


REFUSED: dict[str, tuple[list[str], type[Exception]]] = {
    "unique": (["(1, '')", "(1, '')"], psycopg.errors.UniqueViolation),
    "rule": (["(1, 'rule')"], psycopg.errors.RaiseException),
    "data": (["(1, 'data')"], psycopg.errors.DivisionByZero),
}
OTHERS = pytest.mark.parametrize("others", [(), ("lite",), ("other",)], ids=str)


def manager(folder: Path, url: str, face: Face, **resources: Any) -> Any:
    return face(
        TransactionManager(
            folder / "tm",
            {"pg": url, "other": url, "lite": f"sqlite:///{folder}/lite.db"} | resources,
            recovery_interval=None,
        )
    )


def insert(tm: Any, table: str, rows: list[str], others: tuple[str, ...]) -> None:
    with tm.begin() as tx:
        for other in others:
            tx[other].execute("CREATE TEMPORARY TABLE t (i int)" if other == "lite" else "SELECT 1")
        for row in rows:
            tx["pg"].execute(f"INSERT INTO {table} VALUES {row}")


def count(url: str, table: str) -> int:
    with psycopg.connect(url) as pg:
        (found,) = pg.execute(f"SELECT count(*) FROM {table}").fetchone() or (-1,)
        return int(found)


@pytest.mark.postgres
@OTHERS
@pytest.mark.parametrize("what", REFUSED)
def test_a_deferred_rule_reaches_the_caller_as_the_driver_s_own_error(
    tmp_path: Path,
    postgres_server: Server,
    table: str,
    what: str,
    others: tuple[str, ...],
    server_face: Face,
) -> None:
    rows, error = REFUSED[what]
    with manager(tmp_path, postgres_server.url, server_face) as tm:
        for _ in range(2):  # the second one over the same session
            with pytest.raises(error):
                insert(tm, table, rows, others)
        assert tm.recover().clean
        insert(tm, table, ["(2, '')"], others)
    assert count(postgres_server.url, table) == 1


def cancel_in_sleep(url: str, table: str) -> threading.Thread:
    """Cancel what a session does with the table once it sleeps; in a thread."""

    def cancel() -> None:
        with psycopg.connect(url, autocommit=True) as admin:
            query = (
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' "
                "AND pid IN (SELECT pid FROM pg_locks WHERE relation = %s::regclass)"
            )
            while admin.execute(query, (table,)).fetchone() is None:
                time.sleep(0.01)

    thread = threading.Thread(target=cancel)
    thread.start()
    return thread


@pytest.mark.postgres
@OTHERS
@pytest.mark.parametrize(("what", "retryable"), [("slow", None), ("conflict", True)])
def test_a_commit_that_the_server_broke_off_is_rolled_back_and_not_in_doubt(
    tmp_path: Path,
    postgres_server: Server,
    table: str,
    what: str,
    retryable: bool | None,
    others: tuple[str, ...],
    server_face: Face,
) -> None:
    with manager(tmp_path, postgres_server.url, server_face) as tm:
        thread = cancel_in_sleep(postgres_server.url, table) if what == "slow" else None
        with pytest.raises(RolledBackError) as caught:
            insert(tm, table, [f"(1, '{what}')"], others)
        if thread is not None:
            thread.join()
        assert caught.value.retryable is retryable
        assert tm.recover().clean
    assert count(postgres_server.url, table) == 0


@pytest.mark.postgres
@pytest.mark.parametrize("others", [(), ("other",)], ids=str)
def test_a_commit_during_which_the_session_is_ended_says_that_it_may_not_be_repeated(
    tmp_path: Path, postgres_server: Server, table: str, others: tuple[str, ...], server_face: Face
) -> None:
    def cut(step: str) -> None:
        if step in ("before one-phase pg", "before first phase"):
            with psycopg.connect(postgres_server.url) as admin:
                admin.execute("SELECT pg_terminate_backend(%s, 5000)", pids)

    pids: list[int] = []
    with server_face(
        TransactionManager(
            tmp_path / "tm",
            {"pg": postgres_server.url, "other": postgres_server.url},
            recovery_interval=None,
            on_step=cut,
        )
    ) as tm:
        with pytest.raises((InDoubtError, RolledBackError)) as caught, tm.begin() as tx:
            for other in others:
                tx[other].execute("SELECT 1")
            tx["pg"].execute(f"INSERT INTO {table} VALUES (1, '')")
            pids.append(tx["pg"].info.backend_pid)
        wanted = (RolledBackError, True) if others else (InDoubtError, None)
        assert (type(caught.value), caught.value.retryable) == wanted


@pytest.mark.postgres
@pytest.mark.parametrize("others", [(), ("lite",)], ids=str)
@pytest.mark.parametrize("what", REFUSED)
def test_an_engine_s_branch_raises_what_the_engine_raises(
    tmp_path: Path, postgres_server: Server, table: str, what: str, others: tuple[str, ...]
) -> None:
    rows, error = REFUSED[what]
    url = sa.make_url(postgres_server.url)
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"))
    resources: dict[str, Any] = {"pg": engine, "lite": f"sqlite:///{tmp_path}/lite.db"}
    with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as tm:
        with pytest.raises(sa.exc.DBAPIError) as caught, tm.begin() as tx:
            for other in others:
                tx[other].execute("CREATE TABLE t (i int)")
            for row in rows:
                tx["pg"].exec_driver_sql(f"INSERT INTO {table} VALUES {row}")
        assert isinstance(caught.value.orig, error)
        assert isinstance(caught.value, sa.exc.IntegrityError) == (what == "unique")
    engine.dispose()


@pytest.mark.postgres
@pytest.mark.parametrize("others", [(), ("lite",)], ids=str)
def test_an_asynchronous_engine_s_branch_raises_what_the_engine_raises(
    tmp_path: Path, postgres_server: Server, table: str, others: tuple[str, ...]
) -> None:
    url = sa.make_url(postgres_server.url)

    async def work() -> None:
        engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
        recovery = sa.create_engine(url.set(drivername="postgresql+psycopg"))
        resources: dict[str, Any] = {
            "pg": AsyncDatabase(engine, recovery=recovery),
            "lite": f"sqlite:///{tmp_path}/lite.db",
        }
        manager = TransactionManager(tmp_path / "tm", resources, recovery_interval=None)
        async with AsyncTransactionManager(manager) as tm:
            with pytest.raises(sa.exc.IntegrityError):
                async with tm.begin() as tx:
                    for other in others:
                        await tx.execute(other, "CREATE TABLE t (i int)")
                    pg = await tx.connection("pg", AsyncConnection)
                    for _ in range(2):
                        await pg.exec_driver_sql(f"INSERT INTO {table} VALUES (1, '')")
        await engine.dispose()
        recovery.dispose()

    asyncio.run(work())
    assert count(postgres_server.url, table) == 0


def test_a_deferred_reference_of_sqlite_reaches_the_caller(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lite.db?foreign_keys=on"
    with TransactionManager(tmp_path / "tm", {"lite": url}, recovery_interval=None) as tm:
        with tm.begin() as tx:
            tx["lite"].execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
            tx["lite"].execute("CREATE TABLE b (a REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"), tm.begin() as tx:
            tx["lite"].execute("INSERT INTO b VALUES (42)")
        with tm.begin() as tx:
            assert tx["lite"].execute("SELECT * FROM b").fetchall() == []


class Base(DeclarativeBase):
    """Tables of sessions."""


class Part(Base):
    """A row whose name is unique."""

    __tablename__ = "refused_parts"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


def twice(tx: Any, sessions: SessionFactory[Any]) -> None:
    for number in (1, 2):
        sessions(tx).add(Part(id=number, name="a"))


def prepared(tx: Any, sessions: SessionFactory[Any]) -> None:
    twice(tx, sessions)
    tx.prepare()


@pytest.mark.parametrize("use", [twice, prepared])
def test_the_flush_before_the_first_phase_raises_what_the_session_raises(
    tmp_path: Path, use: Callable[..., None]
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/p.db")
    Base.metadata.create_all(engine)
    with TransactionManager(tmp_path / "tm", {"parts": engine}, recovery_interval=None) as tm:
        with pytest.raises(sa.exc.IntegrityError), tm.begin() as tx:
            use(tx, SessionFactory("parts"))
        with tm.begin() as tx:
            assert tx["parts"].execute(sa.select(Part)).all() == []
    engine.dispose()


def test_a_hook_that_fails_still_rolls_back_with_its_error_as_the_cause(tmp_path: Path) -> None:
    with TransactionManager(tmp_path / "tm", {}, recovery_interval=None) as tm:
        with pytest.raises(RolledBackError) as caught, tm.begin() as tx:
            tx.before_commit(lambda: int("x"))
        assert isinstance(caught.value.__cause__, ValueError)
