"""Rows and batches of the tables hold what the objects hold."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from tallystick.arrow import columns, schemas
from tallystick.records import (
    Change,
    Clock,
    Finding,
    Kind,
    LogFile,
    Outcome,
    Severity,
    Span,
    State,
    Transaction,
    jsonable,
)
from tests.test_records import RECORD


def test_record_batches_hold_every_record_once() -> None:
    batches = list(schemas.record_batches([RECORD] * 25, "log", "boot_ms", rows=10))
    assert [batch.num_rows for batch in batches] == [10, 10, 5]
    row = batches[0].to_pylist()[0]
    assert batches[0].schema == schemas.RECORDS
    assert (row["log"], row["clock"], row["gtrid"]) == ("log", "boot_ms", b"\x01\xff")
    assert row["transaction"] == -1, "unsigned numbers keep their bits"


def test_a_transaction_row_names_its_evidence() -> None:
    one = Transaction("h2", "l", "k", State.PREPARED, evidence=("f", 8), evidence_type="P")
    (batch,) = schemas.batches_of_transactions([one], Clock.NONE.value)
    read = batch.to_pylist()[0]
    assert (read["state"], read["evidence_file"], read["evidence_offset"]) == ("prepared", "f", 8)


def test_half_a_pair_of_surrogates_in_a_name_is_replaced() -> None:
    one = Transaction("h2", "l", "k", State.PREPARED, name="a\ude00\U0001f600")
    (batch,) = schemas.batches_of_transactions([one], Clock.NONE.value)
    assert batch.column("name").to_pylist() == ["a\ufffd\U0001f600"]


def test_changes_can_have_another_name_of_their_log() -> None:
    change = Change("h2", "l", 1, 0, Kind.ADD, "T", "k", "f", 8, values={"A": b"\x01", "B": None})
    (own,) = schemas.batches_of_changes([change], "none")
    (named,) = schemas.batches_of_changes([change], "none", log="l#1")
    assert (own["log"].to_pylist(), named["log"].to_pylist()) == (["l"], ["l#1"])
    assert own["values"].to_pylist() == ['{"A":"01","B":null}']


@pytest.mark.parametrize("value", [
    {1: (b"\x00\xff", [State.PREPARED])}, {"a": {"b": {3}}}, {"n": 2**70, "f": 0.1, "t": True},
    {"m": MappingProxyType({"k": memoryview(b"x")})},
])  # fmt: skip
def test_json_text_is_what_jsonable_values_give(value: dict[Any, Any]) -> None:
    assert schemas.json_text(value) == json.dumps(jsonable(value), separators=(",", ":"))


def test_a_finding_row_keeps_its_severity() -> None:
    finding = Finding("torn-tail", Severity.WARNING, "h2", "l", "text", bytes_at_risk=3)
    batch = schemas.batch_of(schemas.finding_rows([finding]), schemas.FINDINGS)
    assert batch.to_pylist()[0]["severity"] == "warning"
    assert batch.to_pylist()[0]["bytes_at_risk"] == 3


def test_bytes_by_outcome_add_up_to_the_file() -> None:
    spans = (Span(0, 4, Outcome.VALID, "header"), Span(4, 6, Outcome.UNUSED, "fill", "zeros"))
    file = LogFile("f", 10, "log file", 0, spans=spans)
    (row,) = schemas.file_rows([file], "h2", "l", "safe")
    assert sum(row[f"{outcome.value}_bytes"] for outcome in Outcome) == row["size"] == 10


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 16384, 16385])
def test_plain_decodes_repeated_texts_of_any_number(count: int) -> None:
    files = columns.whole_records("h2", "/log", "/log/ä", Clock.NONE, count)
    batch = columns.record_batch(files, count)
    found = schemas.plain(batch)
    found.validate(full=True)
    assert found.schema == schemas.RECORDS
    assert found.column("file").equals(pa.array(["/log/ä"] * count, pa.string()))
    assert found.column("gtrid").null_count == count
    assert found.nbytes < batch.nbytes + count * 100, "a slice counts its own rows"


@pytest.mark.parametrize("count", [10, 5000])
def test_plain_keeps_nulls_of_a_repeated_text(count: int) -> None:
    codes = pa.array([0, None] * (count // 2), pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["one"]))
    batch = columns.record_batch({"type": column}, count)
    assert schemas.plain(batch).column("type").to_pylist() == ["one", None] * (count // 2)


def test_batches_are_joined_and_cut() -> None:
    batches = [pa.record_batch({"n": list(range(count))}) for count in (1, 2, 9, 1)]
    found = list(schemas.rebatched(batches, 4))
    assert [one.num_rows for one in found] == [4, 4, 4, 1]
    assert [row["n"] for one in found for row in one.to_pylist()] == [0, 0, 1, *range(9), 0]
