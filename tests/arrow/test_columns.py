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
from tallystick.arrow.schemas import RECORDS, TRANSACTIONS, plain
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


@given(st.lists(st.integers(0, len(DATA) - 4)), st.sampled_from(["<i4", ">i4", ">u2"]))
def test_numbers_are_read_at_any_place(places: list[int], kind: str) -> None:
    found = columns.numbers_at(np.frombuffer(DATA, np.uint8), np.array(places, np.int64), kind)
    size = int(kind[2])
    assert found.tolist() == [
        int.from_bytes(
            DATA[at : at + size], "little" if kind[0] == "<" else "big", signed=kind[1] == "i"
        )
        for at in places
    ]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=5))))
def test_values_that_stand_one_after_the_other_make_a_column(values: list[bytes | None]) -> None:
    lengths = np.array([-1 if one is None else len(one) for one in values], np.int64)
    offsets = columns.offsets_of(lengths)
    data = np.frombuffer(b"".join(filter(None, values)), np.uint8)
    found = columns.joined_bytes(pa.binary(), offsets, data, columns.bitmap(lengths >= 0))
    found.validate(full=True)
    assert found.to_pylist() == values


@given(st.lists(st.integers(-2, 2)))
def test_the_text_of_a_number_is_made_once(values: list[int]) -> None:
    made: list[int] = []

    def text(one: int) -> str:
        made.append(one)
        return f"n{one}"

    found = columns.texts_of(np.array(values, np.int64), text)
    assert found.to_pylist() == [f"n{one}" for one in values]
    assert made == sorted(set(values))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_text_repeats_and_stands_in_lists_of_one(count: int) -> None:
    texts = columns.repeated("a\udcff", count)
    assert texts.to_pylist() == ["a\\udcff"] * count
    assert columns.one_each(texts).to_pylist() == [["a\\udcff"]] * count


@given(st.integers(0, 9), st.integers(1, 4))
def test_a_batch_is_cut_into_parts(count: int, rows: int) -> None:
    batch = pa.record_batch({"n": pa.array(range(count), pa.int64())})
    parts = list(columns.sliced(batch, rows))
    assert all(0 < one.num_rows <= rows for one in parts)
    assert [row["n"] for one in parts for row in one.to_pylist()] == list(range(count))


def test_the_columns_that_plain_transactions_share_fit_the_table() -> None:
    whole = columns.whole_transactions("h2", "/log", Clock.NONE, 2)
    found = plain(columns.table_batch(TRANSACTIONS, whole, 2), TRANSACTIONS)
    assert found.schema == TRANSACTIONS
    row = found.to_pylist()[1]
    assert (row["system"], row["log"], row["clock"]) == ("h2", "/log", "none")
    assert (row["participants"], row["open_participants"]) == ([], [])
    assert (row["complete"], row["holes"], row["key"]) == (True, "", None)
