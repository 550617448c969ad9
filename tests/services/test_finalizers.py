"""Finalizers run in the middle of any call: what they write is written or refused, never hangs."""

from __future__ import annotations

import gc
import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal, TallystickError, WriteBehind
from tallystick.errors import InDoubtError, LogClosedError, LogWriteError
from tallystick.records import Xid
from tallystick.roles import Operation, OperationCode, Ticket
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.resource import BranchRolledBack
from tallystick.storage.group.owned_lock import OwnedLock, nested_call_error
from tallystick.storage.signals import uninterrupted
from tallystick.systems.registry import open_decision_log
from tallystick.testing.memory import MemoryFileSystem
from tests.services.transactions.test_commit import NAMES, balances, durable, transfer

CALLS = 80
XID = Xid(1, b"global", b"branch")
SENT = [Operation(OperationCode.OPAQUE, "topic", b"key", b"x")]


class Cycle:
    """Garbage that only the collector finds, and that writes as it goes."""

    def __init__(self, write: Callable[[], object], failed: list[TallystickError]) -> None:
        self.me, self.write, self.failed = self, write, failed

    def __del__(self) -> None:
        try:
            self.write()
        except TallystickError as error:
            self.failed.append(error)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def _added(log: Journal) -> Callable[[], object]:
    ids = itertools.count(1)
    return lambda: log.add(next(ids), b"x")


def _in_transactions(log: Journal) -> Callable[[], object]:
    ids = itertools.count(1)

    def write() -> None:
        with log.transaction() as transaction:
            transaction.add(next(ids), b"x")

    return write


def _sent(service: WriteBehind) -> Callable[[], object]:
    def write() -> None:
        with service.begin() as transaction:
            transaction.send("name", b"x", key=b"key")

    return write


def _stored(store: PageStore) -> Callable[[], object]:
    store.create_table("t")
    keys = itertools.cycle(range(900))

    def write() -> None:
        with store.begin() as session:
            session.table("t")[next(keys)] = bytes(700)

    return write


def _small_store(path: str, system: str) -> tuple[PageStore, Callable[[], object]]:
    store = PageStore(path, system=system, cache_bytes=0, checkpoint_bytes=20_000)
    return store, _stored(store)


