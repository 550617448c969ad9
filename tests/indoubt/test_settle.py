"""Branches settled by hand: what an operator ends must not tear what recovery ends."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tallystick.errors import TransactionUsageError
from tallystick.indoubt import settle as module
from tallystick.indoubt.settle import settle
from tallystick.services.transactions import ResourceUnreachable, TransactionManager
from tests.servers import Server
from tests.services.transactions.resources.test_databases import Bank
from tests.services.transactions.test_bad_days import recover_until_clean, stop
from tests.services.transactions.test_commit import Crash, balances, durable
from tests.services.transactions.test_recovery import SETTINGS, crash


@pytest.mark.parametrize("at", ["after decision", "before decision"])
def test_a_branch_beside_those_that_were_committed_by_hand_is_committed(
    tmp_path: Path, at: str
) -> None:
    """It is in a resource that the operator did not give."""
    state = durable("a", "b")
    crash(tmp_path, state, at)
    (xid,) = state.databases["b"].prepared
    given = {"b": state.resources()["b"]}
    assert settle(str(tmp_path), given, xid.gtrid, commit=True) == ["b: committed"]
    with TransactionManager(tmp_path, state.resources(), **SETTINGS) as tm:
        report = tm.recover()
        assert report.clean
        assert not report.rolled_back
    assert balances(state) == {1}


def test_a_branch_that_turns_up_after_the_word_of_an_operator_is_committed(tmp_path: Path) -> None:
    state = durable("a", "b")
    crash(tmp_path, state)
    hidden = dict(state.databases["b"].prepared)
    state.databases["b"].prepared.clear()
    (gtrid,) = {xid.gtrid for xid in hidden}
    settle(str(tmp_path), {"a": state.resources()["a"]}, gtrid, commit=True)
    settle(str(tmp_path), {"b": state.resources()["b"]}, gtrid, commit=True)
    state.databases["b"].prepared.update(hidden)
    with pytest.raises(TransactionUsageError, match="was decided: commit"):
        settle(str(tmp_path), {"b": state.resources()["b"]}, gtrid, commit=False)
    with TransactionManager(tmp_path, state.resources(), **SETTINGS) as tm:
        assert tm.recover().clean
    assert balances(state) == {1}


@pytest.mark.postgres
@pytest.mark.mariadb
def test_nothing_is_settled_in_another_database(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> None:
    bank = Bank(tmp_path, postgres_server, mariadb_server)
    node, right = tmp_path / "node", {name: bank.urls[name] for name in ("pg", "maria")}
    with TransactionManager(node, right, **SETTINGS) as tm:
        assert tm.recover().clean
    with (
        TransactionManager(node, right, on_step=stop("after decision"), **SETTINGS) as tm,
        pytest.raises(Crash),
        tm.begin() as tx,
    ):
        gtrid = tx.gtrid
        bank.pay(tx, "pg", 5)
        bank.pay(tx, "maria", 5)
    with psycopg.connect(right["pg"], autocommit=True) as pg:
        pg.execute(f"CREATE DATABASE settled{bank.account}")
    wrong = f"{right['pg'].rpartition('/')[0]}/settled{bank.account}"
    with pytest.raises(TransactionUsageError, match="database of 'pg' is another one"):
        settle(str(node), {"pg": wrong}, gtrid, commit=True)
    with TransactionManager(node, right, **SETTINGS) as tm:
        assert recover_until_clean(tm).clean
    assert bank.balances() == {"pg": 5, "maria": 5, "lite": 0}


def test_a_last_resource_that_hangs_keeps_no_operator_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, answers = durable("a", "b", "c"), threading.Event()
    crash(tmp_path, state, "before decision")
    resources = state.resources("c")
    monkeypatch.setattr(resources["c"], "has_outcome", lambda _: answers.wait(30))
    monkeypatch.setattr(module, "TransactionManager", partial(TransactionManager, call_timeout=0.1))
    (xid,) = state.databases["a"].prepared
    with pytest.raises(ResourceUnreachable, match=r"no answer within 0\.1 s"):
        settle(str(tmp_path), resources, xid.gtrid, commit=False)
    answers.set()
