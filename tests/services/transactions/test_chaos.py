"""Every fault at every step, over PostgreSQL, MariaDB and a journal."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tallystick.services.journal import Journal
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.resources import adapt
from tallystick.testing import TcpProxy
from tallystick.testing.chaos import FORK, KILL, Away, Chaos, Scenario
from tallystick.testing.chaos.process import Ended
from tests.servers import Server, make_mariadb, make_postgres, running
from tests.sweeps import IN_TURNS, SEED

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

_names = itertools.count(1)
INSERT = "INSERT INTO done VALUES (%s)"


class Places:
    """A table in each database and a journal; the work adds a row to each of them."""

    def __init__(self, folder: Path, servers: dict[str, Server]) -> None:
        self.folder = folder
        database = f"chaos{next(_names)}"
        self.urls = {
            name: f"{server.url.rpartition('/')[0]}/{database}" for name, server in servers.items()
        }
        with psycopg.connect(servers["pg"].url, autocommit=True) as pg:
            pg.execute(f"CREATE DATABASE {database}")
        self.ask("maria", f"CREATE DATABASE {database}", servers["maria"].url)
        for name in self.urls:
            self.ask(name, "CREATE TABLE done (id INTEGER PRIMARY KEY)")
        self.proxies = {name: TcpProxy(server.port) for name, server in servers.items()}

    def ask(self, name: str, text: str, url: str | None = None) -> list[Any]:
        resource: Any = adapt(name, url or self.urls[name])
        try:
            with resource.pool.borrow() as connection:
                cursor = connection.cursor()
                cursor.execute(text)
                connection.commit()
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            resource.close()

    def work(self, number: int, on_step: Callable[[str], None]) -> None:
        with (
            Journal(self.folder / "mail") as mail,
            self._manager(mail, on_step) as tm,
            tm.begin() as tx,
        ):
            tx["pg"].execute(INSERT, (number,))
            tx["maria"].execute(INSERT, (number,))
            tx["mail"].add(number, b"done")

    def recover(self) -> bool:
        with Journal(self.folder / "mail") as mail, self._manager(mail, None) as tm:
            return tm.recover().clean

    def _manager(self, mail: Journal, on_step: Callable[[str], None] | None) -> TransactionManager:
        resources: dict[str, Any] = {
            name: re.sub(r":\d+/", f":{self.proxies[name].port}/", url)
            for name, url in self.urls.items()
        }
        return TransactionManager(
            self.folder / "coordinator",
            resources | {"mail": mail},
            node="chaos",
            timeout=3.0,
            call_timeout=1.5,
            orphan_interval=0.0,
            recovery_interval=None,
            on_step=on_step,
        )

    def look(self, number: int) -> bool:
        query = f"SELECT id FROM done WHERE id = {number}"
        there = {name: bool(self.ask(name, query)) for name in self.urls}
        with Journal(self.folder / "mail") as mail:
            there["mail"] = any(record.record_id == number for record in mail.live_records())
        assert len(set(there.values())) == 1, f"torn: {there}"
        return there["pg"]

    def scenario(self, **settings: Any) -> Scenario:
        settings = {"limit": 15.0} | settings
        return Scenario(self.work, self.recover, self.look, self.proxies, **settings)

    def close(self) -> None:
        for proxy in self.proxies.values():
            proxy.close()


@pytest.fixture
def places(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Iterator[Places]:
    made = Places(tmp_path, {"pg": postgres_server, "maria": mariadb_server})
    yield made
    made.close()


@pytest.mark.long
def test_faults_at_steps_by_chance_tear_nothing(
    places: Places, chaos: Chaos, record_property: Callable[[str, object], None]
) -> None:
    report = chaos.run(places.scenario(), sample=8)
    record_property("figure", str(report))
    assert len(report.steps) > 12


@pytest.mark.long
@pytest.mark.parametrize(
    "sample", [pytest.param(6, id="sample"), pytest.param(None, marks=IN_TURNS, id="all")]
)
def test_a_fork_at_any_step_leaves_the_parent_its_sessions(
    places: Places, sample: int | None
) -> None:
    """The child unwinds in the midst of the protocol, whose handlers would roll back."""
    report = Chaos(faults=[FORK.name], seed=SEED).run(places.scenario(), sample=sample)
    assert report.ended == {Ended.COMMITTED: 1 + (sample or len(report.steps))}


@pytest.mark.soak
def test_every_fault_at_every_step_tears_nothing(
    places: Places, chaos: Chaos, record_property: Callable[[str, object], None]
) -> None:
    scenario = places.scenario()
    report = chaos.run(scenario)
    record_property("figure", str(report))
    assert report.trials > (chaos.sample or len(report.steps) * len(scenario.every_fault()))


@pytest.mark.soak
def test_a_thousand_kills_of_the_process_tear_nothing(
    places: Places, record_property: Callable[[str, object], None]
) -> None:
    report = Chaos(faults=[KILL.name], seed=1).run(places.scenario(), sample=1000)
    record_property("figure", str(report))
    assert report.trials > 1000


@pytest.mark.soak
@pytest.mark.parametrize("victim", ["pg", "maria"])
def test_a_hundred_kills_of_each_server_tear_nothing(
    tmp_path: Path,
    postgres_server: Server,
    mariadb_server: Server,
    victim: str,
    record_property: Callable[[str, object], None],
) -> None:
    with running(make_postgres() if victim == "pg" else make_mariadb()) as server:
        servers = {"pg": postgres_server, "maria": mariadb_server} | {victim: server}
        places = Places(tmp_path, servers)
        try:
            fault = Away("server", server.kill, server.start)
            report = Chaos(faults=["server"]).run(places.scenario(faults=[fault]), sample=100)
            record_property("figure", str(report))
            assert report.trials > 100
        finally:
            places.close()
