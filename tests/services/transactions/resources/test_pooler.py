"""PostgreSQL behind a real PgBouncer in transaction mode; both may be killed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tallystick.errors import InDoubtError, RolledBackError
from tallystick.records import Xid
from tallystick.services.journal import Journal
from tallystick.services.transactions import (
    AsyncTransactionManager,
    ResourceUnreachable,
    TransactionManager,
)
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.resources.postgres import PostgresResource
from tests.need import need
from tests.servers import Server, make_pooler, make_postgres, running

pytestmark = pytest.mark.postgres

POOL_SIZE = 2
ENDS = (ResourceUnreachable, RolledBackError, InDoubtError)
CALLERS = 4
DONE_BETWEEN_KILLS = 15
"""Transactions that are committed between two kills."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    need("postgres")
    need("pgbouncer")
    with running(make_postgres()) as server:
        yield server


@pytest.fixture(scope="module")
def pooler(server: Server) -> Iterator[Server]:
    with running(make_pooler(server, default_pool_size=str(POOL_SIZE))) as pooler:
        yield pooler


@dataclass
class Load:
    """Callers that insert a row and add a record of the same id in one transaction, each time."""

    tm: TransactionManager
    over: threading.Event = field(default_factory=threading.Event)
    committed: set[int] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    unexpected: list[BaseException] = field(default_factory=list)

    def call(self, caller: int) -> None:
        number = caller << 24
        while not self.over.is_set():
            number += 1
            try:
                with self.tm.begin() as tx:
                    tx["pg"].execute("INSERT INTO kept VALUES (%s)", (number,))
                    tx["pg"].execute("SELECT id FROM kept WHERE id = %s", (number,)).fetchone()
                    tx["journal"].add(number, b"kept")
                self.committed.add(number)
            except (psycopg.OperationalError, *ENDS) as error:
                self.seen[type(error).__name__] += 1
                time.sleep(0.01)  # so that what is down does not cost all processors
            except BaseException as error:  # prepared statements, for one
                self.unexpected.append(error)
                return


def rows_of(server: Server) -> set[int]:
    with psycopg.connect(server.url) as pg:
        return {number for (number,) in pg.execute("SELECT id FROM kept").fetchall()}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.soak)])
def test_no_kill_of_the_pooler_or_the_server_under_load_tears_a_transaction(
    tmp_path: Path, server: Server, pooler: Server, kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - the run can be repeated with it
    rng = random.Random(seed)
    with psycopg.connect(server.url) as pg:
        pg.execute("DROP TABLE IF EXISTS kept")
        pg.execute("CREATE TABLE kept (id int PRIMARY KEY)")
    with Journal(tmp_path / "journal") as journal:
        resources: dict[str, Any] = {"pg": pooler.url, "journal": journal}
        with TransactionManager(tmp_path / "tm", resources, orphan_interval=0.1) as tm:
            assert not tm.preflight()
            load = Load(tm)
            threads = [threading.Thread(target=load.call, args=(n,)) for n in range(CALLERS)]
            for thread in threads:
                thread.start()
            try:
                for kill in range(kills):
                    due = len(load.committed) + DONE_BETWEEN_KILLS
                    wait_until(lambda due=due: len(load.committed) >= due or load.unexpected)
                    time.sleep(rng.random() * 0.01)
                    victim = (pooler, server)[kill % 2]
                    victim.kill()
                    victim.start()
                    if victim is server:
                        pooler.ready()
            finally:
                load.over.set()
                for thread in threads:
                    thread.join()
            assert load.unexpected == []
            wait_until(lambda: tm.recover().clean)
            live = {record.record_id for record in journal.live_records()}
    assert load.seen, "no kill was noticed"
    assert live == rows_of(server), "torn"
    assert load.committed <= live
    direct = adapt("pg", server.url)
    assert direct.in_doubt() == []
    direct.close()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("option", "expected"),
    [("", None), ("?prepare_threshold=3", 3), ("?prepare_threshold=none", None)],
)
async def test_nothing_is_prepared_behind_a_pooler_unless_the_url_says_so(
    tmp_path: Path, server: Server, pooler: Server, option: str, expected: int | None
) -> None:
    resources = {"pg": pooler.url + option, "direct": server.url}
    with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as manager:
        with manager.begin() as tx:
            assert tx.connection("pg", psycopg.Connection).prepare_threshold == expected
            assert tx.connection("direct", psycopg.Connection).prepare_threshold == 5
        tm = AsyncTransactionManager(manager)
        async with tm.begin() as tasks:
            connection = await tasks.connection("pg", psycopg.AsyncConnection)
            assert connection.prepare_threshold == expected
        problems = [one.what for one in manager.preflight() if one.resource == "pg"]
    assert ["through a pooler" in one for one in problems] == [True] * (expected is not None)


def test_a_connection_that_was_lost_when_it_was_made_is_no_wrong_use(pooler: Server) -> None:
    pg = PostgresResource("pg", lambda: psycopg.connect(pooler.url))
    with psycopg.connect(pooler.url) as connection:
        pass
    with pytest.raises(psycopg.OperationalError, match="lost or closed"):
        pg.start(connection, Xid(1, b"g", b"b"))
    pg.close()


def test_preflight_names_a_pooler_before_connections_of_ones_own(pooler: Server) -> None:
    pg = PostgresResource("pg", lambda: psycopg.connect(pooler.url))
    (problem,) = pg.preflight()
    pg.close()
    assert "through a pooler" in problem.what
    assert "prepare_threshold=None" in problem.mend


def test_what_a_transaction_leaves_in_a_session_reaches_no_other_through_a_pooler(
    tmp_path: Path, pooler: Server
) -> None:
    question = (
        "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), "
        "(SELECT count(*) FROM pg_listening_channels()), current_setting('statement_timeout')"
    )
    with TransactionManager(tmp_path / "tm", {"pg": pooler.url}, recovery_interval=None) as tm:
        for statement in (
            "SELECT pg_advisory_lock(7)", "LISTEN shop", "SET statement_timeout = '7min'",
        ):  # fmt: skip
            with tm.begin() as tx:
                tx["pg"].execute(statement)
            held = [tm.begin() for _ in range(POOL_SIZE)]  # so that all server sessions are seen
            for tx in held:
                assert tx["pg"].execute(question).fetchone() == (0, 0, "0"), statement
            for tx in held:
                tx.rollback()
