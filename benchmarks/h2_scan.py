"""How fast the H2 log is read into Arrow batches: a file made by our own writer, then read.

    python benchmarks/h2_scan.py [--megabytes 120] [--row 400]

Prints MB/s of file per second of processor time, with every page checksum verified. The first
reading compiles the kernels and is not counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LogSource, ReadOptions

SESSION, TABLE = 3, 16
ROWS_PER_COMMIT = 1_000
ROUNDS = 5


def make(path: Path, size: int, row_bytes: int, live: int = 0) -> None:
    """A page store file whose log holds about ``size`` bytes of rows.

    Those of ``live`` percent of the transactions, each of a session of its own, are not committed.
    """
    PageStoreFile.create(str(path)).close()
    with PageStoreFile(str(path)) as store:
        log = PageLog(store)
        log.open_for_writing()
        opened = 0
        for number in range(size // row_bytes):
            is_open = number // ROWS_PER_COMMIT % 100 < live
            row = encode_row([number, "x" * (row_bytes - 16), None])
            log.log_add_or_remove_row(SESSION + is_open * (1 + opened), TABLE, number, row)
            if number % ROWS_PER_COMMIT == ROWS_PER_COMMIT - 1:
                opened += is_open
                if not is_open:
                    log.commit(SESSION).wait()
        log.commit(SESSION).wait()
        log.close()


def read(path: Path) -> int:
    """Rows of all batches."""
    source = LogSource("h2", str(path.parent), (str(path),))
    return sum(batch.num_rows for batch in H2Reading(source, ReadOptions()).batches())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=120)
    parser.add_argument("--row", type=int, default=400, help="bytes per row")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made.h2.db")
        make(path, options.megabytes * 1_000_000, options.row)
        size = path.stat().st_size
        read(path)
        for _ in range(ROUNDS):
            start = time.process_time()
            rows = read(path)
            spent = time.process_time() - start
            print(f"{rows} rows, {size} bytes, {size / spent / 1e6:.0f} MB/s of processor time")


if __name__ == "__main__":
    main()
