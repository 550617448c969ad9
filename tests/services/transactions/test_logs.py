"""The transaction manager over its real decision logs: the native one and Bitronix's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import HeuristicError
from tallystick.services.transactions import TransactionManager
from tallystick.systems.registry import open_decision_log
from tests.services.transactions.model import DurableState
from tests.services.transactions.test_commit import (
    NAMES,
    Crash,
    Crasher,
    balances,
    durable,
    transfer,
)

SYSTEMS = ["tally", "bitronix"]


def manager(
    folder: Path, system: str, state: DurableState, on_step: Crasher | None = None
) -> TransactionManager:
    return TransactionManager(
        folder,
        state.resources(),
        node="node-1",
        log=open_decision_log(folder / system, system),
        orphan_interval=0.0,
        recovery_interval=None,
        on_step=on_step,
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_whole_or_absent_after_a_stop_at_every_step(tmp_path: Path, system: str) -> None:
    outcomes = set[int]()
    state = durable(*NAMES)
    for at in range(100):
        before = balances(state)
        stopped = Crasher(at)
        tm = manager(tmp_path, system, state, stopped)
        try:
            transfer(tm)
        except Crash:
            finished = False
        else:
            finished = True
        finally:
            tm.close()
        with manager(tmp_path, system, state) as again:
            assert again.recover().clean
            assert not again.decisions.open_decisions()
        (after,), (was,) = balances(state), before
        outcomes.add(after - was)
        if finished:
            break
    assert outcomes == {0, 1}
    assert at > 8


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_heuristic_outcome_stays_on_record_until_it_is_settled(
    tmp_path: Path, system: str
) -> None:
    state = durable(*NAMES)
    state.databases["c"].heuristic = True
    with manager(tmp_path, system, state) as tm, pytest.raises(HeuristicError):
        transfer(tm)
    with manager(tmp_path, system, state) as tm:
        (gtrid,) = tm.decisions.heuristics()
        assert not tm.decisions.open_decisions()
        tm.decisions.settle(gtrid).wait()
    with manager(tmp_path, system, state) as tm:
        assert not tm.decisions.heuristics()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_dead_node_is_taken_over_from_its_log(tmp_path: Path, system: str) -> None:
    state = durable(*NAMES)
    tm = manager(tmp_path / "dead", system, state, Crasher(at=8))
    with pytest.raises(Crash):
        transfer(tm)
    tm.close()
    with TransactionManager(
        tmp_path / "alive", state.resources(), orphan_interval=0.0, recovery_interval=None
    ) as alive:
        assert {branch.why for branch in alive.recover().left} == {"foreign"}
        dead = open_decision_log(tmp_path / "dead" / system, system)
        assert alive.take_over(tmp_path / "dead", log=dead).clean
    assert balances(state) == {1}
