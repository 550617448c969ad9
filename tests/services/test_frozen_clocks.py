"""A clock that a test of the application has frozen or moved holds up no wait, and ends no work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallystick import (
    BusyError,
    Journal,
    PageStore,
    RolledBackError,
    TransactionManager,
    WriteBehind,
)
from tallystick.services.write_behind import TargetDownError, WriteBehindSettings

_CLOCKS = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns")
_REAL = {name: getattr(time, name) for name in _CLOCKS}
Set = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Set]:
    """Freeze the clocks of `time` and what modules of ours hold of them; return what moves them."""
    now = [0.0]

    def frozen(name: str) -> Callable[[], float]:
        return lambda: int(now[0] * 1e9) if name.endswith("_ns") else now[0]

    fakes = {id(_REAL[name]): frozen(name) for name in _CLOCKS}
    for name in _CLOCKS:
        monkeypatch.setattr(time, name, fakes[id(_REAL[name])])
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("tallystick", "tallystick_fast"):
            for key, value in list(vars(module).items()):
                if id(value) in fakes:
                    monkeypatch.setattr(module, key, fakes[id(value)])
    yield lambda seconds: now.__setitem__(0, seconds)
    monkeypatch.undo()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("moment", [0.0, 1e9, -1e9])
def test_every_wait_with_a_limit_ends(clock: Set, moment: float, tmp_path: Path) -> None:
    clock(moment)
    with Journal(tmp_path / "log") as log:
        log.append(b"one")
        assert [one.body for one in log.follow(idle_s=0.05)] == [b"one"]
    with PageStore(tmp_path / "store", lock_timeout=0.05) as store:
        store.create_table("items")
        with store.begin() as first, store.begin() as second:
            first.table("items")[1] = b"first"
            with pytest.raises(BusyError):
                second.table("items")[1] = b"second"

    def away(entry: object) -> None:  # noqa: ARG001
        raise TargetDownError("no route")

    settings = WriteBehindSettings(close_timeout=0.05)
    with WriteBehind(tmp_path / "spool", {"shop": away}, settings=settings) as behind:
        with behind.begin() as tx:
            tx.insert("orders", {"id": 1}, {"state": "new"})
        assert not behind.drain(timeout=0.05)


@pytest.mark.timeout(60)
def test_the_time_limit_of_a_transaction_is_of_time_that_passes(clock: Set, tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "a") as one,
        Journal(tmp_path / "b") as two,
        TransactionManager(tmp_path / "coordinator", {"a": one, "b": two}) as manager,
    ):
        clock(1e6)
        with manager.begin() as tx:
            tx["a"].add(1, b"1")
            clock(2e6)  # days later, as a test has it that lets a voucher expire
            tx["b"].add(1, b"2")
        with pytest.raises(RolledBackError), manager.begin(timeout=0.05) as tx:
            tx["a"].add(2, b"late")
            tx["b"].add(2, b"late")
            time.sleep(0.2)
        assert manager.recover().clean
        assert [record.body for record in two.live_records()] == [b"2"]


@pytest.mark.timeout(60)
def test_processes_that_share_a_log_need_no_clock_that_is_right(clock: Set, tmp_path: Path) -> None:
    clock(0.0)
    with Journal(tmp_path / "log", shared=True) as leader:
        leader.append(b"leader")
        clock(1e9)
        with Journal(tmp_path / "log", shared=True) as member:
            member.append(b"member")
            leader.close()
            clock(-1e9)
            member.append(b"new leader")
            assert len(list(member.replay())) == 3


def test_what_is_in_doubt_keeps_its_number_and_ids_though_the_clock_was_set_back(
    clock: Set, tmp_path: Path
) -> None:
    clock(1e9)
    with Journal(tmp_path / "log", system="jboss") as log:
        left = log.transaction()
        left.append(b"in doubt")
        left.prepare()
    with Journal(tmp_path / "log", system="jboss") as log:
        log.append(b"later")
        with log.transaction() as tx:
            tx.append(b"the next")
        log.commit_prepared(left.number)
        live = list(log.live_records())
    assert sorted(one.body for one in live) == [b"in doubt", b"later", b"the next"]
    assert len({one.record_id for one in live}) == 3
