"""Signals before every bytecode of an outbox, its relay and keyed requests, over SQLite."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from signal import SIGALRM, raise_signal

import pytest

from tallystick.errors import TransactionUsageError
from tallystick.services.transactions import (
    IdempotencyKey,
    Message,
    Outbox,
    Relay,
    TransactionManager,
)
from tests.interrupts import Tally, TimeLimit, handlers
from tests.sweeps import Sweep


class Post:
    """A database with rows, an outbox, the relay of which delivers to a set, and keyed requests."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "post.db"
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("CREATE TABLE t (number INTEGER NOT NULL)")
        self.manager = TransactionManager(
            folder / "tm",
            {"post": f"sqlite:///{self._path}"},
            recovery_interval=None,
            orphan_interval=0.0,
        )
        self.delivered: set[bytes] = set()
        self.outbox = Outbox(self.manager, "post")
        self.relay = Relay(self.outbox, self.deliver)
        self.handle = self.manager.transactional(key=IdempotencyKey("post", of="number"))(self.work)
        self._numbers = count(1)
        self.number = 0
        self.returned = False

    def deliver(self, message: Message) -> None:
        self.delivered.add(message.body)

    def work(self, number: str) -> str:
        self.manager.current()["post"].execute("INSERT INTO t VALUES (?)", (int(number),))
        return number

    def send(self) -> None:
        self.returned, self.number = False, next(self._numbers)
        with self.manager.begin() as tx:
            tx["post"].execute("INSERT INTO t VALUES (?)", (self.number,))
            self.outbox.add(tx, "numbers", b"%d" % self.number)
        self.returned = True

    def send_and_relay(self) -> None:
        self.send()
        self.relay.run_once()
        assert b"%d" % self.number in self.delivered

    def check_sent(self, _error: BaseException | None) -> None:
        rows = self._rows()
        with ThreadPoolExecutor(1) as another:
            another.submit(self.relay.run_once).result(60)
        assert self.outbox.pending().messages == 0
        assert rows == [self.number] * (b"%d" % self.number in self.delivered), "torn"
        assert rows or not self.returned, "lost"
        self.delivered.clear()
        self.returned, self.number = False, 0

    def start_and_stop(self) -> None:
        with self.relay:
            pass

    def check_stopped(self, _error: BaseException | None) -> None:
        self.relay.stop()
        assert not [one for one in threading.enumerate() if one.name == "tallystick-relay"]

    def request(self) -> None:
        self.returned, self.number = False, next(self._numbers)
        assert self.handle(str(self.number)) == str(self.number)
        self.returned = True

    def check_request(self, _error: BaseException | None) -> None:
        if self.number:
            with ThreadPoolExecutor(1) as another:
                key = str(self.number)
                assert another.submit(self.handle, key).result(60) == key
            assert self._rows() == [self.number], "not done once"
        self.returned, self.number = False, 0  # if the next call is interrupted at once

    def _rows(self) -> list[int]:
        """Return the rows, and remove them: nothing is locked."""
        with closing(sqlite3.connect(self._path, timeout=0)) as connection, connection:
            rows = [number for (number,) in connection.execute("SELECT number FROM t")]
            connection.execute("DELETE FROM t")
        return rows


CALLS = [
    pytest.param(Post.send, Post.check_sent, id="outbox"),
    pytest.param(Post.send_and_relay, Post.check_sent, id="relay"),
    pytest.param(Post.start_and_stop, Post.check_stopped, id="thread"),
    pytest.param(Post.request, Post.check_request, id="keys"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("call", "check"), CALLS)
def test_an_interrupted_call_sends_what_it_commits_and_does_a_request_once(
    tmp_path: Path,
    call: Callable[[Post], None],
    check: Callable[[Post, BaseException | None], None],
    sweep: Sweep,
    record_property: Callable[[str, object], None],
) -> None:
    post = Post(tmp_path)
    tally = Tally(f"messaging over SQLite, {call.__name__}")
    tally.enumerate(
        lambda: call(post), lambda error: check(post, error), sweep, sample=50, pairs=15
    )
    post.manager.close()
    record_property("figure", str(tally))


def test_an_interrupt_is_no_failure_of_the_message_that_was_delivered(tmp_path: Path) -> None:
    post = Post(tmp_path)
    post.send()
    relay = Relay(post.outbox, lambda _: raise_signal(SIGALRM), give_up_after=1)
    with handlers(), pytest.raises(TimeLimit):
        relay.run_once()
    assert (post.outbox.pending().messages, post.outbox.pending().parked) == (1, 0)
    post.check_sent(None)
    post.manager.close()


RELAY_START = "tallystick.services.transactions.messaging.relay.start_thread"
INTERRUPTS = pytest.mark.parametrize("interrupt", [SystemExit(3), KeyboardInterrupt()], ids=repr)


@INTERRUPTS
def test_in_the_thread_of_a_relay_it_is_a_delivery_that_failed(
    tmp_path: Path, interrupt: BaseException
) -> None:
    post, left, arrived = Post(tmp_path), [interrupt], threading.Event()

    def deliver(_: Message) -> None:
        if left:
            raise left.pop()
        arrived.set()

    post.send()
    with closing(post.manager):
        with Relay(post.outbox, deliver, idle=0.01, first=0.01) as relay:
            assert arrived.wait(60)
        assert (relay.failed, relay.delivered) == (1, 1)


@INTERRUPTS
def test_in_a_thread_of_the_program_it_is_raised(tmp_path: Path, interrupt: BaseException) -> None:
    post = Post(tmp_path)

    def deliver(_: Message) -> None:
        raise interrupt

    post.send()
    with closing(post.manager):
        for call in (Relay(post.outbox, deliver).run_once, Relay(post.outbox, deliver).run):
            with pytest.raises(type(interrupt)):
                call()
        assert post.outbox.pending().messages == 1


def test_a_delivery_cannot_stop_the_thread_that_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, refused = Post(tmp_path), threading.Event()

    def start_and_look_away(thread: threading.Thread) -> None:
        thread.start()
        assert refused.wait(60)

    monkeypatch.setattr(RELAY_START, start_and_look_away)

    def deliver(_: Message) -> None:
        if not refused.is_set():
            with pytest.raises(TransactionUsageError, match="stop of a relay was called in a"):
                relay.stop()
            refused.set()

    post.send()
    with closing(post.manager):
        relay = Relay(post.outbox, deliver, idle=0.01)
        with relay:
            assert refused.wait(60)
        assert (relay.failed, relay.delivered) == (0, 1)
