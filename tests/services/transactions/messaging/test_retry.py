"""Transactions that a database broke off are repeated, others are not."""

from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pymysql
import pytest

from tallystick.errors import InDoubtError, RolledBackError
from tallystick.services.driver_errors import is_conflict
from tallystick.services.transactions import AsyncTransactionManager, IdempotencyKey, Retry
from tests.services.transactions.messaging.places import Places, do

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

QUICK = Retry(times=20, first=0.001, most=0.05)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", ["pg", "maria", "engine:pg", "engine:maria"])
@pytest.mark.parametrize("retry", [0, QUICK], ids=["once", "repeated"])
def test_a_deadlock_is_repeated(places: Places, place: str, retry: Any) -> None:
    """Two transactions change two rows in opposite orders, and meet after the first row."""
    name = place.rpartition(":")[2]
    for row in "ab":
        places.ask(name, f"INSERT INTO done VALUES ('{row}')")
    places.ask(name, "CREATE INDEX by_id ON done (id)")  # else MariaDB locks every row
    meet, runs = threading.Barrier(2), itertools.count()
    with places.manager(place) as tm, ThreadPoolExecutor(2) as threads:

        @tm.transactional(retry=retry)
        def change(order: str) -> None:
            handle = tm.current()[name]
            run = getattr(handle, "exec_driver_sql", handle.execute)
            for number, row in enumerate(order):
                run("UPDATE done SET id = id WHERE id = %s", (row,))
                if not number and next(runs) < 2:
                    meet.wait(30)

        calls = [threads.submit(change, order) for order in ("ab", "ba")]
        failed = [call for call in calls if call.exception() is not None]
        assert len(failed) == (0 if retry else 1)
        if not retry:
            assert is_conflict(failed[0].exception() or ValueError())


def test_a_serialisation_failure_at_commit_is_repeated_with_its_key(places: Places) -> None:
    """Write skew: each counts the rows before it adds one; PostgreSQL refuses one PREPARE."""
    meet, runs = threading.Barrier(2), itertools.count()
    with places.manager("pg", "maria") as tm, ThreadPoolExecutor(2) as threads:

        @tm.transactional(key=IdempotencyKey("maria", of="request"), retry=QUICK)
        def add(request: str) -> int:
            pg = tm.current()["pg"]
            pg.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            (count,) = pg.execute("SELECT count(*) FROM done").fetchone()
            if next(runs) < 2:
                meet.wait(30)
            pg.execute(do("pg"), (f"{request} was number {count}",))
            return int(count)

        calls = [threads.submit(add, request) for request in "ab"]
        assert sorted(call.result() for call in calls) == [0, 1]
    assert sorted(row[-1] for row in places.done("pg")) == ["0", "1"]
    assert next(runs) > 2


async def test_tasks_repeat_too(places: Places) -> None:
    runs = itertools.count()

    async def main() -> None:
        async with AsyncTransactionManager(places.manager("pg", "maria")) as tm:
            both = asyncio.Barrier(2)

            @tm.transactional(retry=QUICK)
            async def add(request: str) -> None:
                pg = await tm.current().enlist("pg")
                await pg.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                count = await (await pg.execute("SELECT count(*) FROM done")).fetchone()
                if next(runs) < 2:
                    await both.wait()
                await pg.execute(do("pg"), (f"{request}{count[0]}",))
                await tm.current().execute("maria", do("maria"), (request,))

            await asyncio.gather(add("a"), add("b"))

    await main()
    assert places.done("pg") in (["a0", "b1"], ["a1", "b0"])
    assert places.done("maria") == ["a", "b"]
    assert next(runs) > 2


@pytest.mark.parametrize("error", [ValueError("no conflict"), InDoubtError("not known")])
def test_what_is_no_conflict_or_not_known_is_not_repeated(places: Places, error: Exception) -> None:
    error.__cause__ = (
        None if isinstance(error, ValueError) else psycopg.errors.SerializationFailure("because")
    )
    calls: list[int] = []
    with places.manager("lite") as tm:

        @tm.transactional(retry=5)
        def fail() -> None:
            calls.append(1)
            raise error from error.__cause__

        with pytest.raises(type(error)):
            fail()

        def handle() -> None:
            with pytest.raises(type(error)):
                fail()  # joined: only the outer one could be repeated

        with pytest.raises(RolledBackError, match="had joined"), tm.begin():
            handle()
        with pytest.raises(RolledBackError, match="had joined"):
            tm.transactional(retry=5)(handle)()
    assert len(calls) == 3


def test_conflicts_are_told_by_their_codes() -> None:
    rolled_back = RolledBackError("rolled back")
    rolled_back.__cause__ = pymysql.OperationalError(1213, "Deadlock found")
    assert is_conflict(rolled_back)
    assert is_conflict(psycopg.errors.DeadlockDetected())
    assert not is_conflict(psycopg.errors.UniqueViolation())
    assert not is_conflict(pymysql.IntegrityError(1062, "Duplicate entry"))
    assert not is_conflict(ValueError(1213))


def test_pauses_grow_and_have_a_limit() -> None:
    pauses = list(Retry(times=50, first=0.5, most=4.0).pauses())
    assert len(pauses) == 50
    assert all(0 <= pause <= 0.5 * 2**number for number, pause in enumerate(pauses))
    assert 2.0 < max(pauses) <= 4.0
