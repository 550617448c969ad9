"""Signals before every bytecode of write-behind's calls: what is in the log reaches its target."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tallystick.roles import PersistEntry
from tallystick.services.write_behind import WriteBehind
from tests.interrupts import Tally
from tests.sweeps import Sweep


class Rows:
    """A service, and the numbers that have reached its target."""

    def __init__(self, path: Path) -> None:
        self.applied: set[str] = set()
        self.behind = WriteBehind(path, {"rows": self._apply})
        self._numbers = count(1)
        self.reference = ""
        self.returned = False

    def _apply(self, entry: PersistEntry) -> None:
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

    def check(self, _error: BaseException | None) -> None:
        with ThreadPoolExecutor(1) as another:
            another.submit(self._check, self.reference).result(60)
        self.returned = False  # if the next call is interrupted before its first statement

    def _check(self, reference: str) -> None:
        with self.behind.begin("another") as tx:
            tx.insert("rows", {"id": 0}, {"state": 1})
            tx.delete("rows", {"id": 0})
        assert self.behind.drain(60)
        assert not self.behind.pending()
        assert "another" in self.applied
        assert reference in self.applied or not self.returned, "lost"
        self.applied.clear()


@pytest.mark.parametrize("call", [Rows.commit, Rows.commit_and_drain])
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
