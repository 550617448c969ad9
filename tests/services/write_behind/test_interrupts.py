"""Signals before every bytecode of write-behind's calls: what is in the log reaches its target."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tallystick.errors import LogFullError
from tallystick.roles import PersistEntry
from tallystick.services.write_behind import (
    WriteBehind,
    WriteBehindSettings,
    WriteBehindTransaction,
)
from tallystick.testing import Fault, FaultyFileSystem, MemoryFileSystem
from tests.interrupts import Tally, bytecodes_of, handlers, interrupted
from tests.services.write_behind.kit import Recorder, quick
from tests.sweeps import Sweep


class Rows:
    """A service, and the numbers that have reached its target."""

    def __init__(self, path: Path) -> None:
        self.applied: set[str] = set()
        self.behind = WriteBehind(
            path, {"rows": self._apply}, settings=WriteBehindSettings(attempts_max=1)
        )
        self._numbers = count(1)
        self.reference = ""
        self.returned = False

    def _apply(self, entry: PersistEntry) -> None:
        if entry.reference == "refused":
            raise ValueError("refused")
        assert len(entry.operations) == 2
        self.applied.add(entry.reference)

    def commit(self) -> None:
        self.returned, self.reference = False, str(next(self._numbers))
        with self.behind.begin(self.reference) as tx:
            tx.insert("rows", {"id": self.reference}, {"state": 1})
            tx.update("rows", {"id": 0}, {"last": self.reference})
        self.returned = True

    def commit_and_drain(self) -> None:
        self.commit()
        assert self.behind.drain(60)

    def watch(self) -> None:
        self.commit()
        for one in self.behind.pending():
            assert self.behind.find(one.number) in (one, None)
            assert self.behind.backlog.count <= 1
            assert self.behind.wait(one.number, 60)
        assert self.behind.drain(60)

    def operate(self) -> None:
        self.returned, self.reference = False, "refused"
        with self.behind.begin(self.reference) as tx:
            tx.insert("rows", {"id": "refused"}, {"state": 1})
        number = self.set_aside()
        self.behind.retry(number)
        self.set_aside()
        self.behind.discard(number)

    def set_aside(self) -> int:
        """Return the number of the transaction that is set aside, once it is."""
        while (one := self.behind.pending()[0]).targets[0].state != "set aside":
            self.behind.wait(one.number, 0.001)
        return one.number

    def check(self, _error: BaseException | None) -> None:
        with ThreadPoolExecutor(1) as another:
            another.submit(self._check, self.reference).result(60)
        self.returned = False  # if the next call is interrupted before its first statement

    def _check(self, reference: str) -> None:
        with self.behind.begin("another") as tx:
            tx.insert("rows", {"id": 0}, {"state": 1})
            tx.delete("rows", {"id": 0})
        for _ in self.behind.pending("refused"):
            self.behind.discard(self.set_aside())
        assert self.behind.drain(60)
        assert not self.behind.pending()
        assert "another" in self.applied
        assert reference in (*self.applied, "refused") or not self.returned, "lost"
        self.applied.clear()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("call", [Rows.commit, Rows.commit_and_drain, Rows.watch, Rows.operate])
def test_an_interrupted_commit_is_lost_or_applied_and_the_service_goes_on(
    tmp_path: Path,
    call: Callable[[Rows], None],
    sweep: Sweep,
    record_property: Callable[[str, object], None],
) -> None:
    rows = Rows(tmp_path / "spool")
    tally = Tally(f"write-behind, {call.__name__}")
    tally.enumerate(lambda: call(rows), rows.check, sweep, sample=50, pairs=15)
    rows.behind.close()
    record_property("figure", str(tally))


def test_what_an_interrupted_commit_has_put_into_the_log_is_not_committed_again() -> None:
    target, settings = Recorder(), quick(wait_durable=False)
    fs = MemoryFileSystem()
    with WriteBehind("/spool", {"rows": target}, settings=settings, fs=fs) as behind, handlers():
        made: list[WriteBehindTransaction] = []

        def begun() -> WriteBehindTransaction:
            tx = behind.begin(str(len(made)))
            tx.send("rows", b"body")
            made.append(tx)
            return tx

        for place in range(0, bytecodes_of(begun().commit), 29):
            tx = begun()
            interrupted(tx.commit, place, int(signal.SIGALRM))
            with tx:
                pass  # it commits what is not committed yet
        assert behind.drain(60)
    assert [one.reference for one in target.applied] == [tx.reference for tx in made]
    assert [one.number for one in target.applied] == [tx.number for tx in made]


def test_a_commit_that_the_log_refuses_can_be_made_again() -> None:
    fs, target = FaultyFileSystem(MemoryFileSystem()), Recorder()
    with WriteBehind("/spool", {"rows": target}, fs=fs) as behind:
        with behind.begin() as tx:
            tx.send("rows", b"body")
            fs.fault = Fault(1, {"pwrite", "pwritev"}, errno.ENOSPC, lasting=True)
            with pytest.raises(LogFullError):
                tx.commit()
            assert tx.number is None
            fs.fault = None
        assert behind.drain(60)
    assert [one.number for one in target.applied] == [tx.number]
