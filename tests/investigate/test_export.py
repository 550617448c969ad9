"""Columns are written as the standard library writes their rows."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.investigate import export
from tallystick.investigate.export import write_batches
from tests.kit import csv_of

TEXTS = ["", "plain", 'say "no"', "a,b", "two\r\nlines", "tab\t", "\x00\x7f", "žluť", "😀", None]
VALUES: dict[str, tuple[pa.DataType, list[Any], Callable[[Any], Any]]] = {
    "text": (pa.string(), TEXTS, lambda one: one),
    "few texts": (pa.dictionary(pa.int32(), pa.string()), TEXTS, lambda one: one),
    "bytes": (pa.binary(), [b"", b"\x00\xff", None],
              lambda one: None if one is None else one.hex()),
    "bool": (pa.bool_(), [True, False, None], lambda one: one),
    "small": (pa.int8(), [-128, 127, 0, None], lambda one: one),
    "large": (pa.uint64(), [0, 2**64 - 1, None], lambda one: one),
    "real": (pa.float64(), [0.1, -0.0, 1e300, None], lambda one: one),
    "number": (pa.decimal128(38, 2), [Decimal("1.50"), Decimal(7), None],
               lambda one: one if one is None else str(one) if one % 1 else int(one)),
    "day": (pa.date32(), [date(2026, 11, 29), None], lambda one: one and one.isoformat()),
    "moment": (pa.timestamp("us", "UTC"), [datetime(2026, 11, 29, 1, tzinfo=UTC), None],
               lambda one: one and one.isoformat()),
    "list": (pa.list_(pa.string()), [[], ["a", None], None], lambda one: one),
    "struct": (pa.struct({"x": pa.int32()}), [{"x": 1}, {"x": None}, None], lambda one: one),
}  # fmt: skip


def _written(form: str, batches: list[pa.RecordBatch]) -> bytes:
    out = io.BytesIO()
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert write_batches(reader, form, out) == sum(one.num_rows for one in batches)
    return out.getvalue()


@given(rows=st.lists(st.tuples(*(st.sampled_from(one[1]) for one in VALUES.values())), max_size=40))
def test_rows_are_written_as_the_standard_library_writes_them(rows: list[tuple[Any, ...]]) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * len(VALUES)
    arrays = [
        pa.array(column, kind)
        for column, (kind, _, _) in zip(columns, VALUES.values(), strict=True)
    ]
    batch = pa.record_batch(arrays, names=list(VALUES))
    plain = [
        [of(one) for one, (_, _, of) in zip(row, VALUES.values(), strict=True)] for row in rows
    ]
    lines = [
        json.dumps(dict(zip(VALUES, row, strict=True)), separators=(",", ":")) for row in plain
    ]
    assert _written("jsonl", [batch, batch.slice(1)]).decode().splitlines() == lines + lines[1:]
    told = (
        [json.dumps(one, separators=(",", ":")) if isinstance(one, list | dict) else one
         for one in row] for row in plain
    )  # fmt: skip
    assert _written("csv", [batch]).decode() == csv_of([VALUES, *told])


EMPTY = [
    (pa.string(), "", '""'), (pa.binary(), b"", '""'), (pa.large_string(), "", '""'),
    (pa.dictionary(pa.int8(), pa.string()), "", '""'), (pa.list_(pa.int8()), [], "[]"),
]  # fmt: skip


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(("kind", "value", "shown"), EMPTY, ids=lambda one: str(one))
def test_what_is_empty_is_no_null_in_csv(
    kind: pa.DataType, value: object, shown: str, columns: int
) -> None:
    column = pa.array([value, None], kind)
    batch = pa.record_batch([column] * columns, names=["a", "b"][:columns])
    lines = _written("csv", [batch]).decode().split("\r\n")[1:]
    assert lines == [",".join([shown] * columns), "," * (columns - 1), ""]


def test_columns_of_one_name_get_names_of_their_own_in_json_and_keep_theirs_in_csv() -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert _written("jsonl", [batch]) == b'{"a":1,"a_1":2}\n'
    assert _written("csv", [batch]) == b"a,a\r\n1,2\r\n"


def test_a_large_batch_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch([pa.array(range(100)), pa.array(["x"] * 100)], names=["a", "b"])
    whole = _written("jsonl", [batch]), _written("csv", [batch])
    monkeypatch.setattr(export, "_ROWS", 7)
    assert (_written("jsonl", [batch]), _written("csv", [batch])) == whole
