"""Changes as batches have the collections and values of the changes that are read one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import batches_of_changes
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fixtures import fixture_dir
from tests.kit import read_in_runs

ROWS = 50


@pytest.fixture(autouse=True)
def in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_runs(monkeypatch)


def _reading(case: str) -> H2Reading:
    path = str(fixture_dir("typed") / case / "x.h2.db")
    return H2Reading(LogSource("h2", path, (path,)), ReadOptions())


def _rows(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    return Counter(repr(row) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("case", ["h-drop-create", "h-dc2", "h-dc3"])
def test_rows_of_a_dropped_table_are_not_those_of_the_next_one_with_its_number(case: str) -> None:
    dropped = [one.collection for one in _reading(case).changes() if one.collection == "15#1"]
    assert len(dropped) == 2
    one_by_one = batches_of_changes(_reading(case).changes(), "none", ROWS)
    assert _rows(_reading(case).change_batches(ROWS)) == _rows(one_by_one)


@pytest.mark.parametrize("case", ["h-array", "h-blob", "h-clob", "h-geo", "h-ts-1.3.176", "h-uuid"])
def test_values_are_shown_alike_in_columns_and_one_by_one(case: str) -> None:
    one_by_one = batches_of_changes(_reading(case).changes(), "none", ROWS)
    assert _rows(_reading(case).change_batches(ROWS)) == _rows(one_by_one)
