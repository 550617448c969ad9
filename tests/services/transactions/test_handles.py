"""Handles that type checkers know, and what objects say of themselves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type

import psycopg
import pytest
import sqlalchemy

from tallystick import AsyncTransactionManager, Journal, PageStore, TransactionManager, WriteBehind
from tallystick.errors import TransactionUsageError
from tallystick.services.page_store import Session
from tallystick.services.transactions.resources.handle import Handle
from tests.servers import Server


@pytest.mark.postgres
def test_a_handle_is_the_class_that_was_asked_for(tmp_path: Path, postgres_server: Server) -> None:
    with PageStore(tmp_path / "store") as store:
        resources = {
            "pg": postgres_server.url,
            "lite": f"sqlite:///{tmp_path}/lite",
            "store": store,
        }
        with TransactionManager(tmp_path / "tm", resources) as tm, tm.begin() as tx:
            connection = tx.connection("pg", psycopg.Connection)
            assert_type(connection, psycopg.Connection[Any])
            assert connection.execute("SELECT 7").fetchone() == (7,)
            assert_type(tx.connection("lite", Handle), Handle)
            assert tx.connection("store", Session) is tx["store"]
            with pytest.raises(TransactionUsageError) as found:
                tx.connection("lite", sqlalchemy.Connection)
            assert found.value.expected == "sqlalchemy.engine.base.Connection"
            assert found.value.found == f"{Handle.__module__}.Handle"


@pytest.mark.postgres
def test_a_task_has_the_handle_it_asked_for(tmp_path: Path, postgres_server: Server) -> None:
    async def main() -> None:
        manager = TransactionManager(tmp_path / "tm", {"pg": postgres_server.url})
        async with AsyncTransactionManager(manager) as tm, tm.begin() as tx:
            connection = await tx.connection("pg", psycopg.AsyncConnection)
            assert_type(connection, psycopg.AsyncConnection[Any])
            assert await tx.connection("pg", psycopg.AsyncConnection) is connection
            with pytest.raises(TransactionUsageError, match="of another class"):
                await tx.connection("pg", psycopg.Connection)

    asyncio.run(main())


def test_a_wrong_class_is_found_by_the_type_checker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import psycopg\n"
        "from tallystick import TransactionManager\n"
        "def work(tm: TransactionManager) -> None:\n"
        "    with tm.begin() as tx:\n"
        "        tx.connection('pg', psycopg.Connection).nothing()\n"
    )
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent"]
    answer = subprocess.run(
        [*command, str(program)], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert '"Connection[Any]" has no attribute "nothing"' in answer.stdout


def test_objects_say_what_they_are(tmp_path: Path) -> None:
    with PageStore(tmp_path / "store") as store, Journal(tmp_path / "mail") as mail:
        resources: dict[str, Any] = {"lite": f"sqlite:///{tmp_path}/lite", "mail": mail}
        with TransactionManager(tmp_path / "tm", resources, node="shop") as tm:
            assert repr(tm) == "<TransactionManager 'shop': open, lite, mail>"
            assert repr(tm.resources["lite"]) == "<SqliteResource 'lite'>"
            assert repr(tm.resources["mail"]) == "<JournalResource 'mail'>"
            with tm.begin() as tx:
                assert repr(tx) == f"<Transaction {tx.gtrid.hex()}: active, no resource>"
                handle = tx["lite"]
                assert repr(handle) == "<handle of 'lite': open>"
            assert repr(tx) == f"<Transaction {tx.gtrid.hex()}: committed, lite>"
            assert repr(handle) == "<handle of 'lite': over>"
        assert repr(tm) == "<TransactionManager 'shop': closed, lite, mail>"
        assert repr(store) == f"<PageStore '{tmp_path}/store'>"
        assert repr(mail) == f"<Journal '{tmp_path}/mail'>"
    with WriteBehind(tmp_path / "behind", {"one": lambda _: None}) as behind:
        assert repr(behind) == f"<WriteBehind '{tmp_path}/behind'>"
