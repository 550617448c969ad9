"""Answers that are lost or late, and ids of all kinds, over real servers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from tallystick.errors import RolledBackError
from tallystick.records import Xid
from tallystick.services.transactions.aio import AsyncTransactionManager
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.resources.mysql import MySqlResource
from tallystick.services.transactions.xids import FORMAT_ID
from tests.servers import Server, make_postgres, running
from tests.services.transactions.faces import Face
from tests.services.transactions.resources.test_databases import Bank, _leave_prepared

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]


class AnswerProxy:
    """A proxy to a server that withholds the answer to a message with ``trigger`` in it.

    The server has carried the message out; the client gets the answer ``late`` seconds later, or
    never.
    """

    def __init__(self, port: int) -> None:
        self.trigger: bytes | None = None
        self.late: float | None = None
        self.struck = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [near, far]
                held = threading.Event()
                threading.Thread(target=self._ask, args=(near, far, held), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near, held), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket, held: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                if self.trigger is not None and self.trigger in data:
                    self.trigger = None
                    self.struck += 1
                    held.set()
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)

    def _answer(self, far: socket.socket, near: socket.socket, held: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if held.is_set():
                    held.clear()
                    if self.late is None:
                        near.shutdown(socket.SHUT_RDWR)
                        far.shutdown(socket.SHUT_RDWR)
                        return
                    time.sleep(self.late)
                near.sendall(data)


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


@contextlib.contextmanager
def through_proxy(bank: Bank, name: str) -> Iterator[AnswerProxy]:
    """Put such a proxy before one of the bank's servers."""
    direct = bank.urls[name]
    port = urlsplit(direct).port
    assert port is not None
    proxy = AnswerProxy(port)
    bank.urls[name] = direct.replace(f":{port}/", f":{proxy.port}/")
    try:
        yield proxy
    finally:
        bank.urls[name] = direct
        proxy.close()


def _until_clean(tm: Any) -> None:
    """Recover until nothing is left: a lost session may hold its branch for a moment."""
    for _ in range(100):
        if tm.recover().clean:
            return
        time.sleep(0.05)
    assert tm.recover().clean


TRIGGERS = {
    "pg": {"prepare": b"PREPARE TRANSACTION", "commit": b"COMMIT PREPARED"},
    "maria": {"prepare": b"XA PREPARE", "commit": b"XA COMMIT"},
}


@pytest.mark.parametrize("name", ["pg", "maria"])
def test_a_prepare_whose_answer_is_lost_is_rolled_back(
    bank: Bank, server_face: Face, name: str
) -> None:
    with through_proxy(bank, name) as proxy, bank.manager("pg", "maria", face=server_face) as tm:
        with pytest.raises(RolledBackError), tm.begin() as tx:
            bank.pay(tx, "pg", 5)
            bank.pay(tx, "maria", 5)
            proxy.trigger = TRIGGERS[name]["prepare"]
        _until_clean(tm)
        assert proxy.struck == 1
        with tm.begin() as tx:
            bank.pay(tx, "pg", 1)
            bank.pay(tx, "maria", 1)
        assert not any(one.in_doubt() for one in tm.resources.values())
    assert bank.balances() == {"pg": 1, "maria": 1, "lite": 0}


@pytest.mark.parametrize("name", ["pg", "maria"])
def test_a_commit_whose_answer_is_lost_is_a_commit(
    bank: Bank, server_face: Face, name: str
) -> None:
    with through_proxy(bank, name) as proxy, bank.manager("pg", "maria", face=server_face) as tm:
        with tm.begin() as tx:
            bank.pay(tx, "pg", 5)
            bank.pay(tx, "maria", 5)
            proxy.trigger = TRIGGERS[name]["commit"]
        assert proxy.struck == 1
        assert len(tm.decisions.open_decisions()) == 1, "whether it is over only recovery can see"
        _until_clean(tm)
        assert not tm.decisions.open_decisions()
        assert not tm.decisions.heuristics()
        with tm.begin() as tx:
            bank.pay(tx, "pg", 1)
            bank.pay(tx, "maria", 1)
    assert bank.balances() == {"pg": 6, "maria": 6, "lite": 0}


