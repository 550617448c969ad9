"""The other faces of the transaction manager: asyncio, Zope, and the background recovery."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import transaction as zope

from tallystick.errors import RolledBackError, TransactionUsageError
from tallystick.records import Xid
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import Status, Transaction, TransactionManager
from tallystick.services.transactions.aio import AsyncTransaction, AsyncTransactionManager
from tallystick.services.transactions.zope import join
from tests.services.transactions.faces import TaskBranch
from tests.services.transactions.model import DurableState, ModelLog
from tests.services.transactions.test_commit import balances, durable, manager, transfer


def add(handle: Any) -> None:
    handle("balance", 1)


def add_slowly(handle: Any) -> None:
    time.sleep(0.02)
    add(handle)


# -- asyncio ----------------------------------------------------------------------------------


async def test_a_task_commits_and_rolls_back_without_blocking_its_loop(tmp_path: Path) -> None:
    state = durable("a", "b")

    async def work() -> None:
        async with AsyncTransactionManager(manager(tmp_path, state)) as tm:
            async with tm.begin() as tx:
                await tx.run("a", add)
                await tx.run("b", add)
            assert tx.status is Status.COMMITTED
            with pytest.raises(KeyError):
                async with tm.begin() as tx:
                    await tx.run("a", add)
                    raise KeyError
            assert tx.status is Status.ROLLED_BACK
            assert (await tm.recover()).clean

    await work()
    assert balances(state) == {1}


async def test_many_tasks_have_transactions_of_their_own(tmp_path: Path) -> None:
    state = durable("a", "b")

    async def one(tm: AsyncTransactionManager) -> None:
        async with tm.begin() as tx:
            await asyncio.gather(tx.run("a", add), tx.run("b", add))

    async def work() -> None:
        async with AsyncTransactionManager(manager(tmp_path, state)) as tm:
            await asyncio.gather(*(one(tm) for _ in range(50)))

    await work()
    assert balances(state) == {50}


async def test_a_whole_transaction_runs_in_one_worker(tmp_path: Path) -> None:
    state = durable("a", "b")

    def both(tx: Transaction) -> bytes:
        add(tx["a"])
        add(tx["b"])
        return tx.gtrid

    def fail(tx: Transaction) -> None:
        add(tx["a"])
        raise KeyError

    async def work() -> set[bytes]:
        async with AsyncTransactionManager(manager(tmp_path, state), threads=4) as tm:
            with pytest.raises(KeyError):
                await tm.run(fail)
            return set(await asyncio.gather(*(tm.run(both) for _ in range(20))))

    assert len(await work()) == 20
    assert balances(state) == {20}


async def test_a_commit_runs_to_its_end_though_its_task_is_cancelled(tmp_path: Path) -> None:
    state = durable("a", "b")

    async def work() -> Status:
        slow = manager(tmp_path, state, on_step=lambda _: time.sleep(0.01))
        async with AsyncTransactionManager(slow) as tm:
            tx = tm.begin()
            await tx.run("a", add)
            await tx.run("b", add)
            commit = asyncio.create_task(tx.commit())
            await asyncio.sleep(0.02)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            return tx.status

    assert await work() is Status.COMMITTED
    assert balances(state) == {1}


async def test_resources_for_tasks_are_awaited_and_those_that_never_wait_need_no_await(
    tmp_path: Path,
) -> None:
    state = durable("a", "b", "c")
    threads = set[int]()
    resources: dict[str, Any] = dict(state.resources())
    resources["b"].instant = True

    async def begin_async(xid: Xid) -> TaskBranch:
        threads.add(threading.get_ident())
        return TaskBranch(resources["a"].begin(xid))

    resources["a"].begin_async = begin_async

    async def work() -> None:
        inner = TransactionManager(tmp_path, resources, log=ModelLog(state), recovery_interval=None)
        async with AsyncTransactionManager(inner) as tm:
            async with tm.begin() as tx:
                add(await tx.enlist("a"))
                add(tx["b"])
                await tx.run("c", add)
                with pytest.raises(TransactionUsageError, match="for tasks"):
                    await tx.run("a", add)
                with pytest.raises(TransactionUsageError, match="enlisted already"):
                    await tx.enlist("a")
            async with tm.begin() as tx:
                with pytest.raises(TransactionUsageError, match=r"await transaction\.enlist"):
                    tx["c"]

    await work()
    assert balances(state) == {1}
    assert threads == {threading.get_ident()}


async def test_hooks_of_a_task_may_be_awaited_and_use_the_transaction(tmp_path: Path) -> None:
    state = durable("a", "b")

    async def work() -> None:
        async with AsyncTransactionManager(manager(tmp_path, state)) as tm:

            async def also() -> None:
                await tx.run("b", add)

            async def fail() -> None:
                raise KeyError("no")

            async with tm.begin() as tx:
                await tx.run("a", add)
                tx.before_commit(also)
            with pytest.raises(RolledBackError, match="before commit"):
                async with tm.begin() as other:
                    await other.run("a", add)
                    other.before_commit(fail)
            assert other.status is Status.ROLLED_BACK

    await work()
    assert balances(state) == {1}


@pytest.mark.parametrize("name", ["commit", "prepare", "rollback"])
async def test_a_hook_cannot_end_its_own_transaction_of_a_task(tmp_path: Path, name: str) -> None:
    state, refused = durable("a", "b"), "a hook of the transaction is running"
    async with AsyncTransactionManager(manager(tmp_path, state)) as tm:

        async def caught(*_: Status) -> None:
            with pytest.raises(TransactionUsageError, match=refused):
                async with asyncio.timeout(60):
                    await asyncio.create_task(getattr(tx, name)())
            ends.append(tx.status)

        ends = list[Status]()
        async with tm.begin() as tx:
            await tx.run("a", add)
            await tx.run("b", add)
            tx.before_commit(caught)
            tx.after_completion(caught)
        assert ends == [Status.ACTIVE, Status.COMMITTED]
        with pytest.raises(RolledBackError, match=refused):
            async with tm.begin() as tx:
                await tx.run("a", add)
                tx.before_commit(getattr(tx, name))
                tx.after_completion(caught)
        assert ends[2:] == [tx.status] == [Status.ROLLED_BACK]
    assert balances(state) == {1}


async def test_a_task_cancelled_in_a_hook_or_in_its_work_rolls_back(tmp_path: Path) -> None:
    state = durable("a", "b")

    async def work() -> None:
        async with AsyncTransactionManager(manager(tmp_path, state)) as tm:
            reached = asyncio.Event()

            async def pause() -> None:
                reached.set()
                await asyncio.sleep(0.02)

            async def one(*, in_hook: bool) -> None:
                async with tm.begin() as tx:
                    ends.append(tx)
                    await tx.run("a", add)
                    await tx.run("b", add)
                    if in_hook:
                        tx.before_commit(pause)
                    else:
                        await pause()

            ends: list[AsyncTransaction] = []
            for in_hook in (True, False):
                reached.clear()
                task = asyncio.create_task(one(in_hook=in_hook))
                await reached.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert [tx.status for tx in ends] == [Status.ROLLED_BACK] * 2
            assert not any(tx.gtrid in tm.manager._context.live for tx in ends)

    await work()
    assert balances(state) == {0}


async def test_of_two_tasks_that_end_a_transaction_one_does(tmp_path: Path) -> None:
    state = durable("a", "b")

    async def work() -> None:
        async with AsyncTransactionManager(manager(tmp_path, state)) as tm:
            tx = tm.begin()
            await tx.run("a", add)
            slow = asyncio.create_task(tx.run("b", add_slowly))
            await asyncio.sleep(0.005)
            ends = await asyncio.gather(
                tx.commit(), tx.commit(), tx.rollback(), return_exceptions=True
            )
            await slow
            assert [type(end) for end in ends] == [type(None)] + [TransactionUsageError] * 2

    await work()
    assert balances(state) == {1}


async def test_tasks_that_wait_for_a_row_leave_a_thread_to_the_one_that_has_it(
    tmp_path: Path,
) -> None:
    def more(session: Any) -> None:
        table = session.table("t")
        table[1] = b"%d" % (int(table.for_update(1)) + 1)

    async def one(tm: AsyncTransactionManager) -> None:
        async with tm.begin() as tx:
            await tx.run("store", more)
            await asyncio.sleep(0.05)  # so that others come to wait for the row

    async def work(store: PageStore) -> None:
        inner = TransactionManager(tmp_path / "tm", {"store": store}, recovery_interval=None)
        async with AsyncTransactionManager(inner, threads=2) as tm:
            await asyncio.gather(*(one(tm) for _ in range(6)))

    with PageStore(tmp_path / "store", lock_timeout=30.0) as store:
        store.create_table("t")
        with store.begin() as session:
            session.table("t")[1] = b"0"
        await asyncio.wait_for(work(store), 25.0)
        with store.begin() as session:
            assert session.table("t")[1] == b"6"


# -- Zope -------------------------------------------------------------------------------------


class Objector:
    """A data manager of another package that votes no."""

    transaction_manager: Any = None

    def tpc_vote(self, _: object) -> None:
        raise RuntimeError("no")

    def sortKey(self) -> str:  # noqa: N802 - Zope's name
        return "~~~"

    def _nothing(self, _: object) -> None:
        """Every other call."""

    abort = tpc_begin = commit = tpc_finish = tpc_abort = _nothing


def test_zope_commits_and_aborts_ours(tmp_path: Path) -> None:
    state = durable("a", "b")
    with manager(tmp_path, state) as tm:
        for name in ("commit", "abort"):
            theirs = zope.TransactionManager()
            theirs.begin()
            ours = join(tm, theirs)
            ours["a"]("balance", 1)
            ours["b"]("balance", 1)
            getattr(theirs, name)()
    assert balances(state) == {1}


def test_a_vote_against_it_elsewhere_undoes_ours(tmp_path: Path) -> None:
    state = durable("a", "b")
    with manager(tmp_path, state) as tm:
        theirs = zope.TransactionManager()
        theirs.begin()
        ours = join(tm, theirs)
        ours["a"]("balance", 1)
        ours["b"]("balance", 1)
        theirs.get().join(Objector())
        with pytest.raises(RuntimeError, match="no"):
            theirs.commit()
    assert ours.status is Status.ROLLED_BACK
    assert balances(state) == {0}
    assert not any(database.prepared for database in state.databases.values())


def test_our_refusal_makes_zope_abort(tmp_path: Path) -> None:
    state = durable("a", "b")
    state.databases["b"].refuse_prepare = True
    with manager(tmp_path, state) as tm:
        theirs = zope.TransactionManager()
        theirs.begin()
        ours = join(tm, theirs)
        ours["a"]("balance", 1)
        ours["b"]("balance", 1)
        with pytest.raises(RolledBackError):
            theirs.commit()
    assert balances(state) == {0}


# -- in the background --------------------------------------------------------------------------


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_was_left_is_committed_in_the_background(tmp_path: Path) -> None:
    state: DurableState = durable("a", "b")

    def leave(step: str) -> None:
        if step == "after decision":
            state.databases["b"].away = True

    with TransactionManager(
        tmp_path, state.resources(), log=ModelLog(state), orphan_interval=0.0,
        recovery_interval=60.0, on_step=leave,
    ) as tm:  # fmt: skip
        transfer(tm, ("a", "b"))
        _until(lambda: tm.statistics.retries)
        state.databases["b"].away = False
        _until(lambda: balances(state) == {1})
        _until(lambda: not state.decisions)


def test_metrics_go_to_the_meter_of_the_application(tmp_path: Path) -> None:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    with manager(tmp_path, durable("a", "b")) as tm:
        transfer(tm, ("a", "b"))
        tm.recover()
        data = reader.get_metrics_data()
    assert data is not None
    names = {
        metric.name: metric.data.data_points[0]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert names["tallystick_transactions_decisions_total"].attributes == {"node": "node-1"}
    assert {"tallystick_transactions_in_doubt", "tallystick_transactions_recovery_seconds"} <= set(
        names
    )


# -- what is left behind ------------------------------------------------------------------------


def test_a_context_holds_nothing_of_managers_that_are_closed(tmp_path: Path) -> None:
    """Each has a variable of its own: set to None it would stay for as long as the thread lives."""

    def held() -> list[str]:
        names = [one.name for one in contextvars.copy_context()]
        return [name for name in names if name.startswith("tallystick")]

    def plain() -> list[str]:
        with manager(tmp_path, durable("a")) as tm, tm.begin() as outer:
            with tm.begin(independent=True) as inner:
                assert tm.current() is inner
            assert tm.current() is outer
        return held()

    async def tasks() -> list[str]:
        async with AsyncTransactionManager(manager(tmp_path, durable("a"))) as tm, tm.begin():
            assert held()
        return held()

    assert contextvars.Context().run(plain) == []
    assert contextvars.Context().run(lambda: asyncio.run(tasks())) == []


def test_a_transaction_may_end_in_another_context_than_it_began_in(tmp_path: Path) -> None:
    state = durable("a")
    with manager(tmp_path, state) as tm:
        tx = tm.begin()
        contextvars.copy_context().run(tx.__enter__)
        tx["a"]("balance", 1)
        tx.__exit__(None, None, None)
        assert tx.status is Status.COMMITTED
        with pytest.raises(TransactionUsageError):
            tm.current()
    assert balances(state) == {1}
