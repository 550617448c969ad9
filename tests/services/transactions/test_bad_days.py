"""Bad days without a crash of ours: sessions that linger, databases mixed up, helping hands."""

from __future__ import annotations

import copy as copying
import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from click.testing import CliRunner

from tallystick.cli.act.indoubt import command as indoubt_command
from tallystick.errors import (
    HeuristicError,
    LogUnreadableError,
    RolledBackError,
    TransactionUsageError,
)
from tallystick.indoubt.settle import open_store, settle
from tallystick.roles.coordinator_files import CLOSED_FILE
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager, coordinator_dir
from tallystick.services.transactions.recovery import (
    HELD,
    HEURISTIC,
    NO_RESOURCE,
    UNPROVED,
    RecoveryReport,
)
from tallystick.services.transactions.resources.sqlalchemy import from_engine
from tallystick.storage.files import File
from tallystick.testing import Fault, FaultyFileSystem, MemoryFileSystem
from tests.servers import Server
from tests.services.transactions.model import DurableState
from tests.services.transactions.resources.test_databases import Bank
from tests.services.transactions.test_commit import Crash, balances, durable, manager, transfer


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


def stop(at: str) -> Any:
    """Return an observer that stops the coordinator at a step."""

    def observe(step: str) -> None:
        if step == at:
            raise Crash(step)

    return observe


def decided_and_stopped(bank: Bank) -> None:
    """Leave a decided transfer whose branches are prepared in both databases."""
    with (
        bank.manager("pg", "maria", on_step=stop("after decision")) as tm,
        pytest.raises(Crash),
        tm.begin() as tx,
    ):
        bank.pay(tx, "pg", 5)
        bank.pay(tx, "maria", 5)


def recover_until(tm: TransactionManager, ends: Callable[[RecoveryReport], bool]) -> RecoveryReport:
    """Recover again while sessions that ended hold branches; return the last report."""
    for _ in range(100):
        report = tm.recover()
        if ends(report):
            break
        time.sleep(0.05)
    return report


def recover_until_clean(tm: TransactionManager) -> RecoveryReport:
    return recover_until(tm, lambda report: report.clean)


def whys(report: RecoveryReport) -> dict[str, str]:
    return {one.resource: one.why for one in report.left}


@pytest.mark.postgres
@pytest.mark.mariadb
def test_a_branch_that_another_session_holds_is_not_over(bank: Bank) -> None:
    """MariaDB lists it, and yet answers XA COMMIT with XAER_NOTA."""
    kept: list[int] = []

    def lose_the_session(step: str) -> None:
        if step == "after decision":
            raw = tx.branches["maria"].raw  # type: ignore[union-attr]
            kept.append(os.dup(raw._sock.fileno()))  # the server sees no end of the connection
            raw._force_close()
            raise Crash(step)

    with bank.manager("pg", "maria", on_step=lose_the_session) as tm:
        tx = tm.begin()
        with pytest.raises(Crash), tx:
            bank.pay(tx, "pg", 5)
            bank.pay(tx, "maria", 5)
    with bank.manager("pg", "maria") as tm:
        report = tm.recover()
        assert not report.clean
        assert whys(report) == {"maria": HELD}
        assert [names.resources for names in tm.decisions.open_decisions().values()] == [
            frozenset({"maria"})
        ]
        os.close(kept.pop())
        assert recover_until_clean(tm).clean
    assert bank.balances() == {"pg": 5, "maria": 5, "lite": 0}


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("known", [False, True], ids=["never met", "noted"])
def test_another_database_under_the_name_answers_nothing(bank: Bank, known: bool) -> None:
    if known:
        with bank.manager("pg", "maria") as tm:
            assert tm.recover().clean
    decided_and_stopped(bank)
    right = bank.urls["pg"]
    with psycopg.connect(right, autocommit=True) as pg:
        pg.execute(f"CREATE DATABASE wrong{bank.account}")
    bank.urls["pg"] = f"{right.rpartition('/')[0]}/wrong{bank.account}"
    for _ in range(2):
        with bank.manager("pg", "maria") as tm:
            report = recover_until(
                tm, lambda one: bool(one.unreachable) or whys(one) == {"pg": UNPROVED}
            )
            assert not report.clean
            assert report.open_decisions == 1
            if known:
                assert "another database" in report.unreachable["pg"]
            else:
                assert whys(report) == {"pg": UNPROVED}
    bank.urls["pg"] = right
    with bank.manager("pg", "maria") as tm:
        assert recover_until_clean(tm).clean
    assert bank.balances() == {"pg": 5, "maria": 5, "lite": 0}


