"""The transaction manager's figures: decisions per second, and overhead over bare two-phase commit.

``python -m benchmarks.transactions``. Both parts are ratios in one run, alternating:

* 64 concurrent transactions over resources that answer at once, beside the same number of threads
  that write and fdatasync one decision each; durability: every decision synced before it counts
* 16 callers over PostgreSQL and MariaDB, beside the same statements without a manager
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from tests.servers import make_mariadb, make_postgres

from tallystick.records import Xid
from tallystick.services.transactions import Problem, TransactionManager, Vote
from tallystick.services.transactions.resources.mysql import literal
from tallystick.services.transactions.resources.postgres import format_gid
from tallystick.services.transactions.xids import XidFactory

ROUNDS = 5
SECONDS = 2.0


class InstantBranch:
    """A branch that does nothing, at once."""

    handle = None

    def __init__(self, xid: Xid) -> None:
        self.xid = xid

    def prepare(self) -> Vote:
        return Vote.PREPARED

    def nothing(self) -> None:
        """Every end."""

    commit = commit_one_phase = rollback = close = nothing


class InstantResource:
    """A resource that costs nothing, so that only the manager is measured."""

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self, xid: Xid) -> InstantBranch:
        return InstantBranch(xid)

    def in_doubt(self) -> Sequence[Xid]:
        return []

    def commit(self, xid: Xid) -> None:
        """Nothing is ever in doubt."""

    def rollback(self, xid: Xid) -> None:
        """Nothing is ever in doubt."""

    def preflight(self) -> Sequence[Problem]:
        return []

    def close(self) -> None:
        """Nothing is held."""


def rate(threads: int, work: Callable[[], None], seconds: float = SECONDS) -> float:
    """Calls of ``work`` per second by so many threads."""
    counts = [0] * threads
    end = time.perf_counter() + seconds

    def run(index: int) -> None:
        while time.perf_counter() < end:
            work()
            counts[index] += 1

    crew = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    return sum(counts) / seconds


def decisions(folder: Path, threads: int = 64) -> None:
    """Decisions of concurrent transactions beside one fsync per decision."""
    bare = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    os.write(bare, bytes(1 << 20))
    lock = threading.Lock()
    record, ours, theirs = bytes(128), [], []

    def one_fsync() -> None:
        with lock:
            os.pwrite(bare, record, 0)
            os.fdatasync(bare)

    resources = {name: InstantResource(name) for name in ("a", "b")}
    with TransactionManager(folder / "tm", resources, recovery_interval=None) as tm:

        def transaction() -> None:
            with tm.begin() as tx:
                tx["a"]
                tx["b"]

        for _ in range(ROUNDS):
            ours.append(rate(threads, transaction))
            theirs.append(rate(threads, one_fsync))
        counters = tm.decisions.log.counters  # type: ignore[attr-defined]  # the native log's
        syncs = counters.fsyncs / max(tm.statistics.decisions, 1)
    os.close(bare)
    told(f"{threads} transactions over instant resources", ours, "one fsync each", theirs)
    print(f"  fsyncs per decision: {syncs:.4f}; durability: synced before it counts, both sides")


def overhead(folder: Path, threads: int = 16) -> None:
    """Transactions over two servers beside the bare statements."""
    postgres, mariadb = make_postgres(), make_mariadb()
    try:
        for server in (postgres, mariadb):
            server.start()
        _tables(postgres.url, mariadb.port, threads)
        local = threading.local()
        accounts = iter(range(1 << 30))
        ids = XidFactory("bench")

        def account() -> int:
            if not hasattr(local, "account"):
                local.account = next(accounts) % threads
                local.pg = psycopg.connect(postgres.url, autocommit=True)
                local.maria = pymysql.connect(
                    host="127.0.0.1", port=mariadb.port, user="root", database="bench",
                    autocommit=True,
                )  # fmt: skip
            return int(local.account)

        def bare() -> None:
            _bare(local, ids, account())

        ours, theirs = [], []
        urls = {"pg": postgres.url, "maria": mariadb.url.replace("/mysql", "/bench")}
        with TransactionManager(folder / "over", urls, recovery_interval=None) as tm:

            def managed() -> None:
                row = account()
                with tm.begin() as tx:
                    tx["pg"].execute(_UPDATE, (row,))
                    tx["maria"].execute(_UPDATE, (row,))

            for _ in range(ROUNDS):
                ours.append(rate(threads, managed))
                theirs.append(rate(threads, bare))
        told(f"{threads} callers over PostgreSQL and MariaDB", ours, "bare statements", theirs)
    finally:
        postgres.kill()
        mariadb.kill()


_UPDATE = "UPDATE accounts SET balance = balance + 1 WHERE id = %s"


def _bare(local: Any, ids: XidFactory, row: int) -> None:
    gtrid = ids.gtrid()
    pg, maria = ids.branch(gtrid), ids.branch(gtrid)
    gid, xid = format_gid(pg), literal(maria)
    local.pg.execute("BEGIN")
    local.pg.execute(_UPDATE, (row,))
    with local.maria.cursor() as cursor:
        cursor.execute(f"XA START {xid}")
        cursor.execute(_UPDATE, (row,))
        cursor.execute(f"XA END {xid}")
        local.pg.execute(f"PREPARE TRANSACTION '{gid}'")
        cursor.execute(f"XA PREPARE {xid}")
        local.pg.execute(f"COMMIT PREPARED '{gid}'")
        cursor.execute(f"XA COMMIT {xid}")


def _tables(postgres: str, mariadb: int, rows: int) -> None:
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


def told(what: str, ours: list[float], other: str, theirs: list[float]) -> None:
    """Medians and the median of the ratios, round by round."""
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    print(
        f"{what}: {statistics.median(ours):,.0f}/s; {other}: {statistics.median(theirs):,.0f}/s; "
        f"ratio {ratio:.2f}"
    )


def main() -> None:
    """Both figures, or the ones named on the command line."""
    wanted = sys.argv[1:] or ["decisions", "overhead"]
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            {"decisions": decisions, "overhead": overhead}[name](Path(folder))


if __name__ == "__main__":
    main()
