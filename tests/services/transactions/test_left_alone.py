"""Transactions that the watching thread must leave alone."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tallystick.services.transactions import Transaction, TransactionManager, deadlines
from tallystick.storage import scheduling
from tests.services.transactions.model import Database, DurableState, ModelResource


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


def test_nothing_is_kept_of_a_transaction_that_another_thread_has_ended(tmp_path: Path) -> None:
    with TransactionManager(tmp_path / "tm", {}, recovery_interval=None) as tm:
        tm._reaper.stop()
        begun: list[Transaction] = []
        thread = threading.Thread(target=lambda: begun.append(tm.begin()))
        thread.start()
        thread.join()
        tm._reaper.look()
        assert tm._reaper._without_thread
        begun[0].commit()
        tm._reaper.look()
        assert not tm._reaper._without_thread


@pytest.mark.parametrize("end", ["timeout", "close"])
def test_a_session_that_cannot_be_ended_keeps_no_other_one(tmp_path: Path, end: str) -> None:
    state = DurableState({"a": Database(), "b": Database()})
    tm = TransactionManager(tmp_path / "tm", state.resources(), recovery_interval=None)
    with ThreadPoolExecutor(1) as others:
        tx = others.submit(tm.begin).result()
        ended: list[str] = []
        for name in "ab":
            others.submit(tx.__getitem__, name).result()

            def abort(name: str = name) -> None:
                ended.append(name)
                raise ConnectionError(name)

            tx.branches[name].abort = abort  # type: ignore[union-attr]
        if end == "timeout":
            tx._protocol.deadline = 0.0
            tm._reaper.look()
        else:
            tm.close()
        assert ended[:2] == ["a", "b"]
    tm.close()


def test_what_no_thread_could_be_started_for_is_ended_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise BlockingIOError("no other thread can be started")

    with TransactionManager(tmp_path / "tm", {}, recovery_interval=None) as tm:
        tm._reaper.stop()
        tx = tm.begin()
        del tx
        with monkeypatch.context() as patched:
            patched.setattr(deadlines, "start_thread", refuse)
            with pytest.raises(BlockingIOError):
                tm._reaper.look()
        tm._reaper.look()
        deadline = time.monotonic() + 60
        while len(tm._context.live):
            assert time.monotonic() < deadline
            time.sleep(0.001)


def test_a_resource_that_is_added_meanwhile_ends_no_look_at_the_others(tmp_path: Path) -> None:
    class Busy(ModelResource):
        """While it is looked at another thread adds a resource."""

        def add(self) -> None:
            name = f"r{len(tm.resources)}"
            tm.resources[name] = ModelResource(name, Database())

        @property
        def instant(self) -> bool:
            self.add()
            return False

        @property
        def reap(self) -> None:
            self.add()

    resources = {"busy": Busy("busy", Database()), "last": ModelResource("last", Database())}
    with TransactionManager(tmp_path / "tm", {}, recovery_interval=None) as tm:
        tm._reaper.stop()
        tm.resources.update(resources)
        assert tm.preflight() == []
        assert tm.recover().clean
        tm._reaper.look()
