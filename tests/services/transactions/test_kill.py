"""The coordinator is killed for real, at every step and under load; so are databases."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import TallystickError
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tests.servers import Server, make_mariadb, make_postgres, running
from tests.services.transactions import killed
from tests.services.transactions.bank import Bank

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


COMBINATIONS = [
    ("pg", "maria", "store"),
    ("pg", "maria"),
    ("pg", "lite"),
    ("pg", "lite", "store"),
    ("pg", "maria", "store", "tasks"),
    ("pg", "lite", "tasks"),
]


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", COMBINATIONS, ids="-".join)
def test_killed_at_every_step_of_commit_money_is_whole(bank: Bank, names: tuple[str, ...]) -> None:
    for at in itertools.count():
        finished = bank.run("step", at, names)
        bank.recover(names)
        if finished:
            break
    assert at > 8


# Before the decision, right after it, between the commits.
@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", [5, 8, 11])
def test_killed_at_every_step_of_recovery_it_is_run_again(bank: Bank, step: int) -> None:
    names = ("pg", "maria", "store")
    for at in itertools.count():
        bank.run("step", step, names)
        finished = bank.run("recover", at, names)
        bank.recover(names)
        if finished:
            break


def _load(bank: Bank, names: tuple[str, ...], seconds: float, threads: int) -> int:
    """Kill the program under load; return how many transfers were acknowledged."""
    program = bank.start("load", threads, names)
    assert program.stdout.readline() == "done\n"
    time.sleep(seconds)
    program.kill()
    output, _ = program.communicate()
    return 1 + output.count("done")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("face", [(), ("tasks",)], ids=["threads", "tasks"])
def test_killed_under_load_nothing_is_lost_or_left(bank: Bank, face: tuple[str, ...]) -> None:
    names, chance, acknowledged = ("pg", "maria", "store"), random.Random(7), 0
    for _ in range(2):
        acknowledged += _load(bank, names + face, chance.uniform(0.1, 0.5), 8)
        bank.recover(names)
    assert -sum(bank.balances(names)["pg"]) >= acknowledged


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_ten_thousand_transfers_with_random_kills(bank: Bank, seed: int) -> None:
    """2,000 in each of five parts."""
    names, chance, acknowledged = ("pg", "maria", "store"), random.Random(seed), 0
    while acknowledged < 2_000:
        acknowledged += _load(bank, names, chance.uniform(0.5, 3.0), 16)
        bank.recover(names)
    assert -sum(bank.balances(names)["pg"]) >= acknowledged


def _losing_at_every_step(
    bank: Bank, names: tuple[str, ...], lose: Callable[[], None], mend: Callable[[], None]
) -> int:
    """Lose the database of a transfer at step 0, 1, 2 ...; return the number of steps."""
    for at in itertools.count():
        steps, lost = itertools.count(), list[str]()

        def step(name: str, steps: itertools.count[int] = steps, at: int = at) -> None:
            if next(steps) == at:
                lost.append(name)  # noqa: B023 - this round's list is meant
                lose()

        with contextlib.ExitStack() as stack:
            resources: dict[str, Any] = {name: bank.urls.get(name) for name in names}
            if "store" in names:
                resources["store"] = stack.enter_context(PageStore(bank.folder / "store"))
            tm = stack.enter_context(
                TransactionManager(
                    bank.folder / "coordinator",
                    resources,
                    orphan_interval=0.0,
                    recovery_interval=None,
                    on_step=step,
                )
            )
            with contextlib.suppress(TallystickError):  # whatever it says, money must be whole
                killed.transfer(tm, 0)
        if lost:
            mend()
        bank.recover(names)
        if not lost:
            return at
    raise AssertionError


TWO, THREE = ("pg", "maria"), ("pg", "maria", "store")


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", [TWO, THREE], ids="-".join)
@pytest.mark.parametrize("victim", ["pg", "maria"])
def test_a_database_killed_at_every_step_is_waited_for(
    tmp_path: Path,
    postgres_server: Server,
    mariadb_server: Server,
    victim: str,
    names: tuple[str, ...],
) -> None:
    with running(make_postgres() if victim == "pg" else make_mariadb()) as server:
        servers = {"pg": postgres_server, "maria": mariadb_server} | {victim: server}
        bank = Bank(tmp_path, servers["pg"], servers["maria"])
        assert _losing_at_every_step(bank, names, server.kill, server.start) > 5


class Proxy:
    """Forwards bytes to a server and from it, until its connections are cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._forwarding = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._forwarding = False
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def mend(self) -> None:
        self._forwarding = True

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._forwarding:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    @staticmethod
    def _forward(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", [TWO, THREE], ids="-".join)
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_with_the_network_cut_at_every_step_money_is_whole(
    bank: Bank, name: str, names: tuple[str, ...]
) -> None:
    port = re.search(r":(\d+)/", bank.urls[name])
    assert port is not None
    proxy = Proxy(int(port[1]))
    direct = bank.urls[name]
    bank.urls[name] = direct.replace(f":{port[1]}/", f":{proxy.port}/")
    try:
        assert _losing_at_every_step(bank, names, proxy.cut, proxy.mend) > 5
    finally:
        proxy.close()
