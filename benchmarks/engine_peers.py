"""Peers of the engine: each commits a body durably, whatever its own words for that are.

In: a folder. Out: `Peer` objects with their durability level and their count of syncs where it is
known (the bare loop and ours count their own; `engine_syncs` counts those of the others).
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallystick.services.journal import Journal

BODY = b"x" * 256


@dataclass
class Peer:
    """``commit()`` returns when one more body is durable; ``syncs()`` counts syncs so far."""

    name: str
    durability: str
    commit: Callable[[], object]
    syncs: Callable[[], int | None] = lambda: None


@contextmanager
def bare(folder: Path) -> Iterator[Peer]:
    """``pwrite`` and ``fdatasync`` into a file filled with zeros, under one lock."""
    lock, count, size = threading.Lock(), itertools.count(), 16 << 20
    descriptor = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes(size), 0)
    os.fsync(descriptor)
    data = BODY.ljust(1024, b"\0")
    done = 0

    def commit() -> None:
        nonlocal done
        with lock:
            os.pwrite(descriptor, data, next(count) * 1024 % size)
            os.fdatasync(descriptor)
            done += 1

    yield Peer("bare pwrite + fdatasync", "fdatasync", commit, lambda: done)
    os.close(descriptor)


@contextmanager
def tallystick_journal(folder: Path) -> Iterator[Peer]:
    """Ours, with its defaults."""
    with Journal(folder / "tally") as journal:
        yield Peer(
            "tallystick",
            "fdatasync",
            lambda: journal.append(BODY),
            lambda: journal.counters.fsyncs,
        )


@contextmanager
def sqlite_full(folder: Path) -> Iterator[Peer]:
    """SQLite in WAL mode with synchronous=FULL, a connection per thread."""
    path = str(folder / "sqlite.db")
    local = threading.local()
    opened: list[sqlite3.Connection] = []

    def connection() -> sqlite3.Connection:
        if not hasattr(local, "db"):
            db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("CREATE TABLE IF NOT EXISTS log (body BLOB)")
            local.db = db
            opened.append(db)
        found: sqlite3.Connection = local.db
        return found

    yield Peer(
        "SQLite WAL FULL",
        "fsync of the WAL",
        lambda: connection().execute("INSERT INTO log VALUES (?)", (BODY,)),
    )
    for db in opened:
        db.close()


@contextmanager
def lmdb_sync(folder: Path) -> Iterator[Peer]:
    """LMDB with its defaults: sync at each commit."""
    import lmdb

    environment = lmdb.open(str(folder / "lmdb"), map_size=1 << 30)
    count = itertools.count()

    def commit() -> None:
        with environment.begin(write=True) as transaction:
            transaction.put(next(count).to_bytes(8, "big"), BODY)

    yield Peer("LMDB", "fdatasync + meta page", commit)
    environment.close()


@contextmanager
def rocksdict_sync(folder: Path) -> Iterator[Peer]:
    """RocksDB's binding with sync writes."""
    from rocksdict import Options, Rdict, WriteOptions

    database = Rdict(str(folder / "rocks"), Options(raw_mode=True))
    options = WriteOptions()
    options.sync = True
    count = itertools.count()
    yield Peer(
        "rocksdict sync",
        "fsync of the WAL",
        lambda: database.put(next(count).to_bytes(8, "big"), BODY, options),
    )
    database.close()


@contextmanager
def zodb_file_storage(folder: Path) -> Iterator[Peer]:
    """ZODB's FileStorage: one object per commit."""
    import transaction
    import ZODB
    import ZODB.FileStorage
    from persistent.mapping import PersistentMapping

    database = ZODB.DB(ZODB.FileStorage.FileStorage(str(folder / "zodb.fs")), pool_size=100)
    local, number, first = threading.local(), itertools.count(), threading.Lock()

    def commit() -> None:
        if not hasattr(local, "root"):
            local.manager = transaction.TransactionManager(explicit=False)
            local.root = database.open(local.manager).root()
            name = f"t{next(number)}"
            with first:
                local.manager.begin()  # sees what the threads before committed
                local.root[name] = PersistentMapping()
                local.manager.commit()
            local.own = local.root[name]
        local.own["body"] = BODY + next(number).to_bytes(8, "big")
        local.manager.commit()

    yield Peer("ZODB FileStorage", "fsync", commit)
    database.close()


PEERS = (bare, tallystick_journal, sqlite_full, lmdb_sync, rocksdict_sync, zodb_file_storage)