@pytest.mark.postgres
@pytest.mark.mariadb
def test_another_database_of_a_last_resource_decides_nothing(bank: Bank) -> None:
    with bank.manager("pg", "lite") as tm:
        assert tm.recover().clean
    with (
        bank.manager("pg", "lite", on_step=stop("after last lite")) as tm,
        pytest.raises(Crash),
        tm.begin() as tx,
    ):
        bank.pay(tx, "pg", 5)
        bank.pay(tx, "lite", 5)
    right = bank.urls["lite"]
    bank.urls["lite"] = f"sqlite:///{bank.folder}/other.db"
    with bank.manager("pg", "lite") as tm:
        report = tm.recover()
        assert "another database" in report.unreachable["lite"]
        assert not report.rolled_back
    bank.urls["lite"] = right
    with bank.manager("pg", "lite") as tm:
        assert tm.recover().clean
    assert bank.balances() == {"pg": 5, "maria": 0, "lite": 5}


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_a_branch_rolled_back_by_hand_is_named_until_it_is_settled(bank: Bank, name: str) -> None:
    decided_and_stopped(bank)
    with bank.manager("pg", "maria") as tm:
        (xid,) = tm.resources[name].in_doubt()
        for _ in range(100):  # the session that died holds it for a moment
            try:
                tm.resources[name].rollback(xid)
            except Exception:
                time.sleep(0.05)
            else:
                break
    for _ in range(2):
        with bank.manager("pg", "maria") as tm:
            report = recover_until(tm, lambda one: whys(one) == {name: UNPROVED})
            assert whys(report) == {name: UNPROVED}
            assert not report.clean
    paid = {"pg": 5, "maria": 5, "lite": 0}
    assert bank.balances() == paid | {name: 0}


@pytest.mark.postgres
@pytest.mark.mariadb
def test_rows_of_closed_decisions_are_deleted(bank: Bank) -> None:
    with bank.manager("pg", "maria") as tm:
        for _ in range(3):
            with tm.begin() as tx:
                bank.pay(tx, "pg", 1)
                bank.pay(tx, "maria", 1)
        before = {name: len(one.outcomes()) for name, one in tm.resources.items()}  # type: ignore[attr-defined]
        assert min(before.values()) >= 3
        assert tm.recover().clean
        after = {name: len(one.outcomes()) for name, one in tm.resources.items()}  # type: ignore[attr-defined]
        assert after == {name: count - 3 for name, count in before.items()} or not any(
            after.values()
        )


def without_proof() -> DurableState:
    """Databases that keep no outcome rows."""
    state = durable("a", "b")
    for database in state.databases.values():
        database.proves = False
    return state


def test_an_end_that_nothing_proves_stays_open_and_is_named(tmp_path: Path) -> None:
    state = without_proof()
    with (
        manager(tmp_path, state, on_step=stop("after commit a")) as tm,
        pytest.raises(Crash),
    ):
        transfer(tm, ("a", "b"))
    for _ in range(2):
        with manager(tmp_path, state) as tm:
            report = tm.recover()
            assert whys(report) == {"a": UNPROVED}
            assert not report.clean
    assert balances(state) == {1}


def test_a_decision_for_a_resource_that_is_not_given_is_named(tmp_path: Path) -> None:
    state = durable("a", "b")
    with manager(tmp_path, state, on_step=stop("after decision")) as tm, pytest.raises(Crash):
        transfer(tm, ("a", "b"))
    state.databases.pop("b")
    with manager(tmp_path, state) as tm:
        report = tm.recover()
        assert whys(report) == {"b": NO_RESOURCE}


