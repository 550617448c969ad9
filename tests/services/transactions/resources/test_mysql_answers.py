"""Answers of MariaDB and MySQL to statements without rows, as they come over the wire."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from tallystick.services.transactions.resource import BranchRolledBack
from tallystick.services.transactions.resources.mysql import receive

DONE = b"\x07\0\0\1\0\0\0\2\0\0\0"
DEADLOCK = b"\xff" + (1614).to_bytes(2, "little") + b"#XA102" + b"rolled back: deadlock"

Wire = tuple[Any, socket.socket]


def packet(payload: bytes, number: int = 1) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A connection of PyMySQL whose server is a socket."""
    near, far = socket.socketpair()
    connection: Any = pymysql.connections.Connection(defer_connect=True)
    connection._sock, connection._rfile = near, near.makefile("rb")
    connection._current_timeout = None
    with near, far, connection._rfile:
        yield connection, far


def test_answers_are_read_one_by_one_and_a_refusal_whole(wire: Wire) -> None:
    connection, server = wire
    longer = packet(b"\0\0\0\2\0\0\0" + b"with a text")
    server.sendall(DONE + packet(DEADLOCK) + longer + DONE)
    receive(connection, "XA END")
    with pytest.raises(BranchRolledBack, match="rolled back: deadlock"):
        receive(connection, "XA PREPARE X'00'")
    receive(connection, "XA END")
    receive(connection, "XA END")
    assert connection.open


def test_a_refusal_is_one_where_pymysql_stands_in_for_mysqldb(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `pymysql.install_as_MySQLdb` leaves it once Django has imported `MySQLdb.err`."""
    monkeypatch.setattr(pymysql, "err", None)
    connection, server = wire
    server.sendall(packet(DEADLOCK))
    with pytest.raises(BranchRolledBack):
        receive(connection, "XA PREPARE X'00'")


@pytest.mark.parametrize("number", [0, 2])
def test_an_answer_out_of_turn_ends_the_connection(wire: Wire, number: int) -> None:
    connection, server = wire
    server.sendall(packet(b"\xff\x1d\x04#08S01Server shutdown", number))
    with pytest.raises(pymysql.OperationalError):
        receive(connection, "XA COMMIT X'00'")
    assert not connection.open


def test_an_answer_that_is_cut_ends_the_connection(wire: Wire) -> None:
    connection, server = wire
    server.sendall(packet(DEADLOCK)[:-1])
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(pymysql.OperationalError):
        receive(connection, "XA COMMIT X'00'")
    assert not connection.open


def test_the_limit_for_reading_holds_for_answers(wire: Wire) -> None:
    connection, _ = wire
    connection._read_timeout = 0.05
    with pytest.raises(pymysql.OperationalError):
        receive(connection, "XA COMMIT X'00'")
    assert not connection.open


def test_rows_are_no_answer(wire: Wire) -> None:
    connection, server = wire
    server.sendall(packet(b"\x01abcdefgh"))
    with pytest.raises(pymysql.InternalError, match="no answer"):
        receive(connection, "XA RECOVER")
