"""Two-phase commit and its recovery over databases in memory, with a crash at every step."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import (
    HeuristicError,
    InDoubtError,
    RolledBackError,
    TransactionUsageError,
)
from tallystick.services.transactions import Status, TransactionManager
from tallystick.services.transactions.aio import AsyncTransactionManager
from tallystick.services.transactions.xids import FORMAT_ID, XidFactory
from tests.services.transactions.faces import FACES, Face
from tests.services.transactions.model import Database, DurableState, ModelLog

NAMES = ("a", "b", "c")


class Crash(BaseException):
    """The process is gone."""


class Crasher:
    """Counts steps and crashes at the n-th."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        if len(self.steps) == self.at:
            raise Crash(step)
        self.steps.append(step)


def durable(*names: str) -> DurableState:
    return DurableState({name: Database() for name in names})


def manager(
    path: Path,
    state: DurableState,
    *,
    last: str | None = None,
    on_step: Callable[[str], None] | None = None,
    face: Face = FACES["blocking"],
    **settings: Any,
) -> TransactionManager:
    return face(
        TransactionManager(
            path,
            state.resources(last),
            node="node-1",
            log=ModelLog(state),
            orphan_interval=settings.pop("orphan_interval", 0.0),
            recovery_interval=None,
            on_step=on_step,
            **settings,
        )
    )


def transfer(tm: TransactionManager, names: tuple[str, ...] = NAMES) -> None:
    with tm.begin() as tx:
        for name in names:
            tx[name]("balance", 1)


def balances(state: DurableState) -> set[int]:
    return {database.values.get("balance", 0) for database in state.databases.values()}