def test_a_branch_that_turns_up_after_a_heuristic_outcome_is_not_rolled_back(
    tmp_path: Path,
) -> None:
    state = durable("a", "b")
    hidden: dict[Any, Any] = {}

    def hide(step: str) -> None:
        if step == "after decision":
            hidden.update(state.databases["b"].prepared)
            state.databases["b"].prepared.clear()

    with manager(tmp_path, state, on_step=hide) as tm, pytest.raises(HeuristicError):
        transfer(tm, ("a", "b"))
    state.databases["b"].prepared.update(hidden)
    for _ in range(2):
        with manager(tmp_path, state) as tm:
            report = tm.recover()
            assert whys(report) == {"b": HEURISTIC}
            assert not report.rolled_back
    assert state.databases["b"].prepared


def test_an_operator_ends_a_decision_that_nothing_proves(tmp_path: Path) -> None:
    state = without_proof()
    with (
        TransactionManager(
            tmp_path, state.resources(), recovery_interval=None, on_step=stop("after commit a")
        ) as tm,
        pytest.raises(Crash),
    ):
        transfer(tm, ("a", "b"))
    with TransactionManager(tmp_path, state.resources(), recovery_interval=None) as tm:
        (left,) = tm.recover().left
    (done,) = settle(str(tmp_path), state.resources(), left.xid.gtrid, commit=True)
    assert done == "a: recorded as committed, on the operator's word"
    with TransactionManager(tmp_path, state.resources(), recovery_interval=None) as tm:
        assert tm.recover().clean


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_what_sqlalchemy_rolled_back_is_not_committed(bank: Bank, name: str) -> None:
    driver = {"pg": "postgresql+psycopg", "maria": "mariadb+pymysql"}[name]
    engine = sqlalchemy.create_engine(f"{driver}://{bank.urls[name].partition('://')[2]}")
    pay = sqlalchemy.text("UPDATE accounts SET balance = balance + 1 WHERE id = :id")
    again = sqlalchemy.text("INSERT INTO accounts VALUES (:id, 100)")
    account = {"id": bank.account}

    def undone_by_session(connection: sqlalchemy.Connection) -> None:
        with sqlalchemy.orm.Session(bind=connection) as session:
            session.execute(pay, account)
            session.rollback()

    def undone_by_connection(connection: sqlalchemy.Connection) -> None:
        connection.execute(pay, account)
        connection.rollback()

    def undone_by_an_error(connection: sqlalchemy.Connection) -> None:
        with sqlalchemy.orm.Session(bind=connection) as session:
            session.execute(pay, account)
            with pytest.raises(sqlalchemy.exc.IntegrityError):
                session.execute(again, account)
            session.rollback()

    def undone_in_part(connection: sqlalchemy.Connection) -> None:
        with sqlalchemy.orm.Session(bind=connection) as session:
            session.execute(pay, account)
            with pytest.raises(sqlalchemy.exc.IntegrityError), session.begin_nested():
                session.execute(again, account)
            session.commit()

    with bank.manager("lite") as tm:
        tm.resources[name] = from_engine(name, engine)
        for work in (undone_by_session, undone_by_connection, undone_by_an_error):
            for others in (True, False):
                with pytest.raises(RolledBackError), tm.begin() as tx:
                    if others:
                        bank.pay(tx, "lite", 1)
                    work(tx[name])
        with tm.begin() as tx:
            bank.pay(tx, "lite", 1)
            undone_in_part(tx[name])
        assert tm.recover().clean
    engine.dispose()
    assert bank.balances() == {"pg": 0, "maria": 0} | {name: 1, "lite": 1}


@pytest.mark.postgres
@pytest.mark.mariadb
def test_a_child_process_leaves_the_transactions_of_its_parent_alone(bank: Bank) -> None:
    with bank.manager("pg", "maria") as tm, tm.begin() as tx:
        bank.pay(tx, "pg", 1)
        bank.pay(tx, "maria", 1)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (tm.begin, tm.recover, lambda: tx["pg"], tx.commit, tx.rollback):
                try:
                    call()
                except TransactionUsageError as error:
                    refused += "forked" in str(error)
            tm.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        bank.pay(tx, "pg", 1)
        bank.pay(tx, "maria", 1)
    assert bank.balances() == {"pg": 2, "maria": 2, "lite": 0}


