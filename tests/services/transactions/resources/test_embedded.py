"""The transaction of a store that is a branch is ended by its global transaction alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import sqlalchemy.orm

from tallystick.errors import TransactionUsageError
from tallystick.services.journal import AsyncJournal, Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import AsyncTransactionManager, TransactionManager

Stores = tuple[PageStore, Journal]


def _enter(handle: Any) -> None:
    with handle:
        raise AssertionError("the block was entered")


ENDS: dict[str, Callable[[Any], object]] = {
    "commit": lambda handle: handle.commit(),
    "rollback": lambda handle: handle.rollback(),
    "prepare": lambda handle: handle.prepare("x"),
    "a block": _enter,
}


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with PageStore(tmp_path / "store") as store, Journal(tmp_path / "mail") as mail:
        store.create_table("t")
        yield store, mail


def _rows(stores: Stores) -> tuple[int, int]:
    store, mail = stores
    with store.begin(read_only=True) as session:
        return len(session.table("t")), sum(1 for _ in mail.live_records())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", ["store", "mail"])
def test_the_handle_refuses_to_end_the_branch_and_the_transaction_goes_on(
    name: str, end: str, stores: Stores, tmp_path: Path
) -> None:
    resources: dict[str, Any] = dict(zip(("store", "mail"), stores, strict=True))
    with TransactionManager(tmp_path / "tm", resources, close_resources=False) as tm:
        with tm.begin() as tx:
            tx["store"].table("t")[1] = b"row"
            tx["mail"].add(1, b"message")
            with pytest.raises(TransactionUsageError, match="branch of a transaction"):
                ENDS[end](tx[name])
            assert _rows(stores) == (0, 0)
        assert _rows(stores) == (1, 1)
        with pytest.raises(ValueError, match="own"), tm.begin() as tx:
            tx["store"].table("t")[2] = b"row"
            tx["mail"].add(2, b"message")
            with pytest.raises(TransactionUsageError, match="branch of a transaction"):
                ENDS[end](tx[name])
            raise ValueError("the program's own")
        assert _rows(stores) == (1, 1)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_a_handle_gave_is_dead_after_its_transaction(
    end: str, stores: Stores, tmp_path: Path
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/lite.db")
    resources: dict[str, Any] = {"store": stores[0], "mail": stores[1], "engine": engine}
    with TransactionManager(tmp_path / "tm", resources, close_resources=False) as tm:
        with tm.begin() as tx:
            session, branch, connection = tx["store"], tx["mail"], tx["engine"]
            table, orm = session.table("t"), sqlalchemy.orm.Session(bind=connection)
            table[1] = b"row"
            branch.add(1, b"message")
            orm.execute(sqlalchemy.text("CREATE TABLE t (x)"))
            getattr(tx, end)()
        before, insert = _rows(stores), sqlalchemy.text("CREATE TABLE late (x)")
        late: list[Callable[[], object]] = [
            lambda: table.update({2: b"late"}),
            lambda: session.table("t").clear(),
            lambda: session.put(1, 2, b"late"),
            lambda: branch.add(2, b"late"),
            lambda: branch.append(b"late"),
        ]
        for call in late:
            with pytest.raises(TransactionUsageError):
                call()
        for use in (connection, orm):
            with pytest.raises(sqlalchemy.exc.ResourceClosedError, match="closed"):
                use.execute(insert)
        assert _rows(stores) == before
    engine.dispose()


async def test_the_handle_of_a_task_refuses_it_as_well(tmp_path: Path) -> None:
    mail = await AsyncJournal.open(tmp_path / "mail")
    manager = TransactionManager(tmp_path / "tm", {"mail": mail})
    async with AsyncTransactionManager(manager) as tm, tm.begin() as tx:
        handle: Any = await tx.enlist("mail")
        handle.add(1, b"message")
        for end in (handle.commit, handle.rollback, handle.prepare):
            with pytest.raises(TransactionUsageError, match="branch of a transaction"):
                await end()
