"""Django's databases in one global transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import django
import pymysql
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation

from tests.servers import Server
from tests.services.transactions.integrations.projects import Databases

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]


@pytest.fixture(scope="module")
def configured(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: Server, mariadb_server: Server
) -> Iterator[None]:
    pymysql.install_as_MySQLdb()
    made = Databases(postgres_server, mariadb_server)
    common = {"NAME": made.name, "HOST": "127.0.0.1"}
    settings.configure(
        DATABASES={
            "default": {},
            "orders": common
            | {
                "ENGINE": "django.db.backends.postgresql",
                "USER": "tally",
                "PORT": made.ports["orders"],
                "OPTIONS": {"application_name": "the shop"},
            },
            "stock": common
            | {
                "ENGINE": "django.db.backends.mysql",
                "USER": "root",
                "PORT": made.ports["stock"],
            },
        },
        TALLYSTICK={
            "COORDINATOR": tmp_path_factory.mktemp("coordinator"),
            "DATABASES": ["orders", "stock"],
            "OPTIONS": {"recovery_interval": None},
        },
        USE_TZ=True,
    )
    django.setup()
    from django.db import connections

    from tallystick.services.transactions.integrations.django import manager

    for alias in ("orders", "stock"):
        connections[alias].cursor().execute("CREATE TABLE done (id INTEGER PRIMARY KEY)")
    yield
    manager().close()
    connections.close_all()


@pytest.fixture
def clean(configured: None) -> None:  # noqa: ARG001 - comes first
    for alias in ("orders", "stock"):
        run(alias, "DELETE FROM done")


def run(alias: str, text: str) -> Any:
    from django.db import connections

    with connections[alias].cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall() if cursor.description else None


def both(number: int) -> None:
    for alias in ("orders", "stock"):
        run(alias, f"INSERT INTO done VALUES ({number})")


def rows() -> dict[str, list[int]]:
    found = {alias: run(alias, "SELECT id FROM done ORDER BY id") for alias in ("orders", "stock")}
    return {alias: [row[0] for row in some] for alias, some in found.items()}


def same(*numbers: int) -> dict[str, list[int]]:
    return {"orders": list(numbers), "stock": list(numbers)}


@pytest.mark.usefixtures("clean")
def test_both_databases_keep_the_block_or_neither() -> None:
    from tallystick.services.transactions.integrations.django import atomic_all, manager

    decisions = manager().statistics.decisions
    with atomic_all("orders", "stock"):
        both(1)
    with pytest.raises(ZeroDivisionError), atomic_all("orders", "stock"):
        both(2)
        _ = 1 // 0

    @atomic_all
    def third() -> None:
        both(3)

    third()
    third_again = atomic_all("orders", "stock")(lambda: both(4))
    third_again()
    assert rows() == same(1, 3, 4)
    assert manager().statistics.decisions == decisions + 3


@pytest.mark.usefixtures("clean")
def test_the_engine_of_django_makes_the_connections_and_wrappers_of_statements_see_them() -> None:
    from django.db import connections

    from tallystick.services.transactions.integrations.django import atomic_all

    seen: list[str] = []

    def wrapper(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    usual = connections["orders"]
    with usual.execute_wrapper(wrapper), atomic_all("orders", "stock"):
        assert connections["orders"] is not usual
        assert run("orders", "SHOW application_name") == [("the shop",)]
        assert run("orders", "SHOW timezone") == [("UTC",)]
    assert connections["orders"] is usual
    assert "SHOW application_name" in seen


@pytest.mark.usefixtures("clean")
def test_models_and_their_signals_work_in_a_block() -> None:
    from django.db import models
    from django.db.models.signals import post_save

    from tallystick.services.transactions.integrations.django import atomic_all

    meta = type("Meta", (), {"app_label": "shop", "db_table": "done", "managed": False})
    members = {
        "__module__": __name__,
        "id": models.IntegerField(primary_key=True),
        "Meta": meta,
    }
    model: Any = type("Done", (models.Model,), members)
    saved: list[str] = []

    def note(using: str, **_: object) -> None:
        saved.append(using)

    post_save.connect(note, sender=model)
    with atomic_all("orders", "stock"):
        for alias in ("orders", "stock"):
            model.objects.using(alias).create(id=1)
            assert model.objects.using(alias).get().id == 1
    with pytest.raises(ZeroDivisionError), atomic_all("orders", "stock"):
        model.objects.using("orders").create(id=2)
        _ = 1 // 0
    assert rows() == same(1)
    assert saved == ["orders", "stock", "orders"]


@pytest.mark.usefixtures("clean")
def test_inner_blocks_are_savepoints() -> None:
    from django.db import transaction

    from tallystick.services.transactions.integrations.django import atomic_all

    with atomic_all("orders", "stock"):
        both(1)
        with pytest.raises(ZeroDivisionError), transaction.atomic(using="stock"):
            run("stock", "INSERT INTO done VALUES (2)")
            _ = 1 // 0
        with pytest.raises(ZeroDivisionError), atomic_all("orders", "stock"):
            both(3)
            _ = 1 // 0
        with atomic_all("orders", "stock"):
            both(4)
    assert rows() == same(1, 4)


@pytest.mark.usefixtures("clean")
def test_functions_of_on_commit_are_called_after_the_global_commit() -> None:
    from django.db import transaction

    from tallystick.services.transactions.integrations.django import atomic_all

    seen: list[Any] = []

    def note(what: str) -> None:
        seen.append((what, rows()))

    with atomic_all("orders", "stock"):
        both(1)
        transaction.on_commit(lambda: note("one"), using="orders")
        with pytest.raises(ZeroDivisionError), transaction.atomic(using="stock"):
            transaction.on_commit(lambda: note("undone"), using="stock")
            _ = 1 // 0
        transaction.on_commit(lambda: note("two"), using="stock")
        assert not seen
    assert seen == [("one", same(1)), ("two", same(1))]
    with pytest.raises(ZeroDivisionError), atomic_all("orders", "stock"):
        transaction.on_commit(lambda: note("never"), using="orders")
        _ = 1 // 0
    with atomic_all("orders", "stock"):
        both(2)
    assert len(seen) == 2


@pytest.mark.usefixtures("clean")
def test_a_block_that_may_only_roll_back_is_not_committed() -> None:
    from django.db import transaction

    from tallystick.services.transactions.integrations.django import atomic_all

    with pytest.raises(transaction.TransactionManagementError, match="failed in stock"):  # noqa: SIM117
        with atomic_all("orders", "stock"):
            both(1)
            with pytest.raises(ZeroDivisionError):  # noqa: SIM117
                with transaction.atomic(using="stock", savepoint=False):
                    _ = 1 // 0
    assert rows() == same()


@pytest.mark.usefixtures("clean")
def test_what_would_break_the_block_is_refused() -> None:
    from django.db import connections, transaction

    from tallystick.services.transactions.integrations.django import atomic_all

    refusals: list[Callable[[], Any]] = [
        lambda: transaction.commit(using="orders"),
        lambda: transaction.rollback(using="stock"),
        lambda: transaction.set_autocommit(True, using="orders"),
    ]
    for refused in refusals:
        with pytest.raises(transaction.TransactionManagementError), atomic_all("orders", "stock"):
            both(1)
            refused()
    with pytest.raises(RuntimeError, match="durable"), atomic_all("orders", "stock"):  # noqa: SIM117
        with transaction.atomic(using="orders", durable=True):
            both(1)
    with pytest.raises(transaction.TransactionManagementError, match="outermost"):  # noqa: SIM117
        with transaction.atomic(using="orders"), atomic_all("orders", "stock"):
            both(1)
    assert rows() == same()
    assert not any(connections[alias].in_atomic_block for alias in ("orders", "stock"))
    with atomic_all("orders", "stock"):
        both(2)
    assert rows() == same(2)


@pytest.mark.usefixtures("clean")
def test_threads_have_blocks_of_their_own() -> None:
    from django.db import connections

    from tallystick.services.transactions.integrations.django import atomic_all

    def work(first: int) -> None:
        for number in range(first, first + 5):
            with atomic_all("orders", "stock"):
                both(number)
        connections.close_all()

    threads = [threading.Thread(target=work, args=(number * 5,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows() == same(*range(20))


@pytest.mark.usefixtures("clean")
async def test_tasks_run_a_whole_block_by_sync_to_async_and_none_in_their_own_thread() -> None:
    from django.db import connections

    from tallystick.services.transactions.integrations.django import atomic_all

    def work(number: int) -> None:
        with atomic_all("orders", "stock"):
            both(number)
        connections.close_all()

    await asyncio.gather(*(sync_to_async(work)(number) for number in range(3)))
    with (
        pytest.raises(SynchronousOnlyOperation, match="sync_to_async"),
        atomic_all("orders", "stock"),
    ):
        await sync_to_async(both)(7)
    assert await sync_to_async(rows)() == same(0, 1, 2)
    await sync_to_async(connections.close_all)()
