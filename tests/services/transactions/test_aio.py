"""Many tasks over few connections: all commit, and the event loop goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import LogClosedError, RolledBackError, TransactionUsageError
from tallystick.services.transactions import AsyncTransactionManager, TransactionManager
from tallystick.services.transactions.resources.pool import Turns
from tests.servers import Server
from tests.services.transactions.resources.test_databases import Bank


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


async def test_turns_are_given_in_order_and_come_back_from_cancelled_tasks() -> None:
    async def work() -> list[int]:
        turns = Turns(1)
        order: list[int] = []

        async def take(number: int) -> None:
            await turns.take(time.monotonic() + 60)
            order.append(number)
            await asyncio.sleep(0.01)
            turns.give_back()

        await turns.take(time.monotonic() + 60)
        tasks = [asyncio.create_task(take(number)) for number in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await turns.take(time.monotonic() + 0.01)
        tasks[1].cancel()
        turns.give_back()
        tasks[0].cancel()  # the turn is its own already, perhaps
        await asyncio.wait(tasks)
        return order

    assert await asyncio.wait_for(work(), 30) == [2, 3]


class Watch:
    """How many connections there were at a time, and how late the event loop was."""

    def __init__(self) -> None:
        self.most = 0
        self.late: list[float] = []

    async def look(self, count: Any) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            self.late.append(time.monotonic() - began - 0.01)
            self.most = max(self.most, count())


@pytest.mark.postgres
@pytest.mark.mariadb
async def test_many_tasks_over_few_connections_all_commit(bank: Bank) -> None:
    """Without a bound on connections the servers refuse most of them."""
    tasks, connections = 300, 10

    async def pay(tm: AsyncTransactionManager) -> None:
        async with tm.begin() as tx:
            await tx.execute("pg", "UPDATE accounts SET balance = balance + 1 WHERE id = %s",
                             (bank.account,))  # fmt: skip
            await tx.execute("maria", "UPDATE accounts SET balance = balance + 1 WHERE id = %s",
                             (bank.account,))  # fmt: skip

    async def work() -> int:
        names = {name: bank.urls[name] for name in ("pg", "maria")}
        blocking = TransactionManager(bank.folder / "node", names, timeout=300.0)
        watch = Watch()
        async with AsyncTransactionManager(blocking, connections=connections) as tm:
            live = blocking._context.live
            watcher = asyncio.create_task(
                watch.look(lambda: sum(bool(one.branches) for one in live.at_work()))
            )
            await asyncio.gather(*(pay(tm) for _ in range(tasks)))
            watcher.cancel()
        return watch.most

    assert await work() <= connections
    assert bank.balances() == {"pg": tasks, "maria": tasks, "lite": 0}


@pytest.mark.postgres
@pytest.mark.mariadb
async def test_closing_lets_transactions_at_work_end(bank: Bank) -> None:
    async def work() -> list[str]:
        names = {name: bank.urls[name] for name in ("pg", "maria")}
        blocking = TransactionManager(bank.folder / "node", names)
        begun = asyncio.Event()

        async def pay() -> str:
            async with tm.begin() as tx:
                await tx.run("maria", lambda handle: bank.pay({"maria": handle}, "maria", 5))
                begun.set()
                await asyncio.sleep(0.3)
                await tx.run("maria", lambda handle: bank.pay({"maria": handle}, "maria", 5))
            return "committed"

        async with AsyncTransactionManager(blocking) as tm:
            task = asyncio.create_task(pay())
            await begun.wait()
        with pytest.raises(LogClosedError):
            tm.begin()
        return [await task]

    assert await work() == ["committed"]
    assert bank.balances() == {"pg": 0, "maria": 10, "lite": 0}


@pytest.mark.postgres
@pytest.mark.mariadb
async def test_closing_ends_transactions_that_do_not_end(bank: Bank) -> None:
    async def work() -> None:
        names = {name: bank.urls[name] for name in ("pg", "maria")}
        blocking = TransactionManager(bank.folder / "node", names, call_timeout=0.5)
        begun = asyncio.Event()

        async def pay() -> None:
            async with tm.begin() as tx:
                for name in ("pg", "maria"):
                    await tx.execute(name, "UPDATE accounts SET balance = 7 WHERE id = %s",
                                     (bank.account,))  # fmt: skip
                begun.set()
                sleep = "SELECT SLEEP(60)"
                await tx.execute("maria", sleep)

        async with AsyncTransactionManager(blocking) as tm:
            task = asyncio.create_task(pay())
            await begun.wait()
        with pytest.raises(RolledBackError):
            await task

    began = time.monotonic()
    await work()
    assert time.monotonic() - began < 30
    assert bank.balances() == {"pg": 0, "maria": 0, "lite": 0}


@pytest.mark.postgres
@pytest.mark.mariadb
async def test_a_child_process_is_refused_and_not_left_waiting_for_threads_it_has_not(
    bank: Bank,
) -> None:
    """The worker threads are in its parent, whose transactions go on."""
    names = {name: bank.urls[name] for name in ("pg", "maria")}

    async def in_child(tm: AsyncTransactionManager, tx: Any) -> int:
        refused = 0
        for call in (lambda: tm.run(_nothing), tm.recover, tm.preflight, tx.commit, tx.rollback):
            try:
                await call()
            except TransactionUsageError as error:
                refused += "forked" in str(error)
        await tm.close()
        return refused

    async def work() -> int:
        async with AsyncTransactionManager(TransactionManager(bank.folder / "node", names)) as tm:
            await tm.run(_nothing)
            async with tm.begin() as tx:
                await tx.run("maria", lambda handle: bank.pay({"maria": handle}, "maria", 1))
                child = os.fork()
                if child == 0:
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    signal.alarm(60)
                    asyncio._set_running_loop(None)
                    os._exit(asyncio.run(in_child(tm, tx)))
                status = os.waitstatus_to_exitcode(
                    (await asyncio.to_thread(os.waitpid, child, 0))[1]
                )
                await tx.run("maria", lambda handle: bank.pay({"maria": handle}, "maria", 1))
            return status

    assert await work() == 5
    assert bank.balances() == {"pg": 0, "maria": 2, "lite": 0}


def _nothing(_: object) -> None:
    """Do no work."""
