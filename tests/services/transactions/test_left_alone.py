"""Transactions that the watching thread must leave alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tallystick.services.transactions import TransactionManager, deadlines
from tallystick.storage import scheduling


def test_a_transaction_that_ends_while_it_is_looked_at_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sessions belong to other transactions then, which would lose them."""
    url = f"sqlite:///{tmp_path}/lite.db"
    with TransactionManager(tmp_path / "tm", {"lite": url}, recovery_interval=None) as tm:
        live = tm._context.live
        with tm.begin() as tx:
            tx["lite"].execute("CREATE TABLE t (id INTEGER)")
            listed = live.at_work()
        del tx
        assert [one.owner() for one in listed if one.owner is not None] == [None]
        monkeypatch.setattr(type(live), "at_work", lambda _: listed)
        tm._reaper.look()
        monkeypatch.undo()
        assert "left without an end" not in caplog.text
        with tm.begin() as tx:
            tx["lite"].execute("INSERT INTO t VALUES (1)")


def test_a_transaction_that_a_younger_thread_has_resumed_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = scheduling.living_threads
    answers = iter([lambda: found() - {threading.get_ident()}])
    with TransactionManager(tmp_path / "tm", {}, recovery_interval=None) as tm, tm.begin():
        tm._reaper.stop()
        monkeypatch.setattr(deadlines, "living_threads", lambda: next(answers, found)())
        tm._reaper.look()
        assert "left without an end" not in caplog.text
