"""Several processes coordinate from one directory; one is killed or stopped, the others go on."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallystick.errors import LogLockedError, TransactionUsageError
from tallystick.roles.coordinator_files import IDENTITIES
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.coordinator_dir import ClosedDecisions, Texts
from tallystick.services.transactions.recovery import RecoveryReport
from tallystick.services.transactions.xids import XidFactory, member_of, node_of, time_of
from tallystick.systems.registry import open_decision_log
from tests.servers import Server
from tests.services.transactions import killed
from tests.services.transactions.bank import Bank

_NAMES = ("pg", "maria")
_STEPS_MAX = 60


@contextmanager
def _manager(bank: Bank) -> Iterator[TransactionManager]:
    resources = {name: bank.urls[name] for name in _NAMES}
    with TransactionManager(
        bank.folder / "coordinator",
        resources,
        node=killed.NODE,
        shared=True,
        orphan_interval=0.0,
        recovery_interval=None,
    ) as tm:
        yield tm


def _recover(tm: TransactionManager) -> list[RecoveryReport]:
    """Recover until nothing is left: a session that died may hold its branch for a moment."""
    reports = []
    for _ in range(100):
        reports.append(tm.recover())
        if reports[-1].clean:
            return reports
        time.sleep(0.05)
    raise AssertionError(reports[-1])


def test_an_id_that_is_too_short_for_a_time_tells_none() -> None:
    assert time_of(b"gtxhyxq") is None


def test_ids_name_their_process_and_are_never_older_than_it() -> None:
    for member in (0, 7, 255):
        factory = XidFactory("node", member=member, since=1 << 45)
        ids = {factory.gtrid() for _ in range(1000)}
        assert len(ids) == 1000
        for gtrid in ids:
            assert (node_of(gtrid), time_of(gtrid)) == ("node", 1 << 45)
            assert member_of(gtrid) == member
    assert member_of(b"node-\xff\xff") is None


def test_small_files_of_the_directory_are_changed_by_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Texts(IDENTITIES, str(tmp_path)) for _ in range(2))
    one["a"], other["b"] = "first", "second"
    assert dict(one) == dict(other) == {"a": "first", "b": "second"}
    monkeypatch.setattr("tallystick.services.transactions.coordinator_dir.CLOSED_FILE_SIZE", 100)
    closed = [ClosedDecisions(tmp_path) for _ in range(2)]
    gtrids = [b"gtrid-%d" % number for number in range(8)]
    for number, gtrid in enumerate(gtrids):
        closed[number % 2].add(gtrid)
    found = closed[0].among(gtrids)
    assert found >= set(gtrids[-5:]), "the other process has not replaced what was just noted"
    for each in closed:
        each.close()


def test_a_directory_is_shared_by_all_or_by_none(tmp_path: Path) -> None:
    with TransactionManager(tmp_path, {}, shared=True, recovery_interval=None) as one:
        with TransactionManager(tmp_path, {}, shared=True, recovery_interval=None) as other:
            assert other.node == one.node
            other.recover()
        with pytest.raises(LogLockedError):
            TransactionManager(tmp_path, {})
    log = open_decision_log(tmp_path / "own")
    try:
        with pytest.raises(TransactionUsageError, match="only the native log"):
            TransactionManager(tmp_path, {}, shared=True, log=log)
    finally:
        log.close()


@pytest.fixture
def bank(tmp_path: Path, postgres_server: Server, mariadb_server: Server) -> Bank:
    return Bank(tmp_path, postgres_server, mariadb_server)


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.mariadb
def test_what_a_process_leaves_at_any_step_another_one_settles(bank: Bank) -> None:
    outcomes = set()
    with _manager(bank) as survivor:
        for step in itertools.count():
            before = sum(bank.balances(_NAMES)["maria"])
            whole = bank.run("step", step, (*_NAMES, "shared"))
            _recover(survivor)
            assert not survivor.decisions.open_decisions()
            balances = bank.balances(_NAMES)
            assert sum(balances["pg"]) == -sum(balances["maria"])
            outcomes.add(sum(balances["maria"]) - before)
            if whole:
                break
            assert step < _STEPS_MAX
    assert outcomes == {0, 1}
    bank.recover(_NAMES)


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.parametrize("step", ["before decision", "decision written", "after decision"])
def test_transactions_of_a_living_process_are_left_to_it(bank: Bank, step: str) -> None:
    with _manager(bank) as other:
        process = bank.start("stop", step, (*_NAMES, "shared"))
        stat = Path(f"/proc/{process.pid}/stat")
        deadline = time.monotonic() + 60
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        report = other.recover()
        assert {branch.why for branch in report.left} == {"live"}
        assert not report.committed
        assert not report.rolled_back
        os.kill(process.pid, signal.SIGCONT)
        output, _ = process.communicate(timeout=60)
        assert output == "done\n"
        assert not [one for one in _recover(other) if one.committed or one.rolled_back]
    assert sum(bank.balances(_NAMES)["maria"]) == 1
    bank.recover(_NAMES)


@pytest.mark.postgres
@pytest.mark.mariadb
def test_processes_under_load_are_killed_and_the_others_go_on(bank: Bank) -> None:
    acknowledged = 0
    names = (*_NAMES, "shared")
    with _manager(bank) as survivor:
        running = [bank.start("load", 3, names) for _ in range(2)]
        for _ in range(4):
            for process in running:
                for _ in range(20):
                    acknowledged += process.stdout.readline() == "done\n"
            victim = running.pop(random.randrange(2))
            victim.kill()
            output, _ = victim.communicate(timeout=60)
            acknowledged += output.splitlines().count("done")
            survivor.recover()
            running.append(bank.start("load", 3, names))
        for process in running:
            process.kill()
            output, _ = process.communicate(timeout=60)
            acknowledged += output.splitlines().count("done")
        _recover(survivor)
        assert not survivor.decisions.open_decisions()
    assert sum(bank.balances(_NAMES)["maria"]) >= acknowledged > 100
    bank.recover(_NAMES)
