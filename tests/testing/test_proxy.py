"""A proxy that swallows packets leaves both ends waiting."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tallystick.testing import TcpProxy

SHORT = 0.2


@pytest.fixture
def echo() -> Iterator[socket.socket]:
    """A server that sends back what it receives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(client: socket.socket) -> None:
            with client, contextlib.suppress(ConnectionResetError):
                while data := client.recv(100):
                    client.sendall(data)

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: socket.socket) -> Iterator[TcpProxy]:
    with TcpProxy(echo.getsockname()[1]) as made:
        yield made


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(100)


def hears_nothing(client: socket.socket) -> bool:
    client.settimeout(SHORT)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("direction", ["requests", "answers"])
def test_a_swallowed_connection_is_not_closed_and_never_passes_again(
    proxy: TcpProxy, direction: str
) -> None:
    with connect(proxy) as old:
        assert ask(old, b"before") == b"before"
        proxy.swallow(requests=direction == "requests", answers=direction == "answers")
        old.sendall(b"lost")
        assert hears_nothing(old)
        proxy.pass_on()
        old.sendall(b"later")
        assert hears_nothing(old)
        with connect(proxy) as new:
            assert ask(new, b"again") == b"again"


def test_a_new_connection_is_accepted_and_hears_nothing(proxy: TcpProxy) -> None:
    proxy.swallow()
    with connect(proxy) as new:
        new.sendall(b"hello")
        assert hears_nothing(new)


def test_a_cut_is_noticed_by_the_client(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"before") == b"before"
        assert proxy.connections == 1
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert proxy.connections == 0


def test_an_end_that_closes_closes_the_other_one(proxy: TcpProxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"before") == b"before"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
