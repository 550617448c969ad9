"""More messages than a statement of the database takes parameters, over SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tallystick.services.transactions import Outbox, Relay, TransactionManager
from tallystick.services.transactions.resources.sqlite import SqliteResource

COUNT = 1200


def test_messages_that_were_delivered_are_deleted_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = SqliteResource._connect

    def connect_limited(resource: Any) -> sqlite3.Connection:
        connection = connect(resource)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, COUNT - 1)
        return connection

    monkeypatch.setattr(SqliteResource, "_connect", connect_limited)
    delivered: list[int] = []
    with TransactionManager(tmp_path / "tm", {"db": f"sqlite:///{tmp_path}/db"}) as tm:
        outbox = Outbox(tm, "db")
        with tm.begin() as tx:
            for _ in range(COUNT):
                outbox.add(tx, "topic", b"")
        relay = Relay(outbox, lambda message: delivered.append(message.offset), batch=COUNT)
        assert relay.run_once() == 0.0
        assert outbox.pending().messages == 0
        assert len(delivered) == COUNT
