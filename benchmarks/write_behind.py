"""Write-behind beside an outbox table in the same database: acknowledged transactions per second.

``python -m benchmarks.write_behind [--callers 64] [--seconds 3] [--database postgres]``. Both
make every transaction durable before it is acknowledged: write-behind in its own log (one
fdatasync per group), the outbox by a commit of the database (an insert into the table of rows
and one into the outbox, synced by the database's own group commit). Then: how long until the
table has it.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from tests.servers import make_mariadb, make_postgres, running

from tallystick.services.write_behind import WriteBehind, WriteBehindSettings

DRIVERS = {"postgres": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
TABLES = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(20))",
    "CREATE TABLE outbox (id BIGINT PRIMARY KEY, body VARCHAR(200))",
)


@contextmanager
def database(kind: str, folder: Path, callers: int) -> Iterator[Engine]:
    """An engine of a fresh database with the tables."""
    if kind == "sqlite":
        yield _prepared(sa.create_engine(f"sqlite:///{folder / 'shop.db'}"))
        return
    server = make_postgres() if kind == "postgres" else make_mariadb()
    for one in running(server):
        url = one.url.replace(one.url.partition(":")[0], DRIVERS[kind], 1)
        engine = sa.create_engine(url, pool_size=callers, max_overflow=8)
        yield _prepared(engine)
        engine.dispose()


def _prepared(engine: Engine) -> Engine:
    with engine.begin() as connection:
        for statement in TABLES:
            connection.execute(sa.text(statement))
        if engine.dialect.name == "sqlite":
            connection.execute(sa.text("PRAGMA synchronous=FULL"))
    return engine


def rate(work: Callable[[int], None], callers: int, seconds: float) -> tuple[int, float]:
    """Transactions acknowledged, and how long it took; each call gets a number of its own."""
    counts = [0] * callers
    deadline = time.perf_counter() + seconds

    def run(caller: int) -> None:
        while time.perf_counter() < deadline:
            work(caller * 100_000_000 + counts[caller])
            counts[caller] += 1

    threads = [threading.Thread(target=run, args=(caller,)) for caller in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), time.perf_counter() - began


def outbox(engine: Engine, callers: int, seconds: float) -> float:
    """Acknowledged transactions per second with an outbox table."""
    order = sa.text("INSERT INTO orders VALUES (:id, 'new')")
    message = sa.text("INSERT INTO outbox VALUES (:id, 'new order')")

    def commit(number: int) -> None:
        with engine.begin() as connection:
            connection.execute(order, {"id": -number - 1})
            connection.execute(message, {"id": number})

    count, took = rate(commit, callers, seconds)
    return count / took


def write_behind(engine: Engine, folder: Path, callers: int, seconds: float) -> tuple[float, float]:
    """Acknowledged transactions per second, and applied ones until everything is there."""
    settings = WriteBehindSettings(
        backlog_max=10_000_000, backlog_bytes_max=1 << 34, batch_max=2000
    )
    with WriteBehind(folder / "spool", {"shop": engine}, settings=settings) as behind:

        def commit(number: int) -> None:
            with behind.begin() as tx:
                tx.insert("orders", {"id": number}, {"state": "new"})

        began = time.perf_counter()
        count, took = rate(commit, callers, seconds)
        behind.drain()
        return count / took, count / (time.perf_counter() - began)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--callers", type=int, default=64)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--database", choices=["sqlite", *DRIVERS], default="postgres")
    chosen = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory() as place,
        database(chosen.database, Path(place), chosen.callers) as engine,
    ):
        theirs = outbox(engine, chosen.callers, chosen.seconds)
        ours, drained = write_behind(engine, Path(place), chosen.callers, chosen.seconds)
        print(f"{chosen.database}, {chosen.callers} callers, durable before acknowledged")
        print(f"outbox table     {theirs:10.0f} acknowledged/s")
        print(f"write-behind     {ours:10.0f} acknowledged/s, {ours / theirs:.1f} times as many")
        print(f"until applied    {drained:10.0f} transactions/s")


if __name__ == "__main__":
    main()
