"""What a transaction changes in a session does not reach the next one, nor ours the application."""

from __future__ import annotations

import itertools
import sqlite3
import time
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from tallystick.services.transactions import AsyncTransactionManager, TransactionManager
from tallystick.services.transactions.resources.mysql import MySqlResource
from tallystick.services.transactions.resources.postgres import PostgresResource
from tallystick.services.transactions.resources.sqlalchemy_async import AsyncDatabase
from tests.servers import Server

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

_names = itertools.count(1)
PG_SETTINGS = (
    "search_path", "TimeZone", "statement_timeout", "default_transaction_isolation",
)  # fmt: skip
ASK_PG = "SELECT " + ", ".join(f"current_setting('{name}')" for name in PG_SETTINGS)
SET_PG = (
    "SET search_path TO pg_catalog",
    "SELECT set_config('TimeZone', 'Asia/Tokyo', false)",
    "SET statement_timeout = '7min'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
)
ASK_MARIA = (
    "SELECT @@time_zone, @@sql_mode, @@tx_isolation, DATABASE(), @noted, IS_USED_LOCK('noted')"
)
SET_MARIA = (
    "SET SESSION time_zone = '+03:00'",
    "-- for this report\n/* only */ set sql_mode = 'ANSI'",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "USE information_schema",
    "SELECT @noted := 1",
    "CREATE TEMPORARY TABLE mysql.left_behind (id INTEGER)",
)
MORE_MARIA = (
    "SELECT 1 INTO @noted",
    "BEGIN NOT ATOMIC SET @noted = 1; END",
    "/*!50000 SET time_zone = '+03:00' */",
    "SELECT GET_LOCK('noted', 1)",
    "DO get_lock ('noted', 1)",
    "create or replace temporary table mysql.left_behind (id INTEGER)",
)
ENDS = ["commit", "commit alone", "rollback", "failed statement"]


class UndoneError(Exception):
    """Rolls a transaction back."""


def use(tm: TransactionManager, end: str, name: str, statements: tuple[str, ...]) -> None:
    """Run statements in a transaction that ends in a way."""
    try:
        with tm.begin() as tx:
            if end != "commit alone":
                tx["other"].execute("SELECT 1")
            for statement in statements:
                tx[name].execute(statement)
            if end == "failed statement":
                tx[name].execute("SELECT of no_such_table")
            if end == "rollback":
                raise UndoneError
    except (UndoneError, psycopg.Error, pymysql.Error):
        assert end in ("rollback", "failed statement")


def seen(tm: TransactionManager, name: str, question: str) -> tuple[Any, ...]:
    with tm.begin() as tx:
        found: tuple[Any, ...] = tx[name].execute(question).fetchone()
        return found


def open_manager(folder: Path, other: str, **resources: Any) -> TransactionManager:
    return TransactionManager(folder, resources | {"other": other}, recovery_interval=None)


@pytest.mark.parametrize("end", ENDS)
def test_settings_of_a_transaction_on_postgresql_end_with_it(
    tmp_path: Path, postgres_server: Server, end: str
) -> None:
    def connect() -> psycopg.Connection[Any]:
        connection = psycopg.connect(postgres_server.url)
        connection.execute('SET search_path TO public, "Odd\'One"')
        connection.execute("SET application_name = 'shop'")
        connection.commit()
        return connection

    resources = {"pg": postgres_server.url, "made": PostgresResource("made", connect)}
    with open_manager(tmp_path / "tm", f"sqlite:///{tmp_path}/l", **resources) as tm:
        for name in resources:
            before = seen(tm, name, ASK_PG)
            use(tm, end, name, SET_PG)
            assert seen(tm, name, ASK_PG) == before, name
        assert seen(tm, "made", "SELECT current_setting('application_name')") == ("shop",)
        assert seen(tm, "made", ASK_PG)[0] == 'public, "Odd\'One"'
        pids = {seen(tm, "pg", "SELECT pg_backend_pid()") for _ in range(3)}
        assert len(pids) == 1  # on the same connection


def test_factories_of_a_transaction_on_postgresql_end_with_it(
    tmp_path: Path, postgres_server: Server
) -> None:
    with open_manager(tmp_path / "tm", f"sqlite:///{tmp_path}/l", pg=postgres_server.url) as tm:
        with tm.begin() as tx:
            connection = tx.connection("pg", psycopg.Connection)
            backend = connection.info.backend_pid
            connection.row_factory = dict_row
            connection.cursor_factory = psycopg.ClientCursor
            connection.prepare_threshold = None
        with tm.begin() as tx:
            again = tx.connection("pg", psycopg.Connection)
            assert again.info.backend_pid == backend
            assert again.execute("SELECT 1").fetchone() == (1,)
            assert (again.cursor_factory, again.prepare_threshold) == (psycopg.Cursor, 5)


