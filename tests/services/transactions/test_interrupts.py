"""Signals before every bytecode of a global transaction: what is decided is settled here."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

from tallystick.records import Xid
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import Problem, Status, TransactionManager, Vote
from tallystick.services.transactions.deadlines import TimedResource
from tallystick.services.transactions.resource import ResourceUnreachable
from tallystick.services.transactions.resources.sqlite import SqliteResource
from tests.interrupts import (
    HANDLERS,
    INTERRUPTS,
    Tally,
    TimeLimit,
    handlers,
    require_handlers,
)
from tests.sweeps import Sweep


class Crash(BaseException):
    """Leaves a transaction to recovery."""


class Estate:
    """Two stores and a journal, which have the same numbers, or a transaction was torn."""

    def __init__(self, folder: Path) -> None:
        self.stores = {name: PageStore(folder / name, lock_timeout=0.05) for name in "ab"}
        for store in self.stores.values():
            store.create_table("t")
        self.journal = Journal(folder / "mail")
        self.manager = TransactionManager(
            folder / "tm",
            {**self.stores, "mail": self.journal},
            recovery_interval=None,
            orphan_interval=0.0,
            on_step=self._step,
        )
        self._crashes = False
        self.manager.recover()
        self._numbers = count(1)
        self.number = 0
        self.returned = False

    def _step(self, step: str) -> None:
        if step == "after decision" and self._crashes:
            raise Crash

    def transfer(self) -> None:
        self.returned, self.number = False, next(self._numbers)
        with self.manager.begin() as tx:
            for name in "ab":
                table = tx[name].table("t")
                table[0] = table[self.number] = b"row"
            tx["mail"].add(self.number, b"message")
        self.returned = True

    def recover(self) -> None:
        self._crashes = True
        with suppress(Crash):
            self.transfer()
        self._crashes = False
        assert self.manager.recover().clean
        self.returned = True

    def check(self, _error: BaseException | None) -> None:
        self._crashes = False
        with ThreadPoolExecutor(1) as another:
            another.submit(self._check).result(60)
        self.returned = False  # if the next call is interrupted before its first statement

    def _check(self) -> None:
        report = self.manager.recover()
        assert report.clean, report
        found = [{one.record_id for one in self.journal.live_records()}]
        for store in self.stores.values():
            assert not store.in_doubt()
            with store.begin() as tx:
                tx.table("t")[0] = b"free"
                found.append({key for key in tx.table("t") if key})
        assert found[0] == found[1] == found[2], f"torn: {self.number}"
        assert self.number in found[0] or not self.returned, f"lost: {self.number}"

    def close(self) -> None:
        self.manager.close()
        self.journal.close()
        for store in self.stores.values():
            store.close()


class Books:
    """A page store and a SQLite database, which have the same numbers."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "books.db"
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("CREATE TABLE t (number INTEGER PRIMARY KEY)")
        self.store = PageStore(folder / "store", lock_timeout=0.05)
        self.store.create_table("t")
        self.manager = TransactionManager(
            folder / "tm",
            {"store": self.store, "books": SqliteResource("books", self._path)},
            recovery_interval=None,
            orphan_interval=0.0,
        )
        self.manager.recover()
        self._numbers = count(1)
        self.number = 0
        self.returned = False

    def book(self) -> None:
        self.returned, self.number = False, next(self._numbers)
        with self.manager.begin() as tx:
            tx["books"].execute("INSERT INTO t VALUES (?)", (self.number,))
            tx["store"].table("t")[self.number] = b"row"
        self.returned = True

    def check(self, _error: BaseException | None) -> None:
        with ThreadPoolExecutor(1) as another:
            another.submit(self._check).result(60)
        self.returned = False

    def _check(self) -> None:
        report = self.manager.recover()
        assert report.clean, report
        with closing(sqlite3.connect(self._path, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            booked = {number for (number,) in connection.execute("SELECT number FROM t")}
        with self.store.begin() as tx:
            assert booked == set(tx.table("t")), f"torn: {self.number}"
        assert self.number in booked or not self.returned, f"lost: {self.number}"

    def close(self) -> None:
        self.manager.close()
        self.store.close()


def test_an_interrupted_transaction_leaves_no_lock_in_a_database(
    tmp_path: Path,
    sweep: Sweep,
    record_property: Callable[[str, object], None],
) -> None:
    books = Books(tmp_path)
    tally = Tally("transactions of a page store and SQLite")
    tally.enumerate(books.book, books.check, sweep, sample=15, pairs=5)
    books.close()
    record_property("figure", str(tally))


class Locking(SqliteResource):
    """A database that is interrupted when a branch has taken the lock of writers."""

    def _take_lock(self, connection: sqlite3.Connection) -> None:
        super()._take_lock(connection)
        signal.raise_signal(self.number)

    number: int = signal.SIGUSR1


@pytest.mark.parametrize("number", HANDLERS)
@pytest.mark.parametrize("idle", [True, False])
def test_an_interrupted_begin_frees_the_lock_while_its_error_is_kept(
    tmp_path: Path, number: int, *, idle: bool
) -> None:
    path = tmp_path / "books.db"
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    resource = Locking("books", path)
    with (
        handlers(),
        TransactionManager(tmp_path / "tm", {"books": resource}, recovery_interval=None) as manager,
    ):
        if idle:
            with manager.begin() as tx:
                tx["books"].execute("CREATE TABLE t (number)")
        resource.number = number
        with pytest.raises(INTERRUPTS) as kept, manager.begin() as tx:
            tx["books"]
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
    assert kept.value.__traceback__ is not None
    signal.signal(signal.SIGUSR1, before)


class Interrupted:
    """A resource whose branches send a signal to this process in one of their calls."""

    instant = True

    def __init__(self, name: str, call: str, *, wrap: bool) -> None:
        self.name, self.call, self.wrap = name, call, wrap
        self.called: list[str] = []

    def begin(self, xid: Xid) -> InterruptedBranch:
        return InterruptedBranch(self, xid)

    def in_doubt(self) -> list[Xid]:
        return []

    def commit(self, xid: Xid) -> None:
        raise AssertionError(xid)

    rollback = commit

    def preflight(self) -> list[Problem]:
        return []

    def close(self) -> None:
        """Nothing is held."""


class InterruptedBranch:
    """A branch of `Interrupted`."""

    handle = None

    def __init__(self, resource: Interrupted, xid: Xid) -> None:
        self.xid, self._resource = xid, resource

    def _do(self, call: str) -> None:
        resource = self._resource
        resource.called.append(call)
        if call == resource.call:
            try:
                signal.raise_signal(signal.SIGALRM)
                resource.called.append("whole")
            except TimeLimit as error:
                if resource.wrap:
                    raise ResourceUnreachable("the driver was interrupted") from error
                raise

    def prepare(self) -> Vote:
        self._do("prepare")
        return Vote.PREPARED

    def commit(self) -> None:
        self._do("commit")

    def commit_one_phase(self) -> None:
        self._do("commit_one_phase")

    def rollback(self) -> None:
        self._do("rollback")

    def close(self) -> None:
        self._do("close")


class Slow(Interrupted):
    """A resource whose commit goes on after its caller was interrupted."""

    def __init__(self, *, waiting: bool) -> None:
        super().__init__("slow", "", wrap=False)
        self._waiting = waiting
        self.interrupted, self.ended = threading.Event(), False

    def commit(self, xid: Xid) -> None:
        if self._waiting:  # else the signal comes before its caller waits
            time.sleep(0.1)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGALRM)
        assert self.interrupted.wait(60)
        time.sleep(0.05)  # a call that did not wait would be over by now
        self.ended = xid is not None

    def in_doubt(self) -> list[Xid]:
        assert self.ended
        return []


@pytest.mark.parametrize("waiting", [False, True])
def test_a_call_waits_for_an_earlier_one_whose_caller_was_interrupted(*, waiting: bool) -> None:
    slow = Slow(waiting=waiting)
    timed = TimedResource(slow, 60)
    with handlers():
        with pytest.raises(TimeLimit):
            timed.commit(Xid(1, b"g", b"b"))
        slow.interrupted.set()
        assert timed.in_doubt() == []


@pytest.fixture
def limits() -> Iterator[None]:
    with handlers():
        yield
        require_handlers()


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("call", ["prepare", "commit", "commit_one_phase", "rollback", "close"])
def test_what_a_handler_raises_comes_out_once_the_branches_have_ended(
    tmp_path: Path, call: str, *, wrap: bool
) -> None:
    alone = call == "commit_one_phase"
    resources = {name: Interrupted(name, call, wrap=wrap) for name in ("a" if alone else "ab")}
    with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as manager:
        with pytest.raises(TimeLimit), manager.begin() as tx:
            for name in resources:
                assert tx[name] is None
            if call == "rollback":
                tx.mark_rollback()
        expected = Status.ROLLED_BACK if call in ("prepare", "rollback") else Status.COMMITTED
        assert tx.status is expected
        assert manager.recover().clean
    for one in resources.values():
        assert one.called[-1] in ("close", "whole")
        assert ("commit" in one.called or alone) == (expected is Status.COMMITTED)


@pytest.mark.usefixtures("limits")
def test_hooks_have_the_handlers_of_the_application_and_all_are_called(tmp_path: Path) -> None:
    called: list[str] = []

    def interrupted(_status: Status) -> None:
        called.append("first")
        require_handlers()
        signal.raise_signal(signal.SIGALRM)

    with TransactionManager(tmp_path / "tm", {}, recovery_interval=None) as manager:
        with pytest.raises(TimeLimit), manager.begin() as tx:
            tx.before_commit(require_handlers)
            tx.after_completion(interrupted)
            tx.after_completion(lambda status: called.append(status.value))
        with pytest.raises(KeyboardInterrupt), manager.begin() as tx:
            tx.after_completion(lambda _: signal.raise_signal(signal.SIGINT))
            tx.after_completion(lambda status: called.append(status.value))
        with pytest.raises(TimeLimit), manager.begin() as tx:
            tx.before_commit(lambda: signal.raise_signal(signal.SIGALRM))
        assert tx.status is Status.ROLLED_BACK
    assert called == ["first", "committed", "committed"]


# What a handler raises while an unused generator is closed CPython prints and drops.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", [Estate.transfer, Estate.recover])
def test_an_interrupted_transaction_is_settled_by_its_process(
    tmp_path: Path,
    call: Callable[[Estate], None],
    sweep: Sweep,
    record_property: Callable[[str, object], None],
) -> None:
    estate = Estate(tmp_path)
    tally = Tally(f"transactions of two page stores and a journal, {call.__name__}")
    tally.enumerate(lambda: call(estate), estate.check, sweep, sample=15, pairs=5)
    estate.close()
    record_property("figure", str(tally))
