"""Logs for these tests: the sample cases with their oracle, and pairs made here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tallystick.systems.bitronix.format.layout import HEADER_LENGTH, FileHeader, make_gtrid
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.bitronix.reader import BitronixReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fixtures import cases, fixture_dir

CASES = cases("bitronix")
PAIR_SIZE = 4096
GTRID = make_gtrid("node", 5_000, 1)
SMALL = 1500
NAMES = ("jdbc/a", "jms/b")


def folder_of(case: str) -> Path:
    return fixture_dir("bitronix") / case


@cache
def manifest_of(case: str) -> dict[str, Any]:
    """The manifest, with the lists that are stored in other files put in place."""
    folder = folder_of(case)
    manifest = json.loads((folder / "manifest.json").read_text())
    expanded: dict[str, Any] = _expanded(manifest, folder)
    return expanded


def _expanded(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"file", "count"}:
            lines = gzip.decompress((folder / value["file"]).read_bytes()).splitlines()
            return [json.loads(line) for line in lines]
        return {key: _expanded(item, folder) for key, item in value.items()}
    return [_expanded(item, folder) for item in value] if isinstance(value, list) else value


def parts_of(case: str) -> list[bytes | None]:
    """The unpacked bytes of part 1 and part 2."""
    files = manifest_of(case)["files"]
    return [
        None
        if files[part] is None
        else gzip.decompress((folder_of(case) / files[part]["file"]).read_bytes())
        for part in ("part1", "part2")
    ]


def reading_of(folder: Path) -> BitronixReading:
    """The reading of the only journal of a folder."""
    files = sorted(str(path) for path in folder.iterdir() if ".tlog" in path.name)
    return BitronixReading(LogSource("bitronix", str(folder), tuple(files)), ReadOptions())


def record(
    status: int, sequence: int, *names: str, gtrid: bytes = GTRID, time: int = 6_000
) -> TransactionLogRecord:
    return TransactionLogRecord.create(status, gtrid, names, time, sequence)


def file_bytes(
    records: Iterable[TransactionLogRecord], timestamp: int, size: int = PAIR_SIZE, state: int = 0
) -> bytes:
    """A file as a writer leaves it."""
    body = b"".join(one.encode() for one in records)
    header = FileHeader(timestamp, state, HEADER_LENGTH + len(body)).encode()
    return (header + body).ljust(size, b"\0")


def write_pair(folder: Path, one: bytes, two: bytes) -> BitronixReading:
    folder.mkdir(exist_ok=True)
    (folder / "btm1.tlog").write_bytes(one)
    (folder / "btm2.tlog").write_bytes(two)
    return reading_of(folder)


# -- live journals -----------------------------------------------------------------------------


def gtrid(number: int) -> bytes:
    return make_gtrid("node", 5_000, number)


def number_of(key: bytes) -> int:
    return int.from_bytes(key[-4:], "big")


def open_numbers(journal: DiskJournal) -> set[int]:
    return {number_of(key) for key in journal.collect_dangling_records()}
