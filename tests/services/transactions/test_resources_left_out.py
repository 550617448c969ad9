"""A coordinator that is opened without a resource that it had: what that one may have decided, or
may wait for, is left alone. The last resource decides by its own commit, which no log tells of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import CorruptLogError, InDoubtError, TransactionUsageError
from tallystick.indoubt.doctor.directory import check_directory
from tallystick.indoubt.listing import list_in_doubt
from tallystick.indoubt.settle import settle
from tallystick.roles.coordinator_files import RESOURCES
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.recovery import NO_LAST
from tests.services.transactions.model import DurableState, ModelResource
from tests.services.transactions.test_commit import Crash, balances, durable, transfer

LAST = "b"


@pytest.fixture
def state() -> DurableState:
    return durable("a", LAST, "c")


def opened(
    path: Path, resources: Mapping[str, ModelResource], **settings: Any
) -> TransactionManager:
    return TransactionManager(
        path / "tm", resources, node="shop", orphan_interval=0, recovery_interval=None, **settings
    )


def decided_by_its_last(
    path: Path, state: DurableState, *, ahead_ms: int = 0, **settings: Any
) -> bytes:
    """Stop a coordinator once its last resource has committed; the id of the transaction."""

    def stop(step: str) -> None:
        if step == f"after last {LAST}":
            raise Crash(step)

    with (
        opened(path, state.resources(LAST), on_step=stop, **settings) as tm,
        pytest.raises(Crash),
    ):
        clock = tm._xids.clock
        tm._xids.clock = lambda: clock() + ahead_ms
        transfer(tm)
    (gtrid,) = state.databases[LAST].outcomes
    return gtrid


def some(state: DurableState, *names: str) -> dict[str, ModelResource]:
    return {name: one for name, one in state.resources(LAST).items() if name in names}


@pytest.mark.parametrize("shared", [False, True])
def test_nothing_is_presumed_without_the_last_resource(
    tmp_path: Path, state: DurableState, shared: bool
) -> None:
    decided_by_its_last(tmp_path, state, shared=shared)
    for names in ("a", "ac"):
        with opened(tmp_path, some(state, *names), shared=shared) as tm:
            report = tm.recover()
        assert {(one.resource, one.why) for one in report.left} == {(one, NO_LAST) for one in names}
        assert not report.rolled_back
    with opened(tmp_path, state.resources(LAST), shared=shared) as tm:
        assert len(tm.recover().committed) == 2
    assert balances(state) == {1}


def test_an_outcome_row_stays_while_a_resource_is_left_out(
    tmp_path: Path, state: DurableState
) -> None:
    gtrid = decided_by_its_last(tmp_path, state)
    for names in ("b", "ab"):
        with opened(tmp_path, some(state, *names)) as tm:
            tm.recover()
            assert gtrid in state.databases[LAST].outcomes
    with opened(tmp_path, state.resources(LAST)) as tm:
        assert tm.recover().clean
        tm.recover()
    assert balances(state) == {1}
    assert not state.databases[LAST].outcomes


def test_an_outcome_row_stays_while_nothing_says_that_its_decision_was_carried_out(
    tmp_path: Path, state: DurableState
) -> None:
    """As where another database is asked, which lists no branch, and has no identity to tell."""
    gtrid = decided_by_its_last(tmp_path, state)
    others = durable("a", "c").resources() | some(state, LAST)
    for _ in range(2):
        with opened(tmp_path, others) as tm:
            tm.recover()
            tm.recover()
            transfer(tm)
            tm.recover()
        assert state.databases[LAST].outcomes == {gtrid}
    with opened(tmp_path, state.resources(LAST)) as tm:
        assert len(tm.recover().committed) == 2
        tm.recover()
    assert not state.databases[LAST].outcomes
    assert state.databases["a"].values == state.databases["c"].values == {"balance": 1}


def test_the_name_of_a_last_resource_given_to_another_kind_is_no_such_resource(
    tmp_path: Path, state: DurableState
) -> None:
    decided_by_its_last(tmp_path, state)
    others = state.resources() | {LAST: durable(LAST).resources()[LAST]}
    for _ in range(2):
        with opened(tmp_path, others) as tm:
            assert {one.why for one in tm.recover().left} == {NO_LAST}
    with opened(tmp_path, state.resources(LAST)) as tm:
        assert len(tm.recover().committed) == 2


def test_what_a_manager_has_begun_itself_had_no_other_resources(
    tmp_path: Path, state: DurableState
) -> None:
    with opened(tmp_path, state.resources(LAST)):
        pass

    def leave(step: str) -> None:
        state.databases["a"].away = step == "before commit a"

    with opened(tmp_path, some(state, "a", "c"), on_step=leave) as tm:
        with pytest.raises(InDoubtError), tm.begin() as tx:
            tx["a"]("balance", 1)
            assert tx["c"]
        assert len(tm.recover().rolled_back) == 1


@pytest.mark.parametrize("shared", [False, True])
def test_a_clock_that_was_set_back_makes_no_transaction_of_another_process_its_own(
    tmp_path: Path, state: DurableState, shared: bool
) -> None:
    decided_by_its_last(tmp_path, state, ahead_ms=3_600_000, shared=shared)
    with opened(tmp_path, some(state, "a", "c"), shared=shared) as tm:
        assert {one.why for one in tm.recover().left} == {NO_LAST}


def test_a_node_that_takes_over_presumes_nothing_of_a_last_resource_it_lacks(
    tmp_path: Path, state: DurableState
) -> None:
    decided_by_its_last(tmp_path, state)
    mine = some(state, "a", "c")
    mine["d"] = durable("d").resources("d")["d"]
    with TransactionManager(tmp_path / "other", mine, recovery_interval=None) as tm:
        report = tm.take_over(tmp_path / "tm")
        assert {one.why for one in report.left} == {NO_LAST}
    assert "d" not in json.loads((tmp_path / "tm" / RESOURCES.name).read_text())
    with opened(tmp_path, state.resources(LAST)) as tm:
        assert len(tm.recover().committed) == 2


def test_a_node_that_takes_over_asks_its_last_resource_where_none_is_noted(
    tmp_path: Path, state: DurableState
) -> None:
    decided_by_its_last(tmp_path, state)
    (tmp_path / "tm" / RESOURCES.name).unlink()  # earlier versions write none
    with TransactionManager(tmp_path / "other", state.resources(LAST)) as tm:
        assert len(tm.take_over(tmp_path / "tm").committed) == 2
    assert balances(state) == {1}


def test_a_resource_that_another_process_brings_along_during_a_scan_is_known(
    tmp_path: Path, state: DurableState
) -> None:
    def bring(step: str) -> None:
        if step == "scan a" and not state.databases[LAST].outcomes:
            decided_by_its_last(tmp_path, state, shared=True)

    with opened(tmp_path, some(state, "a", "c"), shared=True, on_step=bring) as tm:
        assert {one.why for one in tm.recover().left} == {NO_LAST}


def test_an_operator_rolls_nothing_back_without_the_last_resource(
    tmp_path: Path, state: DurableState
) -> None:
    gtrid = decided_by_its_last(tmp_path, state)
    folder = str(tmp_path / "tm")
    for without in (some(state, "a", "c"), state.resources()):
        with pytest.raises(TransactionUsageError, match="an outcome row of b would tell"):
            settle(folder, without, gtrid, commit=False)
    with pytest.raises(TransactionUsageError, match="was decided: commit"):
        settle(folder, state.resources(LAST), gtrid, commit=False)
    assert len(settle(folder, some(state, "a", "c"), gtrid, commit=True)) == 2
    assert balances(state) == {1}


def test_a_listing_does_not_presume_that_the_last_resource_rolled_back(
    tmp_path: Path, state: DurableState
) -> None:
    decided_by_its_last(tmp_path, state)
    folder = str(tmp_path / "tm")
    (one,) = list_in_doubt([folder], some(state, "a", "c")).transactions
    assert (one.resolution, one.alarm) == ("rollback", "decided-elsewhere")
    assert "an outcome row of b may be it" in one.evidence
    (tmp_path / "tm" / RESOURCES.name).write_text("{")
    (one,) = list_in_doubt([folder], some(state, "a", "c")).transactions
    assert one.alarm == "decided-elsewhere"
    (tmp_path / "tm" / RESOURCES.name).unlink()
    (one,) = list_in_doubt([folder], some(state, "a", "c")).transactions
    assert (one.resolution, one.alarm) == ("rollback", None)


def test_the_doctor_names_a_last_resource_that_is_left_out(
    tmp_path: Path, state: DurableState
) -> None:
    with opened(tmp_path, state.resources(LAST)):
        pass
    found = [one.found for one in check_directory(str(tmp_path / "tm"), ["a"])]
    assert any("'b' was a resource" in one and "may hold decisions" in one for one in found)
    assert any("'c' was a resource" in one and "renamed or left out?" in one for one in found)


@pytest.mark.parametrize("content", ["", "[1]", "{", "\0", '{"b": "votes"}', '{"b": null}'])
def test_a_damaged_file_of_names_is_told_and_not_passed_over(
    tmp_path: Path, state: DurableState, content: str
) -> None:
    with opened(tmp_path, state.resources(LAST)):
        pass
    (tmp_path / "tm" / RESOURCES.name).write_text(content)
    with pytest.raises(CorruptLogError, match=r"resources\.json"):
        opened(tmp_path, state.resources(LAST))
    (tmp_path / "tm" / RESOURCES.name).unlink()
    with opened(tmp_path, state.resources(LAST)):
        pass