def _with_read_timeout(bank: Bank) -> MySqlResource:
    """Return MariaDB through a driver that waits for a second."""
    parts = urlsplit(bank.urls["maria"])
    return MySqlResource(
        "maria",
        lambda: pymysql.connect(
            host="127.0.0.1", port=parts.port or 0, user="root",
            database=parts.path.lstrip("/"), read_timeout=1.0,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_an_answer_after_the_timeout_is_no_answer_to_the_next_question(
    bank: Bank, server_face: Face, step: str
) -> None:
    with through_proxy(bank, "maria") as proxy, bank.manager("pg", face=server_face) as tm:
        tm.resources["maria"] = _with_read_timeout(bank)
        proxy.late = 2.0
        with contextlib.suppress(RolledBackError), tm.begin() as tx:
            bank.pay(tx, "pg", 5)
            bank.pay(tx, "maria", 5)
            proxy.trigger = TRIGGERS["maria"][step]
        assert proxy.struck == 1
        for number in (1, 2):
            with tm.begin() as tx:
                assert tx["maria"].execute(f"SELECT {number}").fetchone() == (number,)
                bank.pay(tx, "pg", 1)
        _until_clean(tm)
    paid = 5 if step == "commit" else 0
    assert bank.balances() == {"pg": paid + 2, "maria": paid, "lite": 0}


async def test_a_statement_that_a_task_gave_up_leaves_its_connection_sound(bank: Bank) -> None:
    async def work() -> list[int]:
        async with AsyncTransactionManager(bank.manager("pg")) as tm:
            with pytest.raises(TimeoutError):
                async with tm.begin() as tx:
                    handle = await tx.enlist("pg")
                    await asyncio.wait_for(handle.execute("SELECT 1, pg_sleep(30)"), 0.1)
            found = []
            for number in (2, 3):
                async with tm.begin() as tx:
                    cursor = await tx.execute("pg", f"SELECT {number}")
                    found.append((await cursor.fetchone())[0])
            return found

    assert await work() == [2, 3]


IDS = {
    "printable, with quotes": (b"it's", b"a',X'62"),
    "64 printable bytes": (b"g" * 64, b"b" * 64),
    "64 bytes of any kind": (bytes(range(192, 256)), bytes(64)),
    "backslashes and newlines": (b"\\'\n\\", b"\r\x7f"),
}


@pytest.mark.parametrize("name", ["pg", "maria"])
@pytest.mark.parametrize("parts", IDS.values(), ids=IDS)
def test_ids_of_others_are_read_and_settled_whatever_their_bytes(
    bank: Bank, name: str, parts: tuple[bytes, bytes]
) -> None:
    foreign = Xid(7, *parts)
    _leave_prepared(bank, name, foreign)
    resource = adapt(name, bank.urls[name])
    try:
        assert foreign in resource.in_doubt()
    finally:
        resource.rollback(foreign)
    assert foreign not in resource.in_doubt()
    resource.close()


def test_a_restarted_server_keeps_what_is_foreign_and_recovery_leaves_it_alone(
    tmp_path: Path, mariadb_server: Server
) -> None:
    foreign = Xid(FORMAT_ID, b"others-1ABCDEFGHABCD", b"others-1ABCDEFGHABCE")
    with running(make_postgres()) as server:
        bank = Bank(tmp_path, server, mariadb_server)
        _leave_prepared(bank, "pg", foreign)

        def restart(step: str) -> None:
            if step == "after decision":
                server.kill()
                server.start()

        with bank.manager("pg", "maria", on_step=restart) as tm:
            with tm.begin() as tx:
                tx["pg"].execute("INSERT INTO accounts VALUES (-1, 5)")
                bank.pay(tx, "maria", 5)
            _until_clean(tm)
            (left,) = tm.recover().left
            assert (left.why, left.node, left.xid) == ("foreign", "others-1", foreign)
            rows = _rows(bank, -1)
        assert rows == [(5,)]


def _rows(bank: Bank, account: int) -> list[tuple[Any, ...]]:
    with psycopg.connect(bank.urls["pg"]) as pg:
        query = "SELECT balance FROM accounts WHERE id = %s"
        return pg.execute(query, (account,)).fetchall()
