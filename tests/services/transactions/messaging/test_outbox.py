"""A message leaves if and only if the rows it tells of were committed, and at least once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import TransactionUsageError
from tallystick.services.journal import Journal
from tallystick.services.transactions import (
    AsyncTransactionManager,
    Message,
    Outbox,
    Relay,
    TransactionManager,
    from_journal,
)
from tallystick.testing import Reporter, run_and_kill
from tests.services.transactions.messaging.places import Places, do, pytest_places, work_of
from tests.services.transactions.test_commit import Crash

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]


class Receiver:
    """Keeps what it gets; refuses as long as ``broken``."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.broken = False
        self.poison = b""

    def __call__(self, message: Message) -> None:
        if self.broken or (self.poison and message.body == self.poison):
            raise ConnectionError("the broker is away\x1b[2J")
        self.got.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]


@pytest_places
def test_a_message_leaves_with_the_rows_it_tells_of(places: Places, place: str) -> None:
    name, receiver = place.rpartition(":")[2], Receiver()
    work = work_of(name)
    with places.manager(place) as tm:
        outbox = Outbox(tm, name)
        relay = Relay(outbox, receiver, idle=7.0)
        with tm.begin() as tx:
            work(tx[name], "a")
            outbox.add(tx, "orders", b"\0\xff a", {"type": "grün"})
            if name != "lite":  # where the relay would have to wait for the writer
                assert relay.run_once() == 7.0
        with pytest.raises(ZeroDivisionError), tm.begin() as tx:
            work(tx[name], "b")
            outbox.add(tx, "orders", b"b")
            _ = 1 // 0
        with tm.begin() as tx:
            outbox.add(tx, "orders", b"c")
        assert outbox.pending().messages == 2
        assert relay.run_once() == 0.0
        assert relay.run_once() == 7.0
        assert receiver.bodies == [b"\0\xff a", b"c"]
        assert receiver.got[0] == Message(
            receiver.got[0].offset, "orders", b"\0\xff a", {"type": "grün"}
        )
        assert receiver.got[0].offset < receiver.got[1].offset
        assert outbox.pending().messages == 0
    assert places.done(name) == ["a"]


@pytest_places
def test_an_offset_is_not_given_again_once_its_message_is_gone(places: Places, place: str) -> None:
    name, receiver = place.rpartition(":")[2], Receiver()
    for turn in range(3):
        with places.manager(place) as tm:
            outbox = Outbox(tm, name)
            with tm.begin() as tx:
                outbox.add(tx, "orders", b"%d" % turn)
            Relay(outbox, receiver).run_once()
            assert outbox.pending().messages == 0
    offsets = [message.offset for message in receiver.got]
    assert len(offsets) == 3
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize("place", ["pg", "maria"])
def test_a_message_of_a_decided_transaction_leaves_after_recovery(
    places: Places, place: str
) -> None:
    """And a later one is not held up by it, nor is it passed over for good."""

    def stop(step: str) -> None:
        if step == "after decision":
            raise Crash(step)

    with places.manager("pg", "maria", on_step=stop) as tm:
        outbox = Outbox(tm, place)
        with pytest.raises(Crash), tm.begin() as tx:
            for name in ("pg", "maria"):
                tx[name].execute(do(name), ("a",))
            outbox.add(tx, "orders", b"first")
    receiver = Receiver()
    with places.manager("pg", "maria") as tm:
        relay = Relay(Outbox(tm, place), receiver)
        with tm.begin() as tx:
            Outbox(tm, place).add(tx, "orders", b"second")
        relay.run_once()
        assert receiver.bodies == [b"second"]
        for _ in range(100):  # a session that died may hold its branch for a moment
            if tm.recover().clean:
                break
            time.sleep(0.05)
        relay.run_once()
    assert receiver.bodies == [b"second", b"first"]
    assert receiver.got[1].offset < receiver.got[0].offset


@pytest.mark.parametrize("place", ["pg", "maria", "lite"])
async def test_a_task_adds_messages(places: Places, place: str) -> None:
    receiver = Receiver()

    async def main() -> None:
        async with AsyncTransactionManager(places.manager(place)) as tm:
            outbox = Outbox(tm, place)
            async with tm.begin() as tx:
                await tx.execute(place, do(place), ("a",))
                await outbox.add_awaiting(tx, "orders", b"a")
            await asyncio.to_thread(Relay(outbox, receiver).run_once)

    await main()
    assert receiver.bodies == [b"a"]


