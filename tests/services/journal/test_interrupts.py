"""Signals before every bytecode of a journal's calls; run with the compiled core and without."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tallystick.services.journal import Journal
from tests.interrupts import Tally, bytecodes_of, handlers, interrupted
from tests.sweeps import Sweep


class Records:
    """A journal, and the id that a call may have added."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        self.path = path
        self.journal = Journal(path, shared=shared)
        self._numbers = count(1)
        self.number = 0
        self.returned = False

    def next(self) -> int:
        self.returned, self.number = False, next(self._numbers)
        return self.number

    def append(self) -> None:
        self.next()
        self.journal.append(b"body")
        self.journal.add(self.number, b"")
        self.returned = True

    def submit(self) -> None:
        self.next()
        tickets = [self.journal.submit(b"body") for _ in range(3)]
        self.journal.add(self.number, b"body")
        tickets[-1].wait()
        self.returned = True

    def transaction(self) -> None:
        with self.journal.transaction() as tx:
            tx.add(self.next(), b"body")
            tx.append(b"plain")
        self.returned = True

    def prepared(self) -> None:
        tx = self.journal.transaction()
        tx.add(self.next(), b"body")
        tx.prepare(b"extra")
        tx.commit()
        self.returned = True

    def many(self) -> None:
        self.next()
        self.journal.append_many([b"one", b"two"])
        self.journal.flush()

    def reads(self) -> None:
        self.next()
        self.journal.checkpoint()
        self.journal.append(b"body")
        every = [*self.journal.replay()]
        assert [one.body for one in self.journal.follow(every[-1].sequence or 0, idle_s=0)]
        assert not [*self.journal.live_records()]

    def tidies(self) -> None:
        self.next()
        self.journal.checkpoint(0)
        self.journal.reclaim()
        self.journal.compact(force=True)

    def backs_up(self) -> None:
        self.journal.backup(self.path.parent / f"copy {self.next()}")

    def check(self, _error: BaseException | None) -> None:
        for one in self.journal.prepared():
            self.journal.commit_prepared(one.transaction)
        with ThreadPoolExecutor(1) as another:
            another.submit(self._check).result(60)
        self.returned = False  # if the next call is interrupted before its first statement

    def _check(self) -> None:
        assert self.journal.append(b"another")
        there = {one.record_id for one in self.journal.live_records()}
        assert self.number in there or not self.returned, "lost"
        if self.number not in there:
            self.journal.add(self.number, b"now")
        self.journal.update(self.number, b"again")
        self.journal.delete(self.number)
        assert self.journal.add(self.number, b"once more")
        self.journal.delete(self.number)


CALLS: list[tuple[Callable[[Records], None], int]] = [
    (Records.append, 24), (Records.submit, 24), (Records.transaction, 24), (Records.prepared, 9),
    (Records.many, 9), (Records.reads, 9), (Records.tidies, 9), (Records.backs_up, 6),
]  # fmt: skip


# What a second handler raises as the generators of an interrupted read end, Python drops.
@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("call", "sample"), CALLS)
@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupted_call_of_a_journal_loses_and_poisons_nothing(
    tmp_path: Path,
    call: Callable[[Records], None],
    sample: int,
    sweep: Sweep,
    record_property: Callable[[str, object], None],
    *,
    shared: bool,
) -> None:
    records = Records(tmp_path / "j", shared=shared)
    tally = Tally(f"{'shared ' * shared}journal, {call.__name__}")
    tally.enumerate(lambda: call(records), records.check, sweep, sample=sample, pairs=sample // 3)
    records.journal.close()
    with Journal(tmp_path / "j") as journal:
        assert not list(journal.live_records())
        assert not journal.prepared()
    record_property("figure", str(tally))


def test_no_signal_gets_lost_as_a_transaction_is_dropped(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:

        def drop() -> None:
            left = journal.transaction()
            left.append(b"never committed")

        points = bytecodes_of(drop)
        with handlers():
            lost = [at for at in range(points) if interrupted(drop, at, signal.SIGINT) is None]
        assert lost == []
