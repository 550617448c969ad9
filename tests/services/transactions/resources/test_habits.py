"""What people do with connections of drivers is right in a branch, or a clear error."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions import TransactionManager
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


@pytest.mark.parametrize("others", [(), ("maria",)], ids=["alone", "with another"])
@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_a_statement_that_ends_the_transaction_is_found_before_anything_is_called_committed(
    tm: TransactionManager, table: str, statement: str, others: tuple[str, ...]
) -> None:
    with pytest.raises(TransactionUsageError, match="ended the transaction of 'pg'"):  # noqa: SIM117
        with tm.begin() as tx:
            for other in others:
                tx[other].execute("DO 0")
            tx["pg"].execute(f"INSERT INTO {table} VALUES (1)")
            tx["pg"].execute(statement)
    assert rows(tm, table) == ([1] if statement == "COMMIT" else [])  # the connection is as before
    assert tm.recover().clean


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


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "BEGIN"])
def test_mariadb_refuses_statements_that_would_end_its_branch(
    tm: TransactionManager, statement: str
) -> None:
    with pytest.raises(Exception, match="XAER_RMFAIL"), tm.begin() as tx:
        tx["maria"].cursor().connection.query(statement)
    assert tm.recover().clean