@pytest_places
def test_a_receiver_that_is_away_gets_everything_in_order_later(places: Places, place: str) -> None:
    name, receiver = place.rpartition(":")[2], Receiver()
    with places.manager(place) as tm:
        outbox = Outbox(tm, name)
        for number in range(5):
            with tm.begin() as tx:
                outbox.add(tx, "orders", b"%d" % number)
        relay = Relay(outbox, receiver, first=1.0, most=10.0)
        receiver.broken = True
        pauses = [relay.run_once() for _ in range(6)]
        assert all(
            limit / 2 <= pause <= limit
            for pause, limit in zip(pauses, (1.0, 2.0, 4.0, 8.0, 10.0, 10.0), strict=True)
        )
        receiver.broken = False
        relay.run_once()
        assert receiver.bodies == [b"0", b"1", b"2", b"3", b"4"]
        assert [message.attempts for message in receiver.got] == [6, 0, 0, 0, 0]
        assert (relay.delivered, relay.failed) == (5, 6)


@pytest_places
def test_a_message_that_nobody_can_take_is_parked_on_demand(places: Places, place: str) -> None:
    name, receiver = place.rpartition(":")[2], Receiver()
    receiver.poison = b"1"
    with places.manager(place) as tm:
        outbox = Outbox(tm, name)
        for number in range(3):
            with tm.begin() as tx:
                outbox.add(tx, "orders", b"%d" % number)
        relay = Relay(outbox, receiver, give_up_after=2)
        for _ in range(3):
            relay.run_once()
        assert receiver.bodies == [b"0", b"2"]
        pending = outbox.pending()
        assert (pending.messages, pending.parked) == (1, 1)
        assert 0 <= pending.oldest_seconds < 600
        (kept,) = places.ask(name, "SELECT error FROM tallystick_outbox")
        assert kept == (r"ConnectionError: the broker is away\x1b[2J",)
        receiver.poison = b""
        assert outbox.unpark() == 1
        relay.run_once()
        assert receiver.bodies == [b"0", b"2", b"1"]


@pytest.mark.parametrize("place", ["pg", "maria", "lite"])
def test_each_consumer_gets_every_message(places: Places, place: str) -> None:
    mail, index = Receiver(), Receiver()
    with places.manager(place) as tm:
        outbox = Outbox(tm, place, consumers=("mail", "index"))
        with tm.begin() as tx:
            outbox.add(tx, "orders", b"a")
        Relay(outbox, mail, consumer="mail").run_once()
        assert outbox.pending("index").messages == 1
        Relay(outbox, index, consumer="index").run_once()
        with pytest.raises(TransactionUsageError, match="no consumer"):
            Relay(outbox, mail)
    assert mail.bodies == index.bodies == [b"a"]


@pytest.mark.parametrize("place", ["pg", "maria", "lite"])
def test_one_relay_works_and_another_takes_over_when_it_has_stopped(
    places: Places, place: str
) -> None:
    first, second = Receiver(), Receiver()
    with places.manager(place) as tm:
        outbox = Outbox(tm, place)
        working, waiting = Relay(outbox, first, lease=1.5), Relay(outbox, second, lease=600.0)
        working._due()  # and then it hangs
        with tm.begin() as tx:
            outbox.add(tx, "orders", b"a")
        waiting.run_once()
        assert not second.got  # the other has the lease
        deadline = time.monotonic() + 60
        while not second.got and time.monotonic() < deadline:
            waiting.run_once()
            time.sleep(0.05)
        assert second.bodies == [b"a"]
        waiting._due()
        with tm.begin() as tx:
            outbox.add(tx, "orders", b"b")
        working.run_once()
        assert not first.got


@pytest.mark.parametrize("place", ["pg", "maria", "lite"])
def test_rounds_of_relays_follow_each_other_without_a_wait(places: Places, place: str) -> None:
    """As those of a program that is started again and again."""
    receiver = Receiver()
    with places.manager(place) as tm:
        outbox = Outbox(tm, place)
        for number in range(3):
            with tm.begin() as tx:
                outbox.add(tx, "orders", b"%d" % number)
            receiver.broken = number == 1
            Relay(outbox, receiver).run_once()
    assert receiver.bodies == [b"0", b"1", b"2"]


@pytest.mark.parametrize("body", ["text", 5, [1, 2], None])
def test_a_body_that_is_not_of_bytes_is_refused(places: Places, body: Any) -> None:
    with places.manager("lite") as tm:
        outbox = Outbox(tm, "lite")
        with pytest.raises(TransactionUsageError, match="expected bytes"), tm.begin() as tx:
            outbox.add(tx, "orders", body)
        assert outbox.pending().messages == 0


