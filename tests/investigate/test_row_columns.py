"""Rows that come as columns: their values are made late, and nobody sees that."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import sys
from typing import Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import FATED
from tallystick.investigate.row_columns import MADE_AT_ONCE, RowColumns
from tallystick.records import Change, Clock, Fate, Kind, Row

COUNT = 3 * MADE_AT_ONCE + 7


def batch(count: int = COUNT) -> pa.RecordBatch:
    row = {
        "system": "jboss", "log": "l", "commit_sequence": 1, "ordinal": 0, "kind": "add",
        "collection": "c", "file": "f", "offset": 0, "clock": "none", "fate": "committed",
    }  # fmt: skip
    rows = [
        row | {"key": str(one), "values": None if one % 5 == 0 else f'{{"n":{one}}}'}
        for one in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, FATED)


def plain(number: int) -> Row:
    values = None if number % 5 == 0 else {"n": number}
    change = Change("jboss", "l", 1, 0, Kind.ADD, "c", str(number), "f", 0, values=values)
    return Row(Fate.COMMITTED, change)


class Decoding:
    """Counts the rows that are decoded."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, found: pa.RecordBatch) -> list[pa.RecordBatch]:
        self.rows.append(len(found))
        return [found.slice(0, 1), found.slice(1)]


def columns(decode: Decoding | None = None) -> RowColumns:
    return RowColumns(batch(), None, Clock.NONE, {}, decode)


@pytest.mark.parametrize("decode", [None, Decoding()])
def test_rows_are_as_if_made_one_by_one(decode: Decoding | None) -> None:
    assert [*columns(decode).rows()] == [plain(one) for one in range(COUNT)]
    for one, other in zip(columns(decode).rows(), map(plain, range(COUNT)), strict=True):
        assert type(one.change) is Change
        assert one.change.values == other.change.values
        assert type(one.change.values) is type(other.change.values)


@pytest.mark.parametrize(
    "told",
    [
        repr, str, dataclasses.asdict, copy.copy, copy.deepcopy, Row.to_dict,
        lambda row: dataclasses.replace(row.change, log="other"),
        lambda row: pickle.loads(pickle.dumps(row)),
        lambda row: {one.name: getattr(row.change, one.name) for one in dataclasses.fields(Change)},
    ],
)  # fmt: skip
def test_values_that_were_not_asked_for_are_there(told: Any) -> None:
    for one in [*columns(Decoding()).rows()][3:6]:
        assert told(one) == told(plain(int(one.change.key)))


def test_a_change_has_no_other_names() -> None:
    (one, *_) = columns().rows()
    for change in (one.change, plain(1).change):
        assert not hasattr(change, "value")
        with pytest.raises(AttributeError, match="'value'"):
            change.value  # type: ignore[attr-defined]  # noqa: B018
        with pytest.raises(dataclasses.FrozenInstanceError):
            change.values = {}  # type: ignore[misc]


def test_a_batch_is_decoded_once_where_all_is_asked_for_and_never_where_nothing_is() -> None:
    decode = Decoding()
    assert sum(1 for _ in columns(decode).rows()) == COUNT
    assert decode.rows == []
    assert [one.change.values for one in columns(decode).rows()][1] == {"n": 1}
    assert decode.rows == [COUNT]
    assert [*columns(decode).whole()][1].count == COUNT - 1


@pytest.mark.parametrize("asked", [False, True])
def test_few_rows_that_are_kept_keep_nothing_of_the_others(asked: bool) -> None:
    """Whether the values of others were made meanwhile or not."""
    decode = Decoding()
    found = columns(decode)
    kept, held = [], sys.getrefcount(found.batch)
    for one in found.rows():
        if int(one.change.key) % MADE_AT_ONCE == 7:
            kept.append(one)
        elif asked:
            assert one.change.values is None or one.change.values["n"] == int(one.change.key)
    del one
    gc.collect()
    now = sys.getrefcount(found.batch)  # not in the assertion, which holds it, too
    assert now == held
    before = len(decode.rows)
    assert [one.change.values for one in kept] == [{"n": int(one.change.key)} for one in kept]
    assert set(decode.rows[before:]) <= {1}


def test_a_row_that_outlives_an_answer_that_is_not_read_to_its_end_has_its_values() -> None:
    first = next(iter(RowColumns(batch(2), None, Clock.NONE, {}, Decoding()).rows()))
    rows = columns(Decoding()).rows()
    second = [next(rows) for _ in range(2)][1]
    del rows
    assert (first.change.values, second.change.values) == (None, {"n": 1})
