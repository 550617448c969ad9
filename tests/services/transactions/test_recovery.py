"""Recovery where resources share a server, coordinators share a database, and operators helped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tallystick.roles import DecisionOutcome
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.recovery import LISTED_TWICE
from tests.servers import Server
from tests.services.transactions.model import DurableState
from tests.services.transactions.resources.test_databases import Bank
from tests.services.transactions.test_bad_days import stop, whys
from tests.services.transactions.test_commit import Crash, balances, durable, transfer

SETTINGS: dict[str, Any] = {"recovery_interval": None, "orphan_interval": 0.0}


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("at", ["after decision", "before decision"])
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_one_pass_ends_the_branches_of_two_resources_on_one_server(
    bank: Bank, name: str, at: str
) -> None:
    """Each of them lists the branches of both."""
    rows = [-100 * bank.account - number for number in (1, 2)]
    resources = {"one": bank.urls[name], "two": bank.urls[name]}
    node, before = bank.folder / "node", _sessions(bank)
    with (
        TransactionManager(node, resources, on_step=stop(at), **SETTINGS) as tm,
        pytest.raises(Crash),
        tm.begin() as tx,
    ):
        for resource, row in zip(resources, rows, strict=True):
            tx[resource].execute("INSERT INTO accounts VALUES (%s, 5)", (row,))
    with TransactionManager(node, resources, **SETTINGS) as tm:
        deadline = time.monotonic() + 30  # MariaDB notices the end of the sessions
        while time.monotonic() < deadline and _sessions(bank) > before:
            time.sleep(0.05)
        report = tm.recover()
        assert report.clean, report
        assert len(report.committed or report.rolled_back) == 2
        with tm.begin() as tx:
            query = "SELECT count(*) FROM accounts WHERE id IN (%s, %s)"
            found = tx["one"].execute(query, rows).fetchone()[0]
        assert found == (2 if at == "after decision" else 0)


def _sessions(bank: Bank) -> int:
    """Return the number of sessions of MariaDB, which may hold branches."""
    with bank.maria() as maria, maria.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM information_schema.processlist")
        return int(cursor.fetchone()[0])


def crash(path: Path, state: DurableState, at: str = "after decision") -> None:
    """Leave a transfer from a to b as a coordinator that stops at a step does."""
    with (
        TransactionManager(path, state.resources(), on_step=stop(at), **SETTINGS) as tm,
        pytest.raises(Crash),
    ):
        transfer(tm, ("a", "b"))


def test_a_branch_that_two_databases_list_is_not_over_in_both_at_once(tmp_path: Path) -> None:
    """One of them is a copy of the other."""
    state = durable("a", "b")
    crash(tmp_path, state)
    prepared = dict(state.databases["b"].prepared)
    state.databases |= durable("copy").databases
    state.databases["copy"].prepared.update(prepared)
    with TransactionManager(tmp_path, state.resources(), **SETTINGS) as tm:
        assert whys(tm.recover()) == {"copy": LISTED_TWICE}
        assert tm.recover().clean
    assert balances(state) == {1}


def test_an_outcome_row_of_another_coordinator_is_kept(tmp_path: Path) -> None:
    """That one alone knows whether it needs the row."""
    state = durable("a", "other", "last")
    other = {"a": state.resources()["a"], "last": state.resources("last")["last"]}
    with (
        TransactionManager(
            tmp_path / "one", other, node="one", on_step=stop("after last last"), **SETTINGS
        ) as tm,
        pytest.raises(Crash),
    ):
        transfer(tm, ("a", "last"))
    mine = {"other": state.resources()["other"], "last": state.resources("last")["last"]}
    with TransactionManager(tmp_path / "two", mine, node="two", **SETTINGS) as tm:
        assert tm.recover().clean
    with TransactionManager(tmp_path / "one", other, node="one", **SETTINGS) as tm:
        report = tm.recover()
        assert report.clean
        assert not report.rolled_back
    assert state.databases["a"].values == state.databases["last"].values == {"balance": 1}


def test_a_branch_whose_heuristic_outcome_was_settled_is_not_rolled_back(tmp_path: Path) -> None:
    """It was decided once: its database comes back from a backup."""
    state = durable("a", "b")
    prepared: dict[Any, Any] = {}

    def copy(step: str) -> None:
        if step == "after decision":
            prepared.update(state.databases["b"].prepared)
            raise Crash(step)

    with (
        TransactionManager(tmp_path, state.resources(), on_step=copy, **SETTINGS) as tm,
        pytest.raises(Crash),
    ):
        transfer(tm, ("a", "b"))
    state.databases["b"].heuristic = True
    with TransactionManager(tmp_path, state.resources(), **SETTINGS) as tm:
        assert tm.recover().heuristic
        for gtrid in tm.decisions.heuristics():
            tm.decisions.settle(gtrid).wait()
    state.databases["b"].heuristic = False
    state.databases["b"].prepared.update(prepared)
    with TransactionManager(tmp_path, state.resources(), **SETTINGS) as tm:
        report = tm.recover()
        assert [name for name, _ in report.committed] == ["b"]
        assert not report.rolled_back
    assert balances(state) == {1}


def test_what_has_ended_somewhere_was_decided_for_good(tmp_path: Path) -> None:
    with TransactionManager(tmp_path, {}, **SETTINGS) as tm:
        for number, outcome in enumerate(DecisionOutcome):
            gtrid = bytes([number]) * 20
            tm.decisions.decide(gtrid, ["a"]).wait()
            tm.directory.finish(gtrid, ["a"], outcome)
            assert tm.directory.closed.among([gtrid]) == {gtrid}


def test_what_a_recovery_has_to_leave_is_tried_again_soon(tmp_path: Path) -> None:
    """As after a restart, where a server has not noticed yet that the former sessions are dead."""
    state = durable("a", "b")
    crash(tmp_path, state)
    state.databases["b"].away = True
    settings = SETTINGS | {"recovery_interval": 3600.0}
    with TransactionManager(tmp_path, state.resources(), **settings) as tm:
        assert not tm.recover().clean
        state.databases["b"].away = False
        deadline = time.monotonic() + 60
        while tm.decisions.open_decisions() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert balances(state) == {1}
