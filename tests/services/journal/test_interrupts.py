"""Signals before every bytecode of a journal's calls; run with the compiled core and without."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tallystick.services.journal import Journal
from tests.interrupts import Tally
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

    def check(self, _error: BaseException | None) -> None:
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


@pytest.mark.parametrize("call", [Records.append, Records.submit, Records.transaction])
@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupted_call_of_a_journal_loses_and_poisons_nothing(
    tmp_path: Path,
    call: Callable[[Records], None],
    sweep: Sweep,
    record_property: Callable[[str, object], None],
    *,
    shared: bool,
) -> None:
    records = Records(tmp_path / "j", shared=shared)
    tally = Tally(f"{'shared ' * shared}journal, {call.__name__}")
    tally.enumerate(lambda: call(records), records.check, sweep, sample=60, pairs=15)
    records.journal.close()
    with Journal(tmp_path / "j") as journal:
        assert not list(journal.live_records())
        assert not journal.prepared()
    record_property("figure", str(tally))