@pytest.mark.postgres
@pytest.mark.mariadb
def test_undecided_branches_of_a_dead_process_are_rolled_back_at_once(bank: Bank) -> None:
    """Its lock of the directory is gone: nobody can decide them any more."""
    resources = {name: bank.urls[name] for name in ("pg", "maria")}
    settings: dict[str, Any] = {"recovery_interval": None, "orphan_interval": 3600.0}
    node = bank.folder / "node"
    child = os.fork()
    if child == 0:
        tm = TransactionManager(node, resources, on_step=die_after("after prepare"), **settings)
        with tm.begin() as tx:
            bank.pay(tx, "pg", 5)
            bank.pay(tx, "maria", 5)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with TransactionManager(node, resources, **settings) as tm:
        report = recover_until_clean(tm)
        assert report.clean
    assert bank.balances() == {"pg": 0, "maria": 0, "lite": 0}
    with psycopg.connect(bank.urls["pg"]) as pg:  # the lock of the row is released
        pg.execute("SET lock_timeout = '1s'")
        pg.execute("UPDATE accounts SET balance = 0 WHERE id = %s", (bank.account,))


def die_after(at: str) -> Any:
    """Return an observer that ends the process after the second step of this kind."""
    seen: list[str] = []

    def observe(step: str) -> None:
        if step.startswith(at):
            seen.append(step)
        if len(seen) == 2:
            os._exit(9)

    return observe


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("listed", [True, False], ids=["in doubt", "committed before"])
@pytest.mark.parametrize("name", ["pg", "maria"])
def test_a_renamed_resource_closes_the_decisions_for_its_old_name(
    bank: Bank, name: str, listed: bool
) -> None:
    with bank.manager("pg", "maria") as tm:
        assert tm.recover().clean
    decided_and_stopped(bank)
    if not listed:  # committed, and the coordinator stopped before it could note that
        with bank.manager("pg", "maria") as tm:
            resource = tm.resources[name]
            for xid in resource.in_doubt():
                if xid.gtrid in tm.decisions.open_decisions():
                    resource.commit(xid)
    bank.urls["renamed"] = bank.urls[name]
    names = {"pg", "maria", "renamed"} - {name}
    with bank.manager(*names) as tm:
        assert recover_until_clean(tm).clean
        assert not tm.decisions.open_decisions()
    assert bank.balances() == {"pg": 5, "maria": 5, "lite": 0}


def test_a_resource_that_is_gone_for_ever_can_be_settled(tmp_path: Path) -> None:
    state = durable("a", "b")
    node = tmp_path / "node"
    settings: dict[str, Any] = {"recovery_interval": None}
    with (
        TransactionManager(
            node, state.resources(), on_step=stop("after decision"), **settings
        ) as tm,
        pytest.raises(Crash),
    ):
        transfer(tm, ("a", "b"))
    state.databases.pop("b")
    with TransactionManager(node, state.resources(), **settings) as tm:
        report = tm.recover()
        assert whys(report) == {"b": NO_RESOURCE}
        (gtrid,) = tm.decisions.open_decisions()
    with pytest.raises(TransactionUsageError, match="waits for b"):
        settle(str(node), {}, gtrid, commit=True)
    assert settle(str(node), {}, gtrid, commit=True, force=True) == [
        "b: recorded as committed, on the operator's word"
    ]
    with TransactionManager(node, state.resources(), **settings) as tm:
        assert tm.recover().clean


def pay_in_stores(node: Path, on_step: Any, **stores: PageStore | Journal) -> bytes:
    """Write to each store in one transaction, and stop at a step; return its global id."""
    gtrids: list[bytes] = []
    tm = TransactionManager(node, stores, on_step=on_step, recovery_interval=None)
    with tm, pytest.raises(Crash), tm.begin() as tx:
        gtrids.append(tx.gtrid)
        for name, store in stores.items():
            if isinstance(store, PageStore):
                tx[name].table("accounts")[1] = b"5"
            else:
                tx[name].add(1, b"paid")
    return gtrids[0]


