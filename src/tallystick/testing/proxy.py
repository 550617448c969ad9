"""A network between a client and a server that can be cut, for tests on loopback.

In: the address of a server. Out: a port through which the server is reached (`TcpProxy`), until the
proxy swallows what passes: then both ends wait, as after a lost route or a dropped NAT entry.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from typing import Self

_CHUNK = 64 * 1024


@dataclass(eq=False)
class _Link:
    """One connection: the client's socket, and the one to the server if it was made."""

    client: socket.socket
    server: socket.socket | None
    lost: set[str] = field(default_factory=set)
    """Directions of which something was swallowed: nothing later can pass."""

    def close(self, *, reset: bool) -> None:
        for end in (self.client, self.server):
            if end is None:
                continue
            with contextlib.suppress(OSError):
                if reset:
                    linger = b"\1\0\0\0\0\0\0\0"  # struct linger: on, 0 seconds
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                # A thread that waits for the socket would keep it open.
                end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
            end.close()


class TcpProxy:
    """A port of loopback that leads to a server; a context manager.

    A connection of which something was swallowed stays dead, even after `pass_on`: a TCP stream
    with a gap is of no use to either end. Neither end is told: no FIN, no RST, not even if the
    other end closes.

    Args:
        port: the port of the server.
        host: the address of the server.

    Attributes:
        port: the port to connect to, on 127.0.0.1.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._server = (host, port)
        self._swallowed: frozenset[str] = frozenset()
        self._replaced = (b"", b"")
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self, *, requests: bool = True, answers: bool = True) -> None:
        """Swallow what passes from now on, on old connections and new ones.

        Args:
            requests: swallow what clients send; new connections do not reach the server.
            answers: swallow what the server sends.
        """
        wanted = {"requests": requests, "answers": answers}
        self._swallowed = frozenset(direction for direction, on in wanted.items() if on)

    def replace(self, wanted: bytes, instead: bytes) -> None:
        """Replace bytes in what clients send from now on; nothing for empty ``wanted``.

        Each piece that arrives is looked at by itself, so this suits short requests.

        Raises:
            ValueError: the lengths differ, which would break most protocols.
        """
        if len(wanted) != len(instead):
            raise ValueError(f"{len(wanted)} bytes replaced by {len(instead)}")
        self._replaced = (wanted, instead)

    def pass_on(self) -> None:
        """Let connections pass that are made from now on, and old ones that lost nothing."""
        self._swallowed = frozenset()

    def cut(self) -> None:
        """Reset all connections, so that both ends notice; new ones can be made."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.close(reset=True)

    @property
    def connections(self) -> int:
        """The number of connections that neither end has closed and `cut` has not reset."""
        with self._lock:
            return len(self._links)

    def close(self) -> None:
        """Refuse new connections and end all others."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Connect a client to the server, unless its requests are swallowed."""
        server = None
        if "requests" not in self._swallowed:
            try:
                server = socket.create_connection(self._server)
            except OSError:
                _Link(client, None).close(reset=True)
                return
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server)
        with self._lock:
            self._links.add(link)
        if server is not None:
            pump = (link, "answers", server, client)
            threading.Thread(target=self._pump, args=pump, daemon=True).start()
        self._pump(link, "requests", client, server)

    def _pump(
        self, link: _Link, direction: str, source: socket.socket, target: socket.socket | None
    ) -> None:
        """Pass on one direction of a connection until its source ends."""
        while True:
            try:
                data = source.recv(_CHUNK)
            except OSError:
                data = b""
            if target is None or direction in self._swallowed:
                link.lost.add(direction)
            if not data:
                break
            if direction == "requests" and self._replaced[0]:
                data = data.replace(*self._replaced)
            if direction not in link.lost and target is not None:
                with contextlib.suppress(OSError):
                    target.sendall(data)
        with self._lock:
            ended = not link.lost and link in self._links
            if ended:
                self._links.remove(link)
        if ended:
            link.close(reset=False)