def test_a_committed_transaction_is_in_every_resource(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    with manager(tmp_path, state, face=face) as tm:
        transfer(tm)
        assert tm.statistics.decisions == 1
    assert balances(state) == {1}
    assert not state.decisions


def test_an_exception_in_the_block_undoes_everything(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    with manager(tmp_path, state, face=face) as tm, pytest.raises(KeyError), tm.begin() as tx:
        tx["a"]("balance", 1)
        raise KeyError
    assert balances(state) == {0}


@pytest.mark.parametrize("refusing", NAMES)
def test_one_refusal_to_prepare_rolls_back_all(tmp_path: Path, face: Face, refusing: str) -> None:
    state = durable(*NAMES)
    state.databases[refusing].refuse_prepare = True
    with (
        manager(tmp_path, state, face=face) as tm,
        pytest.raises(RolledBackError, match="prepare failed"),
    ):
        transfer(tm)
    assert balances(state) == {0}
    assert not any(database.prepared for database in state.databases.values())


def test_one_resource_needs_no_prepare_and_no_record(tmp_path: Path, face: Face) -> None:
    state = durable("a")
    with manager(tmp_path, state, face=face) as tm:
        transfer(tm, ("a",))
        assert tm.statistics.decisions == 0
    assert balances(state) == {1}
    assert not state.notes


def test_read_only_branches_leave_one_that_needs_no_decision(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    with manager(tmp_path, state, face=face) as tm:
        with tm.begin() as tx:
            tx["a"]("balance", 1)
            assert tx["b"]
            assert tx["c"]
        assert tm.statistics.decisions == 0
    assert state.databases["a"].values == {"balance": 1}


def test_a_lost_lone_branch_is_in_doubt_then_presumed_aborted(
    tmp_path: Path,
    face: Face,
) -> None:
    state = durable("a", "b")

    def leave(step: str) -> None:
        if step == "before commit a":
            state.databases["a"].away = True

    with manager(tmp_path, state, on_step=leave, face=face) as tm:
        with pytest.raises(InDoubtError), tm.begin() as tx:
            tx["a"]("balance", 1)
            assert tx["b"]
        state.databases["a"].away = False
        assert len(tm.recover().rolled_back) == 1
    assert balances(state) == {0}


def test_a_resource_lost_after_the_decision_is_committed_by_recovery(
    tmp_path: Path, face: Face
) -> None:
    state = durable(*NAMES)

    def leave(step: str) -> None:
        if step == "after decision":
            state.databases["b"].away = True

    with manager(tmp_path, state, on_step=leave, face=face) as tm:
        transfer(tm)
        assert not tm.recover().clean
        state.databases["b"].away = False
        report = tm.recover()
    assert [name for name, _ in report.committed] == ["b"]
    assert balances(state) == {1}
    assert not state.decisions


def test_a_heuristic_outcome_is_raised_and_recorded(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    state.databases["c"].heuristic = True
    with manager(tmp_path, state, face=face) as tm, pytest.raises(HeuristicError, match="not in c"):
        transfer(tm)
    assert list(state.heuristics.values()) == [frozenset("c")]


def test_a_failed_log_leaves_branches_frozen_until_it_is_reopened(
    tmp_path: Path, face: Face
) -> None:
    state = durable(*NAMES)
    state.log_fails = True
    with manager(tmp_path, state, face=face) as tm:
        with pytest.raises(InDoubtError, match="could not be made durable"):
            transfer(tm)
        assert [branch.why for branch in tm.recover().left] == ["live"] * 3
    with manager(tmp_path, state, face=face) as reopened:
        assert len(reopened.recover().rolled_back) == 3
    assert balances(state) == {0}


# -- the last resource ------------------------------------------------------------------------


def test_the_last_resource_decides(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    with manager(tmp_path, state, last="b", face=face) as tm:
        transfer(tm)
        tm.recover()
    assert balances(state) == {1}
    assert not state.databases["b"].outcomes, "recovery drops outcome rows nobody needs"


def test_two_last_resources_are_refused(tmp_path: Path) -> None:
    state = durable("a", "b")
    resources: dict[str, Any] = {**state.resources("a"), "b": state.resources("b")["b"]}
    for one in resources.values():
        one.place = "one file"  # else the manager is not made
    with (
        TransactionManager(tmp_path, resources, log=ModelLog(state), recovery_interval=None) as tm,
        pytest.raises(TransactionUsageError, match="At most one"),
    ):
        transfer(tm, ("a", "b"))


def test_a_lost_answer_of_the_last_resource_is_settled_by_its_outcome_row(
    tmp_path: Path, face: Face
) -> None:
    state = durable(*NAMES)
    state.databases["b"].lose_answer_of_commit = True
    with manager(tmp_path, state, last="b", face=face) as tm:
        with pytest.raises(InDoubtError):
            transfer(tm)
        assert len(tm.recover().committed) == 2
    assert balances(state) == {1}


def test_nothing_is_presumed_while_the_last_resource_is_away(tmp_path: Path, face: Face) -> None:
    state = durable(*NAMES)
    crasher = Crasher(at=4)
    with pytest.raises(Crash):
        transfer(manager(tmp_path, state, last="b", on_step=crasher, face=face))
    state.databases["b"].away = True
    with manager(tmp_path, state, last="b", face=face) as tm:
        report = tm.recover()
        assert {branch.why for branch in report.left} == {"a last resource cannot be asked"}
        state.databases["b"].away = False
        assert len(tm.recover().rolled_back) == 2


# -- crashes ------------------------------------------------------------------------------------


def _steps(tmp_path: Path, face: Face, names: tuple[str, ...], last: str | None) -> int:
    crasher = Crasher()
    transfer(manager(tmp_path, durable(*names), last=last, on_step=crasher, face=face), names)
    return len(crasher.steps)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("last", [None, "b"])
@pytest.mark.parametrize("names", [("a", "b"), NAMES])
def test_whole_or_absent_after_a_crash_at_every_step(
    tmp_path: Path, face: Face, names: tuple[str, ...], last: str | None
) -> None:
    for at in range(_steps(tmp_path, face, names, last)):
        state = durable(*names)
        with pytest.raises(Crash):
            transfer(manager(tmp_path, state, last=last, on_step=Crasher(at), face=face), names)
        with manager(tmp_path, state, last=last, face=face) as tm:
            assert tm.recover().clean
        assert balances(state) in ({0}, {1}), f"crash at step {at}"
        assert not state.decisions


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("last", [None, "b"])
def test_recovery_may_crash_at_every_step_and_run_again(
    tmp_path: Path, face: Face, last: str | None
) -> None:
    crashes = 0
    for at in range(_steps(tmp_path, face, NAMES, last)):
        for again in range(100):
            state = durable(*NAMES)
            with pytest.raises(Crash):
                transfer(manager(tmp_path, state, last=last, on_step=Crasher(at), face=face), NAMES)
            try:
                manager(tmp_path, state, last=last, on_step=Crasher(again), face=face).recover()
            except Crash:
                crashes += 1
            else:
                break
            with manager(tmp_path, state, last=last, face=face) as tm:
                assert tm.recover().clean
            assert balances(state) in ({0}, {1}), f"crash at {at}, then at {again}"
    assert crashes > 20


def test_a_crash_while_rolling_back_leaves_nothing(tmp_path: Path, face: Face) -> None:
    for at in range(6):
        state = durable(*NAMES)
        state.databases["c"].refuse_prepare = True
        with pytest.raises((Crash, RolledBackError)):
            transfer(manager(tmp_path, state, on_step=Crasher(at), face=face))
        with manager(tmp_path, state, face=face) as tm:
            assert tm.recover().clean
        assert balances(state) == {0}


# -- recovery's rules -----------------------------------------------------------------------------


def _abandoned(tmp_path: Path, state: DurableState, node: str = "node-1") -> None:
    """Leave branches of ``node`` in doubt."""
    gtrid = (ids := XidFactory(node)).gtrid()
    for database in state.databases.values():
        database.prepared[ids.branch(gtrid)] = {"balance": 1}
    assert tmp_path.is_dir()


@pytest.mark.parametrize("node", ["node-10", "node", "x"])
def test_branches_of_other_nodes_are_left_alone(tmp_path: Path, node: str) -> None:
    state = durable("a")
    _abandoned(tmp_path, state, node)
    with manager(tmp_path, state) as tm:
        report = tm.recover()
    assert [(branch.why, branch.node) for branch in report.left] == [("foreign", node)]
    assert report.clean


def test_other_formats_are_foreign(tmp_path: Path) -> None:
    state = durable("a")
    ids = XidFactory("node-1")
    xid = ids.branch(ids.gtrid())
    state.databases["a"].prepared[type(xid)(FORMAT_ID + 1, xid.gtrid, xid.bqual)] = {}
    with manager(tmp_path, state) as tm:
        assert [branch.why for branch in tm.recover().left] == ["foreign"]


def test_a_young_orphan_waits_for_the_interval(tmp_path: Path) -> None:
    state = durable("a")
    _abandoned(tmp_path, state)
    with manager(tmp_path, state, orphan_interval=60.0) as tm:
        assert [b.why for b in tm.recover().left] == ["younger than the orphan interval"]
        tm.orphan_interval = 0.0
        assert len(tm.recover().rolled_back) == 1


def test_a_living_transaction_is_not_taken_for_an_orphan(tmp_path: Path, face: Face) -> None:
    state = durable("a", "b")
    seen: list[str] = []

    def look(step: str) -> None:
        if step.startswith("after prepare"):
            with_others = tm.recover()
            seen.extend(branch.why for branch in with_others.left)

    tm = manager(tmp_path, state, on_step=look, face=face)
    transfer(tm, ("a", "b"))
    assert set(seen) == {"live"}
    assert len(seen) >= 3, "one after the first vote, two after the second; or all at once"
    assert balances(state) == {1}


def test_take_over_settles_a_dead_node(tmp_path: Path) -> None:
    state = durable(*NAMES)
    crasher = Crasher(at=5)
    with pytest.raises(Crash):
        transfer(manager(tmp_path / "dead", state, on_step=crasher))
    assert any(database.prepared for database in state.databases.values())
    with TransactionManager(
        tmp_path / "alive", state.resources(), node="node-2", log=ModelLog(DurableState()),
        orphan_interval=0.0, recovery_interval=None,
    ) as tm:  # fmt: skip
        report = tm.take_over(tmp_path / "dead", log=ModelLog(state))
    assert report.clean
    assert balances(state) in ({0}, {1})


def test_the_phases_can_be_driven_from_above(tmp_path: Path, face: Face) -> None:
    state = durable("a", "b")
    with manager(tmp_path, state, face=face) as tm:
        for end, balance in (("commit", 1), ("rollback", 1)):
            tx = tm.begin()
            for name in ("a", "b"):
                tx[name]("balance", 1)
            tx.prepare()
            assert all(database.prepared for database in state.databases.values())
            with pytest.raises(TransactionUsageError, match="is prepared"):
                tx["a"]
            getattr(tx, end)()
            assert balances(state) == {balance}
        state.databases["b"].refuse_prepare = True
        tx = tm.begin()
        tx["a"]("balance", 1)
        tx["b"]("balance", 1)
        with pytest.raises(RolledBackError):
            tx.prepare()
        assert tx.status is Status.ROLLED_BACK


# -- wrong use ----------------------------------------------------------------------------------


def test_wrong_use_says_what_to_do(tmp_path: Path) -> None:
    with manager(tmp_path, durable("a")) as tm:
        with tm.begin() as tx:
            assert tx["a"]
            with pytest.raises(TransactionUsageError, match="enlisted already"):
                tx.enlist("a")
            with pytest.raises(TransactionUsageError, match="no resource 'z'"):
                tx["z"]
            with pytest.raises(TransactionUsageError, match="not suspended"):
                tx.resume()
        with pytest.raises(TransactionUsageError, match="is committed"):
            tx.commit()
        with pytest.raises(TransactionUsageError, match="no transaction is running"):
            tm.current()
    with pytest.raises(TransactionUsageError, match="belongs to node 'node-1'"):
        TransactionManager(tmp_path, {}, node="other", log=ModelLog(DurableState()))
    with pytest.raises(TransactionUsageError, match="cannot be the resource"):
        TransactionManager(tmp_path, {"a": 7}, log=ModelLog(DurableState()))  # type: ignore[dict-item]


def test_another_thread_may_go_on_and_commit(tmp_path: Path) -> None:
    state = durable("a", "b")
    with manager(tmp_path, state) as tm, ThreadPoolExecutor(1) as other:
        tx = tm.begin()
        tx["a"]("balance", 1)
        other.submit(lambda: tx["b"]("balance", 1)).result()
        other.submit(tx.commit).result()
        assert tx.status is Status.COMMITTED
    assert {one.values["balance"] for one in state.databases.values()} == {1}


def test_a_suspended_transaction_waits_to_be_resumed(tmp_path: Path) -> None:
    with manager(tmp_path, durable("a")) as tm, ThreadPoolExecutor(1) as other:
        tx = tm.begin()
        tx.suspend()
        with pytest.raises(TransactionUsageError, match="is suspended"):
            tx.commit()
        other.submit(tx.resume).result()
        tx.commit()
        assert tx.status is Status.COMMITTED


def test_two_threads_at_once_are_told_so(tmp_path: Path) -> None:
    with manager(tmp_path, durable("a")) as tm, ThreadPoolExecutor(1) as other:
        tx = tm.begin()

        def use_elsewhere() -> None:
            for call in (tx.commit, tx.rollback, tx.prepare, lambda: tx["a"]):
                with pytest.raises(TransactionUsageError, match="another thread is using"):
                    other.submit(call).result()

        tx.before_commit(use_elsewhere)
        tx.commit()
        assert tx.status is Status.COMMITTED


def test_a_timeout_leaves_only_rollback(tmp_path: Path, face: Face) -> None:
    state = durable("a", "b")
    with manager(tmp_path, state, face=face) as tm:
        with pytest.raises(RolledBackError, match="timed out"), tm.begin(timeout=1e-9) as tx:
            tx["a"]("balance", 1)
        assert tx.status is Status.ROLLED_BACK


def test_hooks_run_and_a_failing_one_before_commit_rolls_back(tmp_path: Path, face: Face) -> None:
    state, ends = durable("a"), list[Status]()
    with manager(tmp_path, state, face=face) as tm:
        with tm.begin() as tx:
            tx["a"]("balance", 1)
            tx.before_commit(lambda: tx["a"]("balance", 1))
            tx.after_completion(ends.append)
        assert state.databases["a"].values == {"balance": 2}
        with pytest.raises(RolledBackError, match="before commit"), tm.begin() as tx:
            tx["a"]("balance", 1)
            tx.before_commit(lambda: 1 // 0)
            tx.after_completion(ends.append)
            tx.after_completion(lambda _: 1 // 0)
    assert ends == [Status.COMMITTED, Status.ROLLED_BACK]


@pytest.mark.parametrize("name", ["commit", "prepare", "rollback"])
def test_a_hook_cannot_end_its_own_transaction(tmp_path: Path, name: str) -> None:
    state, refused = durable("a", "b"), "a hook of the transaction is running"
    with manager(tmp_path, state) as tm:

        def caught(*_: Status) -> None:
            with pytest.raises(TransactionUsageError, match=refused):
                getattr(tx, name)()
            ends.append(tx.status)

        ends = list[Status]()
        with tm.begin() as tx:
            tx["a"]("balance", 1)
            tx["b"]("balance", 1)
            tx.before_commit(caught)
            tx.after_completion(caught)
        assert ends == [Status.ACTIVE, Status.COMMITTED]
        assert balances(state) == {1}
        with pytest.raises(RolledBackError, match=refused), tm.begin() as tx:
            tx["a"]("balance", 1)
            tx.before_commit(getattr(tx, name))
            tx.after_completion(caught)
        assert ends[2:] == [tx.status] == [Status.ROLLED_BACK]
        assert balances(state) == {1}


def test_a_call_joins_no_transaction_of_another_manager(tmp_path: Path) -> None:
    state, other_state = durable("a"), durable("a")
    with manager(tmp_path / "1", state) as tm, manager(tmp_path / "2", other_state) as other:

        @other.transactional
        def inner() -> None:
            other.current()["a"]("balance", 1)

        @tm.transactional
        def outer() -> None:
            inner()
            raise KeyError

        with pytest.raises(KeyError):
            outer()
    assert balances(state) == {0}
    assert balances(other_state) == {1}


def test_the_transaction_of_a_block_is_current_and_joined(tmp_path: Path) -> None:
    state = durable("a")
    with manager(tmp_path, state) as tm:

        @tm.transactional
        def pay() -> None:
            tm.current()["a"]("balance", 1)

        with pytest.raises(KeyError), tm.begin() as tx:
            assert tm.current() is tx
            pay()
            raise KeyError
        with pytest.raises(TransactionUsageError, match="no transaction is running"):
            tm.current()
        pay()
    assert balances(state) == {1}


def test_functions_whose_bodies_run_later_are_refused(tmp_path: Path) -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def both() -> AsyncIterator[int]:
        yield 1

    class Later:
        async def __call__(self) -> None: ...

    lazy: list[Any] = [
        coroutine, generator, both, Later(), staticmethod(coroutine),
        functools.partial(generator), contextlib.contextmanager(generator),
    ]  # fmt: skip
    with manager(tmp_path, durable("a")) as tm:
        for function in lazy:
            with pytest.raises(TransactionUsageError, match="before its body runs"):
                tm.transactional(function)
        tasks = AsyncTransactionManager(tm)
        lazy = [generator, both, contextlib.asynccontextmanager(both)]
        for function in lazy:
            with pytest.raises(TransactionUsageError, match="before its body runs"):
                tasks.transactional(function)
        of_a_class: Any = classmethod(lambda _: None)
        for function in (Later, of_a_class):
            with pytest.raises(TransactionUsageError, match="below @classmethod"):
                tm.transactional(function)


def test_a_function_that_gives_a_coroutine_is_rolled_back(tmp_path: Path) -> None:
    state, begun = durable("a"), list[str]()

    async def coroutine() -> None:
        begun.append("it runs")

    with manager(tmp_path, state) as tm:

        @tm.transactional
        def call() -> Any:
            tm.current()["a"]("balance", 1)
            return coroutine()

        with pytest.raises(TransactionUsageError, match="its work is not done"):
            call()
    assert balances(state) == {0}
    assert not begun


@pytest.mark.parametrize("timeout", [float("nan"), 0, -1, "3", True, b"3"])
def test_a_timeout_that_is_no_time_is_refused_at_the_call(tmp_path: Path, timeout: Any) -> None:
    with manager(tmp_path, durable("a")) as tm:
        with pytest.raises((TypeError, ValueError), match=r"^timeout is .*; expected "):
            tm.begin(timeout=timeout)
        for name in ("timeout", "call_timeout", "orphan_interval", "recovery_interval"):
            if (name, timeout) != ("orphan_interval", 0):
                with pytest.raises((TypeError, ValueError), match=rf"^{name} is .*; expected "):
                    TransactionManager(tmp_path / "other", {}, **{name: timeout})


@pytest.mark.parametrize("resources", [None, "a", [1], {1: None}])
def test_resources_that_have_no_names_are_refused_at_the_call(
    tmp_path: Path, resources: Any
) -> None:
    with pytest.raises(TypeError, match=r"resources? .*; expected "):
        TransactionManager(tmp_path, resources)
    assert not list(tmp_path.iterdir())


def test_a_short_time_is_a_timeout(tmp_path: Path, face: Face) -> None:
    with manager(tmp_path, durable("a"), face=face) as tm:
        tx = tm.begin(timeout=1e-9)
        time.sleep(0.001)
        with pytest.raises(RolledBackError, match="timed out"):
            assert tx["a"]
        tx.rollback()


def test_nested_transactional_calls_join(tmp_path: Path) -> None:
    state = durable("a")
    with manager(tmp_path, state) as tm:

        @tm.transactional
        def inner() -> None:
            tm.current()["a"]("balance", 1)

        @tm.transactional
        def outer() -> None:
            inner()
            inner()

        outer()
        assert state.databases["a"].values == {"balance": 2}

        @tm.transactional
        def failing() -> None:
            inner()
            raise KeyError

        with pytest.raises(KeyError):
            failing()
    assert state.databases["a"].values == {"balance": 2}
