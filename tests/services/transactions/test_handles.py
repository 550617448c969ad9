"""Handles and records that type checkers know, and what objects say of themselves."""

from __future__ import annotations

import json
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
        resources: dict[str, Any] = {
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
async def test_a_task_has_the_handle_it_asked_for(tmp_path: Path, postgres_server: Server) -> None:
    manager = TransactionManager(tmp_path / "tm", {"pg": postgres_server.url})
    async with AsyncTransactionManager(manager) as tm, tm.begin() as tx:
        connection = await tx.connection("pg", psycopg.AsyncConnection)
        assert_type(connection, psycopg.AsyncConnection[Any])
        assert await tx.connection("pg", psycopg.AsyncConnection) is connection
        with pytest.raises(TransactionUsageError, match="of another class"):
            await tx.connection("pg", psycopg.Connection)


PROGRAM = """
from typing import Any, assert_type
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session
from tallystick import AsyncTransactionManager, Journal, NumberedRecord, TransactionManager, scan
from tallystick.services.transactions.integrations.sessions import (
    AsyncSessionFactory, SessionFactory
)

class Own(Session): ...

def threads(tm: TransactionManager) -> None:
    with tm.begin() as tx:
        rows: list[tuple[Any, ...]] = tx.connection("pg", psycopg.Connection).execute("").fetchall()
        assert_type(tx.connection("a", sqlalchemy.Connection), sqlalchemy.Connection)
        assert_type(SessionFactory("a")(tx), Session)
        assert_type(SessionFactory("a", Own)(tx), Own)

    @tm.transactional
    def order(number: int) -> str:
        return str(number)

    @tm.transactional(retry=2)
    def again(number: int) -> str:
        return str(number)

    assert_type(order(1), str)
    assert_type(again(1), str)

def records(journal: Journal) -> list[tuple[int, bytes]]:
    found = [(record.lsn, record.body) for record in journal.replay(from_lsn=7)]
    found += [(record.sequence, record.body) for record in journal.follow(idle_s=1)]
    for record in scan("journal"):
        if isinstance(record, NumberedRecord):
            found.append((record.sequence, record.body.strip()))
    return found

async def tasks(tm: AsyncTransactionManager) -> None:
    async with tm.begin() as tx:
        await (await tx.connection("pg", psycopg.AsyncConnection)).execute("")
        assert_type(await tx.connection("a", AsyncConnection), AsyncConnection)
        assert_type(await AsyncSessionFactory("a")(tx), AsyncSession)

    @tm.transactional
    async def order(number: int) -> str:
        return str(number)

    assert_type(await order(1), str)
"""
WRONG = """
def wrong(tm: TransactionManager) -> None:
    with tm.begin() as tx:
        tx.connection("pg", psycopg.Connection).nothing()
"""
CHECKERS = {
    "mypy": ["mypy", "--strict", "--no-incremental", "--follow-imports=silent"],
    "pyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
}


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("checker", CHECKERS)
def test_type_checkers_know_handles_and_records_and_find_a_wrong_call(
    tmp_path: Path, checker: str
) -> None:
    root = Path(__file__).parents[3]
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(root / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))

    file = tmp_path / "program.py"
    file.write_text(PROGRAM + WRONG)
    at = root if checker == "mypy" else tmp_path
    command = [sys.executable, "-m", *CHECKERS[checker], str(file)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=at)
    assert 'nothing"' in answer.stdout
    assert "1 error" in answer.stdout, answer.stdout  # all else is right


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
