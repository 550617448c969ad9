"""The engine of the user makes the connections: its settings, its events, its pool."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy import JSON, Column, Integer, MetaData, QueuePool, Table, event, select

from tallystick.errors import InDoubtError, RolledBackError, TransactionUsageError
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.resource import ResourceUnreachable
from tallystick.services.transactions.resources import sqlalchemy as resource
from tests.servers import MARIADB_ENGINE, Server
from tests.services.transactions.test_commit import Crash

Urls = dict[str, str]


@pytest.fixture
def urls(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Urls:
    return {
        "pg": postgres_server.url.replace("postgresql://", "postgresql+psycopg://"),
        "maria": mariadb_server.url.replace("mariadb", MARIADB_ENGINE, 1),
        "lite": f"sqlite:///{tmp_path}/lite.db",
    }


def manager(folder: Path, *engines: sqlalchemy.Engine, **settings: Any) -> TransactionManager:
    names = {f"db{number}": engine for number, engine in enumerate(engines)}
    return TransactionManager(folder / "node", names, recovery_interval=None, **settings)


@pytest.fixture
def engines() -> Iterator[list[sqlalchemy.Engine]]:
    made: list[sqlalchemy.Engine] = []
    yield made
    for engine in made:
        engine.dispose()


VARIABLES = {
    "pg": "SELECT current_setting('application_name')",
    "maria": "SELECT @tally",
}


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("way", ["connect_args", "creator", "do_connect", "connect"])
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_what_the_engine_says_of_connections_holds(
    tmp_path: Path, urls: Urls, engines: list[sqlalchemy.Engine], name: str, way: str
) -> None:
    url = sqlalchemy.make_url(urls[name])
    ours: dict[str, Any] = {
        "pg": {"application_name": way},
        "maria": {"init_command": f"SET @tally = '{way}'"},
    }[name]

    def creator() -> Any:
        if name == "pg":
            return psycopg.connect(host=url.host, port=url.port, user=url.username,
                                   dbname=url.database, **ours)  # fmt: skip
        return pymysql.connect(host=url.host, port=url.port or 0, user=url.username,
                               database=url.database, **ours)  # fmt: skip

    settings: dict[str, Any] = {"connect_args": {"connect_args": ours}, "creator": {}}.get(way, {})
    if way == "creator":
        settings["creator"] = creator
    engine = sqlalchemy.create_engine(url, **settings)
    engines.append(engine)
    if way == "do_connect":
        event.listen(engine, "do_connect", lambda *call: call[3].update(ours))
    if way == "connect":
        statement = f"SET {'application_name' if name == 'pg' else '@tally'} = '{way}'"

        def prepare(raw: Any, _: object) -> None:
            raw.cursor().execute(statement)
            raw.commit()

        event.listen(engine, "connect", prepare)
    with manager(tmp_path, engine) as tm:
        with tm.begin() as tx:
            assert tx["db0"].exec_driver_sql(VARIABLES[name]).scalar() == way
        assert tm.recover().clean


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_isolation_and_serialisers_of_the_engine_hold(
    tmp_path: Path, urls: Urls, engines: list[sqlalchemy.Engine], name: str
) -> None:
    engine = sqlalchemy.create_engine(
        urls[name],
        json_serializer=lambda value: json.dumps(value, default=str),
        json_deserializer=lambda text: json.loads(text, parse_float=Decimal),
    )
    engines.append(engine)
    table = Table("documents", MetaData(), Column("id", Integer, primary_key=True),
                  Column("body", JSON))  # fmt: skip
    table.drop(engine, checkfirst=True)
    table.create(engine)
    serializable = engine.execution_options(isolation_level="SERIALIZABLE")
    with manager(tmp_path, serializable) as tm:
        for key in (1, 2):  # the second time on a connection used before
            with tm.begin() as tx:
                tx["db0"].execute(table.insert(), {"id": key, "body": {"price": Decimal("1.10")}})
                tx["db0"].execute(table.update().values(body={"price": 1.25}))
                assert tx["db0"].scalar(select(table.c.body)) == {"price": Decimal("1.25")}
                assert tx["db0"].get_isolation_level() == "SERIALIZABLE"
    with engine.connect() as plain:
        assert plain.get_isolation_level() != "SERIALIZABLE"
        assert len(plain.execute(select(table)).all()) == 2


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_the_bounds_of_the_pool_hold_and_recovery_works_beside_them(
    tmp_path: Path, urls: Urls, engines: list[sqlalchemy.Engine], name: str
) -> None:
    engine = sqlalchemy.create_engine(urls[name], pool_size=1, max_overflow=0, pool_timeout=0.2)
    engines.append(engine)
    with manager(tmp_path, engine) as tm, tm.begin() as tx:
        tx["db0"].exec_driver_sql("SELECT 1")
        assert engine.pool.checkedout() == 1  # type: ignore[attr-defined]
        other = tm.begin(independent=True)
        with pytest.raises(ResourceUnreachable, match="QueuePool limit"):
            other.enlist("db0")
        other.rollback()
        assert tm.recover().clean
        tx.mark_rollback()
        with pytest.raises(RolledBackError):
            tx.commit()
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_a_connection_that_comes_after_it_was_given_up_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was out of its pool for as long as the error was known, and open in one disposed of."""
    monkeypatch.setattr(resource, "_GRACE_S", 0.0)
    answers = threading.Event()
    made: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        answers.wait()
        made.append(sqlite3.connect(tmp_path / "db", check_same_thread=False))
        return made[-1]

    engine = sqlalchemy.create_engine(
        "sqlite://", creator=connect, poolclass=QueuePool, pool_size=1, pool_timeout=0.01
    )
    with pytest.raises(ResourceUnreachable, match=r"no connection within 0\.01 s") as error:
        resource.EnginePool(engine, lambda _: True).check_out(lambda _: None)
    answers.set()
    limit = time.monotonic() + 30
    while not made or engine.pool.checkedout():  # type: ignore[attr-defined]
        assert time.monotonic() < limit
        time.sleep(0.01)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("SELECT 1")
    assert error.value is not None  # up to here it is known


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_dead_connections_of_the_pool_are_replaced(
    tmp_path: Path, urls: Urls, engines: list[sqlalchemy.Engine], name: str
) -> None:
    engine = sqlalchemy.create_engine(urls[name], pool_size=3)
    engines.append(engine)
    raws = [engine.raw_connection() for _ in range(3)]
    numbers = []
    for raw in raws:
        cursor = raw.cursor()
        cursor.execute("SELECT pg_backend_pid()" if name == "pg" else "SELECT CONNECTION_ID()")
        numbers.append(cursor.fetchone()[0])  # type: ignore[index]
        raw.close()
    engines.append(sqlalchemy.create_engine(urls[name]))
    with engines[-1].connect() as admin:
        for number in numbers:
            kill = f"SELECT pg_terminate_backend({number})" if name == "pg" else f"KILL {number}"
            admin.exec_driver_sql(kill)
    with manager(tmp_path, engine) as tm, tm.begin() as tx:
        assert tx["db0"].exec_driver_sql("SELECT 1").scalar() == 1


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_a_lost_connection_is_not_replaced_under_the_application(
    tmp_path: Path, urls: Urls, engines: list[sqlalchemy.Engine], name: str
) -> None:
    """What it would write on a new connection would be outside of the transaction."""
    engine = sqlalchemy.create_engine(urls[name])
    engines.append(engine)
    with manager(tmp_path, engine) as tm:
        tx = tm.begin()
        connection = tx["db0"]
        raw = connection.connection.driver_connection
        if name == "pg":
            raw.pgconn.finish()
        else:
            raw._force_close()
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            connection.exec_driver_sql("SELECT 1")
        connection.rollback()
        with pytest.raises(sqlalchemy.exc.SQLAlchemyError):
            connection.exec_driver_sql("SELECT 1")
        with pytest.raises((RolledBackError, InDoubtError, TransactionUsageError)):
            tx.commit()


