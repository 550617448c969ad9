"""The relay of an outbox and a real broker, ActiveMQ Artemis over STOMP, which is killed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stomp

from tallystick.services.transactions import Message, Outbox, Relay, TransactionManager
from tests.interop.java import classpath, compile_java, start_java
from tests.servers import Server, free_port

pytestmark = [pytest.mark.interop, pytest.mark.postgres, pytest.mark.mariadb]

JARS = [
    "org.apache.activemq:artemis-server:2.40.0",
    "org.apache.activemq:artemis-stomp-protocol:2.40.0",
]
QUEUE = {"destination": "orders", "destination-type": "ANYCAST"}
MESSAGES = 120


@contextlib.contextmanager
def broker(folder: Path, port: int) -> Iterator[Callable[[], None]]:
    """Run a broker; what is yielded kills it."""
    jars = classpath(JARS)
    path = f"{jars}:{compile_java(Path(__file__).parent, jars)}"
    with start_java("Broker", folder, port, classpath=path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "ready\n":
                break
        else:
            raise AssertionError("the broker has not started")
        yield process.kill


class Sender(stomp.ConnectionListener):  # type: ignore[misc]
    """Delivers to a queue, and returns once the broker has acknowledged the message."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: Any = None
        self._receipts: dict[str, threading.Event] = {}

    def __call__(self, message: Message) -> None:
        if self._connection is None or not self._connection.is_connected():
            self._connection = connect(self._port, self)
        receipt = str(message.offset)
        acknowledged = self._receipts[receipt] = threading.Event()
        headers = {"offset": receipt, "persistent": "true", **QUEUE, **message.headers}
        self._connection.send(body=message.body, headers=headers, receipt=receipt, **_to(headers))
        if not acknowledged.wait(10) or not self._connection.is_connected():
            raise ConnectionError("the broker has not acknowledged the message")

    def on_receipt(self, frame: Any) -> None:
        self._receipts.pop(frame.headers["receipt-id"], threading.Event()).set()

    def on_disconnected(self) -> None:
        for waiting in self._receipts.values():
            waiting.set()


def _to(headers: dict[str, str]) -> dict[str, str]:
    return {"destination": headers.pop("destination")}


def connect(port: int, listener: Any) -> Any:
    connection = stomp.Connection11([("127.0.0.1", port)], reconnect_attempts_max=1)
    connection.set_listener("", listener)
    connection.connect(wait=True)
    return connection


class Receiver(stomp.ConnectionListener):  # type: ignore[misc]
    """Keeps what stands in the queue."""

    def __init__(self) -> None:
        self.got: list[tuple[int, str]] = []

    def on_message(self, frame: Any) -> None:
        self.got.append((int(frame.headers["offset"]), frame.body))


@pytest.mark.parametrize("place", ["pg", "maria"])
def test_a_broker_that_is_killed_gets_every_message_in_order(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server, place: str
) -> None:
    port = free_port()
    servers = {"pg": postgres_server, "maria": mariadb_server}
    with TransactionManager(tmp_path / "tm", {place: servers[place].url}) as tm:
        outbox = Outbox(tm, place, consumers=("broker",))
        for number in range(MESSAGES):
            with tm.begin() as tx:
                outbox.add(tx, "orders", f"order {number}".encode())
        sender = Sender(port)
        with Relay(outbox, sender, consumer="broker", batch=10, first=0.05, most=0.5) as relay:
            wait_until(lambda: relay.failed > 2)  # no broker yet
            with broker(tmp_path / "broker", port) as kill:
                wait_until(lambda: relay.delivered > MESSAGES // 3)
                kill()
            with broker(tmp_path / "broker", port):
                wait_until(lambda: not outbox.pending("broker").messages)
                receiver = Receiver()
                connection = connect(port, receiver)
                connection.subscribe(id="1", ack="auto", headers=QUEUE, **_to(dict(QUEUE)))
                wait_until(lambda: len({offset for offset, _ in receiver.got}) == MESSAGES)
                connection.disconnect()
    first_of_each = dict(receiver.got)
    assert list(first_of_each.values()) == [f"order {number}" for number in range(MESSAGES)]
    assert list(first_of_each) == sorted(first_of_each)


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)
