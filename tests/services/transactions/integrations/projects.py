"""The projects under ``examples/``, each over a new database of both servers."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from tests.servers import START_SECONDS, Server, free_port

ROOT = Path(__file__).parents[4]
_names = itertools.count(1)


class Databases:
    """A new database in each server."""

    def __init__(self, postgres: Server, mariadb: Server) -> None:
        self.name = f"django{os.getpid()}x{next(_names)}"
        self.ports = {"orders": postgres.port, "stock": mariadb.port}
        with psycopg.connect(postgres.url, autocommit=True) as pg:
            pg.execute(f"CREATE DATABASE {self.name}")
        maria = pymysql.connect(host="127.0.0.1", port=mariadb.port, user="root")
        maria.cursor().execute(f"CREATE DATABASE {self.name}")
        maria.close()
        self.urls = {
            "ORDERS": f"{postgres.url.rpartition('/')[0]}/{self.name}",
            "STOCK": f"mysql://root@127.0.0.1:{mariadb.port}/{self.name}",
        }

    @property
    def in_doubt(self) -> bool:
        """Whether a branch is in doubt in one of them."""
        with psycopg.connect(self.urls["ORDERS"]) as pg:
            query = "SELECT 1 FROM pg_prepared_xacts WHERE database = %s"
            left = pg.execute(query, (self.name,)).fetchall()
        maria = pymysql.connect(host="127.0.0.1", port=self.ports["stock"], user="root")
        try:
            cursor = maria.cursor()
            cursor.execute("XA RECOVER")
            return bool(left or cursor.fetchall())
        finally:
            maria.close()


class Project:
    """An example, started by its one command; ``arguments`` come before the port."""

    def __init__(self, folder: Path, urls: dict[str, str], *arguments: str) -> None:
        self.port = free_port()
        environment = os.environ | urls | {"COORDINATOR": str(folder / "coordinator")}
        self.process = subprocess.Popen(
            [sys.executable, *arguments, str(self.port)],
            env=environment | {"PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT / "examples",
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.ask("state")
            except OSError:
                assert self.process.poll() is None, "the project has ended by itself"
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return

    def ask(self, path: str, *, post: bool = False) -> Any:
        address = f"http://127.0.0.1:{self.port}/{path}"
        request = urllib.request.Request(address, data=b"" if post else None)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
