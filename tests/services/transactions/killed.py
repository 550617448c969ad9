"""A program that transfers money and is killed: ``killed.py FOLDER MODE COUNT URL...``.

MODE ``step``: one transfer; the process kills itself at step COUNT of commit or, started with
``recover``, of recovery; COUNT may also be the name of a step. MODE ``load``: COUNT threads
transfer until the process is killed. Prints ``done`` lines for what was acknowledged.
MODE ``stop`` is like ``step``, but the process stops itself. ``log=SYSTEM`` among the URLs makes
the decision log one of that system, ``tasks=yes`` the transactions those of tasks, ``shared=yes``
has other processes coordinate from the same directory.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tallystick.errors import TallystickError
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.aio import AsyncTransactionManager
from tallystick.systems.registry import open_decision_log

ACCOUNTS = 64
NODE = "killed-1"


def kill_at(at: str, how: signal.Signals = signal.SIGKILL) -> Any:
    """Return an observer of steps that kills the process at step ``at``."""
    steps = itertools.count()

    def step(name: str) -> None:
        if at in (str(next(steps)), name):
            os.kill(os.getpid(), how)

    return step


def pay(tx: Any, name: str, account: int, amount: int) -> None:
    """Add to an account in the resource of that name."""
    if name == "store":
        pay_in_store(tx[name], account, amount)
    else:
        tx[name].execute(statement(name), (amount, account))


def pay_in_store(session: Any, account: int, amount: int) -> None:
    table = session.table("accounts")
    table[account] = b"%d" % (int(table.for_update(account)) + amount)


def statement(name: str) -> str:
    """Return the statement that adds to an account of a database."""
    mark = "?" if name == "lite" else "%s"
    return f"UPDATE accounts SET balance = balance + {mark} WHERE id = {mark}"


def transfer(tm: TransactionManager, account: int) -> None:
    """Take one from every resource but the last, which gets them all."""
    names = list(tm.resources)
    with tm.begin() as tx:
        for name in names[:-1]:
            pay(tx, name, account, -1)
        pay(tx, names[-1], account, len(names) - 1)


async def transfer_awaiting(tm: AsyncTransactionManager, account: int) -> None:
    """Transfer in a task."""
    names = list(tm.manager.resources)
    async with tm.begin() as tx:
        for name in names:
            amount = len(names) - 1 if name == names[-1] else -1
            if name == "store":
                await tx.run(name, partial(pay_in_store, account=account, amount=amount))
            else:
                await tx.execute(name, statement(name), (amount, account))


def print_line(line: str) -> None:
    """Write a whole line at once, as several threads write."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def load(tm: TransactionManager, threads: int) -> None:
    """Transfer from many threads, until the process is killed."""
    accounts = itertools.cycle(range(ACCOUNTS))

    def work() -> None:
        for account in accounts:
            with report_end():
                transfer(tm, account)

    for _ in range(threads):
        threading.Thread(target=work, daemon=True).start()
    signal.pause()


async def load_awaiting(tm: TransactionManager, tasks: int) -> None:
    """Transfer from many tasks."""
    accounts = itertools.cycle(range(ACCOUNTS))
    manager = AsyncTransactionManager(tm)

    async def work() -> None:
        for account in accounts:
            with report_end():
                await transfer_awaiting(manager, account)

    await asyncio.gather(*(work() for _ in range(tasks)))


@contextmanager
def report_end() -> Iterator[None]:
    """Print how a transfer ended."""
    try:
        yield
    except TallystickError as error:
        print_line(f"failed {type(error).__name__}")
    else:
        print_line("done")


def main() -> None:
    folder, mode, count, *urls = sys.argv[1:]
    with ExitStack() as stack:
        resources: dict[str, Any] = dict(url.split("=", 1) for url in urls)
        system, tasks = resources.pop("log", None), resources.pop("tasks", None)
        shared = resources.pop("shared", None) is not None
        signal_ = signal.SIGSTOP if mode == "stop" else signal.SIGKILL
        if resources.pop("store", None):
            store = stack.enter_context(PageStore(Path(folder) / "store", lock_timeout=2.0))
            resources["store"] = store
        tm = stack.enter_context(
            TransactionManager(
                Path(folder) / "coordinator",
                resources,
                node=NODE,
                log=system and open_decision_log(Path(folder) / system, system),
                orphan_interval=0.0,
                recovery_interval=None,
                on_step=None if mode == "load" else kill_at(count, signal_),
                shared=shared,
            )
        )
        if mode == "recover":
            assert tm.recover().clean
        elif mode == "load":
            asyncio.run(load_awaiting(tm, int(count))) if tasks else load(tm, int(count))
        elif tasks:
            asyncio.run(transfer_awaiting(AsyncTransactionManager(tm), 0))
        else:
            transfer(tm, 0)
        print_line("done")


if __name__ == "__main__":
    main()
