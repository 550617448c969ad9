"""Databases that hang while tasks wait for them: their event loop goes on, their time is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from tallystick.errors import RolledBackError
from tallystick.services.transactions import AsyncTransactionManager, TransactionManager
from tallystick.services.transactions.aio import AsyncTransaction
from tallystick.services.transactions.resource import ResourceUnreachable
from tallystick.services.transactions.resources.sqlalchemy_async import AsyncDatabase
from tallystick.testing import TcpProxy
from tests.servers import Server
from tests.services.transactions.resources.test_databases import Bank
from tests.services.transactions.test_deadlines import LIMIT_S, mend, other_than

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

DRIVERS = {"pg": "pg", "asyncpg": "pg", "psycopg": "pg"} | dict.fromkeys(
    ("maria", "aiomysql", "asyncmy"), "maria"
)
"""How tasks reach the database that hangs: by its URL, or through an engine of that driver."""


class Place:
    """Both databases, one of them behind a network, and the event loop's longest pause."""

    def __init__(self, bank: Bank, driver: str, network: TcpProxy, port: int) -> None:
        self.bank, self.driver, self.network, self.name = bank, driver, network, DRIVERS[driver]
        self.url = bank.urls[self.name].replace(f":{port}/", f":{network.port}/")
        self.at = ""
        self.acknowledged = 0

    def observe(self, step: str) -> None:
        if step == self.at:
            self.network.swallow()

    @asynccontextmanager
    async def manager(self) -> AsyncIterator[AsyncTransactionManager]:
        resource: Any = self.url
        engines: list[Any] = []
        if self.driver != self.name:
            family = {"pg": "postgresql", "maria": "mysql"}[self.name]
            sync = {"pg": "psycopg", "maria": "pymysql"}[self.name]
            address = self.url.partition("://")[2]
            engines = [
                sqlalchemy.create_engine(f"{family}+{sync}://{address}"),
                create_async_engine(f"{family}+{self.driver}://{address}"),
            ]
            resource = AsyncDatabase(engines[1], recovery=engines[0])
        other = other_than(self.name)
        blocking = TransactionManager(
            self.bank.folder / "node",
            {self.name: resource, other: self.bank.urls[other]},
            timeout=2.0,
            call_timeout=0.5,
            orphan_interval=0.0,
            recovery_interval=None,
            on_step=self.observe,
        )
        async with AsyncTransactionManager(blocking) as tm:
            yield tm
        if engines:
            engines[0].dispose()
            await engines[1].dispose()

    async def pay(self, tx: AsyncTransaction, name: str) -> None:
        text: Any = f"UPDATE accounts SET balance = balance + 1 WHERE id = {self.bank.account}"
        if name == self.name and self.driver != name:
            text = sqlalchemy.text(text)
        await tx.execute(name, text)

    async def settle(self, tm: AsyncTransactionManager) -> None:
        """Mend the network, and recover."""
        self.at = ""
        mend(self.network)
        deadline = time.monotonic() + LIMIT_S
        while not (await tm.recover()).clean:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@pytest.fixture(params=DRIVERS)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> Iterator[Place]:
    bank = Bank(tmp_path, postgres_server, mariadb_server)
    port = {"pg": postgres_server, "maria": mariadb_server}[DRIVERS[request.param]].port
    with TcpProxy(port) as network:
        yield Place(bank, request.param, network, port)


async def begin(place: Place, tm: AsyncTransactionManager) -> None:
    """Nothing is there, or a connection that is idle."""
    place.network.swallow()
    with pytest.raises(RolledBackError, match="timed out"):
        async with tm.begin(timeout=1.0) as tx:
            await place.pay(tx, other_than(place.name))
            await place.pay(tx, place.name)


async def statement(place: Place, tm: AsyncTransactionManager) -> None:
    with pytest.raises(RolledBackError, match="timed out"):
        async with tm.begin(timeout=1.0) as tx:
            await place.pay(tx, place.name)
            place.network.swallow()
            await place.pay(tx, place.name)


async def prepare(place: Place, tm: AsyncTransactionManager) -> None:
    place.at = "before first phase"
    with pytest.raises(RolledBackError):
        async with tm.begin() as tx:
            for name in ("pg", "maria"):
                await place.pay(tx, name)


async def commit(place: Place, tm: AsyncTransactionManager) -> None:
    place.at = "after decision"
    async with tm.begin() as tx:
        for name in ("pg", "maria"):
            await place.pay(tx, name)
    place.acknowledged += 1


async def roll_back(place: Place, tm: AsyncTransactionManager) -> None:
    with pytest.raises((KeyError, RolledBackError)):
        async with tm.begin() as tx:
            await place.pay(tx, place.name)
            place.network.swallow()
            raise KeyError


@pytest.mark.long
@pytest.mark.sampled(3)
async def test_calls_of_tasks_to_a_hung_database_end_in_time(place: Place) -> None:
    async def work() -> None:
        async with place.manager() as tm:
            for call in (begin, statement, prepare, commit, roll_back, begin):
                began = time.monotonic()
                try:
                    await call(place, tm)
                except ResourceUnreachable:  # the driver has given up before
                    assert call is begin
                assert time.monotonic() - began < LIMIT_S, call.__name__
                await place.settle(tm)
            async with tm.begin() as tx:
                for name in ("pg", "maria"):
                    await place.pay(tx, name)

    await asyncio.wait_for(work(), 200)
    paid = place.acknowledged + 1
    assert place.bank.balances() == {"pg": paid, "maria": paid, "lite": 0}


async def test_closing_ends_what_waits_for_a_hung_database(place: Place) -> None:
    async def work() -> None:
        async with place.manager() as tm:
            began = time.monotonic()
            with pytest.raises(RolledBackError):
                async with tm.begin(timeout=3600) as tx:
                    for name in ("pg", "maria"):
                        await place.pay(tx, name)
                    place.network.swallow()
                    waiting = asyncio.create_task(place.pay(tx, place.name))
                    await asyncio.sleep(0.1)
                    await tm.close()
                    await waiting
            assert time.monotonic() - began < LIMIT_S

    await asyncio.wait_for(work(), 100)
    mend(place.network)
