"""Sessions of the ORM in branches: what they do is committed with everything else, or nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.integrations.sessions import SessionFactory
from tallystick.services.transactions.transaction import Status
from tests.servers import Server

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

_names = itertools.count(1)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    item: Mapped[str] = mapped_column(sqlalchemy.String(20))


class Shop:
    """Orders in PostgreSQL and MariaDB, each by an engine."""

    def __init__(self, folder: Path, postgres: Server, mariadb: Server) -> None:
        self.folder = folder
        name = f"orm{next(_names)}"
        self.engines: dict[str, sqlalchemy.Engine] = {}
        for key, url, driver in (
            ("pg", postgres.url, "postgresql+psycopg"),
            ("maria", mariadb.url, "mariadb+pymysql"),
        ):
            base = url.replace(url.partition("://")[0], driver, 1).rpartition("/")
            server = sqlalchemy.create_engine("".join(base), isolation_level="AUTOCOMMIT")
            with server.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
            server.dispose()
            self.engines[key] = sqlalchemy.create_engine(f"{base[0]}/{name}")
            Base.metadata.create_all(self.engines[key])
        self.tm = TransactionManager(folder / "tm", self.engines, recovery_interval=None)

    def orders(self, key: str) -> list[tuple[int, str]]:
        with Session(self.engines[key]) as session:
            return [(one.id, one.item) for one in session.query(Order).order_by(Order.id)]

    def close(self) -> None:
        self.tm.close()
        for engine in self.engines.values():
            engine.dispose()


@pytest.fixture
def shop(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Iterator[Shop]:
    made = Shop(tmp_path, postgres_server, mariadb_server)
    yield made
    made.close()


PG, MARIA = SessionFactory("pg"), SessionFactory("maria", expire_on_commit=False)


def test_what_was_added_and_never_flushed_is_committed_everywhere(shop: Shop) -> None:
    for number in (1, 2):  # the second time over connections used before
        with shop.tm.begin() as tx:
            one, other = PG(tx), MARIA(tx)
            one.add(Order(id=number, item="pear"))
            other.add(Order(id=number, item="plum"))
        assert not one.in_transaction()
        assert not one.identity_map.values()
    assert shop.orders("pg") == [(1, "pear"), (2, "pear")]
    assert shop.orders("maria") == [(1, "plum"), (2, "plum")]


def test_an_exception_undoes_both(shop: Shop) -> None:
    with pytest.raises(ZeroDivisionError), shop.tm.begin() as tx:
        PG(tx).add(Order(id=1, item="pear"))
        other = MARIA(tx)
        other.add(Order(id=1, item="plum"))
        other.flush()
        _ = 1 // 0
    assert shop.orders("pg") == shop.orders("maria") == []


@pytest.mark.parametrize("factory", [PG, MARIA], ids=["pg", "maria"])
def test_the_rollback_of_a_session_undoes_its_work_alone(
    shop: Shop, factory: SessionFactory[Session]
) -> None:
    with shop.tm.begin() as tx:
        session, other = factory(tx), (MARIA if factory is PG else PG)(tx)
        other.add(Order(id=1, item="kept"))
        session.add(Order(id=2, item="first"))
        session.commit()
        session.add(Order(id=3, item="undone"))
        session.flush()
        session.rollback()
        session.add(Order(id=2, item="again"))
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            session.flush()
        session.rollback()
        with session.begin_nested() as savepoint:
            session.add(Order(id=4, item="undone"))
            session.flush()
            savepoint.rollback()
        session.add(Order(id=5, item="kept"))
    mine, others = ("pg", "maria") if factory is PG else ("maria", "pg")
    assert shop.orders(mine) == [(2, "first"), (5, "kept")]
    assert shop.orders(others) == [(1, "kept")]


def test_a_failed_flush_at_the_end_undoes_everything(shop: Shop) -> None:
    with shop.tm.begin() as tx:
        PG(tx).add(Order(id=1, item="pear"))
    with pytest.raises(sqlalchemy.exc.IntegrityError), shop.tm.begin() as tx:
        MARIA(tx).add(Order(id=1, item="plum"))
        PG(tx).add(Order(id=1, item="twice"))
    assert shop.orders("maria") == []


def _twice(session: Session) -> None:
    session.add(Order(id=1, item="again"))
    session.flush()


@pytest.mark.parametrize("factory", [PG, MARIA], ids=["pg", "maria"])
@pytest.mark.parametrize("is_nested", [False, True], ids=["flush", "begin_nested"])
def test_a_failed_flush_that_nobody_handled_to_its_end_undoes_everything(
    shop: Shop, factory: SessionFactory[Session], is_nested: bool
) -> None:
    """SQLAlchemy undid the whole work of the session, and waits for its rollback."""
    with pytest.raises(sqlalchemy.exc.PendingRollbackError), shop.tm.begin() as tx:
        session, other = factory(tx), (MARIA if factory is PG else PG)(tx)
        other.add(Order(id=1, item="plum"))
        session.add(Order(id=1, item="pear"))
        session.flush()
        if is_nested:
            session.begin_nested()
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            _twice(session)
    assert shop.orders("pg") == shop.orders("maria") == []


@pytest.mark.parametrize("factory", [PG, MARIA], ids=["pg", "maria"])
def test_a_failed_flush_that_is_rolled_back_undoes_that_part_alone(
    shop: Shop, factory: SessionFactory[Session]
) -> None:
    with shop.tm.begin() as tx:
        session, other = factory(tx), (MARIA if factory is PG else PG)(tx)
        other.add(Order(id=1, item="kept"))
        session.add(Order(id=1, item="kept"))
        with pytest.raises(sqlalchemy.exc.IntegrityError), session.begin_nested():
            session.flush()
            _twice(session)
        session.commit()
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            _twice(session)
        session.rollback()
    assert shop.orders("pg") == shop.orders("maria") == [(1, "kept")]


def test_events_of_the_orm_come_at_their_times(shop: Shop) -> None:
    seen: list[str] = []
    factory = SessionFactory("pg")

    def listen(session: Session) -> None:
        def audit(_: Any) -> None:
            seen.append("before_commit")
            session.add(Order(id=99, item="audit"))

        def after(_: Any) -> None:
            seen.append(f"after_commit {shop.orders('pg')} {shop.orders('maria')}")

        event.listen(session, "before_commit", audit)
        event.listen(session, "after_commit", after)
        event.listen(session, "after_rollback", lambda _: seen.append("after_rollback"))

    with shop.tm.begin() as tx:
        session = factory(tx)
        listen(session)
        session.add(Order(id=1, item="pear"))
        MARIA(tx).add(Order(id=1, item="plum"))
        tx.after_completion(lambda status: seen.append(status.value))
    there = "after_commit [(1, 'pear'), (99, 'audit')] [(1, 'plum')]"
    assert seen == ["before_commit", there, Status.COMMITTED.value]
    seen.clear()
    with pytest.raises(ZeroDivisionError), shop.tm.begin() as tx:
        session = factory(tx)
        listen(session)
        session.add(Order(id=2, item="pear"))
        session.flush()
        _ = 1 // 0
    assert seen == ["after_rollback"]


def test_a_session_that_was_not_used_says_nothing(shop: Shop) -> None:
    seen: list[str] = []
    with shop.tm.begin() as tx:
        session = PG(tx)
        event.listen(session, "before_commit", lambda _: seen.append("before"))
        event.listen(session, "after_commit", lambda _: seen.append("after"))
    assert seen == []


@pytest.mark.parametrize(
    "options", [{"twophase": True}, {"bind": None}, {"join_transaction_mode": "control_fully"}]
)
def test_options_that_would_break_the_transaction_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TransactionUsageError, match=next(iter(options))):
        SessionFactory("pg", **options)


def test_a_session_needs_an_engine(tmp_path: Path) -> None:
    with (
        TransactionManager(tmp_path / "tm", {"lite": f"sqlite:///{tmp_path}/a"}) as tm,
        tm.begin() as tx,
        pytest.raises(TransactionUsageError, match="of another class"),
    ):
        SessionFactory("lite")(tx)
