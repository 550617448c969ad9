"""Drivers with the two-phase calls of PEP 249; Oracle as far as it goes without a server.

The stand-in for a database hands out connections with the signatures of python-oracledb's own
class, its ids and its errors: a call that the driver would refuse for its arguments fails here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, create_autospec

import oracledb
import pytest

from tallystick.errors import InDoubtError, RolledBackError, TransactionUsageError
from tallystick.records import Xid
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.resource import BranchUnknown, ResourceUnreachable
from tallystick.services.transactions.resources.pep249 import TpcResource, oracle_resource
from tests.services.transactions.model import DurableState, ModelLog

UNKNOWN = "ORA-24756: transaction does not exist"
LOST = "DPY-4011: the database or network closed the connection"


class Oracle:
    """What such a database keeps: branches that are prepared, and those that ended."""

    def __init__(self) -> None:
        self.prepared: list[oracledb.Xid] = []
        self.committed: list[oracledb.Xid] = []
        self.rolled_back: list[oracledb.Xid] = []
        self.fails: dict[str, str] = {}
        self.read_only = False

    def connect(self) -> Any:
        connection = create_autospec(oracledb.Connection, instance=True)
        current: list[oracledb.Xid] = []

        def end(into: list[oracledb.Xid], call: str) -> Callable[..., None]:
            def ended(xid: oracledb.Xid | None = None) -> None:
                self._fail(call)
                which = current.pop() if xid is None else xid
                if xid is not None and which not in self.prepared:
                    raise oracledb.DatabaseError(UNKNOWN)
                if which in self.prepared:
                    self.prepared.remove(which)
                into.append(which)

            return ended

        def prepare() -> bool:
            self._fail("tpc_prepare")
            if not self.read_only:
                self.prepared.append(current[-1])
            return not self.read_only

        connection.xid.side_effect = lambda *parts: oracledb.Connection.xid(connection, *parts)
        connection.tpc_begin.side_effect = lambda xid, **_: current.append(xid)
        connection.tpc_prepare.side_effect = prepare
        connection.tpc_commit.side_effect = end(self.committed, "tpc_commit")
        connection.tpc_rollback.side_effect = end(self.rolled_back, "tpc_rollback")
        connection.tpc_recover.side_effect = self._recover
        return connection

    def _recover(self) -> list[oracledb.Xid]:
        self._fail("tpc_recover")
        return list(self.prepared)

    def _fail(self, call: str) -> None:
        if call in self.fails:
            raise oracledb.DatabaseError(self.fails[call])


def manager(folder: Path, state: DurableState, *databases: Oracle) -> TransactionManager:
    resources = [
        oracle_resource(f"ora{number}", one.connect) for number, one in enumerate(databases)
    ]
    return TransactionManager(
        folder,
        {one.name: one for one in resources},
        node="node-1",
        log=ModelLog(state),
        orphan_interval=0.0,
        recovery_interval=None,
    )


def work(tm: TransactionManager) -> None:
    with tm.begin() as tx:
        for name in tm.resources:
            tx[name].cursor().execute("UPDATE accounts SET balance = balance + 1")


def test_two_databases_prepare_and_commit_one_global_id(tmp_path: Path) -> None:
    one, other, state = Oracle(), Oracle(), DurableState()
    with manager(tmp_path, state, one, other) as tm:
        for _ in range(2):
            work(tm)
        assert tm.recover().clean
    assert len(one.committed) == len(other.committed) == 2
    for mine, theirs in zip(one.committed, other.committed, strict=True):
        assert mine.global_transaction_id == theirs.global_transaction_id
        assert mine.branch_qualifier != theirs.branch_qualifier
    assert not one.prepared
    assert not other.prepared


def test_one_database_commits_in_one_phase(tmp_path: Path) -> None:
    only = Oracle()
    with manager(tmp_path, DurableState(), only) as tm:
        work(tm)
        assert tm.statistics.decisions == 0
    assert len(only.committed) == 1


def test_a_false_answer_to_prepare_is_a_read_only_vote(tmp_path: Path) -> None:
    one, reader = Oracle(), Oracle()
    reader.read_only = True
    with manager(tmp_path, DurableState(), one, reader) as tm:
        work(tm)
        assert tm.statistics.decisions == 0
    assert len(one.committed) == 1
    assert not reader.committed, "committing it would be answered with ORA-24756"


def test_a_refused_prepare_rolls_both_back(tmp_path: Path) -> None:
    one, other = Oracle(), Oracle()
    other.fails["tpc_prepare"] = "ORA-02091: transaction rolled back"
    with (
        manager(tmp_path, DurableState(), one, other) as tm,
        pytest.raises(RolledBackError, match="02091"),
    ):
        work(tm)
    assert not one.prepared
    assert not one.committed
    assert len(one.rolled_back) == 1


def test_a_commit_lost_after_the_decision_is_finished_by_recovery(tmp_path: Path) -> None:
    one, other = Oracle(), Oracle()
    with manager(tmp_path, DurableState(), one, other) as tm:
        other.fails["tpc_commit"] = LOST
        work(tm)
        assert len(other.prepared) == 1
        other.fails.clear()
        assert tm.recover().clean
    assert len(other.committed) == 1


def test_a_one_phase_commit_whose_answer_is_lost_is_in_doubt(tmp_path: Path) -> None:
    only = Oracle()
    only.fails["tpc_commit"] = LOST
    with manager(tmp_path, DurableState(), only) as tm, pytest.raises(InDoubtError):
        work(tm)


def test_branches_of_others_are_listed_and_settled_whatever_their_bytes() -> None:
    database = Oracle()
    foreign = Xid(7, b"\xff\x00gtrid", b"\x80")
    database.prepared.append(oracledb.Xid(7, foreign.gtrid, foreign.bqual))
    resource = oracle_resource("ora", database.connect)
    assert list(resource.in_doubt()) == [foreign]
    resource.rollback(foreign)
    assert not resource.in_doubt()
    with pytest.raises(BranchUnknown, match="24756"):
        resource.commit(foreign)
    database.fails["tpc_recover"] = LOST
    with pytest.raises(ResourceUnreachable, match="4011"):
        resource.in_doubt()
    resource.close()


def test_preflight_names_missing_rights_and_missing_calls() -> None:
    database = Oracle()
    resource = oracle_resource("ora", database.connect)
    assert not resource.preflight()
    database.fails["tpc_recover"] = "ORA-00942: table or view does not exist"
    (problem,) = resource.preflight()
    assert "may not list" in problem.what
    assert "DBA_PENDING_TRANSACTIONS" in problem.mend
    bare = TpcResource("bare", lambda: create_autospec(BareConnection, instance=True), oracledb)
    (problem,) = bare.preflight()
    assert "lacks xid, tpc_begin" in problem.what


class BareConnection:
    """A driver's connection without two-phase calls."""

    def close(self) -> None:
        """Nothing is held."""