WRITERS: dict[str, Callable[[str], tuple[Any, Callable[[], object]]]] = {
    "append": lambda path: (log := Journal(path), lambda: log.append(b"x")),
    "add": lambda path: (log := Journal(path), _added(log)),
    "transactions": lambda path: (log := Journal(path), _in_transactions(log)),
    "jboss": lambda path: (log := Journal(path, system="jboss"), _added(log)),
    "shared": lambda path: (log := Journal(path, shared=True), lambda: log.append(b"x")),
    "shared-add": lambda path: (log := Journal(path, shared=True), _added(log)),
    "write-behind": lambda path: (
        one := WriteBehind(path, {"t": lambda _: None}),
        _sent(one),
    ),
    "page store": lambda path: _small_store(path, "tally"),
    "page store of h2": lambda path: _small_store(path, "h2"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", WRITERS)
def test_what_the_collector_runs_in_the_middle_of_a_call_hangs_nothing(
    tmp_path: Path, kind: str
) -> None:
    service, write = WRITERS[kind](str(tmp_path / "log"))
    failed = list[TallystickError]()
    chance = random.Random(1)
    with service:
        for _ in range(CALLS):
            Cycle(write, failed)
            gc.set_threshold(chance.randint(1, 60))
            write()
        gc.set_threshold(700)
        gc.collect()
    assert all(isinstance(one, LogWriteError) for one in failed), failed
    assert len(failed) < CALLS


class Nesting(MemoryFileSystem):
    """Runs what a finalizer would, in the thread that syncs next: there it cannot be waited for."""

    finalizer: Callable[[], object] | None = None

    def apply(self, call: str, *arguments: object) -> None:
        super().apply(call, *arguments)
        here = threading.current_thread() is threading.main_thread()
        if call == "sync" and here and self.finalizer is not None:
            finalizer, self.finalizer = self.finalizer, None
            with pytest.raises(TallystickError):
                finalizer()

    def nest(self, call: Callable[[], object], finalizer: Callable[[], object]) -> None:
        """Make a call in the middle of which the finalizer is refused."""
        self.finalizer = finalizer
        call()
        assert self.finalizer is None


@pytest.mark.parametrize("system", ["tally", "cloudtran"])
def test_a_write_behind_transaction_that_nothing_waits_for_keeps_its_number(system: str) -> None:
    fs, applied = Nesting(), list[int]()
    targets = {"t": lambda one: applied.append(one.number)}
    with WriteBehind("/s", targets, system=system, fs=fs) as s:
        inner, outer = s.begin(), s.begin()
        for one in (inner, outer):
            one.send("topic", b"x")
        fs.nest(outer.commit, inner.commit)
        with pytest.raises(TallystickError, match="committed already"):
            inner.commit()
        assert (outer.number, inner.number) == (1, 2)
        assert s.drain(10)
    assert applied == [1, 2]


@pytest.mark.parametrize("system", ["tally", "h2"])
@pytest.mark.parametrize("what", ["read", "commit", "checkpoint", "prepare", "commit prepared"])
def test_a_page_store_has_nothing_of_a_call_in_the_middle_of_another(
    system: str, what: str
) -> None:
    fs = Nesting()
    with PageStore("/s", system=system, fs=fs) as store:
        store.create_table("t")
        inner, outer = store.begin(), store.begin()
        inner.table("t")[1] = b"inner"
        outer.table("t")[2] = b"outer"
        if what == "commit prepared":
            inner.prepare("x")
        calls: dict[str, Callable[[], object]] = {
            "read": lambda: inner.table("t").get(3),
            "checkpoint": store.checkpoint,
            "prepare": lambda: inner.prepare("x"),
        }
        fs.nest(outer.commit, calls.get(what, inner.commit))
        inner.rollback()
        assert not store.in_doubt()
    with PageStore("/s", system=system, fs=fs) as store, store.begin() as session:
        assert dict(session.table("t")) == {2: b"outer"}
        assert not store.in_doubt()


@pytest.mark.parametrize("system", ["tally", "h2"])
def test_a_commit_that_only_the_log_of_a_store_has_is_there_at_the_next_opening(
    system: str,
) -> None:
    fs = Nesting()
    with PageStore("/s", system=system, fs=fs) as store:
        store.create_table("t")
        inner = store.begin()
        inner.table("t")[1] = b"inner"
        # As a thread of the log, which is in no call of the store.
        fs.nest(lambda: store._log.rollback(99).wait(), inner.commit)
        with pytest.raises(LogClosedError, match="open it again"):
            store.begin()
    with PageStore("/s", system=system, fs=fs) as store, store.begin() as session:
        assert dict(session.table("t")) == {1: b"inner"}


@pytest.mark.timeout(30)
def test_a_commit_in_the_middle_of_a_call_of_the_backlog_is_refused() -> None:
    ageing = {"backlog_age_seconds_max": 100}
    with WriteBehind("/s", {"t": lambda _: None}, settings=ageing, fs=MemoryFileSystem()) as s:
        with (
            uninterrupted,
            s._backlog._lock,
            pytest.raises(LogWriteError, match="in the middle of another"),
        ):
            s.commit(SENT)
        assert s.commit(SENT) == 1


def test_a_commit_in_a_thread_of_the_service_waits_for_none_that_waits_for_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_log, marking, admitted = threading.Lock(), threading.Event(), threading.Event()
    refused = list[LogWriteError]()
    with WriteBehind("/s", {"t": lambda _: None}, fs=MemoryFileSystem()) as s:
        persisted_all, persisting = s._log.persisted_all, s._log.persisting

        def mark(numbers: Sequence[int], targets: Collection[str]) -> None:
            if not marking.is_set():
                with of_log:
                    marking.set()
                    admitted.wait(10)
                    try:  # as a finalizer does
                        s.commit(SENT)
                    except LogWriteError as error:
                        refused.append(error)
            persisted_all(numbers, targets)

        def persist(*arguments: Any) -> tuple[int, Ticket]:
            if marking.is_set() and not admitted.is_set():
                admitted.set()
                assert of_log.acquire(timeout=3)
                of_log.release()
            return persisting(*arguments)

        monkeypatch.setattr(s._log, "persisted_all", mark)
        monkeypatch.setattr(s._log, "persisting", persist)
        s.commit(SENT)
        assert marking.wait(10)
        assert s.commit(SENT) == 2
        assert s.drain(10)
        assert len(refused) == 1


def _live(log: Journal) -> list[int]:
    return sorted(one.record_id for one in log.live_records())


@pytest.mark.parametrize("end", ["prepare", "commit", "commit prepared", "roll back prepared"])
@pytest.mark.parametrize("system", ["tally", "jboss"])
def test_a_journal_knows_its_ids_as_its_log_does_where_the_wait_for_an_end_was_refused(
    system: str, end: str
) -> None:
    fs = Nesting()
    with Journal("/j", system=system, fs=fs) as log:
        inner = log.transaction()
        inner.add(1, b"inner")
        if end.endswith("prepared"):
            inner.prepare()
        ends = {"prepare": inner.prepare, "roll back prepared": inner.rollback}
        fs.nest(lambda: log.add(2, b"outer"), ends.get(end, inner.commit))
        assert not inner.prepared
        live = [1, 2] if end.startswith("commit") else [2]
        assert _live(log) == live
        if live == [2]:
            log.add(1, b"again")
        log.update(1, b"more")
        assert not log.prepared()
    with Journal("/j", system=system, fs=fs) as log:
        assert _live(log) == [1, 1, 2]


@pytest.mark.parametrize("end", ["prepare", "commit one phase", "commit"])
def test_a_branch_in_a_journal_is_not_called_rolled_back_if_it_may_be_committed(end: str) -> None:
    fs = Nesting()
    with Journal("/j", fs=fs) as log:
        branch = log.as_resource("j").begin(XID)
        branch.handle.add(1, b"inner")
        if end == "commit":
            branch.prepare()
        ends = {"prepare": branch.prepare, "commit": branch.commit}
        answers = list[Exception]()
        call = ends.get(end, branch.commit_one_phase)
        fs.nest(lambda: log.add(2, b"outer"), lambda: _noted(call, answers))
        rolled_back = isinstance(answers[0], BranchRolledBack)
        assert _live(log) == ([2] if rolled_back else [1, 2])
        assert rolled_back is (end == "prepare")


def _noted(call: Callable[[], object], answers: list[Exception]) -> None:
    try:
        call()
    except Exception as error:
        answers.append(error)
        raise LogWriteError("noted") from error


@pytest.mark.parametrize("system", ["tally", "bitronix"])
def test_a_decision_that_nothing_waits_for_is_in_doubt_and_not_rolled_back(
    tmp_path: Path, system: str
) -> None:
    fs, state = Nesting(), durable(*NAMES)

    def manager() -> TransactionManager:
        return TransactionManager(
            tmp_path,
            state.resources(),
            node="n",
            log=open_decision_log("/d", system, fs),
            recovery_interval=None,
        )

    def finalizer() -> None:
        with pytest.raises(InDoubtError):
            transfer(tm)
        raise LogWriteError("as expected")

    with manager() as tm:
        fs.nest(lambda: tm.decisions.decide(b"other", ["z"]).wait(), finalizer)
        assert balances(state) == {0}
    with manager() as tm:
        tm.recover()
    assert balances(state) == {1}


AT_THE_END = """
import sys, threading, time, tallystick
log = tallystick.Journal(sys.argv[1], shared=sys.argv[2] == "shared")

def write():
    while True:
        log.append(b"x")

class Last:
    def __del__(self, write=lambda: log.append(b"last")):
        try:
            write()
        except Exception:
            pass  # what is refused then is told nobody

for _ in range(4):
    threading.Thread(target=write, daemon=True).start()
time.sleep(0.2)
sys.last = Last()
"""


@pytest.mark.both_cores
@pytest.mark.parametrize("how", ["alone", "shared"])
def test_a_finalizer_that_writes_as_the_interpreter_ends_waits_for_no_stopped_thread(
    tmp_path: Path, how: str
) -> None:
    command = [sys.executable, "-c", AT_THE_END, str(tmp_path / "log"), how]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_a_lock_refuses_its_owner_and_goes_on() -> None:
    lock = OwnedLock(nested_call_error)
    with lock:
        assert lock.owned
        assert lock.locked()
        with pytest.raises(LogWriteError, match="in the middle of another"):
            lock.acquire()
    assert not lock.locked()
    assert lock.try_acquire()
    lock.release()