@pytest.mark.parametrize("statement", SET_PG)
async def test_settings_of_a_task_end_with_its_transaction(
    tmp_path: Path, postgres_server: Server, statement: str
) -> None:
    async def work(tm: AsyncTransactionManager) -> list[Any]:
        found = []
        for _ in range(2):
            async with tm.begin() as tx:
                pg = await tx.connection("pg", psycopg.AsyncConnection)
                found.append(await (await pg.execute(ASK_PG)).fetchone())
                await pg.execute(statement)
                pg.row_factory = dict_row
        return found

    with open_manager(tmp_path / "tm", f"sqlite:///{tmp_path}/l", pg=postgres_server.url) as tm:
        first, second = await work(AsyncTransactionManager(tm))
    assert first == second


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("statement", "end"),
    [*itertools.product(SET_MARIA, ENDS), *itertools.product(MORE_MARIA, ["commit"])],
)
def test_settings_of_a_transaction_on_mariadb_end_with_it(
    tmp_path: Path, mariadb_server: Server, statement: str, end: str
) -> None:
    def connect() -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=mariadb_server.port, user="root",
            database=mariadb_server.database, init_command="SET time_zone = '+01:00'",
        )  # fmt: skip

    resources = {"maria": mariadb_server.url, "made": MySqlResource("made", connect)}
    with open_manager(tmp_path / "tm", f"sqlite:///{tmp_path}/l", **resources) as tm:
        for name in resources:
            before = seen(tm, name, ASK_MARIA)
            use(tm, end, name, (statement,))
            end_by = time.monotonic() + 60  # the server frees a lock after its session's end
            while (after := seen(tm, name, ASK_MARIA)) != before and time.monotonic() < end_by:
                time.sleep(0.01)
            assert after == before, name
            with pytest.raises(pymysql.ProgrammingError):
                seen(tm, name, "SELECT * FROM mysql.left_behind")
        assert seen(tm, "made", ASK_MARIA)[0] == "+01:00"
        assert len({seen(tm, "maria", "SELECT CONNECTION_ID()") for _ in range(3)}) == 1


MADE_PG = {
    "search_path": 'pg_catalog, "Odd\'One"',
    "TimeZone": "Asia/Tokyo",
    "default_transaction_isolation": "repeatable read",
    "statement_timeout": "7min",
    "enable_seqscan": "off",  # none of those that are set again
    "app.tenant": "seven",
}
CHANGES_PG = (*SET_PG, "SELECT set_config('DateStyle', 'German', false)")


@pytest.mark.parametrize("end", ENDS)
def test_an_application_s_own_psycopg_connection_stays_as_it_was_made(
    tmp_path: Path, postgres_server: Server, end: str
) -> None:
    def connect() -> psycopg.Connection[Any]:
        connection = psycopg.connect(
            postgres_server.url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor,
            prepare_threshold=None,
        )  # fmt: skip
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        for name, value in MADE_PG.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.commit()
        return connection

    names = [*MADE_PG, "transaction_isolation"]
    columns = [f"current_setting('{name}') AS \"{name}\"" for name in names]
    question = f"SELECT {', '.join(columns)}, pg_backend_pid() AS pid"
    pg = PostgresResource("pg", connect)
    with open_manager(tmp_path / "tm", f"sqlite:///{tmp_path}/l", pg=pg) as tm:
        rows = []
        for _ in range(3):
            with tm.begin() as tx:
                tx["other"].execute("SELECT 1")
                rows.append(tx["pg"].execute(question).fetchone())
                assert isinstance(tx["pg"].cursor(), psycopg.ClientCursor)
                assert tx["pg"].prepare_threshold is None
            use(tm, end, "pg", CHANGES_PG)
    wanted = {**MADE_PG, "transaction_isolation": "serializable"}
    assert [{name: row[name] for name in wanted} for row in rows] == [wanted] * 3
    assert end in ("rollback", "failed statement") or len({row["pid"] for row in rows}) == 1


@pytest.mark.parametrize("end", ENDS)
def test_an_application_s_own_pymysql_connection_stays_as_it_was_made(
    tmp_path: Path, mariadb_server: Server, end: str
) -> None:
    def connect() -> Any:
        connection = pymysql.connect(
            host="127.0.0.1", port=mariadb_server.port, user="root",
            database=mariadb_server.database, cursorclass=pymysql.cursors.DictCursor,
            init_command="SET time_zone = '+01:00'",
        )  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            cursor.execute("SET @tenant = 'seven'")
        return connection

    question = "SELECT @@time_zone AS zone, @@tx_isolation AS level, @tenant AS tenant"
    maria = MySqlResource("maria", connect)
    with open_manager(tmp_path / "tm", f"sqlite:///{tmp_path}/l", maria=maria) as tm:
        for change in ((), ("SET time_zone = '+02:00'", "SET @tenant = 'eight'"), ()):
            found: Any = seen(tm, "maria", question)
            assert found == {"zone": "+01:00", "level": "SERIALIZABLE", "tenant": "seven"}
            use(tm, end, "maria", change)


@pytest.fixture
def table(postgres_server: Server) -> str:
    name = f"settings{next(_names)}"
    with psycopg.connect(postgres_server.url) as pg:
        pg.execute(f"CREATE TABLE {name} (id INTEGER)")
    return name


