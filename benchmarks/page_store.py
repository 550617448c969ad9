"""The page store beside its peers: durable transfers between two of many rows, in one run.

``python benchmarks/page_store.py [--seconds 1] [--rounds 5] [--callers 1 32] [--json]``.
Every transaction reads two of `ROWS` balances and changes both; it counts once it is durable.
Each round runs every store once, so that a noisy disk is noisy for all; the table shows medians
over the rounds, and as ratio the median of the rounds' ratios. At the end the balances of every
store must add up. Rates vary with the machine: compare only what one run prints.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tallystick.services.page_store import PageStore
from tallystick.storage.local import LocalFile

ROWS = 10_000
START = 1000
"""Balance of every row at first."""
FILLER = b" " * 92
"""Rows of 100 bytes: a balance of eight, and this."""

Row = dict[str, Any]


@dataclass
class Peer:
    """``transfer(a, b)`` moves one from a row to another, durably; ``total()`` adds all up. The
    syncs of a ``countable`` one go through our file layer."""

    name: str
    durability: str
    transfer: Callable[[int, int], object]
    total: Callable[[], int]
    countable: bool = False


def packed(balance: int) -> bytes:
    """A row."""
    return b"%08d" % balance + FILLER


@contextmanager
def counted_syncs() -> Iterator[Callable[[], int]]:
    """Counts every sync of a file through the file layer, checkpoints included; meanwhile no
    log is written by the compiled core, whose syncs would not be seen."""
    real, count = LocalFile.datasync, [0]

    def datasync(file: LocalFile) -> None:
        count[0] += 1
        real(file)

    with patch.object(LocalFile, "datasync", datasync):
        yield lambda: count[0]


@contextmanager
def page_store(system: str, folder: Path) -> Iterator[Peer]:
    """Ours, with its defaults, on one of its logs."""

    def transfer(source: int, target: int) -> None:
        with store.begin() as tx:
            accounts = tx.table("accounts")
            for key, change in sorted(((source, -1), (target, 1))):
                accounts[key] = packed(int(accounts.for_update(key)[:8]) + change)

    def total() -> int:
        with store.begin() as tx:
            return sum(int(row[:8]) for row in tx.table("accounts").values())

    with PageStore(folder / "store", system=system) as store:
        store.create_table("accounts")
        with store.begin() as tx:
            accounts = tx.table("accounts")
            for key in range(ROWS):
                accounts[key] = packed(START)
        store.checkpoint()
        yield Peer(f"page store ({system})", "fdatasync of the log", transfer, total, True)


@contextmanager
def sqlite_full(folder: Path) -> Iterator[Peer]:
    """SQLite, WAL, synchronous=FULL, a connection per thread. Writers take turns at a lock of
    ours, which is faster for them than SQLite's own waiting."""
    local, turn = threading.local(), threading.Lock()
    opened: list[sqlite3.Connection] = []

    def connection() -> sqlite3.Connection:
        if not hasattr(local, "db"):
            local.db = sqlite3.connect(
                folder / "sqlite.db", timeout=60, isolation_level=None, check_same_thread=False
            )
            local.db.execute("PRAGMA journal_mode=WAL")
            local.db.execute("PRAGMA synchronous=FULL")
            opened.append(local.db)
        found: sqlite3.Connection = local.db
        return found

    def transfer(source: int, target: int) -> None:
        db = connection()
        with turn:
            db.execute("BEGIN IMMEDIATE")
            for key, change in ((source, -1), (target, 1)):
                (row,) = db.execute("SELECT row FROM accounts WHERE id=?", (key,)).fetchone()
                changed = packed(int(row[:8]) + change)
                db.execute("UPDATE accounts SET row=? WHERE id=?", (changed, key))
            db.execute("COMMIT")

    db = connection()
    db.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, row BLOB)")
    db.execute("BEGIN")
    db.executemany("INSERT INTO accounts VALUES (?, ?)", ((i, packed(START)) for i in range(ROWS)))
    db.execute("COMMIT")

    def total() -> int:
        return sum(int(row[:8]) for (row,) in db.execute("SELECT row FROM accounts"))

    yield Peer("sqlite3 WAL FULL", "fsync of the WAL", transfer, total)
    for one in opened:
        one.close()


