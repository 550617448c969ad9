"""Repetitions and waits without end, and relays that are stopped and go on; over SQLite."""

from __future__ import annotations

import math
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tallystick.services.transactions import (
    IdempotencyKey,
    Message,
    Outbox,
    Relay,
    Retry,
    TransactionManager,
)
from tallystick.services.transactions.messaging.statements import SQLITE, Table


def test_pauses_between_repetitions_go_on_for_ever() -> None:
    pauses = list(Retry(times=5000, first=0.5, most=2.0).pauses())
    assert len(pauses) == 5000
    assert max(pauses) <= 2.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[TransactionManager]:
    url = f"sqlite:///{tmp_path}/lite.db"
    with TransactionManager(tmp_path / "tm", {"lite": url}, recovery_interval=None) as tm:
        yield tm


@pytest.mark.parametrize("wait", [math.inf, 1e300, 3e6, 2**31])
def test_a_request_waits_as_long_as_a_database_can(tmp_path: Path, wait: float) -> None:
    url = f"sqlite:///{tmp_path}/lite.db?begin=deferred"
    with TransactionManager(tmp_path / "tm", {"lite": url}, recovery_interval=None) as tm:

        @tm.transactional(key=IdempotencyKey("lite", of="request", wait=wait))
        def handle(request: str) -> str:
            return request

        handle("first")
        other = sqlite3.connect(tmp_path / "lite.db", check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.1, other.rollback)
        release.start()
        assert handle("second") == "second"
        release.join()
        other.close()


class Post:
    def __init__(self, manager: TransactionManager) -> None:
        self.manager = manager
        self.outbox = Outbox(manager, "lite")

    def send(self, body: bytes) -> None:
        with self.manager.begin() as tx:
            self.outbox.add(tx, "numbers", body)


@pytest.fixture
def post(manager: TransactionManager) -> Post:
    return Post(manager)


def test_an_interrupted_relay_gives_up_its_lease(post: Post) -> None:
    def deliver(_: Message) -> None:
        raise KeyboardInterrupt

    post.send(b"1")
    with pytest.raises(KeyboardInterrupt):
        Relay(post.outbox, deliver).run()
    another = Relay(post.outbox, lambda _: None)
    another.run_once()
    assert another.delivered == 1


def test_a_relay_that_was_stopped_delivers_when_it_is_called(post: Post) -> None:
    relay = Relay(post.outbox, lambda _: None, idle=0.01)
    with relay:
        pass
    post.send(b"1")
    relay.run_once()
    assert relay.delivered == 1


def test_a_relay_that_has_stopped_by_itself_can_be_started_again(post: Post) -> None:
    delivered, mended = threading.Event(), threading.Event()

    async def later() -> None:
        """Is never awaited."""

    def deliver(_: Message) -> Any:
        return delivered.set() if mended.is_set() else later()

    relay = Relay(post.outbox, deliver, idle=0.01)
    post.send(b"1")
    relay.start()
    assert relay._thread is not None
    relay._thread.join(60)
    mended.set()
    relay.start()
    assert delivered.wait(60)
    relay.stop()


def test_stop_waits_for_a_delivery_in_a_thread_of_the_program(post: Post) -> None:
    delivering, go_on = threading.Event(), threading.Event()

    def deliver(_: Message) -> None:
        delivering.set()
        assert go_on.wait(60)

    relay = Relay(post.outbox, deliver, idle=0.01)
    post.send(b"1")
    running = threading.Thread(target=relay.run)
    running.start()
    assert delivering.wait(60)
    stopping = threading.Thread(target=relay.stop)
    stopping.start()
    stopping.join(0.1)
    assert stopping.is_alive()
    go_on.set()
    stopping.join(60)
    assert relay.delivered == 1
    running.join(60)


@pytest.mark.parametrize("way", ["delivery", "signal"])
def test_stop_within_run_ends_it(post: Post, way: str) -> None:
    def deliver(_: Message) -> None:
        relay.stop() if way == "delivery" else signal.raise_signal(signal.SIGALRM)

    relay = Relay(post.outbox, deliver, idle=0.01)
    post.send(b"1")
    before = signal.signal(signal.SIGALRM, lambda *_: relay.stop())
    try:
        relay.run()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert relay.delivered == 1


class Answering:
    """A database, the pool of which has one connection that may not come."""

    dialect = SQLITE
    name = "answering"

    def __init__(self, folder: Path) -> None:
        self.errors = nullcontext()
        self.connection = sqlite3.connect(folder / "other.db", check_same_thread=False)
        self.asked, self.answers = threading.Event(), threading.Event()

    @property
    def pool(self) -> Answering:
        return self

    def borrow(self) -> Answering:
        return self

    def __enter__(self) -> sqlite3.Connection:
        self.asked.set()
        assert self.answers.wait(60)
        return self.connection

    def __exit__(self, *_: object) -> None:
        """Keep the connection."""


def test_a_database_that_does_not_answer_keeps_no_other_one_from_its_table(tmp_path: Path) -> None:
    table = Table("t", {SQLITE: ("CREATE TABLE IF NOT EXISTS {table} (id INTEGER)",)})
    (tmp_path / "a").mkdir()
    hangs, works = Answering(tmp_path / "a"), Answering(tmp_path)
    works.answers.set()
    with closing(hangs.connection), closing(works.connection):
        first = threading.Thread(target=table.of, args=[hangs])
        first.start()
        assert hangs.asked.wait(60)
        second = threading.Thread(target=table.of, args=[works], daemon=True)
        second.start()
        second.join(5)
        found = not second.is_alive()
        hangs.answers.set()
        first.join(60)
        second.join(60)
    assert found
