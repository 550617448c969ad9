"""Two services under one coordinator: each takes orders, all of an order or nothing of it.

Processes with one directory of decisions, a database and a journal that they share. One of them is
killed between its decision and its commits; the other one settles what it left.
``python examples/two_services.py FOLDER``
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from tallystick import Journal, TransactionManager


def serve(folder: str, orders: range, dies_at: str = "") -> None:
    """Take orders: a row in the database, and a record for the mail service."""

    def die(step: str) -> None:
        if step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    shop = f"sqlite:///{folder}/shop.db"
    with (
        Journal(f"{folder}/mail", shared=True) as mail,
        TransactionManager(
            f"{folder}/tm", {"mail": mail, "shop": shop}, shared=True, on_step=die
        ) as tm,
    ):
        tm.recover()
        for number in orders:
            with tm.begin() as tx:
                tx["shop"].execute("INSERT INTO orders VALUES (?)", (number,))
                tx["mail"].add(number, b"order %d" % number)
        tm.recover()


def main(folder: Path) -> tuple[set[int], set[int]]:
    """Return the orders in the database, and those in the journal."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    spawn = multiprocessing.get_context("spawn")
    for orders, step in ((range(3), "after last shop"), (range(10, 13), "")):
        service = spawn.Process(target=serve, args=(str(folder), orders, step))
        service.start()
        service.join()
    with closing(sqlite3.connect(folder / "shop.db")) as shop, Journal(folder / "mail") as mail:
        rows = {number for (number,) in shop.execute("SELECT id FROM orders")}
        return rows, {one.record_id for one in mail.live_records()}


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))))
