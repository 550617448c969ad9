"""Errors that real databases and drivers were provoked to raise are of the right kind."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiomysql
import asyncmy
import asyncpg
import oracledb
import psycopg
import psycopg2
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tallystick.errors import BusyError, RolledBackError
from tallystick.services.driver_errors import (
    ErrorKind,
    is_conflict,
    is_down,
    is_lock_timeout,
    is_retryable,
    kind_of,
    refused_by,
)
from tests.servers import Server, free_port

TRANSIENT, DATA, CONSTRAINT = ErrorKind.TRANSIENT, ErrorKind.DATA, ErrorKind.CONSTRAINT
LOST, UNKNOWN = ErrorKind.LOST, ErrorKind.UNKNOWN


class Session:
    """A session in autocommit mode: of a driver that blocks, or of one for tasks."""

    def __init__(self, connect: Callable[[], Any], mark: str = "%s") -> None:
        self.loop = asyncio.new_event_loop()
        self.mark = mark
        try:
            self.connection = self._wait(connect())
        except BaseException:
            self.loop.close()
            raise

    def _wait(self, thing: Any) -> Any:
        async def wait() -> Any:
            return await thing

        return self.loop.run_until_complete(wait()) if hasattr(thing, "__await__") else thing

    def run(self, text: str, *parameters: Any) -> None:
        """Run a statement; ``?`` stands for a parameter."""
        connection, text = self.connection, text.replace("?", self.mark)
        if hasattr(connection, "exec_driver_sql"):
            self._wait(connection.exec_driver_sql(text, parameters))
        elif isinstance(connection, asyncpg.Connection):
            self._wait(connection.execute(text, *parameters))
        else:
            cursor = connection.cursor()
            if isinstance(connection, asyncmy.connection.Connection):
                cursor = cursor.__aenter__()
            cursor = self._wait(cursor) if hasattr(cursor, "__await__") else cursor
            self._wait(cursor.execute(text, parameters))
            self._wait(cursor.close())

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._wait(self.connection.close())
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


class Sessions:
    """One session after the other: the next one if the last one is gone."""

    def __init__(self, connect: Callable[[str], Session], url: str) -> None:
        self._connect = connect
        self._url = url
        self._last: Session | None = None

    def session(self) -> Session:
        """Return a session without a transaction."""
        if self._last is not None:
            try:
                self._last.run("ROLLBACK")
            except Exception:
                self.close()
        self._last = self._last or self._connect(self._url)
        return self._last

    def close(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None


def autocommit(connection: Any) -> Any:
    connection.autocommit = True
    return connection


def engine(url: str, driver: str) -> Any:
    made = sa.create_engine(
        sa.make_url(url).set(drivername=driver),
        isolation_level="AUTOCOMMIT",
        poolclass=sa.NullPool,
    )
    return made.connect()


async def engine_of_tasks(url: str) -> Any:
    made = create_async_engine(
        sa.make_url(url).set(drivername="postgresql+asyncpg"),
        isolation_level="AUTOCOMMIT",
        poolclass=sa.NullPool,
    )
    return await made.connect()


POSTGRES: dict[str, Callable[[str], Session]] = {
    "psycopg": lambda url: Session(lambda: psycopg.connect(url, autocommit=True)),
    "psycopg2": lambda url: Session(lambda: autocommit(psycopg2.connect(url))),
    "asyncpg": lambda url: Session(lambda: asyncpg.connect(url), "$1"),
    "engine": lambda url: Session(lambda: engine(url, "postgresql+psycopg")),
    "engine of tasks": lambda url: Session(lambda: engine_of_tasks(url), "$1"),
}


STRICT = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO"


def with_mode(session: Session) -> Session:
    session.run("USE told_apart")
    session.run(f"SET sql_mode = '{STRICT}'")
    return session


def _mysql(connect: Callable[..., Any]) -> Callable[[str], Session]:
    def session(url: str) -> Session:
        place = sa.make_url(url)
        return with_mode(
            Session(lambda: connect(host=place.host, port=place.port, user="root", autocommit=True))
        )

    return session


MARIADB: dict[str, Callable[[str], Session]] = {
    "pymysql": _mysql(pymysql.connect),
    "aiomysql": _mysql(aiomysql.connect),
    "asyncmy": _mysql(asyncmy.connect),
    "engine": lambda url: with_mode(Session(lambda: engine(url, "mariadb+pymysql"))),
}

POSTGRES_TABLES = """
CREATE TABLE IF NOT EXISTS kinds (
  id smallint PRIMARY KEY, name varchar(3) NOT NULL DEFAULT '', age int CHECK (age > 0),
  above smallint REFERENCES kinds DEFERRABLE INITIALLY DEFERRED);
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN RAISE 'refused by a rule of the shop'; END$$;
CREATE TABLE IF NOT EXISTS ruled (id int);
CREATE OR REPLACE TRIGGER rule BEFORE INSERT ON ruled FOR EACH ROW EXECUTE FUNCTION refuse();
INSERT INTO kinds VALUES (1) ON CONFLICT DO NOTHING
"""
Statement = str | tuple[Any, ...]
POSTGRES_CASES: dict[str, tuple[ErrorKind, list[Statement]]] = {
    "unique": (CONSTRAINT, ["INSERT INTO kinds VALUES (1)"]),
    "check": (CONSTRAINT, ["INSERT INTO kinds VALUES (2, 'a', -1)"]),
    "not null": (CONSTRAINT, ["INSERT INTO kinds VALUES (2, NULL)"]),
    "trigger": (CONSTRAINT, ["INSERT INTO ruled VALUES (1)"]),
    "deferred": (CONSTRAINT, ["BEGIN", "INSERT INTO kinds VALUES (2, 'a', 1, 77)", "COMMIT"]),
    "too long": (DATA, ["INSERT INTO kinds VALUES (2, 'longer')"]),
    "out of range": (DATA, ["INSERT INTO kinds VALUES (99999)"]),
    "no number": (DATA, ["SELECT CAST('x' AS int)"]),
    "division": (DATA, ["SELECT 1 / 0"]),
    "encoding": (DATA, ["SELECT convert_from(decode('ff', 'hex'), 'UTF8')"]),
    "NUL": (DATA, [("SELECT CAST(? AS text)", "a\0b")]),
    "surrogate": (DATA, [("SELECT CAST(? AS text)", "a\ud800")]),
    "NUL in JSON": (DATA, ['SELECT \'"\\u0000"\'::json ->> 0, \'{"a": "\\u0000"}\'::jsonb']),
    "no table": (UNKNOWN, ["SELECT * FROM nowhere"]),
    "syntax": (UNKNOWN, ["SELEC 1"]),
    "statement timeout": (
        UNKNOWN,
        ["BEGIN", "SET LOCAL statement_timeout = 1", "SELECT pg_sleep(9)"],
    ),
    "read only": (TRANSIENT, ["BEGIN READ ONLY", "INSERT INTO kinds VALUES (5)"]),
    "lock timeout": (TRANSIENT, ["BEGIN", "LOCK TABLE locked_table NOWAIT"]),
    "killed": (LOST, ["SELECT pg_terminate_backend(pg_backend_pid())"]),
    "after it": (LOST, ["SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1"]),
}


def provoke(session: Session, statements: list[Statement]) -> Exception:
    """Return the error of the last statement that raises one."""
    found: Exception | None = None
    for statement in statements:
        text, *parameters = (statement,) if isinstance(statement, str) else statement
        try:
            session.run(text, *parameters)
        except Exception as error:
            found = error
    assert found is not None, "no statement failed"
    return found


@pytest.fixture(scope="module")
def postgres(postgres_server: Server) -> Iterator[str]:
    """A server with the tables, one of which is locked."""
    with psycopg.connect(postgres_server.url) as admin:
        admin.execute(POSTGRES_TABLES)
        admin.execute("CREATE TABLE IF NOT EXISTS locked_table ()")
        admin.commit()
        admin.execute("LOCK TABLE locked_table")
        yield postgres_server.url
        admin.rollback()


@pytest.mark.postgres
@pytest.mark.parametrize("driver", POSTGRES)
def test_errors_of_postgresql_are_told_apart(postgres: str, driver: str) -> None:
    seen, wanted, again = {}, {}, Sessions(POSTGRES[driver], postgres)
    for name, (kind, statements) in POSTGRES_CASES.items():
        error = provoke(again.session(), statements)
        if driver == "psycopg2" and type(error) is ValueError:
            continue  # its error for NUL is of no class of its own
        if isinstance(error, sa.exc.InvalidRequestError):
            continue  # SQLAlchemy has raised what was lost, and asks for a rollback
        seen[name], wanted[name] = kind_of(error), kind
        assert is_lock_timeout(error) == (name == "lock timeout"), name
    again.close()
    assert seen == wanted


MARIADB_TABLES = [
    "CREATE DATABASE IF NOT EXISTS told_apart CHARACTER SET utf8mb4",
    "USE told_apart",
    (
        "CREATE TABLE IF NOT EXISTS kinds (id TINYINT PRIMARY KEY, name VARCHAR(3) NOT NULL, "
        "age INT CHECK (age > 0), above TINYINT REFERENCES kinds (id)) ENGINE=InnoDB"
    ),
    "CREATE TABLE IF NOT EXISTS ruled (id INT) ENGINE=InnoDB",
    (
        "CREATE OR REPLACE TRIGGER rule BEFORE INSERT ON ruled FOR EACH ROW "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a rule'"
    ),
    "INSERT IGNORE INTO kinds VALUES (1, '', 1, 1)",
]
MARIADB_CASES: dict[str, tuple[ErrorKind, list[Statement]]] = {
    "unique": (CONSTRAINT, ["INSERT INTO kinds VALUES (1, '', 1, 1)"]),
    "check": (CONSTRAINT, ["INSERT INTO kinds VALUES (2, '', -1, 1)"]),
    "not null": (CONSTRAINT, ["INSERT INTO kinds VALUES (2, NULL, 1, 1)"]),
    "no default": (CONSTRAINT, ["INSERT INTO kinds (id) VALUES (3)"]),
    "reference": (CONSTRAINT, ["INSERT INTO kinds VALUES (2, '', 1, 77)"]),
    "referred to": (
        CONSTRAINT,
        ["INSERT INTO kinds VALUES (4, '', 1, 1)", "DELETE FROM kinds WHERE id = 1"],
    ),
    "trigger": (CONSTRAINT, ["INSERT INTO ruled VALUES (1)"]),
    "too long": (DATA, ["INSERT INTO kinds VALUES (2, 'longer', 1, 1)"]),
    "out of range": (DATA, ["INSERT INTO kinds VALUES (999, '', 1, 1)"]),
    "overflow": (DATA, ["SELECT 9223372036854775807 + 1"]),
    "no number": (DATA, ["INSERT INTO kinds VALUES ('x', '', 1, 1)"]),
    "division": (DATA, ["INSERT INTO kinds VALUES (1 / 0, '', 1, 1)"]),
    "encoding": (DATA, ["INSERT INTO kinds VALUES (2, X'ff', 1, 1)"]),
    "surrogate": (DATA, [("SELECT ?", "a\ud800")]),
    "no table": (UNKNOWN, ["SELECT * FROM nowhere"]),
    "syntax": (UNKNOWN, ["SELEC 1"]),
    "statement timeout": (UNKNOWN, ["SET STATEMENT max_statement_time = 0.01 FOR SELECT SLEEP(9)"]),
    "read only": (TRANSIENT, ["START TRANSACTION READ ONLY", "DELETE FROM kinds"]),
    "lock timeout": (
        TRANSIENT,
        ["SET innodb_lock_wait_timeout = 0", "UPDATE locked_row SET id = 2"],
    ),
    "killed": (LOST, ["KILL CONNECTION_ID()"]),
    "after it": (LOST, ["KILL CONNECTION_ID()", "SELECT 1"]),
}


@pytest.fixture(scope="module")
def mariadb(mariadb_server: Server) -> Iterator[str]:
    """A server with the tables, one of which has a locked row."""
    admin = pymysql.connect(
        host="127.0.0.1", port=mariadb_server.port, user="root", database=mariadb_server.database
    )
    with admin, admin.cursor() as cursor:
        for statement in (
            *MARIADB_TABLES,
            "CREATE OR REPLACE TABLE locked_row (id INT) ENGINE=InnoDB",
            "INSERT INTO locked_row VALUES (1)",
            "COMMIT",
            "UPDATE locked_row SET id = 3",
        ):
            cursor.execute(statement)
        yield mariadb_server.url
        admin.rollback()


@pytest.mark.mariadb
@pytest.mark.parametrize("driver", MARIADB)
def test_errors_of_mariadb_are_told_apart(mariadb: str, driver: str) -> None:
    seen, wanted, again = {}, {}, Sessions(MARIADB[driver], mariadb)
    for name, (kind, statements) in MARIADB_CASES.items():
        error = provoke(again.session(), statements)
        if isinstance(error, sa.exc.InvalidRequestError):
            continue
        seen[name], wanted[name] = kind_of(error), kind
        assert is_lock_timeout(error) == (name == "lock timeout"), name
    again.close()
    assert seen == wanted


SQLITE: dict[str, Callable[[str], Session]] = {
    "sqlite3": lambda path: Session(lambda: sqlite3.connect(path, isolation_level=None), "?"),
    "engine": lambda path: Session(lambda: engine(f"sqlite:///{path}", "sqlite"), "?"),
}
SQLITE_CASES: dict[str, tuple[ErrorKind, list[Statement]]] = {
    "unique": (CONSTRAINT, ["INSERT INTO kinds VALUES (1, 1, NULL)"]),
    "check": (CONSTRAINT, ["INSERT INTO kinds VALUES (2, -1, NULL)"]),
    "not null": (CONSTRAINT, ["INSERT INTO kinds VALUES (2, NULL, NULL)"]),
    "deferred": (CONSTRAINT, ["BEGIN", "INSERT INTO kinds VALUES (2, 1, 77)", "COMMIT"]),
    "trigger": (CONSTRAINT, ["DELETE FROM kinds"]),
    "too long": (DATA, ["SELECT zeroblob(2000000000)"]),
    "mismatch": (DATA, ["INSERT INTO kinds VALUES ('x', 1, NULL)"]),
    "out of range": (DATA, [("SELECT ?", 2**64)]),
    "surrogate": (DATA, [("SELECT ?", "a\ud800")]),
    "read only": (TRANSIENT, ["PRAGMA query_only = 1", "INSERT INTO kinds VALUES (9, 1, NULL)"]),
    "lock timeout": (TRANSIENT, ["ATTACH '{held}' AS held", "DELETE FROM held.t"]),
    "cannot open": (LOST, ["ATTACH '/no/such/folder/file' AS other"]),
    "no table": (UNKNOWN, ["SELECT * FROM nowhere"]),
    "syntax": (UNKNOWN, ["SELEC 1"]),
}
SQLITE_TABLES = """
PRAGMA synchronous = OFF;
CREATE TABLE kinds (id INTEGER PRIMARY KEY, age INT NOT NULL CHECK (age > 0),
  above INT REFERENCES kinds DEFERRABLE INITIALLY DEFERRED);