def new_store(folder: Path) -> PageStore:
    store = PageStore(folder)
    store.create_table("accounts")
    return store


def row(store: PageStore) -> bytes | None:
    with store.begin() as tx:
        return tx.table("accounts").get(1)


def test_a_store_that_committed_before_the_end_was_noted_proves_it(tmp_path: Path) -> None:
    one, two = new_store(tmp_path / "one"), new_store(tmp_path / "two")
    with one, two:
        pay_in_stores(tmp_path / "node", stop("after commit one"), one=one, two=two)
    one, two = PageStore(tmp_path / "one"), PageStore(tmp_path / "two")
    with one, two:
        stores = {"one": one, "two": two}
        with TransactionManager(tmp_path / "node", stores, recovery_interval=None) as tm:
            assert tm.recover().clean
            assert tm.recover().clean
            for name in stores:  # the rows of outcomes are deleted
                assert not tm.resources[name].outcomes()  # type: ignore[attr-defined]
        assert row(one) == row(two) == b"5"


def test_a_store_that_was_rolled_back_by_hand_is_named(tmp_path: Path) -> None:
    one, two = new_store(tmp_path / "one"), new_store(tmp_path / "two")
    with one, two:
        pay_in_stores(tmp_path / "node", stop("after decision"), one=one, two=two)
    one, two = PageStore(tmp_path / "one"), PageStore(tmp_path / "two")
    with one, two:
        for branch in one.in_doubt():
            one.settle(branch.name, commit=False)
        stores = {"one": one, "two": two}
        with TransactionManager(tmp_path / "node", stores, recovery_interval=None) as tm:
            report = tm.recover()
            assert not report.clean
            assert whys(report) == {"one": UNPROVED}


def test_another_store_under_the_name_is_refused(tmp_path: Path) -> None:
    one, two = new_store(tmp_path / "one"), new_store(tmp_path / "two")
    with one, two:
        stores: dict[str, Any] = {"one": one, "two": two}
        with TransactionManager(tmp_path / "node", stores, recovery_interval=None) as tm:
            assert tm.recover().clean
        pay_in_stores(tmp_path / "node", stop("after decision"), one=one, two=two)
    other, two = new_store(tmp_path / "other"), PageStore(tmp_path / "two")
    with other, two:
        stores = {"one": other, "two": two}
        with TransactionManager(tmp_path / "node", stores, recovery_interval=None) as tm:
            report = tm.recover()
            assert "another database" in report.unreachable["one"]
            assert report.open_decisions == 1


@pytest.mark.parametrize("commit", [True, False])
def test_embedded_stores_are_settled_from_the_command_line(tmp_path: Path, commit: bool) -> None:
    store, mail = new_store(tmp_path / "store"), Journal(tmp_path / "mail")
    gtrid = b""

    def copy(step: str) -> None:  # as the process that is killed here leaves them
        if step == ("after decision" if commit else "after prepare mail"):
            for name in ("store", "mail", "node"):
                shutil.copytree(tmp_path / name, tmp_path / "left" / name)

    with store, mail:
        stores: dict[str, Any] = {"store": store, "mail": mail}
        with (
            TransactionManager(
                tmp_path / "node", stores, on_step=copy, recovery_interval=None
            ) as tm,
            tm.begin() as tx,
        ):
            gtrid = tx.gtrid
            tx["store"].table("accounts")[1] = b"5"
            tx["mail"].add(1, b"paid")
    left = tmp_path / "left"
    lines = [f"store=page-store:{left}/store", f"mail=journal:{left}/mail"]
    resources = [part for line in lines for part in ("--resource", line)]
    outcome = "--commit" if commit else "--rollback"
    arguments = ["settle", str(left / "node"), gtrid.hex(), *resources, outcome, "--yes"]
    result = CliRunner().invoke(indoubt_command, arguments)
    assert result.exit_code == 0, result.output
    listed = CliRunner().invoke(indoubt_command, ["list", *resources])
    assert "would write" in listed.output
    with PageStore(left / "store") as store, Journal(left / "mail") as mail:
        assert row(store) == (b"5" if commit else None)
        assert [one.body for one in mail.live_records()] == ([b"paid"] if commit else [])


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for kind in ("page-store", "journal"):
        with pytest.raises(TransactionUsageError, match="there is no"):
            open_store("store", f"{kind}:{tmp_path}/none")
    assert not list(tmp_path.iterdir())


