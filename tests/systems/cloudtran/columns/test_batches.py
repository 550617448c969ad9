"""The vectorised path agrees with the records, row by row, whole and in splits."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import RECORDS, plain, record_batches
from tallystick.systems.cloudtran.reader import CloudtranReading
from tests.systems.cloudtran.test_fixtures import CASES, reading_of


def _rows(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    table = pa.Table.from_batches([plain(one) for one in batches], RECORDS)
    rows: list[dict[str, object]] = table.drop_columns(["attributes"]).to_pylist()
    return rows


def _expected(reading: CloudtranReading) -> list[dict[str, object]]:
    return _rows(list(record_batches(reading.records(), reading.source.path, "wall_us")))


@pytest.mark.parametrize("case", CASES)
def test_batches_agree_with_records(case: str) -> None:
    reading = reading_of(case)
    assert _rows(list(reading.batches())) == _expected(reading)
    assert _rows(list(reading.batches(rows=2))) == _expected(reading)


@pytest.mark.parametrize("case", CASES)
def test_splits_give_every_record_once(case: str) -> None:
    reading = reading_of(case)
    for target in (1, 700, 1 << 20):
        splits = reading.splits(target)
        rows = [row for one in splits for row in _rows(list(reading.batches(one)))]
        assert rows == _expected(reading)