@pytest.mark.postgres
@pytest.mark.mariadb
def test_autocommit_of_the_engine_is_refused(
    tmp_path: Path, urls: Urls, engines: list[sqlalchemy.Engine]
) -> None:
    engine = sqlalchemy.create_engine(urls["pg"], isolation_level="AUTOCOMMIT")
    engines.append(engine)
    with manager(tmp_path, engine) as tm:
        (problem,) = tm.preflight()
        assert "autocommit" in problem.what
        tx = tm.begin()
        with pytest.raises(TransactionUsageError, match='isolation_level="AUTOCOMMIT"'):
            tx.enlist("db0")
        tx.rollback()


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_preflight_names_sessions_that_only_read(
    tmp_path: Path, urls: Urls, engines: list[sqlalchemy.Engine], name: str
) -> None:
    arguments = {
        "pg": {"options": "-c default_transaction_read_only=on"},
        "maria": {"init_command": "SET SESSION TRANSACTION READ ONLY"},
    }
    engines.append(sqlalchemy.create_engine(urls[name], connect_args=arguments[name]))
    with manager(tmp_path, *engines) as tm:
        assert any("read-only" in one.what for one in tm.preflight())


@pytest.mark.parametrize("recipe", [False, True], ids=["legacy", "listener for begin"])
def test_sqlite_works_on_connections_of_the_engine(
    tmp_path: Path, engines: list[sqlalchemy.Engine], recipe: bool
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/lite.db")
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/other.db")
    engines += [engine, other]

    def configure(raw: sqlite3.Connection, _: object) -> None:
        if recipe:
            raw.isolation_level = None
        raw.execute("PRAGMA foreign_keys=ON")

    event.listen(engine, "connect", configure)
    if recipe:
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with manager(tmp_path, engine) as tm:
        with tm.begin() as tx:
            tx["db0"].exec_driver_sql("CREATE TABLE a (id INTEGER PRIMARY KEY)")
            tx["db0"].exec_driver_sql("CREATE TABLE b (a REFERENCES a)")
        with pytest.raises(sqlalchemy.exc.IntegrityError), tm.begin() as tx:
            tx["db0"].exec_driver_sql("INSERT INTO b VALUES (1)")
        with pytest.raises(Crash), tm.begin() as tx:
            tx["db0"].exec_driver_sql("INSERT INTO a VALUES (1)")
            raise Crash
        assert tm.recover().clean
    with engine.connect() as connection:  # the application's own use is as before
        connection.exec_driver_sql("INSERT INTO a VALUES (2)")
        connection.rollback()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM a").scalar() == 0


@pytest.mark.parametrize("text", ["COMMIT", "/* a */ -- b\n ;end transaction", "Rollback", "END;"])
def test_a_statement_that_would_end_a_transaction_of_sqlite_is_refused(
    tmp_path: Path, engines: list[sqlalchemy.Engine], text: str
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/lite.db")
    engines.append(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (id INTEGER)")
    with manager(tmp_path, engine) as tm:
        for commits in (False, True):
            with (
                nullcontext() if commits else pytest.raises(ValueError, match="mine"),
                tm.begin() as tx,
            ):
                tx["db0"].exec_driver_sql("INSERT INTO t VALUES (1)")
                with pytest.raises(TransactionUsageError, match="would have ended the transaction"):
                    tx["db0"].exec_driver_sql(text)
                with contextlib.suppress(KeyError), tx["db0"].begin_nested():
                    tx["db0"].exec_driver_sql("INSERT INTO t VALUES (2)")
                    raise KeyError
                if not commits:
                    raise ValueError("mine")
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT id FROM t").all() == [(1,)]


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("way", ["invalidate", "close of the driver"])
@pytest.mark.parametrize("name", ["pg", "maria", "lite"])
def test_a_connection_that_the_program_has_closed_is_given_back(
    tmp_path: Path, urls: Urls, engines: list[sqlalchemy.Engine], name: str, way: str
) -> None:
    engine = sqlalchemy.create_engine(urls[name], pool_size=1, max_overflow=0, pool_timeout=1)
    engines.append(engine)
    with manager(tmp_path, engine) as tm:
        for _ in range(3):
            with pytest.raises(TransactionUsageError, match="was closed"), tm.begin() as tx:
                connection = tx["db0"]
                connection.exec_driver_sql("SELECT 1")
                if way == "invalidate":
                    connection.invalidate()
                else:
                    connection.connection.driver_connection.close()
        with tm.begin() as tx:
            assert tx["db0"].exec_driver_sql("SELECT 1").scalar() == 1
        assert not engine.pool.checkedout()  # type: ignore[attr-defined]
