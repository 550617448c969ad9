"""A sale over two embedded resources, killed half-way: what it leaves is read by ``run.py``.

``shop.py FOLDER``: opens the shop in FOLDER and sells one pear: an order for the journal and a row
of the page store, together or not at all. It is killed when the decision to commit is durable and
the journal has committed: the row then waits in the page store's log, in doubt.

`sell_and_die` runs that in a process of its own, `recover` is what the next start would do.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallystick import Journal, PageStore, TransactionManager
from tallystick.services.transactions import RecoveryReport

PEARS = 7
"""The row of the pears in the table of the stock."""


@dataclass
class Shop:
    """The shop while it is open."""

    stock: PageStore
    orders: Journal
    manager: TransactionManager

    def pears(self) -> int:
        """How many are left."""
        with self.stock.begin() as tx:
            return int(tx.table("items")[PEARS])

    def ordered(self) -> int:
        """How many orders are in the journal."""
        return sum(1 for _ in self.orders.live_records())

    def sell(self) -> None:
        """One pear less, one order more."""
        with self.manager.begin() as tx:
            tx["orders"].add(1, b"one pear")
            items = tx["stock"].table("items")
            items[PEARS] = b"%d" % (int(items.for_update(PEARS)) - 1)


@contextmanager
def opened(folder: Path, on_step: Callable[[str], None] | None = None) -> Iterator[Shop]:
    """The shop in a folder: a page store, a journal and their coordinator."""
    with (
        PageStore(folder / "stock") as stock,
        Journal(folder / "orders") as orders,
        TransactionManager(
            folder / "coordinator",
            {"stock": stock, "orders": orders},
            node="shop",
            recovery_interval=None,
            on_step=on_step,
        ) as manager,
    ):
        yield Shop(stock, orders, manager)


def sell_and_die(folder: Path) -> None:
    """A new shop with 10 pears, one of which is sold by a process that does not live to the end."""
    shutil.rmtree(folder, ignore_errors=True)
    with opened(folder) as shop:
        shop.stock.create_table("items")
        with shop.stock.begin() as tx:
            tx.table("items")[PEARS] = b"10"
    child = subprocess.run([sys.executable, __file__, str(folder)], check=False)
    if child.returncode != -signal.SIGKILL:
        raise SystemExit(f"the sale should have been killed, but ended with {child.returncode}")


@dataclass
class Recovered:
    """What the next start of the shop did, and what is there after it."""

    report: RecoveryReport
    pears: int
    orders: int
    were_in_doubt: int


def recover(folder: Path) -> Recovered:
    """Open the shop again, and let its coordinator settle what was left."""
    with opened(folder) as shop:
        before = len(shop.stock.in_doubt())
        report = shop.manager.recover()
        return Recovered(report, shop.pears(), shop.ordered(), before)


def _kill(step: str) -> None:
    if step == "after commit orders":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with opened(Path(sys.argv[1]), _kill) as open_shop:
        open_shop.sell()