@pytest.mark.parametrize("isolation", [None, "REPEATABLE READ", "AUTOCOMMIT"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_an_asyncpg_connection_comes_back_to_its_engine_as_the_engine_made_it(
    tmp_path: Path, postgres_server: Server, table: str, isolation: str | None, end: str
) -> None:
    address = make_url(postgres_server.url)
    options: dict[str, Any] = {} if isolation is None else {"isolation_level": isolation}

    async def rolled_back(engine: Any) -> int:
        async with engine.connect() as connection:
            await connection.exec_driver_sql(f"DELETE FROM {table}")
            await connection.commit()
            await connection.exec_driver_sql(f"INSERT INTO {table} VALUES (1)")
            await connection.rollback()
            return int((await connection.exec_driver_sql(f"SELECT count(*) FROM {table}")).scalar())

    async def work() -> list[int]:
        engine = create_async_engine(
            address.set(drivername="postgresql+asyncpg"), pool_size=1, max_overflow=0, **options
        )
        recovery = sqlalchemy.create_engine(address.set(drivername="postgresql+psycopg"))
        before = await rolled_back(engine)
        resources = {"pg": AsyncDatabase(engine, recovery=recovery)}
        with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as manager:
            tm = AsyncTransactionManager(manager)
            try:
                async with tm.begin() as tx:
                    connection = await tx.connection("pg", AsyncConnection)
                    await connection.exec_driver_sql(f"INSERT INTO {table} VALUES (2)")
                    if end == "rollback":
                        raise UndoneError
            except UndoneError:
                pass
            after = await rolled_back(engine)
        await engine.dispose()
        recovery.dispose()
        return [before, after]

    before, after = await work()
    assert before == after == (isolation == "AUTOCOMMIT")


def in_wal(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


@pytest.mark.parametrize("undo", [False, True])
def test_a_sqlite_connection_comes_back_to_its_engine_as_the_engine_made_it(
    tmp_path: Path, undo: bool
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/l", pool_size=1, max_overflow=0)
    sqlalchemy.event.listen(engine, "connect", in_wal)

    def look() -> tuple[Any, ...]:
        with engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            level = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
            return raw.isolation_level, level, id(raw)

    before = look()
    assert before[1] == 1
    resources = {"lite": engine}
    with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as tm:
        try:
            with tm.begin() as tx:
                found = tx["lite"].exec_driver_sql("PRAGMA synchronous").scalar_one()
                assert found == 2  # the decision is durable
                if undo:
                    raise UndoneError
        except UndoneError:
            pass
        assert look() == before
    engine.dispose()


TRACES_PG = {
    "temporary table": (
        "CREATE TEMP TABLE left_behind (i int)",
        "SELECT count(*) FROM pg_class WHERE relname = 'left_behind'",
    ),
    "advisory lock": (
        "SELECT pg_advisory_lock(7)",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    "channel": ("LISTEN shop", "SELECT count(*) FROM pg_listening_channels()"),
    "cursor": (
        "DECLARE kept CURSOR WITH HOLD FOR SELECT 1",
        "SELECT count(*) FROM pg_cursors WHERE name = 'kept'",
    ),
    "setting": (
        "SET app.tenant = 'x'",
        "SELECT count(nullif(current_setting('app.tenant', true), ''))",
    ),
    "role": ("SET ROLE pg_monitor", "SELECT (current_user <> session_user)::int"),
    "user": ("SET SESSION AUTHORIZATION pg_monitor", "SELECT (session_user <> 'tally')::int"),
}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("end", ["commit", "commit alone", "rollback", "failed statement"])
@pytest.mark.parametrize("trace", TRACES_PG)
def test_what_a_transaction_leaves_in_a_session_of_postgresql_ends_with_it(
    tmp_path: Path, postgres_server: Server, trace: str, end: str
) -> None:
    leave, question = TRACES_PG[trace]
    if end == "commit" and trace in ("temporary table", "channel", "cursor", "role", "user"):
        end = "commit alone"  # PREPARE TRANSACTION refuses it, or the role has no rights
    resources: dict[str, Any] = {"pg": postgres_server.url}
    if trace != "setting":  # no view of the server lists those of an application
        resources["made"] = PostgresResource("made", lambda: psycopg.connect(postgres_server.url))
    with open_manager(tmp_path / "tm", f"sqlite:///{tmp_path}/l", **resources) as tm:
        for name in resources:
            assert seen(tm, name, question) == (0,)
            use(tm, end, name, (leave,))
            assert seen(tm, name, question) == (0,), name


def test_a_channel_that_a_session_was_made_with_is_kept(
    tmp_path: Path, postgres_server: Server
) -> None:
    def connect() -> psycopg.Connection[Any]:
        connection = psycopg.connect(postgres_server.url)
        connection.execute("LISTEN shop")
        connection.commit()
        return connection

    pg = PostgresResource("pg", connect)
    with open_manager(tmp_path / "tm", f"sqlite:///{tmp_path}/l", pg=pg) as tm:
        question = "SELECT count(*) FROM pg_listening_channels()"
        assert [seen(tm, "pg", question) for _ in range(3)] == [(1,)] * 3