def test_a_branch_that_comes_back_with_a_backup_is_not_rolled_back(tmp_path: Path) -> None:
    """Its decision is closed, and the log has forgotten it."""
    state = durable("a", "b")
    backup: dict[str, Any] = {}

    def copy(step: str) -> None:
        if step == "after decision":
            backup.update(copying.deepcopy(state.databases["b"].__dict__))

    settings: dict[str, Any] = {"recovery_interval": None, "orphan_interval": 0.0}
    node = tmp_path / "node"
    with TransactionManager(node, state.resources(), on_step=copy, **settings) as tm:
        transfer(tm, ("a", "b"))
        assert not tm.decisions.open_decisions()
    committed = balances(state)
    state.databases["b"].__dict__.update(backup)
    assert balances(state) != committed
    with TransactionManager(node, state.resources(), **settings) as tm:
        report = tm.recover()
        assert report.clean
        assert [name for name, _ in report.committed] == ["b"]
        assert not report.rolled_back
    assert balances(state) == committed


def test_closed_decisions_are_remembered_across_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_dir, "CLOSED_FILE_SIZE", 100)
    closed = coordinator_dir.ClosedDecisions(tmp_path)
    gtrids = [bytes([number]) * 20 for number in range(9)]
    for gtrid in gtrids[:5]:
        closed.add(gtrid)
    closed.close()
    with (tmp_path / "closed").open("ab") as file:
        file.write(b"0505")  # a line that a power cut has shortened
    again = coordinator_dir.ClosedDecisions(tmp_path)
    for gtrid in gtrids[6:]:
        again.add(gtrid)
    assert {*gtrids[6:]} <= again.among(gtrids)
    assert gtrids[5] not in again.among(gtrids)
    assert again.among([]) == set()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 500
    again.close()


def test_notes_that_cannot_be_forced_to_disk_stop_neither_recovery_nor_the_release_of_the_lock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = MemoryFileSystem()
    with (
        pytest.MonkeyPatch.context() as patch,
        TransactionManager("/tm", {}, fs=memory, recovery_interval=None) as tm,
    ):
        tm.directory.closed.add(b"gtrid")
        patch.setattr(type(tm.directory.closed._file), "datasync", _refused)
        assert tm.recover().clean
    assert caplog.text.count("cannot be forced to disk") == 2
    TransactionManager("/tm", {}, fs=memory, recovery_interval=None).close()


def test_notes_that_cannot_be_read_are_an_error_that_is_documented() -> None:
    """Recovery must not take a branch for one that was never decided."""
    faulty = FaultyFileSystem(MemoryFileSystem())
    closed = coordinator_dir.ClosedDecisions(Path("/tm"), faulty)
    closed.add(b"gtrid")
    faulty.fault = Fault(1, calls={"open"}, error=errno.EMFILE)
    with pytest.raises(LogUnreadableError, match="cannot open"):
        closed.among([b"gtrid"])
    assert closed.among([b"gtrid"]) == {b"gtrid"}
    closed.close()


def _refused(file: File) -> None:
    if file.path.endswith("/closed"):
        raise OSError(errno.EIO, "the disk is gone")


def test_a_link_in_place_of_the_closed_decisions_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / CLOSED_FILE).symlink_to(tmp_path / "target")
    closed = coordinator_dir.ClosedDecisions(tmp_path / "closed")
    closed.add(b"gtrid")
    closed.close()
    assert (tmp_path / "target").read_bytes() == b"precious"
