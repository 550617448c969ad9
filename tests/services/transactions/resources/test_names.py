"""Names that reach SQL are right whatever their characters, for work, recovery and messages."""

from __future__ import annotations

import asyncio
import itertools
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions import (
    AsyncTransactionManager,
    IdempotencyKey,
    Outbox,
    TransactionManager,
)
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.resources.mysql import MySqlResource
from tallystick.services.transactions.resources.postgres import PostgresResource
from tallystick.services.transactions.resources.sqlalchemy_async import AsyncDatabase
from tests.servers import Server

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

PRINTABLE = string.printable
PARTS = [PRINTABLE[:60], PRINTABLE[60:] + "x", "100%", "%s", "%(a)s{b}\\' OR \"`--", "größe 寸"]
"""Every printable character, in names as long as the servers take them."""
MODES = {
    "usual": ("", ""),
    "other": (
        "-c standard_conforming_strings=off -c backslash_quote=on",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
    ),
}


class StopError(BaseException):
    """The process ends here, say."""


@pytest.fixture(params=PARTS, ids=[f"name {number}" for number in range(len(PARTS))])
def name(
    request: pytest.FixtureRequest, postgres_server: Server, mariadb_server: Server
) -> Iterator[str]:
    """A name of a schema in PostgreSQL, and of a database in MariaDB, with a table."""
    made = str(request.param)
    schema, database = quoted(made, '"'), quoted(made, "`")
    with psycopg.connect(postgres_server.url, autocommit=True) as pg:
        maria = pymysql.connect(host="127.0.0.1", port=mariadb_server.port, user="root")
        with maria, maria.cursor() as cursor:
            pg.execute(f"CREATE SCHEMA {schema}")
            pg.execute(f"CREATE TABLE {schema}.t (k int PRIMARY KEY)")
            cursor.execute(f"CREATE DATABASE {database}")
            cursor.execute(f"CREATE TABLE {database}.t (k int PRIMARY KEY) ENGINE=InnoDB")
            yield made
            pg.execute(f"DROP SCHEMA {schema} CASCADE")
            cursor.execute(f"DROP DATABASE {database}")


def quoted(name: str, mark: str) -> str:
    return mark + name.replace(mark, 2 * mark) + mark


def resources_of(
    name: str, mode: str, postgres: Server, mariadb: Server, names: tuple[str, str]
) -> dict[str, Any]:
    options, command = MODES[mode]

    def connect() -> psycopg.Connection[Any]:
        made = psycopg.connect(postgres.url, options=options)
        made.execute(f"SET search_path TO {quoted(name, chr(34))}")
        made.commit()
        return made

    url = f"{mariadb.url.rpartition('/')[0]}/{quote(name, safe='')}"
    if command:
        url += f"?init_command={quote(command)}"
    return {names[0]: PostgresResource(names[0], connect), names[1]: url}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", MODES)
def test_work_is_recovered_and_messages_are_kept_whatever_the_name(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server, name: str, mode: str
) -> None:
    def stop(step: str) -> None:
        if step == "after decision":
            raise StopError

    names = ("pg", "maria") if name != PARTS[0] else (f"pg {PRINTABLE}", f"maria {PRINTABLE}")
    servers = name, mode, postgres_server, mariadb_server, names
    settings: dict[str, Any] = {"recovery_interval": None, "orphan_interval": 0.0}
    with (
        TransactionManager(tmp_path / "tm", resources_of(*servers), on_step=stop, **settings) as tm,
        pytest.raises(StopError),
        tm.begin() as tx,
    ):
        for one in names:
            tx[one].execute("INSERT INTO t VALUES (1)")
    with TransactionManager(tmp_path / "tm", resources_of(*servers), **settings) as tm:
        assert not tm.preflight()
        report = tm.recover()
        assert (report.clean, len(report.committed)) == (True, 2)
        for one in names:
            outbox = Outbox(tm, one)
            handle = tm.transactional(key=IdempotencyKey(one, of=str, scope="s"))(len)
            with tm.begin() as tx:
                assert list(tx[one].execute("SELECT k FROM t").fetchall()) == [(1,)]
                outbox.add(tx, "topic", b"body")
            assert handle("abc") == handle("abc") == 3
        assert tm.recover().clean


def test_an_asynchronous_engine_keeps_messages_whatever_the_name(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server, name: str
) -> None:
    del mariadb_server
    url = sa.make_url(postgres_server.url)
    schema = quoted(name, '"')

    async def work() -> None:
        engine = create_async_engine(
            url.set(drivername="postgresql+asyncpg"),
            connect_args={"server_settings": {"search_path": schema}},
        )
        recovery = sa.create_engine(url.set(drivername="postgresql+psycopg"))

        @sa.event.listens_for(recovery, "connect")
        def set_path(raw: Any, _: object) -> None:
            raw.execute(f"SET search_path TO {schema}")
            raw.commit()

        resources = {"pg": AsyncDatabase(engine, recovery=recovery)}
        manager = TransactionManager(tmp_path / "tm", resources, recovery_interval=None)
        async with AsyncTransactionManager(manager) as tm:
            outbox = Outbox(tm, "pg")
            async with tm.begin() as tx:
                await outbox.add_awaiting(tx, "topic", b"body")
        await engine.dispose()
        recovery.dispose()

    asyncio.run(work())


def test_names_that_are_too_long_are_refused_or_right(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> None:
    long = "n" * 300
    with pytest.raises(TransactionUsageError, match="name of 300 characters"):
        adapt(long, mariadb_server.url)
    for bad in ("", "a\0b", "größe"):
        with pytest.raises(TransactionUsageError, match="cannot name a resource"):
            adapt(bad, postgres_server.url)
    resources = {long: postgres_server.url, "n" * 255: mariadb_server.url}
    with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as tm:
        with tm.begin() as tx:
            for name in resources:
                tx[name].execute("SELECT 1")
        assert tm.recover().clean


def test_outcome_rows_of_other_names_are_left_alone(mariadb_server: Server) -> None:
    made = [adapt(one, mariadb_server.url) for one in ("a", "a' OR '1'='1", "a%")]
    for one in made:
        assert isinstance(one, MySqlResource)
        assert list(one.outcomes()) == []
        one.forget_outcomes([next(_gtrids)])
        one.close()


_gtrids = (bytes([number]) for number in itertools.count(1))
