"""The vectorised reading gives what `records()` gives, row by row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import RECORDS, plain, record_batches
from tallystick.systems.protocol import Split
from tests.fixtures import cases
from tests.kit import read_in_runs
from tests.systems.h2.kit import fixture

COLUMNS = [name for name in RECORDS.names if name != "attributes"]


@pytest.mark.sampled(35)
@pytest.mark.parametrize("rows", [7, 10_000])
@pytest.mark.parametrize("case", cases("h2"))
def test_batches_equal_records(case: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_runs(monkeypatch)
    reading = fixture(case)
    ours = pa.Table.from_batches([plain(one) for one in reading.batches(rows=rows)], RECORDS)
    oracle = pa.Table.from_batches(
        record_batches(reading.records(), reading.source.path, "none"), RECORDS
    )
    assert ours.select(COLUMNS).equals(oracle.select(COLUMNS))


def test_a_log_is_one_split_whatever_is_asked_for() -> None:
    reading = fixture("large-log-512")
    (whole,) = reading.splits(1000)
    assert (whole.begin, whole.end) == (0, reading.files()[0].size)


def test_two_splits_give_every_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_runs(monkeypatch)
    reading = fixture("committed-2048")
    (whole,) = reading.splits(1)
    middle = 9 * 2048 + 500
    parts = [Split(whole.file, 0, middle), Split(whole.file, middle, whole.end)]
    counts = [sum(one.num_rows for one in reading.batches(part)) for part in parts]
    assert sum(counts) == len(list(reading.records()))
    assert all(counts)
