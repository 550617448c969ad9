"""Write-behind beside an outbox table in the same database: acknowledged transactions per second.

``python -m benchmarks.write_behind [--callers 1 16 64] [--tasks 64 1000] [--seconds 3]
[--database postgres]``. Both make every transaction durable before it is acknowledged:
write-behind in its own log (one fdatasync per group), the outbox by a commit of the database,
which groups commits itself. A transaction of the outbox is an insert into the table of rows and
one into the outbox; what a relay would do with the outbox afterwards is not counted. For
write-behind it also says when the table has all of its rows, which it gets with the settings
of a default service but for the size of the backlog.

Callers of the outbox are threads with SQLAlchemy, each with a connection; on PostgreSQL also
tasks that have psycopg alone. Beside so many callers of write-behind, threads or tasks, stands
what the outbox does with as many threads or as many tasks, whichever is more; beside more than
`CONNECTIONS_MAX`, what it does with that many, as through a pool.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from tallystick.roles import Operation, OperationCode
from tallystick.services.write_behind import WriteBehind, WriteBehindSettings
from tallystick.services.write_behind.targets.rows import encode_row

sys.path.insert(0, str(Path(__file__).parent.parent))  # for the tests' servers, run as script

from tests.servers import make_mariadb, make_postgres, running

DRIVERS = {"postgres": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
TABLES = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(20))",
    "CREATE TABLE outbox (id BIGINT PRIMARY KEY, body VARCHAR(200))",
)
CONNECTIONS_MAX = 64
"""A server with two cores gains nothing from more."""
SETTINGS = WriteBehindSettings(backlog_max=10_000_000, backlog_bytes_max=1 << 34, close_timeout=300)
Commit = Callable[[int], object]
AsyncCommit = Callable[[int, int], Awaitable[object]]


@contextmanager
def database(kind: str, folder: Path, callers: int) -> Iterator[Engine]:
    """An engine of a fresh database with the tables."""
    if kind == "sqlite":
        yield _prepared(sa.create_engine(f"sqlite:///{folder / 'shop.db'}"))
        return
    server = make_postgres() if kind == "postgres" else make_mariadb()
    with running(server) as one:
        url = one.url.replace(one.url.partition(":")[0], DRIVERS[kind], 1)
        engine = sa.create_engine(url, pool_size=callers, max_overflow=8)
        yield _prepared(engine)
        engine.dispose()


def _prepared(engine: Engine) -> Engine:
    with engine.begin() as connection:
        for statement in TABLES:
            connection.execute(sa.text(statement))
    return engine


def thread_rate(commit: Commit, callers: int, seconds: float) -> tuple[int, float]:
    """Transactions acknowledged, and how long it took; each call gets a number of its own."""
    numbers = count(1)
    totals = [0] * callers
    deadline = time.perf_counter() + seconds

    def run(caller: int) -> None:
        while time.perf_counter() < deadline:
            commit(next(numbers))
            totals[caller] += 1

    threads = [threading.Thread(target=run, args=(caller,)) for caller in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(totals), time.perf_counter() - began


async def task_rate(commit: AsyncCommit, callers: int, seconds: float) -> tuple[int, float]:
    """The same with tasks; the commit gets the number of the caller."""
    numbers = count(1)
    began = time.perf_counter()
    deadline = began + seconds

    async def run(caller: int) -> int:
        done = 0
        while time.perf_counter() < deadline:
            await commit(caller, next(numbers))
            done += 1
        return done

    totals = await asyncio.gather(*(run(caller) for caller in range(callers)))
    return sum(totals), time.perf_counter() - began


# -- an outbox table ---------------------------------------------------------------------


def outbox(engine: Engine, callers: int, seconds: float) -> tuple[int, float]:
    """Transactions acknowledged with an outbox table, by threads."""
    order = sa.text("INSERT INTO orders VALUES (:id, 'new')")
    message = sa.text("INSERT INTO outbox VALUES (:id, 'new order')")

    def commit(number: int) -> None:
        with engine.begin() as connection:
            connection.execute(order, {"id": -number})
            connection.execute(message, {"id": -number})

    return thread_rate(commit, callers, seconds)


async def outbox_tasks(engine: Engine, callers: int, seconds: float) -> tuple[int, float]:
    """The same by tasks, on PostgreSQL."""
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    connections = [await psycopg.AsyncConnection.connect(url) for _ in range(callers)]

    async def commit(caller: int, number: int) -> None:
        one = connections[caller]
        await one.execute("INSERT INTO orders VALUES (%s, 'new')", (-number,))
        await one.execute("INSERT INTO outbox VALUES (%s, 'new order')", (-number,))
        await one.commit()

    try:
        return await task_rate(commit, callers, seconds)
    finally:
        for one in connections:
            await one.close()


# -- write-behind ------------------------------------------------------------------------


def by_threads(behind: WriteBehind, callers: int, seconds: float) -> tuple[int, float]:
    """Transactions acknowledged by write-behind, by threads."""

    def commit(number: int) -> None:
        with behind.begin() as tx:
            tx.insert("orders", {"id": number}, {"state": "new"})

    return thread_rate(commit, callers, seconds)


async def by_tasks(behind: WriteBehind, callers: int, seconds: float) -> tuple[int, float]:
    """The same by tasks."""

    async def commit(_: int, number: int) -> None:
        key, value = encode_row({"id": number}), encode_row({"state": "new"})
        await behind.commit_async([Operation(OperationCode.INSERT, "orders", key, value)])

    return await task_rate(commit, callers, seconds)


def emptied(engine: Engine) -> None:
    with engine.begin() as connection:
        for table in ("orders", "outbox"):
            connection.execute(sa.text(f"DELETE FROM {table}"))


def peer(engine: Engine, callers: int, seconds: float) -> float:
    """What an outbox acknowledges per second, by threads or by tasks, whichever is more."""
    rates = {}
    emptied(engine)
    done, took = outbox(engine, callers, seconds)
    rates["threads"] = done / took
    if engine.dialect.name == "postgresql":
        emptied(engine)
        done, took = asyncio.run(outbox_tasks(engine, callers, seconds))
        rates["tasks"] = done / took
    best = max(rates, key=lambda kind: rates[kind])
    print(f"outbox table, {callers} {best}: {rates[best]:.0f} acknowledged/s", flush=True)
    return rates[best]


def measure(
    engine: Engine, folder: Path, callers: int, seconds: float, other: float, *, tasks: bool
) -> None:
    """Write-behind on an empty table, beside what the outbox acknowledges per second."""
    emptied(engine)
    kind = "tasks" if tasks else "threads"
    with WriteBehind(folder / f"{kind}-{callers}", {"shop": engine}, settings=SETTINGS) as behind:
        began, spent = time.perf_counter(), time.process_time()
        if tasks:
            ours, seconds = asyncio.run(by_tasks(behind, callers, seconds))
        else:
            ours, seconds = by_threads(behind, callers, seconds)
        spent = time.process_time() - spent
        waiting = behind.backlog.count
        behind.drain()
        drained = time.perf_counter() - began
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT count(*) FROM orders WHERE id > 0")).scalar()
    assert rows == ours, f"{rows} rows of {ours} transactions"
    rate, applied = ours / seconds, (ours - waiting) / seconds
    print(f"write-behind, {callers} {kind}: {rate:.0f} acknowledged/s, {rate / other:.1f} times")
    print(
        f"  {spent / ours * 1e6:.1f} us of processor time each; meanwhile {applied:.0f} applied/s"
    )
    print(
        f"  the last {waiting} in {drained - seconds:.1f} s more:"
        f" {ours / drained:.0f}/s over all reached the table",
        flush=True,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--callers", type=int, nargs="*", default=[1, 16, 64])
    arguments.add_argument("--tasks", type=int, nargs="*", default=[64, 1000])
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--database", choices=["sqlite", *DRIVERS], default="postgres")
    chosen = arguments.parse_args()
    wanted = [(one, False) for one in chosen.callers] + [(one, True) for one in chosen.tasks]
    numbers = {callers: min(callers, CONNECTIONS_MAX) for callers, _ in wanted}
    with (
        tempfile.TemporaryDirectory() as place,
        database(chosen.database, Path(place), max(numbers.values())) as engine,
    ):
        print(f"{engine.dialect.name}, durable before acknowledged")
        peers = {one: peer(engine, one, chosen.seconds) for one in sorted({*numbers.values()})}
        for callers, tasks in wanted:
            other = peers[numbers[callers]]
            measure(engine, Path(place), callers, chosen.seconds, other, tasks=tasks)


if __name__ == "__main__":
    main()
