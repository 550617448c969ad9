"""Lines of columns are, byte for byte, those that others write row by row."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arrow.lines import csv_texts, has_one_value, json_texts, lines, quoted_csv
from tests.kit import csv_of

TEXTS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
PLAIN = st.lists(st.text("abc 09-:", max_size=3), min_size=1, max_size=40)
NUMBERS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1))
BYTES = st.lists(st.none() | st.binary(max_size=5))


def columns(
    texts: list[str | None], numbers: list[int | None], data: list[bytes | None], skip: int
) -> list[pa.Array]:
    kinds = (pa.string(), pa.int64(), pa.binary())
    made = zip((texts, numbers, data), kinds, strict=True)
    return [pa.array(one, kind).slice(skip) for one, kind in made]


def plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


@given(TEXTS | PLAIN, NUMBERS, BYTES, st.integers(0, 3))
def test_values_in_json_are_those_of_the_standard_library(
    texts: list[str | None], numbers: list[int | None], data: list[bytes | None], skip: int
) -> None:
    for column in columns(texts, numbers, data, skip):
        expected = [json.dumps(plain(one)) for one in column.to_pylist()]
        assert json_texts(column).to_pylist() == expected


@given(TEXTS | PLAIN, NUMBERS, BYTES, st.integers(0, 3))
def test_fields_of_csv_are_those_of_copy(
    texts: list[str | None], numbers: list[int | None], data: list[bytes | None], skip: int
) -> None:
    for column in columns(texts, numbers, data, skip):
        written = lines([csv_texts(column), b",x\r\n"], len(column))
        assert bytes(written).decode() == csv_of([plain(one), "x"] for one in column.to_pylist())


def test_texts_that_have_quotes_are_quoted_whole() -> None:
    assert quoted_csv(pa.array(['{"a":1}', None])).to_pylist() == ['"{""a"":1}"', ""]


def test_lines_have_a_part_of_each_column_and_bytes_of_every_row() -> None:
    assert bytes(lines([b"\xff", pa.array(["1", "2"]), b"\n"], 2)) == b"\xff1\n\xff2\n"
    assert bytes(lines([b"x", pa.array([], pa.string())], 0)) == b""
    assert bytes(lines([b"x", b"\n"], 2)) == b"x\nx\n"
    assert bytes(lines([pa.array(["1", None]), b"\n"], 2, "null")) == b"1\nnull\n"


@given(TEXTS | PLAIN, NUMBERS, BYTES, st.integers(0, 3))
def test_a_column_has_one_value_if_all_its_rows_are_equal(
    texts: list[str | None], numbers: list[int | None], data: list[bytes | None], skip: int
) -> None:
    for column in filter(len, columns(texts, numbers, data, skip)):
        assert has_one_value(column) == (len(set(column.to_pylist())) == 1)
