"""Hazards other than crashes: other programs, logs that fail, clocks, errors of any kind."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import (
    HeuristicError,
    InDoubtError,
    LogFullError,
    LogLockedError,
    LogPoisonedError,
    RolledBackError,
    TransactionUsageError,
)
from tallystick.indoubt.doctor import Level, examine
from tallystick.records import State
from tallystick.roles import DecisionOutcome
from tallystick.services.transactions import Status, TransactionManager
from tallystick.services.transactions.resource import BranchRolledBack, ResourceUnreachable
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import open_decision_log
from tallystick.testing.faults import WRITES, Fault, FaultyFileSystem
from tests.services.transactions.faces import Face
from tests.services.transactions.model import DurableState, ModelBranch, ModelLog, ModelResource
from tests.services.transactions.test_commit import (
    NAMES,
    Crash,
    Crasher,
    balances,
    durable,
    manager,
    transfer,
)


def over(folder: Path, resources: Any, log: Any, face: Face, **settings: Any) -> TransactionManager:
    """Make a manager over unusual resources or an unusual log."""
    tm = TransactionManager(
        folder, resources, node="node-1", log=log, orphan_interval=0.0,
        recovery_interval=None, **settings,
    )  # fmt: skip
    return face(tm)


# -- other programs -----------------------------------------------------------------------------


def test_nothing_is_written_to_another_database_under_the_name_of_one(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("right.db", "wrong.db", "right.db")]
    for place in places[:2]:
        with contextlib.closing(sqlite3.connect(place)) as connection:
            connection.execute("CREATE TABLE t (id)")
    for place in places:
        resources = {"books": f"sqlite:///{place}"}
        with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as tm:
            tm.recover()
            with contextlib.suppress(ResourceUnreachable), tm.begin() as tx:
                tx["books"].execute("INSERT INTO t VALUES (1)")
            wrong = place.name == "wrong.db"
            assert ("another database" in str(tm.preflight())) == wrong
        checks = examine(str(tmp_path / "tm"), resources)
        problems = [one.found for one in checks if one.level is Level.PROBLEM]
        assert any("another database" in one for one in problems) == wrong
        with contextlib.closing(sqlite3.connect(place)) as connection:
            assert bool(connection.execute("SELECT * FROM t").fetchall()) != wrong


def test_a_branch_that_was_ended_by_hand_is_not_taken_for_committed(
    tmp_path: Path, face: Face
) -> None:
    state = durable(*NAMES)

    def roll_back_by_hand(step: str) -> None:
        if step == "after decision":
            state.databases["b"].prepared.clear()  # ROLLBACK PREPARED, by hand

    with (
        manager(tmp_path, state, on_step=roll_back_by_hand, face=face) as tm,
        pytest.raises(HeuristicError, match=r"committed in \['a', 'c'\], but not in b"),
    ):
        transfer(tm)
    assert list(state.heuristics.values()) == [frozenset("b")]


def test_a_second_manager_of_the_same_node_is_found_out(tmp_path: Path, face: Face) -> None:
    state = durable("a", "b")
    other = manager(tmp_path / "other", DurableState(state.databases), orphan_interval=20.0)

    def recover(step: str) -> None:
        if step == "after decision":
            assert {one.why for one in other.recover().left} == {"younger than the orphan interval"}
            other.orphan_interval = 0.0
            assert len(other.recover().rolled_back) == 2

    with (
        manager(tmp_path / "one", state, on_step=recover, face=face) as tm,
        pytest.raises(HeuristicError, match="committed in none"),
    ):
        transfer(tm, ("a", "b"))


def test_a_node_that_is_only_slow_is_not_taken_over(tmp_path: Path) -> None:
    state = durable("a", "b")
    tried: list[str] = []

    def take_over(step: str) -> None:
        with pytest.raises(LogLockedError):
            other.take_over(tmp_path / "slow")
        tried.append(step)

    settings: dict[str, Any] = {"orphan_interval": 0.0, "recovery_interval": None}
    with TransactionManager(tmp_path / "other", state.resources(), **settings) as other:
        with TransactionManager(
            tmp_path / "slow", state.resources(), on_step=take_over, **settings
        ) as slow:
            transfer(slow, ("a", "b"))
        assert other.take_over(tmp_path / "slow").clean
    assert balances(state) == {1}
    assert len(tried) > 8


def test_a_directory_without_a_coordinator_is_not_taken_over(tmp_path: Path) -> None:
    with (
        manager(tmp_path / "one", durable("a")) as tm,
        pytest.raises(TransactionUsageError, match="not the directory of a coordinator"),
    ):
        tm.take_over(tmp_path / "mistyped")
    assert not (tmp_path / "mistyped").exists()


# -- errors that no protocol foresees -------------------------------------------------------------


class FailingBranch(ModelBranch):
    """A branch that raises an error which is no answer."""

    def rollback(self) -> None:
        raise ValueError("a bug of the resource")

    def commit(self) -> None:
        raise ValueError("a bug of the resource")

    def close(self) -> None:
        raise ValueError("a bug of the resource")


class FailingResource(ModelResource):
    branch = FailingBranch


def test_an_error_in_one_rollback_keeps_no_other_branch_from_it(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    state.databases["c"].refuse_prepare = True
    resources = state.resources() | {"a": FailingResource("a", state.databases["a"])}
    with over(tmp_path, resources, ModelLog(state), face) as tm:
        with pytest.raises(RolledBackError, match="prepare failed"), tm.begin() as tx:
            for name in NAMES:
                tx[name]("balance", 1)
        assert tx.status is Status.ROLLED_BACK
        assert not state.databases["b"].prepared
        assert [name for name, _ in tm.recover().rolled_back] == ["a"]


def test_an_error_in_one_commit_keeps_no_other_branch_from_it(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    resources = state.resources() | {"a": FailingResource("a", state.databases["a"])}
    with over(tmp_path, resources, ModelLog(state), face) as tm:
        transfer(tm)
        assert state.databases["c"].values == {"balance": 1}
        assert [name for name, _ in tm.recover().committed] == ["a"]
    assert balances(state) == {1}
    assert not state.decisions


def test_wrong_use_found_at_prepare_is_a_rollback(tmp_path: Path, face: Face) -> None:
    class Closed(ModelBranch):
        def prepare(self) -> Any:
            raise TransactionUsageError("the connection was closed")

    class ClosedResource(ModelResource):
        branch = Closed

    state = durable("a", "b")
    resources = state.resources() | {"b": ClosedResource("b", state.databases["b"])}
    with over(tmp_path, resources, ModelLog(state), face) as tm:
        with pytest.raises(TransactionUsageError, match="was closed"), tm.begin() as tx:
            tx["a"]("balance", 1)
            tx["b"]("balance", 1)
        assert tx.status is Status.ROLLED_BACK
        assert tx.gtrid not in tm._context.live
    assert not state.databases["a"].prepared


def test_a_resource_that_recovery_cannot_ask_keeps_it_from_no_other(tmp_path: Path) -> None:
    state = durable("a", "b")
    with pytest.raises(Crash):
        transfer(manager(tmp_path, state, on_step=Crasher(at=8)), ("a", "b"))
    with manager(tmp_path, state) as tm:
        ask, tm.resources["a"].in_doubt = tm.resources["a"].in_doubt, None  # type: ignore[method-assign, assignment]
        report = tm.recover()
        assert list(report.unreachable) == ["a"]
        assert [name for name, _ in report.committed] == ["b"]
        tm.resources["a"].in_doubt = ask  # type: ignore[method-assign]
        assert tm.recover().clean
    assert balances(state) == {1}


def test_a_branch_that_was_rolled_back_early_is_no_heuristic_outcome(
    tmp_path: Path,
) -> None:
    class Deadlocked(ModelResource):
        def rollback(self, xid: Any) -> None:
            super().rollback(xid)
            raise BranchRolledBack("XA_RBDEADLOCK")

    state = durable("a", "b")
    with pytest.raises(Crash):
        transfer(manager(tmp_path, state, on_step=Crasher(at=3)), ("a", "b"))
    resources = {name: Deadlocked(name, one) for name, one in state.databases.items()}
    with TransactionManager(
        tmp_path, resources, log=ModelLog(state), orphan_interval=0.0, recovery_interval=None
    ) as tm:
        report = tm.recover()
    assert report.rolled_back
    assert not report.heuristic


# -- the last resource ----------------------------------------------------------------------------


def test_an_outcome_row_made_after_the_scan_is_kept(tmp_path: Path) -> None:
    """Its branches may have been prepared after the scan, too."""
    state = durable(*NAMES)

    def meanwhile(step: str) -> None:
        if step == "scan c" and not state.databases["a"].prepared:
            gtrid = tm._xids.gtrid()
            state.databases["a"].prepared[tm._xids.branch(gtrid)] = {"balance": 1}
            state.databases["b"].outcomes.add(gtrid)

    with manager(tmp_path, state, last="b", on_step=meanwhile) as tm:
        assert not tm.recover().rolled_back
        assert state.databases["b"].outcomes
        assert len(tm.recover().committed) == 1


def test_a_last_resource_that_is_away_is_listed(tmp_path: Path) -> None:
    state = durable(*NAMES)
    with manager(tmp_path, state, last="b") as tm:
        transfer(tm)
        last: Any = tm.resources["b"]
        state.databases["b"].away = True
        last.outcomes = last.in_doubt
        assert list(tm.recover().unreachable) == ["b"]


# -- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "young"), [(-5, True), (5, True), (-3600, False), (60, False)])
def test_a_clock_that_was_set_keeps_no_orphan_for_long(
    tmp_path: Path, seconds: int, young: bool
) -> None:
    state = durable("a", "b")
    with pytest.raises(Crash):
        transfer(manager(tmp_path, state, on_step=Crasher(at=3)), ("a", "b"))
    with manager(tmp_path, state, orphan_interval=20.0) as tm:
        clock = tm._xids.clock
        tm._xids.clock = lambda: clock() + seconds * 1000
        assert bool(tm.recover().left) is young


# -- logs that fail -------------------------------------------------------------------------------


class LogWithoutEnds(ModelLog):
    """A log that records decisions and refuses ends."""

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        raise LogPoisonedError(f"cannot record that {gtrid!r} is {outcome} in {resources}")


class LogWithoutNotes(ModelLog):
    """A log that refuses notes: it is full."""

    def note(self, state: State, gtrid: bytes, resources: Collection[str]) -> None:
        raise LogFullError(f"it is full: {state} of {gtrid!r} in {resources}")


def test_an_end_that_cannot_be_recorded_is_an_end_all_the_same(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    with over(tmp_path, state.resources(), LogWithoutEnds(state), face) as tm, tm.begin() as tx:
        for name in NAMES:
            tx[name]("balance", 1)
    assert tx.status is Status.COMMITTED
    assert balances(state) == {1}
    assert state.decisions
    with manager(tmp_path, state) as again:
        assert again.recover().clean
    assert not state.decisions


def test_a_note_that_is_refused_rolls_everything_back(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    with over(tmp_path, state.resources(), LogWithoutNotes(state), face) as tm:
        with pytest.raises(RolledBackError, match="refused a note"), tm.begin() as tx:
            for name in NAMES:
                tx[name]("balance", 1)
        assert tx.status is Status.ROLLED_BACK
    assert balances(state) == {0}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("system", ["tally", "bitronix"])
def test_on_a_full_disk_transfers_are_whole_or_absent(
    tmp_path: Path, face: Face, system: str
) -> None:
    """The n-th write to the log fails, and all after it."""
    struck = 0
    for nth in range(1, 8):
        state, folder = durable("a", "b"), tmp_path / str(nth)
        disk = FaultyFileSystem(LOCAL)
        log = open_decision_log(folder / system, system, fs=disk)
        disk.fault = Fault(nth, WRITES, errno.ENOSPC, partial=0.5, lasting=True)
        acknowledged = 0
        tm = over(folder, state.resources(), log, face)
        for _ in range(4):
            try:
                transfer(tm, ("a", "b"))
                acknowledged += 1
            except (InDoubtError, RolledBackError):
                struck += 1
        with contextlib.suppress(LogPoisonedError, LogFullError):  # what is owed
            tm.close()
        log = open_decision_log(folder / system, system)
        with over(folder, state.resources(), log, face) as tm:
            assert tm.recover().clean
            assert not tm.decisions.open_decisions()
        (balance,) = balances(state)
        assert balance >= acknowledged
    assert struck > 3


# -- the phases from above ------------------------------------------------------------------------


def test_what_was_prepared_ends_once(tmp_path: Path, face: Face) -> None:
    state = durable("a", "b")
    with manager(tmp_path, state, face=face) as tm:
        tx = tm.begin()
        for name in ("a", "b"):
            tx[name]("balance", 1)
        tx.prepare()
        tx.commit()
        for again in (tx.commit, tx.rollback, tx.prepare):
            with pytest.raises(TransactionUsageError, match="is committed"):
                again()
    assert balances(state) == {1}
