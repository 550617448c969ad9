"""A program that counts up in many rows of a page store until it is killed.

``killed.py FOLDER SYSTEM SEED``: every transaction adds one to each of `ROWS` rows, spread over
pages by long rows between them; prints the new count when it is acknowledged.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from tallystick.services.page_store import PageStore

ROWS = 8


def main() -> None:
    folder, system, seed = sys.argv[1:]
    chance = random.Random(int(seed))
    store = PageStore(Path(folder), system=system, cache_bytes=0, checkpoint_bytes=100_000)
    store.create_table("t")
    with store.begin() as tx:
        table = tx.table("t")
        for key in range(ROWS):
            table.setdefault(key, b"0")
    os.write(1, b"ready\n")
    while True:
        with store.begin() as tx:
            table = tx.table("t")
            for key in range(ROWS):
                table[key] = b"%d" % (int(table[key]) + 1)
            table[100 + chance.randrange(400)] = chance.randbytes(chance.choice((50, 900, 5000)))
        with store.begin() as tx:
            shown = tx.table("t")[0]
        os.write(1, shown + b"\n")


if __name__ == "__main__":
    main()
