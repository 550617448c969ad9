"""Columns that are made without a copy hold what a plain `pyarrow` array would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arrow import columns
from tallystick.arrow.schemas import RECORDS, plain
from tallystick.records import Clock

DATA = bytes(range(100))
RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 40)))
PUT_VIEWS = [columns.put_views, getattr(columns.put_views, "py_func", columns.put_views)]


@pytest.mark.parametrize("put_views", PUT_VIEWS, ids=["compiled", "plain"])
@given(ranges=RANGES)
def test_byte_ranges_are_slices_and_nulls(
    put_views: Callable[..., None], ranges: list[tuple[int, int]]
) -> None:
    starts = np.array([start for start, _ in ranges], np.int64)
    lengths = np.array([length for _, length in ranges], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "put_views", put_views)
        found = columns.byte_ranges(np.frombuffer(DATA, np.uint8), starts, lengths)
    found.validate(full=True)
    assert found.to_pylist() == [
        None if length < 0 else DATA[start : start + length] for start, length in ranges
    ]


@given(values=st.lists(st.integers(-3, 3)))
def test_numbers_are_null_where_the_bitmap_has_no_bit(values: list[int]) -> None:
    array = np.array(values, np.int64)
    found = columns.numbers(array, columns.bitmap(array >= 0))
    assert found.to_pylist() == [None if value < 0 else value for value in values]


@pytest.mark.parametrize("count", [0, 1, 1 << 14, (1 << 14) + 1])
def test_repeating_columns_have_any_number_of_rows(count: int) -> None:
    batch = columns.record_batch(
        columns.whole_records("tally", "/log", "/log/1", Clock.WALL_US, count)
        | {"resources": columns.no_texts(count)},
        count,
    )
    found = plain(batch)
    assert found.schema == RECORDS
    expected: dict[str, Any] = {
        "system": "tally",
        "log": "/log",
        "file": "/log/1",
        "outcome": "valid",
        "clock": Clock.WALL_US.value,
        "resources": [],
    }
    for name, column in zip(found.schema.names, found.columns, strict=True):
        assert column.equals(pa.array([expected.get(name)] * count, RECORDS.field(name).type))


def test_codes_are_texts() -> None:
    codes = np.array([1, 0, 1], np.int8)
    assert columns.coded(codes, pa.array(["a", "b"])).to_pylist() == ["b", "a", "b"]