def test_a_driver_that_takes_text_is_never_given_other_bytes() -> None:
    resource = TpcResource("text", Oracle().connect, oracledb)
    with pytest.raises(TransactionUsageError, match="only ids that are text"):
        resource.rollback(Xid(7, b"\xff", b""))


def test_a_kept_handle_of_oracle_is_dead_and_its_cursors_are_closed(tmp_path: Path) -> None:
    with manager(tmp_path, DurableState(), Oracle()) as tm:
        with tm.begin() as tx:
            handle = tx.connection("ora0", oracledb.Connection)
            cursor = handle.cursor(scrollable=True)
            handle.outputtypehandler = print
        cursor.close.assert_called_once()  # type: ignore[attr-defined]
        with pytest.raises(TransactionUsageError, match="is over"):
            handle.cursor()
        with pytest.raises(TransactionUsageError, match="is over"):
            handle.outputtypehandler = repr


def test_a_session_that_its_driver_does_not_end_keeps_no_other_one() -> None:
    oracle = Oracle()
    resource = oracle_resource("ora", oracle.connect)
    first, second = oracle.connect(), oracle.connect()
    first.cancel.side_effect = oracledb.InterfaceError("DPY-1001: not connected to database")
    with resource.watch(first), resource.watch(second):
        resource.reap(math.inf)
    second.cancel.assert_called_once()


@pytest.mark.parametrize(("status", "asked"), [("on", False), ("off", True), (None, True)])
def test_a_standby_is_not_asked_for_branches_in_doubt(status: str | None, asked: bool) -> None:
    connection = MagicMock()
    connection.tpc_recover.return_value = []
    connection.info.parameter_status.side_effect = {"in_hot_standby": status}.__getitem__
    resource = TpcResource("pg", lambda: connection, oracledb)
    with nullcontext() if asked else pytest.raises(ResourceUnreachable, match="its primary"):
        assert resource.in_doubt() == []
    assert connection.tpc_recover.called is asked
