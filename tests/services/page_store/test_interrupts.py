"""Signals before every bytecode of the page store's calls: nothing lost, poisoned or locked."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tallystick.services.page_store import PageStore
from tallystick.services.page_store.transactions import Session
from tallystick.testing import MemoryFileSystem
from tests.interrupts import Tally, bytecodes_of, handlers, interrupted
from tests.sweeps import Sweep

SAMPLE = 50
PAIRS = 15


class Rows:
    """A store, its committed rows, and what a call may have changed."""

    def __init__(self, path: Path, system: str) -> None:
        self._path, self._system = path, system
        self.store = self.open()
        self.store.create_table("t")
        self.known: dict[int, bytes] = {}
        self.due: dict[int, bytes] = {}
        self.returned = False
        self.open_now: Session | None = None
        self._numbers = count()

    def open(self) -> PageStore:
        """Open the store, with limits at which a checkpoint is due every few calls."""
        return PageStore(
            self._path,
            system=self._system,
            cache_bytes=1 << 16,
            checkpoint_bytes=1 << 13,
            lock_timeout=0.05,
        )

    def next_due(self) -> dict[int, bytes]:
        """Choose the rows of the next call."""
        number = next(self._numbers)
        self.returned = False
        self.due = {7: b"%d" % number, number * 37 % 400 + 10: b"%d " % number * (number % 90)}
        return self.due

    def with_statement(self) -> None:
        due = self.next_due()
        with self.store.begin() as tx:
            tx.table("t").update(due)
        self.returned = True

    def commit(self) -> None:
        due = self.next_due()
        self.open_now = self.store.begin()
        self.open_now.table("t").update(due)
        self.open_now.commit()
        self.returned = True

    def prepared(self) -> None:
        due = self.next_due()
        with self.store.begin() as tx:
            tx.table("t").update(due)
            tx.prepare("branch")
        self.returned = True

    def settled(self) -> None:
        due = self.next_due()
        self.open_now = self.store.begin()
        self.open_now.table("t").update(due)
        self.open_now.prepare("branch")
        self.store.settle("branch", commit=True)
        self.returned = True

    def reads(self) -> None:
        with self.store.begin(read_only=True) as tx:
            rows = dict(tx.table("t").range())
            assert [tx.table("t").get(key) for key in rows] == [*rows.values()]
            assert {**rows, 5: b""} == {**self.known, 5: b""}
        self.due, self.returned = {}, True

    def _look(self) -> dict[int, bytes]:
        """Lock and change the rows that the call may have changed; return all of before."""
        with self.store.begin() as tx:
            table = tx.table("t")
            found = dict(table.range())
            for key in self.due:
                table[key] = found.get(key, b"")
                if key not in found:
                    del table[key]
        return found

    def commit_and_check(self, _error: BaseException | None) -> None:
        self.with_statement()
        self.check(None)

    def reopen(self) -> None:
        """Open the store again: it has the rows still."""
        assert not self.store.check()
        self.store.close()
        self.store = self.open()
        self.check(None)
        assert not self.store.check()
        self.store.close()

    def check(self, _error: BaseException | None) -> None:
        if self.open_now is not None and not self.open_now.over:
            self.open_now.rollback()
        for one in self.store.in_doubt():
            self.store.settle(one.name, commit=True)
        with ThreadPoolExecutor(1) as another:
            found = another.submit(self._look).result(60)
        expected = [{**self.known, **self.due}]
        if not self.returned:
            expected.append(self.known)
        assert found in expected, "rows were lost, or a part of a transaction was committed"
        self.known, self.due = found, {}


CALLS: list[Callable[[Rows], None]] = [
    Rows.with_statement, Rows.commit, Rows.prepared, Rows.settled, Rows.reads,
]  # fmt: skip


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("system", ["tally", "h2"])
@pytest.mark.parametrize("call", CALLS)
def test_an_interrupted_call_loses_locks_and_poisons_nothing(
    tmp_path: Path,
    system: str,
    call: Callable[[Rows], None],
    sweep: Sweep,
    record_property: Callable[[str, object], None],
) -> None:
    rows = Rows(tmp_path / "s", system)
    tally = Tally(f"page store on {system}, {call.__name__}")
    tally.enumerate(lambda: call(rows), rows.check, sweep, sample=SAMPLE, pairs=PAIRS)
    rows.reopen()
    record_property("figure", str(tally))


@pytest.mark.parametrize("system", ["tally", "h2"])
def test_an_interrupted_checkpoint_goes_on_with_the_next(
    tmp_path: Path,
    system: str,
    sweep: Sweep,
    record_property: Callable[[str, object], None],
) -> None:
    rows = Rows(tmp_path / "s", system)
    tally = Tally(f"checkpoint of a page store on {system}")
    tally.enumerate(rows.store.checkpoint, rows.commit_and_check, sweep, sample=SAMPLE, pairs=PAIRS)
    rows.reopen()
    record_property("figure", str(tally))


def test_what_an_interrupted_return_to_a_savepoint_left_is_undone_by_another() -> None:
    with PageStore("/store", fs=MemoryFileSystem()) as store, handlers(), store.begin() as tx:
        store.create_table("t")
        table, point = tx.table("t"), tx.savepoint()

        def back() -> None:
            tx.rollback_to(point)

        def change() -> None:
            table.update({1: b"undone", 2: b"undone", 3: b"undone"})
            del table[2]

        change()
        for place in range(bytecodes_of(back)):
            change()
            interrupted(back, place, int(signal.SIGALRM))
            back()
            assert dict(table) == {}, f"undone but for what came before bytecode {place}"
