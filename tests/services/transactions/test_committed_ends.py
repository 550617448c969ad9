"""The ends of committed transactions: noted, then recorded, whichever thread does it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import LogPoisonedError
from tallystick.roles import DecisionOutcome
from tallystick.services.transactions.coordinator_dir import ClosedDecisions, CommittedEnds
from tallystick.services.transactions.manager import TransactionManager
from tallystick.storage.local import LocalFile, LocalFileSystem


class Log:
    """A decision log that keeps the ends it is given, and checks that each was noted before."""

    def __init__(self, closed: ClosedDecisions) -> None:
        self.closed = closed
        self.ends: list[bytes] = []
        self.before: Callable[[bytes], object] = lambda _: None

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        assert (list(resources), outcome) == (["a"], DecisionOutcome.COMMITTED)
        assert self.closed.among([gtrid]) == {gtrid}, "noted before it is recorded"
        self.before(gtrid)
        self.ends.append(gtrid)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    closed = ClosedDecisions(tmp_path)
    yield Log(closed)
    closed.close()


def ends_of(log: Any) -> CommittedEnds:
    return CommittedEnds(log.closed, log)


def test_every_end_of_many_threads_is_recorded_once(log: Log) -> None:
    ends = ends_of(log)
    gtrids = [[b"gtrid-%d-%d" % (one, count) for count in range(20)] for one in range(8)]

    def work(mine: list[bytes]) -> None:
        for gtrid in mine:
            ends.add(gtrid, ["a"])

    threads = [threading.Thread(target=work, args=[mine]) for mine in gtrids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(log.ends) == sorted(gtrid for mine in gtrids for gtrid in mine)


def test_an_end_is_left_to_the_thread_that_records_others(log: Log) -> None:
    ends = ends_of(log)

    def meanwhile(gtrid: bytes) -> None:
        if gtrid == b"first":
            other = threading.Thread(target=ends.add, args=[b"second", ["a"]])
            other.start()
            other.join()
            assert log.ends == [], "the other thread has not waited"

    log.before = meanwhile
    ends.add(b"first", ["a"])
    assert log.ends == [b"first", b"second"]


def test_an_interrupted_recording_loses_no_end(log: Log) -> None:
    ends = ends_of(log)

    def interrupt(_: bytes) -> None:
        log.before = lambda _: None
        raise KeyboardInterrupt

    log.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        ends.add(b"first", ["a"])
    ends.record()
    assert log.ends == [b"first"]


def test_a_log_that_refuses_an_end_records_the_others(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    ends = ends_of(log)

    def refuse(gtrid: bytes) -> None:
        if gtrid == b"first":
            ends.add(b"second", ["a"])
            raise LogPoisonedError("a write failed")

    log.before = refuse
    with caplog.at_level(logging.CRITICAL, "tallystick.transactions"):
        ends.add(b"first", ["a"])
    assert log.ends == [b"second"]
    (record,) = caplog.records
    assert record.message.startswith("the log cannot record an end (resources: ")
    assert record.__dict__["gtrid"] == b"first".hex()


@pytest.mark.parametrize("asked", [TransactionManager.recover, TransactionManager.close])
def test_recovery_and_close_find_what_a_thread_has_left_to_another(
    tmp_path: Path, asked: Callable[[TransactionManager], object]
) -> None:
    def opened() -> TransactionManager:
        return TransactionManager(tmp_path, {}, node="shop", recovery_interval=None)

    gtrid = b"shop" + b"0" * 12
    with opened() as manager:
        manager.decisions.decide(gtrid, ("a",)).wait()
        manager.directory.ends._waiting.append((gtrid, ("a",)))
        asked(manager)
    with opened() as manager:
        assert manager.decisions.open_decisions() == {}
        assert manager.directory.closed.among([gtrid]) == {gtrid}
        assert manager.recover().clean


def test_a_commit_waits_for_no_sync_of_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an event loop it would stop all tasks."""
    closed, syncing, go_on = ClosedDecisions(tmp_path), threading.Event(), threading.Event()
    synced_in: list[int] = []

    def slow(*_: object) -> None:
        synced_in.append(threading.get_ident())
        syncing.set()
        assert go_on.wait(60)

    monkeypatch.setattr(LocalFileSystem, "sync_dir", slow)
    monkeypatch.setattr(LocalFile, "datasync", slow)
    closed.add(b"first")
    sync = threading.Thread(target=closed.sync)
    sync.start()
    assert syncing.wait(60)
    closed.add(b"second")
    go_on.set()
    sync.join()
    assert threading.get_ident() not in synced_in
    assert closed.among([b"first", b"second"]) == {b"first", b"second"}
    closed.close()
