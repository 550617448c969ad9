"""The asynchronous manager has the calls of the blocking one, and never blocks its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import LogClosedError, RolledBackError
from tallystick.services.journal import AsyncJournal
from tallystick.services.transactions import Transaction, TransactionManager
from tallystick.services.transactions.aio import AsyncTransaction, AsyncTransactionManager
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import open_decision_log
from tests.services.parity import RecordedCalls, differences, outcome, public_names
from tests.services.transactions.test_commit import durable, manager

NOT_FOR_TASKS = {
    "suspend": "all tasks of an event loop may use a transaction; its calls run in turn",
    "resume": "as suspend",
}
SETTINGS = {
    "timeout": "a setting of the manager below, `AsyncTransactionManager.manager`",
    "call_timeout": "as timeout",
    "orphan_interval": "as timeout",
    "directory": "as timeout",
}

CALLS: dict[str, tuple[Any, ...]] = {
    "begin": (),
    "close": (),
    "current": (),
    "decisions": (),
    "node": (),
    "preflight": (),
    "recover": (),
    "recovered": (),
    "resources": (),
    "statistics": (),
    "take_over": ("nowhere",),
    "transactional": (len,),
}


def test_the_asynchronous_transaction_has_every_call_with_the_same_parameters() -> None:
    assert differences(Transaction, AsyncTransaction) == dict.fromkeys(NOT_FOR_TASKS, "missing")


def test_the_asynchronous_manager_has_every_call_with_the_same_parameters(tmp_path: Path) -> None:
    assert differences(TransactionManager, AsyncTransactionManager) == {}
    with manager(tmp_path, durable()) as blocking:
        awaited = AsyncTransactionManager(blocking, threads=1)
        assert public_names(blocking) - public_names(awaited) == set(SETTINGS)


@pytest.mark.parametrize("closed", [True, False])
async def test_both_faces_end_every_call_alike(tmp_path: Path, closed: bool) -> None:
    async def outcomes(tm: Any) -> dict[str, str]:
        if closed:
            await outcome(tm, "close", ())
        names = sorted(CALLS, key=lambda name: (name == "close", name))
        return {name: await outcome(tm, name, CALLS[name]) for name in names}

    blocking = manager(tmp_path / "one", durable("a"))
    assert set(CALLS) == public_names(blocking) - set(SETTINGS)
    expected = await outcomes(blocking)
    below = manager(tmp_path / "two", durable("a"))
    assert await outcomes(AsyncTransactionManager(below)) == expected
    if closed:
        assert {expected[name] for name in ("begin", "recover", "preflight", "take_over")} == {
            LogClosedError.__name__
        }


async def test_work_in_threads_after_the_end_is_refused_as_everything_else(tmp_path: Path) -> None:
    tm = AsyncTransactionManager(manager(tmp_path, durable("a"), call_timeout=0.2))
    tx = tm.begin()
    await tm.close()
    await tm.close()
    with pytest.raises(LogClosedError):
        await tm.run(lambda _: None)
    with pytest.raises(RolledBackError, match="the transaction manager was closed"):
        await tx.run("a", lambda _: None)


async def test_nested_transactional_calls_of_tasks_join(tmp_path: Path) -> None:
    state = durable("a")

    async def work() -> None:
        async with AsyncTransactionManager(manager(tmp_path, state)) as tm:

            @tm.transactional
            async def inner() -> bytes:
                await tm.current().run("a", lambda add: add("balance", 1))
                return tm.current().gtrid

            @tm.transactional
            async def outer() -> bool:
                return await inner() == await inner()

            @tm.transactional
            async def failing() -> None:
                await inner()
                raise KeyError

            assert await outer()
            with pytest.raises(KeyError):
                await failing()
            assert await inner() != await inner()

    await work()
    assert state.databases["a"].values == {"balance": 4}


@pytest.mark.parametrize("system", ["tally", "bitronix"])
async def test_no_call_reads_or_writes_a_file_in_the_thread_of_the_event_loop(
    tmp_path: Path, system: str
) -> None:
    calls: list[tuple[int, str]] = []
    disk: Any = RecordedCalls(LOCAL, calls)

    def open_manager(**resources: Any) -> TransactionManager:
        log = open_decision_log(tmp_path / system, system, fs=disk)
        return TransactionManager(tmp_path / "tm", resources, log=log, recovery_interval=None)

    async def work() -> int:
        one = await AsyncJournal.open(tmp_path / "one", fs=disk)
        other = await AsyncJournal.open(tmp_path / "other", fs=disk)
        blocking = await asyncio.to_thread(open_manager, one=one, other=other)
        async with AsyncTransactionManager(blocking) as tm:
            for number in range(50):
                async with tm.begin() as tx:
                    (await tx.enlist("one")).add(number, b"message")
                    (await tx.enlist("other")).add(number, b"message")
            with contextlib.suppress(KeyError):
                async with tm.begin() as tx:
                    (await tx.enlist("one")).add(100, b"message")
                    raise KeyError
            assert (await tm.recover()).clean
            assert not await tm.preflight()
            assert tm.statistics.decisions == 50
        assert len([record async for record in one.live_records()]) == 50
        await one.close()
        await other.close()
        return threading.get_ident()

    loop_thread = await work()
    assert {"pread", "datasync"} <= {name for _, name in calls}
    assert [name for thread, name in calls if thread == loop_thread] == []
