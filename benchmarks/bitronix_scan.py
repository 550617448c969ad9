"""Bitronix journals: a generator by our own writer, and how fast they are read, every CRC verified.

``python benchmarks/bitronix_scan.py [--mib 128] [--original]`` writes a journal of that size to
a temporary folder and prints rates by processor time: the vectorised batches, the record
objects, a bare CRC of the whole file. With ``--original`` the cursor of the real 2.1.4 reads a
smaller one beside them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tallystick.reading.discovery import discover
from tallystick.storage.crc import crc32
from tallystick.systems.bitronix import SYSTEM
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    PREPARED,
    PREPARING,
    make_gtrid,
)
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.protocol import LogReading, ReadOptions

STATUSES = (ACTIVE, PREPARING, PREPARED, COMMITTING, COMMITTED)
RESOURCES = (("jdbc/orders", "jms/queue"), ("jdbc/orders", "jdbc/billing", "jms/queue"))
BYTES_PER_TRANSACTION = 420
ORIGINAL_MIB = 4


def generate(folder: Path, mib: int, *, live: int = 0) -> int:
    """One nearly full file of ``mib`` MiB of two-phase commits. Returns its records.

    Of a hundred decisions ``live`` are left open.
    """
    journal = DiskJournal(str(folder), max_log_size=mib << 20, forced_write_enabled=False)
    transactions, records = (mib << 20) // BYTES_PER_TRANSACTION, 0
    for number in range(transactions):
        gtrid = make_gtrid("btm-node-1", 1_700_000_000_000 + number, number)
        names = RESOURCES[number % 2]
        statuses = STATUSES[:-1] if number % 100 < live else STATUSES
        for status in statuses:
            journal.log(status, gtrid, names if status else ())
        records += len(statuses)
    journal.close()
    return records


def best(work: Callable[[], int], rounds: int = 3) -> tuple[float, int]:
    """The shortest processor time in seconds, and what the work returned."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        result = work()
        times.append(time.process_time() - begin)
    return min(times), result


def open_log(folder: Path) -> LogReading:
    (log,) = discover(folder).logs
    return SYSTEM.read(log, ReadOptions())


def used_bytes(folder: Path) -> int:
    """Bytes of records in both files."""
    positions = (path.read_bytes()[13:21] for path in folder.glob("*.tlog"))
    return sum(int.from_bytes(one, "big") - 21 for one in positions)


def show(name: str, seconds: float, size: int, records: int) -> None:
    rate = size / seconds / 1e6
    print(f"{name:28} {rate:9.1f} MB/s {records / seconds / 1e6:8.3f} M records/s")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--mib", type=int, default=128)
    arguments.add_argument("--original", action="store_true")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "journal")
        records = generate(folder, chosen.mib)
        size = used_bytes(folder)
        print(f"{records} records, {size >> 20} MiB of them, one core, every CRC verified")
        reading = open_log(folder)

        def vectorised() -> int:
            return sum(batch.num_rows for batch in reading.batches())

        assert vectorised() == records
        show("batches", *(best(vectorised)[0], size, records))
        content = max(folder.glob("*.tlog"), key=lambda path: path.read_bytes()[13:21]).read_bytes()
        show("bare CRC of the file", best(lambda: crc32(content))[0], size, records)
        seconds, objects = best(lambda: sum(1 for _ in reading.records()), rounds=1)
        show("record objects", seconds, size, objects)
        if chosen.original:
            original(Path(place, "small"))


def original(folder: Path) -> None:
    """The real cursor over a journal of `ORIGINAL_MIB`, in its own process."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.interop.bitronix.original import read_records

    records = generate(folder, ORIGINAL_MIB)
    seconds, counted = read_records(folder / "btm1.tlog")
    assert counted == records
    show("original cursor (2.1.4)", seconds, used_bytes(folder), records)


if __name__ == "__main__":
    main()