@contextmanager
def lmdb_sync(folder: Path) -> Iterator[Peer]:
    """LMDB with its defaults: sync at each commit; its writers take turns."""
    import lmdb

    environment = lmdb.open(str(folder / "lmdb"), map_size=1 << 30)

    def transfer(source: int, target: int) -> None:
        with environment.begin(write=True) as tx:
            for key, change in ((source, -1), (target, 1)):
                name = key.to_bytes(8, "big")
                tx.put(name, packed(int((tx.get(name) or b"")[:8]) + change))

    def total() -> int:
        with environment.begin() as tx:
            return sum(int(row[:8]) for _, row in tx.cursor())

    with environment.begin(write=True) as tx:
        for key in range(ROWS):
            tx.put(key.to_bytes(8, "big"), packed(START))
    yield Peer("LMDB", "fdatasync + meta page", transfer, total)
    environment.close()


@contextmanager
def zodb_file_storage(folder: Path) -> Iterator[Peer]:
    """ZODB's FileStorage: an object per row in a B-tree, a connection per thread, conflicts
    tried again."""
    import transaction
    import ZODB
    import ZODB.FileStorage
    from BTrees.IOBTree import IOBTree
    from persistent.mapping import PersistentMapping
    from ZODB.POSException import ConflictError

    storage = ZODB.FileStorage.FileStorage(str(folder / "zodb.fs"))
    database = ZODB.DB(storage, pool_size=100, cache_size=2 * ROWS)
    local = threading.local()

    def transfer(source: int, target: int) -> None:
        if not hasattr(local, "root"):
            local.manager = transaction.TransactionManager()
            local.root = database.open(local.manager).root()
        while True:
            try:
                local.manager.begin()
                for key, change in ((source, -1), (target, 1)):
                    row = local.root["accounts"][key]
                    row["row"] = packed(int(row["row"][:8]) + change)
                local.manager.commit()
            except ConflictError:
                local.manager.abort()
            else:
                return

    def total() -> int:
        with database.transaction() as connection:
            accounts = connection.root()["accounts"]
            return sum(int(one["row"][:8]) for one in accounts.values())

    with database.transaction() as connection:
        rows = {key: PersistentMapping(row=packed(START)) for key in range(ROWS)}
        connection.root()["accounts"] = IOBTree(rows)
    yield Peer("ZODB FileStorage", "fsync", transfer, total)
    database.close()


class StatementsOfDbm:
    """What ``dbm.sqlite3`` of Python 3.13 does, statement by statement, where it is not there: its
    table, its journal mode, its settings, a commit for every change."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = wal")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS Dict (key BLOB UNIQUE NOT NULL, value BLOB NOT NULL)"
        )

    def __getitem__(self, key: str) -> bytes:
        statement = "SELECT value FROM Dict WHERE key = CAST(? AS BLOB)"
        with closing(self._db.execute(statement, (key,))) as rows:
            (value,) = rows.fetchone()
        return bytes(value)

    def __setitem__(self, key: str, value: bytes) -> None:
        statement = "REPLACE INTO Dict (key, value) VALUES (CAST(? AS BLOB), CAST(? AS BLOB))"
        with closing(self._db.execute(statement, (key, value))):
            return

    def keys(self) -> list[bytes]:
        with closing(self._db.execute("SELECT key FROM Dict")) as rows:
            return [key for (key,) in rows]


def opened_dbm(path: Path) -> Any:
    """The module's own, or its statements."""
    if not find_spec("dbm.sqlite3"):
        return StatementsOfDbm(path)
    import dbm.sqlite3  # type: ignore[import-not-found]  # from Python 3.13 on

    return dbm.sqlite3.open(path, "c")


@contextmanager
def dbm_sqlite(folder: Path) -> Iterator[Peer]:
    """``dbm.sqlite3``: no transactions, so its two changes are two commits, with its settings."""
    turn, own = threading.Lock(), threading.local()

    def opened() -> Any:
        if not hasattr(own, "db"):
            own.db = opened_dbm(folder / "dbm")
        return own.db

    def transfer(source: int, target: int) -> None:
        with turn:
            db = opened()
            for key, change in ((source, -1), (target, 1)):
                db[str(key)] = packed(int(db[str(key)][:8]) + change)

    def total() -> int:
        return sum(int(opened()[key.decode()][:8]) for key in opened().keys())  # noqa: SIM118

    opened()
    with closing(sqlite3.connect(folder / "dbm")) as db:  # at one go, which it cannot itself
        rows = ((str(key).encode(), packed(START)) for key in range(ROWS))
        db.executemany("INSERT INTO Dict VALUES (?, ?)", rows)
        db.commit()
    name = "dbm.sqlite3" if find_spec("dbm.sqlite3") else "dbm.sqlite3 (statements)"
    yield Peer(name, "two commits, each as SQLite's defaults have it", transfer, total)


