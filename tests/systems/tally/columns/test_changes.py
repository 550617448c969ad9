"""Changes as batches are the changes of the plain way, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import (
    CHANGES,
    TRANSACTIONS,
    batches_of_changes,
    batches_of_transactions,
)
from tallystick.reading.tables import batches_of
from tallystick.storage.local import LOCAL
from tallystick.systems.protocol import LogSealedError, LogSource, ReadOptions
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.reader import TallyReading
from tallystick.systems.tally.runs.transactions import transactions_of
from tests.systems.tally.build import every_item

KEY = bytes(range(32))


def _written(folder: Path, compression: str = "none", key: bytes | None = None) -> LogSource:
    """Every kind of record, one to a group and many to a group, over several segments."""
    settings = Settings(
        segment_size=16 << 10, preallocate=False, compression=compression, compress_min=64
    )
    provider = None if key is None else (lambda: key)
    log = TallyLog(str(folder), settings=settings, fs=LOCAL, key=provider)
    for round_ in range(20):
        for item in every_item():
            ticket = log.submit(item)
            if round_ % 2:
                ticket.wait()
        for number in range(20):
            log.append(b"%d" % number * 30)
    log.close()
    return LogSource("tally", str(folder), tuple(sorted(map(str, folder.iterdir()))))


def _rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[dict[str, Any]]:
    found = list(batches)
    assert all(batch.schema == schema and batch.num_rows <= 7 for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


def _agree(source: LogSource, key: bytes | None = None) -> int:
    """Compare both tables with those made from all records; return the number of rows."""
    reading = TallyReading(source, ReadOptions(encryption_key=key))
    clock = reading.clock.value
    plain = _rows(batches_of_changes(reading.changes(), clock, 7), CHANGES)
    assert _rows(batches_of(reading, "changes", rows=7), CHANGES) == plain
    order = [(row["commit_sequence"], row["ordinal"]) for row in plain]
    assert order == sorted(order)
    every = transactions_of(source.path, reading._steps(), key, reading._incomplete)
    found = _rows(batches_of(reading, "transactions", rows=7), TRANSACTIONS)
    assert found == _rows(batches_of_transactions(every, clock, 7), TRANSACTIONS)
    return len(plain) + len(found)


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_changes_and_transactions_of_every_kind_of_record_agree(
    tmp_path: Path, compression: str
) -> None:
    assert _agree(_written(tmp_path / "log", compression)) > 500


def test_an_encrypted_log_gives_changes_with_its_key_and_an_error_without(tmp_path: Path) -> None:
    """Without it there were none, and nothing was said."""
    source = _written(tmp_path / "log", key=KEY)
    assert _agree(source, KEY) > 500
    reading = TallyReading(source, ReadOptions())
    asked: list[Callable[[], Iterable[object]]] = [
        reading.changes,
        reading.transactions,
        reading.fated_changes,
        lambda: reading.change_batches(7),
        lambda: reading.transaction_batches(7),
        lambda: reading.changes_between(None, 99),
    ]
    for ask in asked:
        with pytest.raises(LogSealedError, match="--encryption-key; in Spark encryptionKey"):
            list(ask())
    (split,) = reading.splits(1 << 40)[:1]
    closed = reading.close_split(split, 7)
    assert (list(closed.batches), closed.rest()) == ([], None)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", range(5_000, 50_000, 7_001))
def test_damage_ends_both_ways_at_the_same_place(tmp_path: Path, place: int) -> None:
    source = _written(tmp_path / "log")
    segments = [Path(file) for file in source.files if file.endswith("1.tally")]
    data = bytearray(segments[0].read_bytes())
    data[place % len(data)] ^= 0x10
    segments[0].write_bytes(data)
    _agree(source)
