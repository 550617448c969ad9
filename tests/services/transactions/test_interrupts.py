"""Signals before every bytecode of a global transaction: what is decided is settled here."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tests.interrupts import Tally

SCOPES = [
    pytest.param((50, 20), id="sample"),
    pytest.param((None, 2000), id="whole", marks=pytest.mark.soak),
]


class Estate:
    """Two stores and a journal, which have the same numbers, or a transaction was torn."""

    def __init__(self, folder: Path) -> None:
        self.stores = {name: PageStore(folder / name, lock_timeout=0.05) for name in "ab"}
        for store in self.stores.values():
            store.create_table("t")
        self.journal = Journal(folder / "mail")
        self.manager = TransactionManager(
            folder / "tm",
            {**self.stores, "mail": self.journal},
            recovery_interval=None,
            orphan_interval=0.0,
        )
        self.manager.recover()
        self._numbers = count(1)
        self.number = 0
        self.returned = False

    def transfer(self) -> None:
        self.returned, self.number = False, next(self._numbers)
        with self.manager.begin() as tx:
            for name in "ab":
                table = tx[name].table("t")
                table[0] = table[self.number] = b"row"
            tx["mail"].add(self.number, b"message")
        self.returned = True

    def check(self, _error: BaseException | None) -> None:
        with ThreadPoolExecutor(1) as another:
            another.submit(self._check).result(60)

    def _check(self) -> None:
        report = self.manager.recover()
        assert report.clean, report
        found = [{one.record_id for one in self.journal.live_records()}]
        for store in self.stores.values():
            assert not store.in_doubt()
            with store.begin() as tx:
                tx.table("t")[0] = b"free"
                found.append({key for key in tx.table("t") if key})
        assert found[0] == found[1] == found[2], f"torn: {self.number}"
        assert self.number in found[0] or not self.returned, f"lost: {self.number}"

    def close(self) -> None:
        self.manager.close()
        self.journal.close()
        for store in self.stores.values():
            store.close()


@pytest.mark.parametrize("scope", SCOPES)
def test_an_interrupted_transaction_is_settled_by_its_process(
    tmp_path: Path,
    scope: tuple[int | None, int],
    record_property: Callable[[str, object], None],
) -> None:
    estate = Estate(tmp_path)
    tally = Tally("transactions of two page stores and a journal")
    tally.enumerate(estate.transfer, estate.check, *scope)
    estate.close()
    record_property("figure", str(tally))