Open = Callable[[Path], AbstractContextManager[Peer]]
STORES: list[Open] = [
    partial(page_store, "tally"),
    partial(page_store, "h2"),
    sqlite_full,
    lmdb_sync,
    zodb_file_storage,
    dbm_sqlite,
]


def measure(peer: Peer, callers: int, seconds: float) -> Row:
    """Rate and latencies of ``callers`` threads that transfer as fast as they can."""
    latencies: list[list[float]] = [[] for _ in range(callers)]
    begin = time.perf_counter()

    def work(seed: int, own: list[float]) -> None:
        chance = random.Random(seed)
        now = time.perf_counter()
        while now < begin + seconds:
            peer.transfer(*chance.sample(range(ROWS), 2))
            before, now = now, time.perf_counter()
            own.append(now - before)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(latencies)]
    cpu = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = sorted(one for own in latencies for one in own)
    took = time.perf_counter() - begin
    assert peer.total() == ROWS * START, f"{peer.name}: the balances do not add up"
    return {
        "store": peer.name,
        "durability": peer.durability,
        "commits": len(every),
        "rate": len(every) / took,
        "p50_ms": every[len(every) // 2] * 1000,
        "p99_ms": every[len(every) * 99 // 100] * 1000,
        "cpu_us": (time.process_time() - cpu) / len(every) * 1e6,
    }


def syncs_per_commit(store: Open, callers: int, seconds: float) -> float | None:
    """Syncs of a transfer, in a run of its own; None where they cannot be counted."""
    with (
        tempfile.TemporaryDirectory() as folder,
        counted_syncs() as syncs,
        store(Path(folder)) as peer,
    ):
        if not peer.countable:
            return None
        before = syncs()
        commits = measure(peer, callers, seconds)["commits"]
        return (syncs() - before) / float(commits)


def rounds(stores: Sequence[Open], callers: int, count: int, seconds: float) -> list[Row]:
    """A row for each store: medians over alternating rounds, ratios taken round by round."""
    rows: dict[str, list[Row]] = {}
    for _ in range(count):
        for store in stores:
            with tempfile.TemporaryDirectory() as folder, store(Path(folder)) as peer:
                rows.setdefault(peer.name, []).append(measure(peer, callers, seconds))
    ours = next(iter(rows.values()))
    # Last: the log's modules are loaded by then, and have noted which functions are the real ones.
    syncs = [syncs_per_commit(store, callers, seconds) for store in stores]
    return [
        {**_median(every, ours), "syncs_per_commit": number}
        for every, number in zip(rows.values(), syncs, strict=True)
    ]


def _median(rows: list[Row], ours: list[Row]) -> Row:
    row = dict(rows[0])
    for name in ("rate", "p50_ms", "p99_ms", "cpu_us"):
        row[name] = statistics.median([one[name] for one in rows])
    pairs = zip(ours, rows, strict=True)
    row["ours_is"] = statistics.median(mine["rate"] / one["rate"] for mine, one in pairs)
    return row


def show(callers: int, rows: list[Row]) -> None:
    """A table, with each rate beside ours on the native log."""
    print(f"\n{callers} caller{'s' if callers > 1 else ''}")
    print(
        f"  {'':26}{'commits/s':>10}{'ours is':>9}{'p50 ms':>8}{'p99 ms':>8}{'CPU us':>8}"
        "  syncs/commit"
    )
    for row in rows:
        syncs = "1 or more" if row["syncs_per_commit"] is None else f"{row['syncs_per_commit']:.3f}"
        print(
            f"  {row['store']:26}{row['rate']:>10,.0f}{row['ours_is']:>8.2f}x{row['p50_ms']:>8.2f}"
            f"{row['p99_ms']:>8.2f}{row['cpu_us']:>8.0f}  {syncs} ({row['durability']})"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    tables = {
        callers: rounds(STORES, callers, given.rounds, given.seconds) for callers in given.callers
    }
    if given.json:
        print(json.dumps(tables))
        return
    for callers, rows in tables.items():
        show(callers, rows)
    if not find_spec("dbm.sqlite3"):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        print(f"\nPython {version} has no dbm.sqlite3: measured are the statements of 3.13's")


if __name__ == "__main__":
    main()
