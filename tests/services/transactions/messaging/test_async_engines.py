"""Keys and messages in databases of asynchronous engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from tallystick.services.transactions import (
    AsyncTransactionManager,
    IdempotencyKey,
    Message,
    Outbox,
    Relay,
    TransactionManager,
)
from tallystick.services.transactions.resources.sqlalchemy_async import AsyncDatabase
from tests.services.transactions.messaging.places import Places

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

# Not aiomysql 0.3: beside PyMySQL 1.2 it fails at every parameter of bytes, as outcomes are.
DRIVERS = {
    "asyncpg": ("pg", "postgresql+asyncpg"),
    "psycopg": ("pg", "postgresql+psycopg"),
    "asyncmy": ("maria", "mysql+asyncmy"),
}


@asynccontextmanager
async def manager(places: Places, driver: str) -> AsyncIterator[AsyncTransactionManager]:
    name, kind = DRIVERS[driver]
    sync = "postgresql+psycopg" if name == "pg" else "mysql+pymysql"
    address = places.urls[name].partition("://")[2]
    engine = create_async_engine(f"{kind}://{address}")
    recovery = sqlalchemy.create_engine(f"{sync}://{address}")
    resources: dict[str, Any] = {
        "db": AsyncDatabase(engine, recovery=recovery),
        "lite": places.urls["lite"],
    }
    tm = TransactionManager(places.folder / "tm", resources, recovery_interval=None)
    async with AsyncTransactionManager(tm) as made:
        yield made
    await engine.dispose()
    recovery.dispose()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_request_that_comes_again_gets_the_first_outcome(
    places: Places, driver: str
) -> None:
    async def work() -> None:
        async with manager(places, driver) as tm:
            key = IdempotencyKey("db", of="request", payload=lambda request, _: request)

            @tm.transactional(key=key, retry=5)
            async def do(request: str, number: int) -> dict[str, int]:
                connection = await tm.current().connection("db", AsyncConnection)
                await connection.execute(
                    sqlalchemy.text("INSERT INTO done VALUES (:id)"), {"id": request}
                )
                await tm.current().execute("lite", "INSERT INTO done VALUES (?)", (request,))
                return {"number": number}

            calls = [asyncio.create_task(do("one %s", number)) for number in range(4)]
            answers = await asyncio.gather(*calls)
            assert answers == answers[:1] * 4
            assert await do("two", 7) == {"number": 7}

    await work()
    for name in (DRIVERS[driver][0], "lite"):
        assert places.done(name) == ["one %s", "two"]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_message_leaves_with_the_rows_it_tells_of(places: Places, driver: str) -> None:
    got: list[Message] = []

    async def work() -> None:
        async with manager(places, driver) as tm:
            outbox = Outbox(tm, "db")
            async with tm.begin() as tx:
                await outbox.add_awaiting(tx, "orders", b"\0\xff a", {"type": "grün"})
            with pytest.raises(ZeroDivisionError):
                async with tm.begin() as tx:
                    await outbox.add_awaiting(tx, "orders", b"b")
                    _ = 1 // 0
            await asyncio.to_thread(Relay(outbox, got.append).run_once)

    await work()
    assert [(one.topic, one.body, one.headers) for one in got] == [
        ("orders", b"\0\xff a", {"type": "grün"})
    ]
