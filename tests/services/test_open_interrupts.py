"""Signals before every bytecode of the openings and closings of all services."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tallystick.services.write_behind import WriteBehind
from tallystick.systems.jboss.live.settings import JournalSettings
from tests.interrupts import RUNS, Tally, interrupted_in
from tests.sweeps import Sweep


def plain(path: Path) -> Any:
    return Journal(path)


def shared(path: Path) -> Any:
    return Journal(path, shared=True)


def jboss(path: Path) -> Any:
    return Journal(path, system="jboss", settings=JournalSettings(file_size=1 << 16))


def tally(path: Path) -> Any:
    return PageStore(path)


def h2(path: Path) -> Any:
    return PageStore(path, system="h2")


def write_behind(path: Path) -> Any:
    return WriteBehind(path, {"target": lambda _: None}, on_incomplete="replay")


def manager(path: Path) -> Any:
    return TransactionManager(path, {}, recovery_interval=60)


SERVICES = [plain, shared, jboss, tally, h2, write_behind, manager]


class Uses:
    """Opens a service, acknowledges something in it, and closes it, again and again."""

    def __init__(self, path: Path, opens: Callable[[Path], Any]) -> None:
        self._path, self._opens = path, opens
        self._number = 0
        self._entered = False
        self._acknowledged = 0

    def use(self) -> None:
        self._number += 1
        self._entered = False
        with self._opens(self._path) as opened:
            self._entered = True
            if isinstance(opened, Journal):
                opened.append(b"%d" % self._number)
            elif isinstance(opened, PageStore):
                opened.create_table("t")
                with opened.begin() as tx:
                    tx.table("t")[1] = b"%d" % self._number
            elif isinstance(opened, WriteBehind):
                with opened.begin() as tx:
                    tx.insert("target", {"id": self._number}, {"state": 1})
            else:
                with opened.begin():
                    pass
            self._acknowledged = self._number

    def check(self, error: BaseException | None) -> None:
        dropped = error is not None and interrupted_in(error) in ("use", "__enter__")
        if dropped and not self._entered:
            # After it was opened, and before its block: as any other file it would be collected.
            self._close_dropped()
        with ThreadPoolExecutor(1) as another:
            another.submit(self._check).result(60)

    def _close_dropped(self) -> None:
        kinds = (Journal, PageStore, WriteBehind, TransactionManager)
        for one in gc.get_objects():
            if isinstance(one, kinds):
                one.close()

    def _check(self) -> None:
        with self._opens(self._path) as opened:
            if not self._acknowledged:
                return
            if isinstance(opened, Journal):
                *_, last = (one.body for one in opened.replay() if one.body)
                assert int(last) >= self._acknowledged, "lost"
            elif isinstance(opened, PageStore):
                with opened.begin(read_only=True) as tx:
                    assert int(tx.table("t")[1]) >= self._acknowledged, "lost"


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("opens", SERVICES)
def test_what_was_interrupted_as_it_was_opened_or_closed_is_closed(
    tmp_path: Path,
    opens: Callable[[Path], Any],
    sweep: Sweep,
    record_property: Callable[[str, object], None],
) -> None:
    uses = Uses(tmp_path / "log", opens)
    uses.use()
    counted = Tally(f"opening and closing, {opens.__name__}")
    counted.enumerate(uses.use, uses.check, sweep, sample=6, pairs=2, runs=RUNS // 5)
    record_property("figure", str(counted))
