"""The vectorised path agrees with the records, row by row, whole and in splits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import (
    RECORDS,
    batches_of_changes,
    batches_of_transactions,
    plain,
    record_batches,
)
from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.read.records import stored_entry
from tallystick.systems.cloudtran.reader import CloudtranReading
from tests.kit import same_rows
from tests.systems.cloudtran.blocks import NAME, block, entry
from tests.systems.cloudtran.blocks import reading as reading_in
from tests.systems.cloudtran.test_fixtures import CASES, reading_of


def _rows(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    table = pa.Table.from_batches([plain(one) for one in batches], RECORDS)
    rows: list[dict[str, object]] = table.drop_columns(["attributes"]).to_pylist()
    return rows


def _expected(reading: CloudtranReading) -> list[dict[str, object]]:
    return _rows(list(record_batches(reading.records(), reading.source.path, "wall_us")))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", CASES)
def test_batches_agree_with_records(case: str) -> None:
    reading = reading_of(case)
    assert same_rows(reading) == same_rows(reading, rows=2)


@pytest.mark.sampled(18)
@pytest.mark.parametrize("case", CASES)
def test_splits_give_every_record_once(case: str) -> None:
    reading = reading_of(case)
    for target in (1, 700, 1 << 20):
        splits = reading.splits(target)
        rows = [row for one in splits for row in _rows(list(reading.batches(one)))]
        assert rows == _expected(reading)


@pytest.mark.parametrize("damaged", [False, True])
def test_numbers_over_63_bits_are_the_same_in_records_and_tables(
    tmp_path: Path, damaged: bool
) -> None:
    data = bytearray(block(0, 1, entry((1 << 63) + 7)))
    data[layout.HEADER_SIZE + layout.PROLOGUE_SIZE + 40] ^= damaged
    data += block(len(data), 2, entry(5))
    (tmp_path / NAME).write_bytes(data)
    log = reading_in(tmp_path)
    numbers = [one.transaction for one in log.records()]
    assert numbers == [7 - (1 << 63), 5]
    assert [row["transaction"] for row in _rows(list(log.batches()))] == numbers
    found = list(log.transactions())
    (batch,) = batches_of_transactions(found, "wall_us")
    assert [one.transaction for one in found] == batch["transaction"].to_pylist()
    changes = list(log.changes())
    (batch,) = batches_of_changes(changes, "wall_us")
    assert [one.commit_sequence for one in changes] == batch["commit_sequence"].to_pylist()
    if not damaged:
        assert stored_entry(next(log.records())).number == (1 << 63) + 7