CREATE TRIGGER rule BEFORE DELETE ON kinds BEGIN SELECT RAISE(ABORT, 'a rule'); END;
INSERT INTO kinds VALUES (1, 1, NULL);
"""


@pytest.mark.parametrize("driver", SQLITE)
def test_errors_of_sqlite_are_told_apart(tmp_path: Path, driver: str) -> None:
    with sqlite3.connect(tmp_path / "held") as held:
        held.execute("CREATE TABLE t (id)")
        held.commit()
        held.execute("BEGIN IMMEDIATE")
        seen, wanted = {}, {}
        for name, (kind, statements) in SQLITE_CASES.items():
            (tmp_path / "db").unlink(missing_ok=True)
            with sqlite3.connect(tmp_path / "db") as made:
                made.executescript(SQLITE_TABLES)
            made.close()
            session = SQLITE[driver](str(tmp_path / "db"))
            session.run("PRAGMA busy_timeout = 0")
            session.run("PRAGMA foreign_keys = 1")
            filled: list[Statement] = [
                one.replace("{held}", f"{tmp_path}/held") if isinstance(one, str) else one
                for one in statements
            ]
            error = provoke(session, filled)
            session.close()
            seen[name], wanted[name] = kind_of(error), kind
            assert is_lock_timeout(error) == (name == "lock timeout"), name
        held.rollback()
    held.close()
    assert seen == wanted


def crossed(connect: Callable[[], Session], begin: str) -> list[Exception]:
    """Have two sessions change rows 1 and 2 of a table in opposite order; return the errors."""
    both_have_one, errors = threading.Barrier(2), []

    def change(order: tuple[int, int]) -> None:
        session = connect()
        try:
            session.run(begin)
            for number in order:
                session.run(f"UPDATE crossed SET n = n + 1 WHERE id = {number}")
                if number == order[0]:
                    both_have_one.wait(60)
            session.run("COMMIT")
        except Exception as error:
            errors.append(error)
        session.close()

    threads = [threading.Thread(target=change, args=(one,)) for one in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


CROSSED = ("DROP TABLE IF EXISTS crossed", "CREATE TABLE crossed (id INT PRIMARY KEY, n INT)",
           "INSERT INTO crossed VALUES (1, 0), (2, 0)")  # fmt: skip


@pytest.mark.postgres
@pytest.mark.parametrize("driver", POSTGRES)
def test_a_deadlock_of_postgresql_is_a_conflict(postgres: str, driver: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as admin:
        for statement in CROSSED:
            admin.execute(statement)
        admin.execute("ALTER ROLE CURRENT_USER SET deadlock_timeout = '5ms'")
    (error,) = crossed(lambda: POSTGRES[driver](postgres), "BEGIN")
    assert (kind_of(error), is_conflict(error)) == (TRANSIENT, True)


@pytest.mark.mariadb
@pytest.mark.parametrize("driver", MARIADB)
def test_a_deadlock_of_mariadb_is_a_conflict(mariadb: str, driver: str) -> None:
    session = MARIADB[driver](mariadb)
    for statement in CROSSED:
        session.run(statement)
    session.close()
    (error,) = crossed(lambda: MARIADB[driver](mariadb), "BEGIN")
    assert (kind_of(error), is_conflict(error)) == (TRANSIENT, True)


@pytest.mark.postgres
@pytest.mark.parametrize("driver", POSTGRES)
def test_a_schedule_that_is_not_serialisable_is_a_conflict(postgres: str, driver: str) -> None:
    first, second = POSTGRES[driver](postgres), POSTGRES[driver](postgres)
    with psycopg.connect(postgres, autocommit=True) as admin:
        for statement in CROSSED:
            admin.execute(statement)
    for session in (first, second):
        session.run("BEGIN ISOLATION LEVEL SERIALIZABLE")
        session.run("SELECT sum(n) FROM crossed")
    first.run("UPDATE crossed SET n = 1 WHERE id = 1")
    second.run("UPDATE crossed SET n = 1 WHERE id = 2")
    first.run("COMMIT")
    error = provoke(second, ["COMMIT"])
    for session in (first, second):
        session.close()
    assert (kind_of(error), is_conflict(error)) == (TRANSIENT, True)


@pytest.mark.parametrize("driver", [*POSTGRES, *(f"mariadb {one}" for one in MARIADB)])
def test_a_server_that_is_not_there_is_lost(driver: str) -> None:
    port = free_port()
    connect, scheme = POSTGRES.get(driver), "postgresql"
    if connect is None:
        connect, scheme = MARIADB[driver.removeprefix("mariadb ")], "mariadb"
    with pytest.raises(Exception, match=r"(?s).") as caught:
        connect(f"{scheme}://tally@127.0.0.1:{port}/db")
    assert kind_of(caught.value) is LOST


ORACLE = {
    "ORA-00001: unique constraint (A.B) violated": CONSTRAINT,
    "ORA-02091: transaction rolled back\nORA-02291: integrity constraint violated": CONSTRAINT,
    "ORA-12899: value too large for column": DATA,
    "ORA-01476: divisor is equal to zero": DATA,
    "ORA-00060: deadlock detected while waiting for resource": TRANSIENT,
    "ORA-08177: can't serialize access for this transaction": TRANSIENT,
    "ORA-00054: resource busy and acquire with NOWAIT specified": TRANSIENT,
    "ORA-03113: end-of-file on communication channel": LOST,
    "DPY-4011: the database or network closed the connection": LOST,
    "ORA-00942: table or view does not exist": UNKNOWN,
    "ORA-01013: user requested cancel of current operation": UNKNOWN,
}


@pytest.mark.parametrize(("text", "kind"), ORACLE.items())
def test_errors_of_oracle_are_told_apart_by_their_text(text: str, kind: ErrorKind) -> None:
    assert kind_of(oracledb.DatabaseError(text)) is kind


def test_a_pool_without_a_free_connection_is_no_fault_of_the_work() -> None:
    assert is_down(sa.exc.TimeoutError("QueuePool limit reached"))


def test_an_error_of_another_driver_is_known_by_its_sqlstate() -> None:
    class DeadlockError(Exception):
        sqlstate = "40P01"

    assert (kind_of(DeadlockError()), is_conflict(DeadlockError())) == (TRANSIENT, True)


def test_what_no_driver_raised_has_no_kind() -> None:
    assert kind_of(ValueError("of the program")) is None
    assert is_retryable(ValueError("of the program")) is None
    assert refused_by(ValueError("of the program")) is None


def test_an_error_of_ours_has_the_kind_of_what_caused_it() -> None:
    cause = psycopg.errors.UniqueViolation("twice")
    ours = RolledBackError("rolled back")
    ours.__cause__ = BusyError("between")
    ours.__cause__.__cause__ = cause
    assert (kind_of(ours), is_retryable(ours), refused_by(ours)) == (CONSTRAINT, False, cause)
    cause.__cause__ = ours  # a circle ends
    assert is_conflict(ours) is False


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("OperationalError", "MySQL Connection not available", LOST),
        ("InterfaceError", "Connection is closed", LOST),
        ("InterfaceError", "No result set to fetch from", UNKNOWN),
        ("DataError", "out of range", DATA),
    ],
)
def test_what_connector_python_raises_without_a_number_is_known_by_its_class(
    name: str, text: str, kind: ErrorKind
) -> None:
    made = type(name, (Exception,), {"__module__": "mysql.connector.errors", "errno": -1})
    assert kind_of(made(-1, text, None)) is kind
