"""Asynchronous engines of SQLAlchemy, over every driver that there is for them."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tallystick.errors import RolledBackError, TransactionUsageError
from tallystick.services.transactions import AsyncTransactionManager, TransactionManager
from tallystick.services.transactions.aio import AsyncTransaction
from tallystick.services.transactions.integrations.sessions import AsyncSessionFactory
from tallystick.services.transactions.resources.sqlalchemy_async import AsyncDatabase
from tests.servers import Server

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

_names = itertools.count(1)
POSTGRES, MARIADB = ("asyncpg", "psycopg"), ("aiomysql", "asyncmy")


class Base(DeclarativeBase):
    """Tables of the test."""


class Item(Base):
    """A row."""

    __tablename__ = "items"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Stop(BaseException):
    """The process is gone."""


class Place:
    """A database with both engines, and a SQLite file beside it."""

    def __init__(self, folder: Path, driver: str, server: Server, **options: Any) -> None:
        self.folder, self.driver, self.options = folder, driver, options
        name = f"tasks{next(_names)}"
        is_pg = driver in POSTGRES
        sync = "postgresql+psycopg" if is_pg else "mysql+pymysql"
        self.address = server.url.partition("://")[2].rpartition("/")[0]
        admin = sqlalchemy.create_engine(
            f"{sync}://{self.address}/{'postgres' if is_pg else 'mysql'}",
            isolation_level="AUTOCOMMIT",
        )
        with admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        admin.dispose()
        self.name = name
        self.sync = sqlalchemy.create_engine(f"{sync}://{self.address}/{name}")
        Base.metadata.create_all(self.sync)

    def engine(self) -> AsyncEngine:
        kind = "postgresql" if self.driver in POSTGRES else "mysql"
        return create_async_engine(
            f"{kind}+{self.driver}://{self.address}/{self.name}", **self.options
        )

    @asynccontextmanager
    async def manager(
        self, on_step: Callable[[str], None] | None = None
    ) -> AsyncIterator[AsyncTransactionManager]:
        engine = self.engine()
        resources: dict[str, Any] = {
            "db": AsyncDatabase(engine, recovery=self.sync),
            "lite": f"sqlite:///{self.folder}/lite.db",
        }
        manager = TransactionManager(
            self.folder / "tm", resources, recovery_interval=None, on_step=on_step
        )
        async with AsyncTransactionManager(manager) as tm:
            yield tm
        await engine.dispose()

    def ids(self) -> list[int]:
        with self.sync.connect() as connection:
            return list(connection.scalars(sqlalchemy.select(Item.id).order_by(Item.id)))


@pytest.fixture(params=[*POSTGRES, *MARIADB])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> Iterator[Place]:
    server = postgres_server if request.param in POSTGRES else mariadb_server
    made = Place(tmp_path, request.param, server)
    yield made
    made.sync.dispose()


async def add(tx: AsyncTransaction, number: int) -> AsyncConnection:
    connection = await tx.connection("db", AsyncConnection)
    await connection.execute(sqlalchemy.insert(Item).values(id=number))
    return connection


async def other(tx: AsyncTransaction) -> None:
    await tx.execute("lite", "CREATE TABLE IF NOT EXISTS t (id INTEGER)")


Work = Callable[[AsyncTransactionManager], Awaitable[None]]


def run(place: Place, work: Work) -> None:
    async def main() -> None:
        async with place.manager() as tm:
            assert not await tm.preflight()
            await work(tm)
            assert (await tm.recover()).clean

    asyncio.run(main())


def test_branches_commit_alone_and_with_others_and_roll_back(place: Place) -> None:
    async def work(tm: AsyncTransactionManager) -> None:
        for number in (1, 2):
            async with tm.begin() as tx:
                await add(tx, number)
        for number in (3, 4):
            async with tm.begin() as tx:
                await add(tx, number)
                await other(tx)
        with pytest.raises(KeyError):
            async with tm.begin() as tx:
                await add(tx, 5)
                await other(tx)
                raise KeyError
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            async with tm.begin() as tx:
                await add(tx, 1)

    run(place, work)
    assert place.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("alone", [True, False])
def test_a_rollback_of_sqlalchemy_undoes_all_and_a_savepoint_its_part(
    place: Place, alone: bool
) -> None:
    async def work(tm: AsyncTransactionManager) -> None:
        with pytest.raises(RolledBackError):
            async with tm.begin() as tx:
                connection = await add(tx, 1)
                if not alone:
                    await other(tx)
                await connection.rollback()
        async with tm.begin() as tx:
            connection = await add(tx, 2)
            if not alone:
                await other(tx)
            savepoint = await connection.begin_nested()
            await connection.execute(sqlalchemy.insert(Item).values(id=3))
            await savepoint.rollback()

    run(place, work)
    assert place.ids() == [2]


def test_a_session_is_a_savepoint_of_its_branch(place: Place) -> None:
    events: list[str] = []

    async def work(tm: AsyncTransactionManager) -> None:
        async with tm.begin() as tx:
            connection = await tx.connection("db", AsyncConnection)
            await other(tx)
            session = AsyncSession(connection, join_transaction_mode="create_savepoint")
            sqlalchemy.event.listen(
                session.sync_session, "before_flush", lambda *_: events.append("flush")
            )
            session.add(Item(id=1))
            await session.commit()
            session.add(Item(id=2))
            await session.flush()
            await session.rollback()
            await session.close()

    run(place, work)
    assert place.ids() == [1]
    assert events == ["flush", "flush"]


def test_a_session_of_the_factory_is_flushed_and_told_of_both_phases(place: Place) -> None:
    events: list[str] = []
    sessions = AsyncSessionFactory("db", expire_on_commit=False)

    async def begin(tx: AsyncTransaction) -> AsyncSession:
        session = await sessions(tx)
        for name in ("before_commit", "after_commit", "after_rollback"):
            sqlalchemy.event.listen(
                session.sync_session, name, lambda *_, name=name: events.append(name)
            )
        return session

    async def work(tm: AsyncTransactionManager) -> None:
        async with tm.begin() as tx:
            session = await begin(tx)
            session.add(Item(id=1))
            await other(tx)
            tx.before_commit(lambda: events.append("first phase"))
        assert not session.in_transaction()
        with pytest.raises(KeyError):
            async with tm.begin() as tx:
                session = await begin(tx)
                session.add(Item(id=2))
                await session.flush()
                raise KeyError

    run(place, work)
    assert place.ids() == [1]
    assert events == ["before_commit", "first phase", "after_commit", "after_rollback"]
    with pytest.raises(TransactionUsageError, match="twophase"):
        AsyncSessionFactory("db", twophase=True)


@pytest.mark.sampled(2)
async def test_a_stop_at_any_step_leaves_both_or_none(place: Place) -> None:
    for at in itertools.count():
        steps = itertools.count()

        def stop(_: str, at: int = at, steps: Iterator[int] = steps) -> None:
            if next(steps) == at:
                raise Stop

        async def work(
            number: int = at, on_step: Callable[[str], None] = stop
        ) -> tuple[bool, set[int]]:
            stopped = False
            async with place.manager(on_step) as tm:
                try:
                    async with tm.begin() as tx:
                        await add(tx, number)
                        await other(tx)
                        await tx.execute("lite", "INSERT INTO t VALUES (?)", (number,))
                except Stop:
                    stopped = True
            async with place.manager() as tm:
                for _ in range(50):
                    if (await tm.recover()).clean:
                        break
                    await asyncio.sleep(0.05)
            with sqlite3.connect(place.folder / "lite.db") as lite:
                lite.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER)")
                found = lite.execute("SELECT id FROM t").fetchall()
            lite.close()
            return stopped, {one for (one,) in found}

        stopped, there = await work()
        assert (at in place.ids()) is (at in there), f"stopped at step {at}"
        if not stopped:
            break
    assert at > 5
    assert at in there


def test_a_connection_that_died_in_the_pool_is_passed_over(place: Place) -> None:
    async def work(tm: AsyncTransactionManager) -> None:
        async with tm.begin() as tx:
            connection = await add(tx, 1)
            pid = "pg_backend_pid()" if place.driver in POSTGRES else "connection_id()"
            number = (await connection.exec_driver_sql(f"SELECT {pid}")).scalar_one()
        kill = "SELECT pg_terminate_backend({})" if place.driver in POSTGRES else "KILL {}"
        with place.sync.connect() as admin:
            admin.exec_driver_sql(kill.format(number))
        async with tm.begin() as tx:
            await add(tx, 2)

    run(place, work)
    assert place.ids() == [1, 2]


@pytest.mark.parametrize("driver", POSTGRES)
def test_the_isolation_level_of_the_engine_holds_and_a_commit_by_hand_is_found(
    tmp_path: Path, postgres_server: Server, driver: str
) -> None:
    place = Place(tmp_path, driver, postgres_server, isolation_level="SERIALIZABLE")

    async def work(tm: AsyncTransactionManager) -> None:
        async with tm.begin() as tx:
            connection = await add(tx, 1)
            (level,) = (await connection.exec_driver_sql("SHOW transaction_isolation")).one()
            assert level == "serializable"
        with pytest.raises(TransactionUsageError, match="ended the transaction"):
            async with tm.begin() as tx:
                connection = await add(tx, 2)
                await other(tx)
                await connection.exec_driver_sql("COMMIT")
                if driver == "psycopg":
                    await connection.exec_driver_sql("SELECT 1")
        with pytest.raises(TransactionUsageError, match="ended the transaction"):
            async with tm.begin() as tx:
                connection = await add(tx, 3)
                await connection.exec_driver_sql("COMMIT")
                raise KeyError("nor is it called rolled back")

    run(place, work)
    assert place.ids() == [1, 2, 3]
    place.sync.dispose()


def test_an_asynchronous_engine_alone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    engine = create_async_engine("postgresql+asyncpg://nobody@localhost/none")
    with pytest.raises(TransactionUsageError, match="AsyncDatabase"):
        TransactionManager(tmp_path / "tm", {"db": engine})
    sync = sqlalchemy.create_engine("mysql+pymysql://nobody@localhost/none")
    with pytest.raises(TransactionUsageError, match="cannot share"):
        TransactionManager(tmp_path / "tm", {"db": AsyncDatabase(engine, recovery=sync)})


def test_the_end_of_a_transaction_waits_for_a_statement_of_another_task(place: Place) -> None:
    slow = "SELECT 7 FROM pg_sleep(0.3)" if place.driver in POSTGRES else "SELECT 7 + SLEEP(0.3)"

    async def work(tm: AsyncTransactionManager) -> None:
        for number in (1, 3):
            async with tm.begin() as tx:
                connection = await add(tx, number)
                if number == 1:
                    await other(tx)
                statement = asyncio.create_task(connection.exec_driver_sql(slow))
                raw: Any = (await connection.get_raw_connection()).dbapi_connection
                lock = (
                    raw.driver_connection.lock if place.driver == "psycopg" else raw._execute_mutex
                )
                while not lock.locked():
                    await asyncio.sleep(0)
            assert (await statement).scalar() == 7
            async with tm.begin() as tx:
                await add(tx, number + 1)

    run(place, work)
    assert place.ids() == [1, 2, 3, 4]
