"""Databases that hang: networks that swallow what passes, and close nothing."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tallystick.errors import RolledBackError
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.resource import ResourceUnreachable
from tallystick.storage.scheduling import living_threads
from tallystick.testing import TcpProxy
from tests.servers import Server
from tests.services.transactions.resources.test_databases import Bank
from tests.services.transactions.test_bad_days import decided_and_stopped, recover_until_clean

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

LIMIT_S = 20.0
"""Far more than what is allowed below, far less than a hanging call takes."""


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


@pytest.fixture(params=["pg", "maria"])
def name(request: pytest.FixtureRequest) -> str:
    """The database that hangs."""
    return str(request.param)


@pytest.fixture
def network(
    bank: Bank, name: str, postgres_server: Server, mariadb_server: Server
) -> Iterator[TcpProxy]:
    """The network before the database that hangs."""
    server = {"pg": postgres_server, "maria": mariadb_server}[name]
    direct = bank.urls[name]
    with TcpProxy(server.port) as proxy:
        url = direct.replace(f":{server.port}/", f":{proxy.port}/")
        bank.urls[name] = f"{url}?connect_timeout=2"
        yield proxy
    bank.urls[name] = direct


def mend(network: TcpProxy) -> None:
    """Let the network pass on, after the servers have noticed which sessions are lost."""
    network.pass_on()
    network.cut()


def other_than(name: str) -> str:
    return {"pg": "maria", "maria": "pg"}[name]


@contextmanager
def in_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LIMIT_S


def pay(bank: Bank, tx: Any) -> None:
    bank.pay(tx, "pg", 5)
    bank.pay(tx, "maria", 5)


def swallow_at(network: TcpProxy, at: str) -> Callable[[str], None]:
    """Return an observer that lets the network swallow everything from a step on."""

    def observe(step: str) -> None:
        if step == at:
            network.swallow()

    return observe


@pytest.mark.parametrize("requests", [True, False], ids=["all", "answers"])
def test_a_hung_database_keeps_no_other_from_its_recovery(
    bank: Bank, network: TcpProxy, name: str, requests: bool
) -> None:
    decided_and_stopped(bank)
    with bank.manager("pg", "maria", call_timeout=1.0) as tm:
        network.swallow(requests=requests)
        for _ in range(2):
            with in_time():
                report = tm.recover()
            assert name in report.unreachable
        assert bank.balances_of(other_than(name)) == 5
        mend(network)
        assert recover_until_clean(tm).clean
    assert bank.balances() == {"pg": 5, "maria": 5, "lite": 0}


@pytest.mark.parametrize("decided", [False, True])
def test_a_commit_over_a_hung_database_ends_in_time(
    bank: Bank, network: TcpProxy, decided: bool
) -> None:
    observe = swallow_at(network, "after decision")
    with bank.manager("pg", "maria", call_timeout=1.0, on_step=observe) as tm:
        tx = tm.begin(timeout=3)
        pay(bank, tx)
        with in_time():
            if decided:
                tx.commit()
            else:
                network.swallow()
                with pytest.raises(RolledBackError):
                    tx.commit()
        mend(network)
        assert recover_until_clean(tm).clean
    paid = 5 if decided else 0
    assert bank.balances() == {"pg": paid, "maria": paid, "lite": 0}


@pytest.mark.parametrize("kind", ["url", "engine"])
def test_a_statement_over_a_hung_database_ends_with_its_transaction(
    bank: Bank, network: TcpProxy, name: str, kind: str
) -> None:
    drivers = {"pg": "postgresql+psycopg", "maria": "mariadb+pymysql"}
    address = f"{drivers[name]}://{bank.urls[name].partition('://')[2]}"
    engine = sqlalchemy.create_engine(address)
    resources = {name: engine if kind == "engine" else bank.urls[name]}
    with TransactionManager(bank.folder / "node", resources, recovery_interval=None) as tm:
        with in_time(), pytest.raises(RolledBackError, match="timed out"), tm.begin(1.0) as tx:
            run = tx[name].exec_driver_sql if kind == "engine" else tx[name].execute
            network.swallow()
            run("SELECT 1")
        network.pass_on()
        with tm.begin() as tx:
            run = tx[name].exec_driver_sql if kind == "engine" else tx[name].execute
            assert run("SELECT 1").fetchone()[0] == 1
    engine.dispose()


@pytest.mark.long
@pytest.mark.parametrize("pinged", [True, False], ids=["pinged", "not pinged"])
@pytest.mark.parametrize("idle", [True, False], ids=["idle connection", "new connection"])
def test_a_branch_of_an_engine_on_a_hung_database_does_not_begin(
    bank: Bank, network: TcpProxy, name: str, idle: bool, pinged: bool
) -> None:
    """The engine waits for ever: only its pool has a limit."""
    driver = {"pg": "postgresql+psycopg", "maria": "mariadb+pymysql"}[name]
    address = bank.urls[name].partition("://")[2].partition("?")[0]
    engine = sqlalchemy.create_engine(
        f"{driver}://{address}", pool_timeout=0.5, pool_pre_ping=pinged
    )
    with TransactionManager(
        bank.folder / "node", {name: engine}, recovery_interval=None, call_timeout=1.0
    ) as tm:
        if idle:
            with tm.begin() as tx:
                tx[name].exec_driver_sql("SELECT 1")
        network.swallow()
        tx = tm.begin()
        with in_time(), pytest.raises(ResourceUnreachable):
            tx.enlist(name)
        with in_time():
            tx.rollback()
        mend(network)
        with tm.begin() as tx:
            assert tx[name].exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


@pytest.mark.parametrize("idle", [True, False], ids=["idle connection", "new connection"])
def test_a_branch_on_a_hung_database_does_not_begin(
    bank: Bank, network: TcpProxy, name: str, idle: bool
) -> None:
    with bank.manager("pg", "maria", call_timeout=1.0) as tm:
        if idle:
            with tm.begin() as tx:
                bank.pay(tx, name, 1)
        network.swallow()
        tx = tm.begin()
        with in_time(), pytest.raises(ResourceUnreachable):
            tx.enlist(name)
        with in_time():
            tx.rollback()


def test_close_ends_in_time_while_recovery_hangs(bank: Bank, network: TcpProxy, name: str) -> None:
    with TransactionManager(
        bank.folder / "node",
        {"pg": bank.urls["pg"], "maria": bank.urls["maria"]},
        call_timeout=2.0,
        recovery_interval=0.1,
    ) as tm:
        with tm.begin() as tx:
            pay(bank, tx)
        network.swallow()
        time.sleep(0.5)
        hung = tm.begin()
        bank.pay(hung, other_than(name), 1)
        connection = hung[other_than(name)]
        with in_time():
            tm.close()
        assert getattr(connection, "closed", True), "what was open is closed, not only cut off"
        with pytest.raises(RolledBackError):
            hung.commit()
    assert bank.balances_of(other_than(name)) == 5


def test_an_idle_connection_that_hangs_is_given_up_and_replaced(
    bank: Bank, network: TcpProxy, name: str
) -> None:
    """What the network has swallowed never comes, and no end of the connection either."""
    with bank.manager("pg", "maria", call_timeout=1.0) as tm:
        assert recover_until_clean(tm).clean  # the pools have connections now
        network.swallow()
        with in_time():
            assert name in tm.recover().unreachable
        network.pass_on()
        with in_time():
            assert recover_until_clean(tm).clean


def test_an_interrupt_ends_a_commit_that_hangs(bank: Bank, network: TcpProxy) -> None:
    with bank.manager("pg", "maria") as tm:
        tx = tm.begin(timeout=3600)
        pay(bank, tx)
        network.swallow()
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with in_time(), pytest.raises(KeyboardInterrupt):
            tx.commit()
        mend(network)
        assert recover_until_clean(tm).clean
    assert bank.balances() == {"pg": 0, "maria": 0, "lite": 0}


@pytest.mark.parametrize("end", ["thread ends", "nothing refers to it", "time passes"])
def test_a_transaction_that_nobody_ends_is_ended(bank: Bank, end: str) -> None:
    kept: list[Any] = []

    def work() -> None:
        tx = tm.begin(timeout=2 if end == "time passes" else 3600)
        pay(bank, tx)
        if end != "nothing refers to it":
            kept.append(tx)
        if end == "time passes":
            done.wait(LIMIT_S)
            tx.rollback()  # closes what is left of its sessions

    done = threading.Event()
    with bank.manager("pg", "maria") as tm:
        worker = threading.Thread(target=work)
        worker.start()
        if end != "time passes":
            worker.join()
            gc.collect()
        time.sleep(0.2)
        with in_time(), tm.begin() as tx:  # waits for the locks of the rows
            pay(bank, tx)
        done.set()
        worker.join()
        assert recover_until_clean(tm).clean
    assert bank.balances() == {"pg": 5, "maria": 5, "lite": 0}


def test_no_finalizer_runs_while_the_threads_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    real, collecting = sys._current_frames, []

    def frames() -> dict[int, Any]:
        collecting.append(gc.isenabled())
        return dict(real())

    monkeypatch.setattr(sys, "_current_frames", frames)
    assert threading.get_ident() in living_threads()
    assert collecting == [False]
    assert gc.isenabled()
