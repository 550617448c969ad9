"""The circular journal: files by our own writer, and how fast they are read, every check made.

``python benchmarks/jboss_scan.py [--mib 128] [--body 200] [--original]`` writes a journal of that
size to a temporary folder and prints rates: vectorised batches, record objects. With
``--original`` the real Artemis loader loads the same files in the same run; its time is taken
inside a warm virtual machine, the second load of two, without the start of Java.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from tallystick.reading.discovery import discover
from tallystick.systems.jboss import SYSTEM
from tallystick.systems.jboss.format.messages import (
    ACKNOWLEDGED,
    CORE,
    HEAD_AFTER_BODY,
    MESSAGE,
    REFERENCE,
)
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.systems.protocol import LogReading, ReadOptions

USED = 7


def generate(folder: Path, mib: int, body: int, live: int = 100) -> int:
    """``mib`` MiB of adds, updates and committed transactions. Returns the records.

    ``live`` percent of them stay live, so that no file is used again; the others are deleted.
    """
    count = (mib << 20) // (body + 32)
    payload = bytes(range(256)) * (1 + body // 256)
    with CircularJournal(str(folder), JournalSettings()) as journal:
        for number in range(0, count, USED):
            journal.append_add_record(number, 1, payload[:body])
            journal.append_update_record(number, 2, payload[:body])
            for part in range(USED - 3):
                journal.append_add_record_transactional(
                    number, number + 1 + part, 3, payload[:body]
                )
            journal.append_commit_record(number)
            if number // USED % 100 >= live:
                for one in (number, *range(number + 1, number + USED - 2)):
                    journal.append_delete_record(one)
    return count


def _text(value: str) -> bytes:
    data = value.encode("utf-16-le")
    return struct.pack(">i", len(data)) + data


def _message(number: int) -> bytes:
    """A text of 100 characters with a user id and three properties, two of them of its own."""
    content = b"\1" + _text(f"{number:100}")
    properties = [
        _text("customer") + b"\x0a" + _text(f"customer {number % 1000}"),
        _text("order") + struct.pack(">bi", 6, number),
        _text("_AMQ_DUPL_ID") + b"\x0a" + _text(f"{number:032x}"),
    ]
    encoded = (
        struct.pack(">i", len(content) + HEAD_AFTER_BODY) + content
        + struct.pack(">q", number) + b"\1" + _text("orders") + b"\1" + UUID(int=number).bytes
        + struct.pack(">b?qqb", 3, True, 0, 1_700_000_000_000 + number, 4)
        + b"\1" + struct.pack(">i", len(properties)) + b"".join(properties)
    )  # fmt: skip
    head = struct.pack(">bq", CORE, number) + b"\1" + _text("orders")
    return head + struct.pack(">i", len(encoded)) + encoded


def generate_messages(folder: Path, mib: int) -> None:
    """``mib`` MiB of messages that a queue holds; it takes a quarter of them, which are deleted."""
    (folder / "journal").mkdir(parents=True)
    with CircularJournal(str(folder / "journal"), JournalSettings()) as journal:
        for number in range(1, (mib << 20) // (len(_message(1)) + 110)):
            journal.append_add_record(number, MESSAGE, _message(number))
            journal.append_update_record(number, REFERENCE, struct.pack(">q", 3))
            if number % 4 == 0:
                journal.append_update_record(number, ACKNOWLEDGED, struct.pack(">q", 3))
                journal.append_delete_record(number)


def best(work: Callable[[], int], rounds: int = 3) -> tuple[float, int]:
    """The shortest time in seconds, and what the work returned."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - begin)
    return min(times), result


def open_log(folder: Path) -> LogReading:
    """A fresh reading of the only journal there."""
    (source,) = discover(folder, known=[SYSTEM]).logs
    return SYSTEM.read(source, ReadOptions())


def batch_rows(folder: Path) -> int:
    """Rows of all batches."""
    return sum(batch.num_rows for batch in open_log(folder).batches(rows=50_000))


def record_count(folder: Path) -> int:
    """Records as objects."""
    return sum(1 for _ in open_log(folder).records())


def original_seconds(folder: Path) -> float:
    """The load of the real Artemis journal."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.interop.jboss.original import real_journal

    times = []
    with real_journal("artemis", folder) as journal:
        for _ in range(3):
            times.append(journal.load().nanoseconds / 1e9)
            journal.tell("stop")
    return min(times)


def main() -> None:
    """Print one line per way of reading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--body", type=int, default=200)
    parser.add_argument("--original", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, chosen.mib, chosen.body)
        size = sum(path.stat().st_size for path in folder.glob("*.amq"))
        print(f"{size / 1e6:,.0f} MB in {len(list(folder.glob('*.amq')))} files")
        ways: dict[str, Callable[[Path], int]] = {
            "batches": batch_rows,
            "records": record_count,
        }
        seconds: dict[str, float] = {}
        for way, work in ways.items():
            seconds[way], count = best(lambda work=work: work(folder))  # type: ignore[misc]
            rate = size / seconds[way] / 1e6
            print(f"{way:20} {rate:10,.0f} MB/s {count / seconds[way]:14,.0f} records/s")
        if chosen.original:
            took = original_seconds(folder)
            ratio = took / seconds["batches"]
            print(f"{'Artemis load':20} {size / took / 1e6:10,.0f} MB/s; batches are {ratio:.1f} x")


if __name__ == "__main__":
    main()