@pytest.mark.parametrize("place", ["pg", "maria", "lite"])
def test_relays_in_threads_deliver_what_threads_commit(places: Places, place: str) -> None:
    receiver = Receiver()
    with places.manager(place) as tm:
        outbox = Outbox(tm, place)

        def work(prefix: str) -> None:
            for number in range(20):
                with tm.begin() as tx:
                    outbox.add(tx, "orders", f"{prefix}{number}".encode())

        with Relay(outbox, receiver, idle=0.01), Relay(outbox, receiver, idle=0.01):
            threads = [threading.Thread(target=work, args=(prefix,)) for prefix in "ab"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            deadline = time.monotonic() + 60
            while outbox.pending().messages and time.monotonic() < deadline:
                time.sleep(0.02)
    assert len(set(receiver.bodies)) == 40
    for prefix in (b"a", b"b"):  # of one writer nothing is overtaken
        mine = list(dict.fromkeys(body for body in receiver.bodies if body.startswith(prefix)))
        assert mine == [prefix + b"%d" % number for number in range(20)]


@pytest.mark.long
def test_a_relay_that_is_killed_loses_nothing(places: Places, tmp_path: Path) -> None:
    """Six relays, each killed after some deliveries, into a journal."""
    with places.manager("pg") as tm:
        outbox = Outbox(tm, "pg")
        for number in range(60):
            with tm.begin() as tx:
                outbox.add(tx, "orders", b"%d" % number)

    def relay(reporter: Reporter) -> None:
        name = f"relay{reporter.run}"
        with places.manager("pg", node=name) as tm, Journal(tmp_path / "mail") as journal:

            class Counting:
                def append(self, body: bytes) -> int:
                    lsn = journal.append(body)
                    reporter.acknowledged(lsn)
                    return lsn

            outbox = Outbox(tm, "pg")
            again = Relay(outbox, Counting(), batch=7, lease=0.2)
            while outbox.pending().messages:
                again.run_once()
                time.sleep(0.01)

    for number in range(6):
        run_and_kill(relay, after=6, run=number)
    run_and_kill(relay, after=10_000, run=6)
    with Journal(tmp_path / "mail") as journal:
        messages = [from_journal(record.body or b"") for record in journal.replay()]
    assert len(messages) > 60  # some twice
    offsets = list(dict.fromkeys(message.offset for message in messages))
    assert offsets == sorted(offsets)
    bodies = {message.offset: message.body for message in messages}
    assert list(bodies.values()) == [b"%d" % number for number in range(60)]


def test_threads_that_share_a_relay_deliver_each_message_once(tmp_path: Path) -> None:
    got: list[int] = []

    def deliver(message: Message) -> None:
        time.sleep(0.001)
        got.append(message.offset)

    with TransactionManager(tmp_path / "tm", {"lite": f"sqlite:///{tmp_path}/lite.db"}) as tm:
        outbox = Outbox(tm, "lite")
        relay = Relay(outbox, deliver, batch=7)

        def drain() -> None:
            while outbox.pending().messages:
                relay.run_once()

        def add(count: int) -> None:
            with tm.begin() as tx:
                for _ in range(count):
                    outbox.add(tx, "orders", b"")

        add(30)
        threads = [threading.Thread(target=drain) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        add(20)
        with relay:  # and beside the thread of its own
            drain()
    assert sorted(got) == sorted(set(got))
    assert len(got) == 50


@pytest.mark.parametrize("call", [Relay.run_once, Relay.run])
def test_a_delivery_that_calls_its_relay_is_told_so(
    call: Callable[[Relay], object], tmp_path: Path
) -> None:
    got: list[int] = []

    def deliver(message: Message) -> None:
        got.append(message.offset)
        call(relay)

    with TransactionManager(tmp_path / "tm", {"lite": f"sqlite:///{tmp_path}/lite.db"}) as tm:
        outbox = Outbox(tm, "lite")
        relay = Relay(outbox, deliver, give_up_after=1)
        with tm.begin() as tx:
            outbox.add(tx, "orders", b"")
        relay.run_once()
        with tm.begin() as tx:
            (error,) = tx["lite"].execute("SELECT error FROM tallystick_outbox").fetchone()
        assert "a delivery of the relay called it" in error
    assert len(got) == 1
