"""The native log's faster way says what the plain way says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tallystick.reading.tables import TABLES, batches_of
from tallystick.storage.local import LOCAL
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.tally.columns.changes import NativeFeed, feeding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.reader import TallyReading
from tests.systems.tally.build import drafts

KEY = bytes(range(32))


def _written(folder: Path, compression: str = "none", key: bytes | None = None) -> LogSource:
    """Every kind of record, one to a group and many to a group, over several segments."""
    settings = Settings(
        segment_size=16 << 10, preallocate=False, compression=compression, compress_min=64
    )
    provider = None if key is None else (lambda: key)
    log = TallyLog(str(folder), settings=settings, fs=LOCAL, key=provider)
    for round_ in range(20):
        for draft in drafts():
            ticket = log.submit(draft)
            if round_ % 2:
                ticket.wait()
        for number in range(20):
            log.append(b"%d" % number * 30)
    log.close()
    return LogSource("tally", str(folder), tuple(sorted(map(str, folder.iterdir()))))


def _rows(batches: Iterable[pa.RecordBatch], table: str) -> list[dict[str, Any]]:
    found = list(batches)
    assert all(batch.schema == TABLES[table] and batch.num_rows <= 7 for batch in found)
    rows = [row for batch in found for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row.get("commit_sequence", 0), row.get("ordinal", 0)))


def _says_the_same(source: LogSource, key: bytes | None = None) -> int:
    """Rows of both tables, the same in both ways."""
    options = ReadOptions(encryption_key=key)
    count = 0
    for table in ("transactions", "changes"):
        plain = _rows(batches_of(TallyReading(source, options), table, rows=7), table)
        fast = feeding(TallyReading(source, options), options)
        assert isinstance(fast, NativeFeed)
        assert _rows(batches_of(fast, table, rows=7), table) == plain
        count += len(plain)
    return count


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_every_kind_of_record_is_told_the_same(tmp_path: Path, compression: str) -> None:
    assert _says_the_same(_written(tmp_path / "log", compression)) > 500


def test_an_encrypted_log_tells_as_much_as_its_key_lets_it(tmp_path: Path) -> None:
    source = _written(tmp_path / "log", key=KEY)
    assert _says_the_same(source, KEY) > 500
    assert _says_the_same(source) == 0


@pytest.mark.parametrize("place", range(5_000, 50_000, 7_001))
def test_damage_ends_both_ways_at_the_same_place(tmp_path: Path, place: int) -> None:
    source = _written(tmp_path / "log")
    segments = [Path(file) for file in source.files if file.endswith("1.tally")]
    data = bytearray(segments[0].read_bytes())
    data[place % len(data)] ^= 0x10
    segments[0].write_bytes(data)
    _says_the_same(source)
