"""A manager that closes while transactions are at work: they commit in whole, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import RolledBackError
from tallystick.services.transactions import (
    AsyncTransactionManager,
    Status,
    TransactionManager,
)
from tests.services.transactions.model import Database, DurableState, ModelResource

LIMIT_S = 60.0
CLOSED = "the transaction manager was closed"


@pytest.fixture
def state() -> DurableState:
    return DurableState({"a": Database(), "b": Database()})


def manager(folder: Path, state: DurableState, last: str | None, **more: Any) -> TransactionManager:
    return TransactionManager(folder / "c", state.resources(last), recovery_interval=None, **more)


def work(tx: Any) -> None:
    tx["a"]("sum", 1)
    tx["b"]("sum", 1)


def sums(state: DurableState) -> set[int]:
    assert not any(database.prepared for database in state.databases.values())
    return {database.values.get("sum", 0) for database in state.databases.values()}


@pytest.mark.parametrize("last", [None, "a"])
@pytest.mark.parametrize("end", ["commit", "prepare", "commit after prepare"])
def test_a_commit_after_close_is_refused_before_anything_is_prepared(
    tmp_path: Path, state: DurableState, last: str | None, end: str
) -> None:
    tm = manager(tmp_path, state, last)
    tx = tm.begin()
    work(tx)
    if end == "commit after prepare":
        tx.prepare()
    with ThreadPoolExecutor(1) as others:
        others.submit(tm.close).result(LIMIT_S)
    with pytest.raises(RolledBackError, match=CLOSED):
        (tx.prepare if end == "prepare" else tx.commit)()
    assert sums(state) == {0}
    assert not state.databases["a"].outcomes


def test_a_transaction_uses_no_resource_after_close(tmp_path: Path, state: DurableState) -> None:
    tm = manager(tmp_path, state, None)
    with pytest.raises(RolledBackError, match=CLOSED), tm.begin() as tx:
        with ThreadPoolExecutor(1) as others:
            others.submit(tm.close).result(LIMIT_S)
        work(tx)


def test_a_resource_that_cannot_be_closed_leaves_no_other_open(
    tmp_path: Path, state: DurableState, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = list[str]()

    def close(resource: ModelResource) -> None:
        closed.append(resource.name)
        raise ValueError("told to")

    monkeypatch.setattr(ModelResource, "close", close)
    tm = manager(tmp_path, state, None)
    with pytest.raises(ValueError, match="told to"):
        tm.close()
    assert closed == ["a", "b"]
    manager(tmp_path, state, None, close_resources=False).close()


class Closing:
    """Has another thread close the manager at a step, and goes on once it refuses new commits."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.closers = ThreadPoolExecutor(1)
        self.manager: TransactionManager

    def __call__(self, _: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.closers.submit(self.manager.close)
            while not self.manager._context.live.closing:
                time.sleep(0.001)


@pytest.mark.parametrize("last", [None, "a"])
def test_a_commit_at_any_step_when_close_begins_is_waited_for(
    tmp_path: Path, state: DurableState, last: str | None
) -> None:
    for at in range(1, 100):
        closing = Closing(at)
        closing.manager = manager(tmp_path, state, last, on_step=closing, call_timeout=LIMIT_S)
        with closing.manager.begin() as tx:
            work(tx)
        closing.manager.close()
        closing.closers.shutdown()
        assert sums(state) == {at}
        if closing.left > 0:
            break
    assert at > 5


@pytest.mark.parametrize("last", [None, "a"])
def test_a_first_phase_that_close_does_not_wait_for_any_more_is_rolled_back(
    tmp_path: Path, state: DurableState, last: str | None
) -> None:
    def observe(step: str) -> None:
        if step == "before prepare b":
            with ThreadPoolExecutor(1) as closers:
                closers.submit(tm.close).result(LIMIT_S)

    tm = manager(tmp_path, state, last, on_step=observe, call_timeout=0.05)
    with pytest.raises(RolledBackError, match=CLOSED), tm.begin() as tx:
        work(tx)
    assert sums(state) == {0}


@pytest.mark.parametrize("where", ["block", "hook"])
def test_close_within_the_block_of_a_transaction_rolls_it_back_and_says_so(
    tmp_path: Path, state: DurableState, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    resources = {"lite": f"sqlite:///{tmp_path / 'lite.db'}"} | state.resources()
    tm = TransactionManager(tmp_path / "c", resources, recovery_interval=None)
    with pytest.raises(RolledBackError, match=CLOSED), tm.begin() as tx:
        tx["lite"].execute("CREATE TABLE t (n)")
        work(tx)
        (tx.before_commit if where == "hook" else _call)(tm.close)
    assert sums(state) == {0}
    assert not caplog.records


def _call(function: Callable[[], object]) -> None:
    function()


@pytest.mark.parametrize("own", [True, False], ids=["in its own block", "by another task"])
async def test_a_task_whose_manager_was_closed_rolls_back_and_releases_its_locks(
    tmp_path: Path, state: DurableState, own: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "lite.db"
    resources = {"lite": f"sqlite:///{path}"} | state.resources()
    seconds = LIMIT_S if own else 0.05
    manager = TransactionManager(
        tmp_path / "c", resources, recovery_interval=None, call_timeout=seconds
    )
    tm = AsyncTransactionManager(manager)
    async with asyncio.timeout(LIMIT_S / 2):
        with pytest.raises(RolledBackError, match=CLOSED):
            async with tm.begin() as tx:
                await tx.execute("lite", "CREATE TABLE t (n)")
                await tx.run("a", lambda add: add("sum", 1))
                await (tm.close() if own else asyncio.create_task(tm.close()))
    assert sums(state) == {0}
    assert not caplog.records
    with sqlite3.connect(path, timeout=0) as connection:
        connection.execute("CREATE TABLE t (n)")
    connection.close()


def test_a_commit_that_close_does_not_wait_for_any_more_has_committed(
    tmp_path: Path, state: DurableState, caplog: pytest.LogCaptureFixture
) -> None:
    """Its decision is durable; that its end cannot be recorded any more changes nothing."""

    def observe(step: str) -> None:
        if step == "after commit b":
            with ThreadPoolExecutor(1) as closers:
                closers.submit(tm.close).result(LIMIT_S)

    tm = manager(tmp_path, state, None, on_step=observe, call_timeout=0.05)
    with tm.begin() as tx:
        work(tx)
    assert tx.status is Status.COMMITTED
    assert "the log cannot record an end" in caplog.text
    assert sums(state) == {1}
