"""A bank with accounts in several databases and a page store, and the program that is killed."""

from __future__ import annotations

import itertools
import sqlite3
import time
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tests.forked import Program
from tests.servers import Server
from tests.services.transactions import killed

_names = itertools.count(1)
_TABLE = "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)"


class Bank:
    """Accounts in several databases and a page store, and the program that is killed."""

    def __init__(self, folder: Path, postgres: Server, mariadb: Server) -> None:
        self.folder = folder
        self.database = f"bank{next(_names)}"
        self.urls = {
            "pg": f"{postgres.url.rpartition('/')[0]}/{self.database}",
            "maria": f"{mariadb.url.rpartition('/')[0]}/{self.database}",
            "lite": f"sqlite:///{folder}/lite.db",
            "log": "bitronix",
            "tasks": "yes",
        }
        self._mariadb = mariadb
        with psycopg.connect(postgres.url, autocommit=True) as pg:
            pg.execute(f"CREATE DATABASE {self.database}")
        with psycopg.connect(self.urls["pg"]) as pg:
            self._fill(pg.cursor(), "%s")
        with self.maria("") as maria:
            cursor = maria.cursor()
            cursor.execute(f"CREATE DATABASE {self.database}")
            cursor.execute(f"USE {self.database}")
            self._fill(cursor, "%s")
            maria.commit()
        with sqlite3.connect(folder / "lite.db") as lite:
            self._fill(lite.cursor(), "?")
        with PageStore(folder / "store") as store:
            store.create_table("accounts")
            with store.begin() as tx:
                for account in range(killed.ACCOUNTS):
                    tx.table("accounts")[account] = b"0"

    def _fill(self, cursor: Any, mark: str) -> None:
        cursor.execute(_TABLE)
        rows = [(account,) for account in range(killed.ACCOUNTS)]
        cursor.executemany(f"INSERT INTO accounts VALUES ({mark}, 0)", rows)

    def maria(self, database: str | None = None) -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=self._mariadb.port, user="root",
            database=(self.database if database is None else database) or None,
        )  # fmt: skip

    def start(self, mode: str, count: int | str, names: tuple[str, ...]) -> Program:
        arguments = [f"{name}={self.urls.get(name, 'yes')}" for name in names]
        return Program(killed.__name__, str(self.folder), mode, str(count), *arguments)

    def run(self, mode: str, count: int | str, names: tuple[str, ...]) -> bool:
        """Return True if the program reached its end, False if it was killed."""
        output, status = self.start(mode, count, names).communicate()
        assert status in (0, -9), output
        return status == 0

    def recover(self, names: tuple[str, ...]) -> None:
        """Recover until nothing is left, then check that no money was made or lost."""
        names = tuple(name for name in names if name != "tasks")
        resources: dict[str, Any] = {n: self.urls[n] for n in names if n != "store"}
        with PageStore(self.folder / "store") as store:
            if "store" in names:
                resources["store"] = store
            with TransactionManager(
                self.folder / "coordinator", resources, orphan_interval=0.0, recovery_interval=None
            ) as tm:
                for _ in range(50):  # a session that died may hold its branch for a moment
                    if tm.recover().clean:
                        break
                    time.sleep(0.05)
                assert tm.recover().clean
                assert not tm.decisions.open_decisions()
            assert not store.in_doubt()
            assert not store.check()
        balances = self.balances(names)
        paid = {-sum(rows) for name, rows in balances.items() if name != names[-1]}
        assert len(paid) == 1, f"the payers disagree: {paid}"
        assert len({len(rows) for rows in balances.values()}) == 1, balances
        totals = [sum(rows) for rows in zip(*balances.values(), strict=True)]
        assert not any(totals), "money was made or lost"

    def balances(self, names: tuple[str, ...]) -> dict[str, list[int]]:
        query = "SELECT balance FROM accounts ORDER BY id"
        found: dict[str, list[int]] = {}
        with psycopg.connect(self.urls["pg"]) as pg, self.maria() as maria:
            cursor = maria.cursor()
            cursor.execute(query)
            found["maria"] = [row[0] for row in cursor.fetchall()]
            found["pg"] = [row[0] for row in pg.execute(query).fetchall()]
        lite = sqlite3.connect(self.folder / "lite.db")
        found["lite"] = [row[0] for row in lite.execute(query)]
        lite.close()
        with PageStore(self.folder / "store") as store, store.begin() as tx:
            found["store"] = [int(row) for _, row in tx.table("accounts").range()]
        return {name: found[name] for name in names}
