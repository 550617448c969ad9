"""Databases in which the tests of requests and messages keep their rows, each empty."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.resources import adapt
from tests.servers import Server

_names = itertools.count(1)


class Places:
    """New databases of both servers, and managers over them.

    ``rows`` holds one table, ``done (id text)``; ``engine:`` before a name makes the resource a
    SQLAlchemy engine.
    """

    def __init__(self, folder: Path, postgres: Server, mariadb: Server) -> None:
        self.folder = folder
        database = f"requests{next(_names)}"
        with psycopg.connect(postgres.url, autocommit=True) as pg:
            pg.execute(f"CREATE DATABASE {database}")
        maria: Any = adapt("maria", mariadb.url)
        with maria.pool.borrow() as connection:
            connection.cursor().execute(f"CREATE DATABASE {database}")
        maria.close()
        self.urls = {
            "pg": f"{postgres.url.rpartition('/')[0]}/{database}",
            "maria": f"{mariadb.url.rpartition('/')[0]}/{database}",
            "lite": f"sqlite:///{folder}/lite.db",
        }
        self._engines: list[sqlalchemy.Engine] = []
        for name in self.urls:
            self.ask(name, "CREATE TABLE done (id VARCHAR(64) NOT NULL)")

    def resource(self, name: str) -> Any:
        kind, _, plain = name.rpartition(":")
        if not kind:
            return self.urls[plain]
        url = self.urls[plain].replace("mariadb://", "mariadb+pymysql://")
        url = url.replace("postgresql://", "postgresql+psycopg://")
        engine = sqlalchemy.create_engine(url)
        self._engines.append(engine)
        return engine

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()

    def manager(self, *names: str, node: str = "one", **settings: Any) -> TransactionManager:
        resources = {name.rpartition(":")[2]: self.resource(name) for name in names}
        settings = {"orphan_interval": 0.0, "recovery_interval": None} | settings
        return TransactionManager(self.folder / node, resources, node=node, **settings)

    def ask(self, name: str, text: str) -> list[tuple[Any, ...]]:
        """Run a statement and commit it."""
        resource: Any = adapt(name, self.urls[name])
        try:
            with resource.pool.borrow() as connection:
                cursor = connection.cursor()
                cursor.execute(text)
                rows = cursor.fetchall() if cursor.description else []
                connection.commit()
                return [tuple(row) for row in rows]
        finally:
            resource.close()

    def done(self, name: str) -> list[str]:
        """Return what stands in the table of work done, in order."""
        return [row[0] for row in self.ask(name, "SELECT id FROM done ORDER BY id")]


def do(name: str) -> str:
    """Return the statement that does work in a database."""
    return f"INSERT INTO done VALUES ({'?' if name == 'lite' else '%s'})"


def work_of(name: str) -> Callable[[Any, str], None]:
    """Return a function that does work on a handle of a thread."""

    def work(handle: Any, request: str) -> None:
        run = getattr(handle, "exec_driver_sql", handle.execute)
        run(do(name), (request,))

    return work


pytest_places = pytest.mark.parametrize(
    "place", ["pg", "maria", "lite", "engine:pg", "engine:maria"]
)
