"""CloudTran block logs: a generator by our own writer, and how fast they are read.

``python benchmarks/cloudtran_scan.py [--mib 128] [--value 400] [--compress]`` writes logs of
that size to a temporary folder and prints rates by processor time, every CRC verified: the
vectorised batches, the record objects, a bare CRC of the files. Half of the records are
persisting ones with two targets, an operation and a value, the others persisted ones.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tallystick.reading.discovery import discover
from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran import SYSTEM
from tallystick.systems.cloudtran.format.entries import Operation, OperationKind
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.protocol import LogReading, ReadOptions

TARGETS = ("orders-db", "billing-db")
GROUP = 64
"""Transactions that are committed together."""


def generate(
    folder: Path, mib: int, value_size: int, *, compress: bool, live: int = 0, file_mb: int = 64
) -> int:
    """About ``mib`` MiB of transactions. Returns the records.

    All are marked persisted but ``live`` percent of them.
    """
    settings = LogSettings(file_size_mb=file_mb, compress=compress, sync="none")
    values = [random.Random(n).randbytes(value_size) for n in range(64)]
    number = records = 0
    with BlockLog(str(folder), settings, disposer=None) as log:
        while number * (value_size + 200) < mib << 20:
            for _ in range(GROUP):
                operation = Operation(
                    None, OperationKind.INSERT, "orders", b"key", values[number % 64]
                )
                number, ticket = log.persisting(TARGETS, [operation], f"order-{number}")
                records += 1
                if number % 100 >= live:
                    log.persisted(number, TARGETS)
                    records += 1
            ticket.wait()
    return records


def best(work: Callable[[], int], rounds: int = 5) -> tuple[float, int]:
    """The shortest processor time in seconds, and what the work returned."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        result = work()
        times.append(time.process_time() - begin)
    return min(times), result


def open_log(folder: Path) -> LogReading:
    (log,) = discover(folder, known=[SYSTEM]).logs
    return SYSTEM.read(log, ReadOptions())


def show(name: str, seconds: float, size: int, records: int) -> None:
    rate = size / seconds / 1e6
    print(f"{name:28} {rate:9.1f} MB/s {records / seconds / 1e6:8.3f} M records/s")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--mib", type=int, default=128)
    arguments.add_argument("--value", type=int, default=400)
    arguments.add_argument("--compress", action="store_true")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        records = generate(folder, chosen.mib, chosen.value, compress=chosen.compress)
        contents = [path.read_bytes() for path in sorted(folder.glob("*.ctlog"))]
        size = sum(map(len, contents))
        print(f"{records} records, {size >> 20} MiB, one core, every CRC verified")

        def vectorised() -> int:
            return sum(batch.num_rows for batch in open_log(folder).batches())

        assert vectorised() == records
        show("batches", *(best(vectorised)[0], size, records))
        show("bare CRC of the files", best(lambda: sum(map(crc32, contents)))[0], size, records)
        seconds, objects = best(lambda: sum(1 for _ in open_log(folder).records()), rounds=1)
        show("record objects", seconds, size, objects)


if __name__ == "__main__":
    main()
