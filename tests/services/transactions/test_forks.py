"""Forks: what a child process does, or leaves undone, harms no transaction of its parent."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.coordinator_dir import _one_process_at_a_time
from tallystick.services.transactions.deadlines import TICK_S
from tallystick.storage.local import LOCAL
from tests.servers import Server
from tests.services.transactions.resources.test_databases import Bank

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]

THREADS = 4


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


def in_child(work: Callable[[], None]) -> int:
    """Fork, work in the child, and return its exit status."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def transactions_of_threads(bank: Bank, tm: TransactionManager) -> Iterator[None]:
    """Have threads of the parent begin a transaction each before the block, and end it after.

    Several, as the only thread of a child can have the identifier of one of them.
    """
    begun, may_end = threading.Barrier(THREADS + 1, timeout=60), threading.Event()

    def pay() -> None:
        with tm.begin() as tx:
            for name in ("pg", "maria"):
                tx[name].execute("SELECT 1")
            begun.wait()
            may_end.wait(60)
            for name in ("pg", "maria"):
                bank.pay(tx, name, 1)

    threads = [threading.Thread(target=pay) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    begun.wait()
    yield
    may_end.set()
    for thread in threads:
        thread.join()


def test_a_manager_of_a_child_ends_no_session_of_its_parent(bank: Bank) -> None:
    """Threads of the parent are not there, so its transactions look as if nobody owned them."""

    def open_another() -> None:
        names = {"pg": bank.urls["pg"]}
        with TransactionManager(bank.folder / "child", names, recovery_interval=None) as own:
            time.sleep(5 * TICK_S)  # what looks at transactions has looked
            with own.begin() as tx:
                tx["pg"].execute("SELECT 1")

    with bank.manager("pg", "maria") as tm:
        with transactions_of_threads(bank, tm):
            assert in_child(open_another) == 0
        assert tm.recover().clean
    assert bank.balances() == {"pg": THREADS, "maria": THREADS, "lite": 0}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_while_the_folder_is_locked_does_not_keep_the_lock(tmp_path: Path) -> None:
    until, end = os.pipe()
    with _one_process_at_a_time(LOCAL, tmp_path):
        child = os.fork()
        if child == 0:
            os.close(end)
            os.read(until, 1)
            os._exit(0)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(folder)
        os.close(end)
        os.close(until)
        os.waitpid(child, 0)
