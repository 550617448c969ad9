"""Two-phase commit over PostgreSQL and MariaDB without a manager, for comparison."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from psycopg import generators

from tallystick.reconcile.gid import format_gid
from tallystick.reconcile.ids import literal
from tallystick.services.transactions.resources.connection_resource import OUTCOMES
from tallystick.services.transactions.xids import XidFactory

UPDATE = "UPDATE accounts SET balance = balance + 1 WHERE id = %s"


class Bare:
    """Two-phase commit without a manager. Each decision is synced before the second phase.

    It is written to a file of the thread: without it a stop between the two commits would leave
    branches that nobody can tell to commit or to roll back.
    """

    def __init__(self, postgres: str, mariadb: int, folder: Path) -> None:
        self._postgres, self._mariadb = postgres, mariadb
        self._folder = folder
        self._local = threading.local()
        self._rows = itertools.count()
        self._ids = XidFactory("bench")

    def row(self) -> int:
        """The account of this thread."""
        if not hasattr(self._local, "row"):
            self._local.row = next(self._rows)
        return int(self._local.row)

    def sequential(self) -> None:
        """As it is usually written."""
        pg, maria, gid, xid = self._connected()
        pg.execute("BEGIN")
        pg.execute(UPDATE, (self.row(),))
        with maria.cursor() as cursor:
            cursor.execute(f"XA START {xid}")
            cursor.execute(UPDATE, (self.row(),))
            cursor.execute(f"XA END {xid}")
            pg.execute(f"PREPARE TRANSACTION '{gid}'")
            cursor.execute(f"XA PREPARE {xid}")
            self._decide(gid)
            pg.execute(f"COMMIT PREPARED '{gid}'")
            cursor.execute(f"XA COMMIT {xid}")

    def overlapped(self) -> None:
        """The calls that the manager's resources make, and no others.

        The rows that prove a commit whose answer is lost are among them.
        """
        pg, maria, gid, xid = self._connected()
        key = xid.split("'")[1]
        outcome = f"INSERT INTO {OUTCOMES} VALUES ('{key}', 'bare')"
        pg.pgconn.exec_(b"BEGIN")
        pg.execute(UPDATE, (self.row(),))
        with maria.cursor() as cursor:
            cursor.execute(f"XA START {xid}")
            cursor.execute(UPDATE, (self.row(),))
            pg.pgconn.send_query(f"{outcome}; PREPARE TRANSACTION '{gid}'".encode())
            cursor.execute(f"INSERT INTO {OUTCOMES} VALUES (%s, %s)", (key, "bare"))
            cursor.execute(f"XA END {xid}")
            cursor.execute(f"XA PREPARE {xid}")
            pg.wait(generators.execute(pg.pgconn))
            self._decide(gid)
            pg.pgconn.send_query(f"COMMIT PREPARED '{gid}'".encode())
            cursor.execute(f"XA COMMIT {xid}")
            pg.wait(generators.execute(pg.pgconn))

    def _decide(self, gid: str) -> None:
        """Write a decision over the last one of this thread, and sync it."""
        os.pwrite(self._local.file, gid.encode().ljust(128), 0)
        os.fdatasync(self._local.file)

    def _connected(self) -> tuple[Any, Any, str, str]:
        local = self._local
        if not hasattr(local, "pg"):
            path = self._folder / f"decision-{self.row()}"
            local.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            local.pg = psycopg.connect(self._postgres, autocommit=True)
            local.maria = pymysql.connect(
                host="127.0.0.1", port=self._mariadb, user="root", database="bench", autocommit=True
            )
        gtrid = self._ids.gtrid()
        gid, xid = format_gid(self._ids.branch(gtrid)), literal(self._ids.branch(gtrid))
        return local.pg, local.maria, gid, xid


def make_tables(postgres: str, mariadb: int, rows: int) -> None:
    create = "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)"
    with psycopg.connect(postgres) as pg:
        pg.execute(create)
        pg.cursor().executemany(
            "INSERT INTO accounts VALUES (%s, 0)", [(row,) for row in range(rows)]
        )
    with pymysql.connect(host="127.0.0.1", port=mariadb, user="root") as maria:
        cursor = maria.cursor()
        cursor.execute("CREATE DATABASE bench")
        cursor.execute("USE bench")
        cursor.execute(create)
        cursor.executemany("INSERT INTO accounts VALUES (%s, 0)", [(row,) for row in range(rows)])
        maria.commit()
