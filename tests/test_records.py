"""`records`, `schemas`, `errors` and the tiling check: the language that everything speaks."""

from __future__ import annotations

import json

import pytest

from tallystick import errors
from tallystick.arrow import schemas
from tallystick.records import (
    Clock,
    Finding,
    Kind,
    LogFile,
    Outcome,
    Record,
    Severity,
    Span,
    State,
    Transaction,
    jsonable,
)
from tallystick.testing import check_tiling

RECORD = Record(
    "bitronix", "a.tlog", 21, 59, Outcome.VALID, Kind.DECISION, "COMMITTING",
    sequence=4, time=99, format_id=7, gtrid=b"\x01\xff", resources=("a", "b"), body=b"\x00",
    transaction=(1 << 64) - 1, attributes={"crc": 1, "raw": b"\x02"},
)  # fmt: skip

# fmt: off
DUMP_KEYS = [
    "system", "file", "offset", "length", "outcome", "kind", "type", "sequence", "time",
    "transaction", "gtrid", "resources", "record_id", "body", "attributes",
]
# fmt: on


def test_a_dumped_record_has_the_promised_keys_in_order() -> None:
    assert list(RECORD.to_dict()) == DUMP_KEYS


def test_a_dumped_record_is_plain_json_with_binary_as_hex() -> None:
    dumped = json.loads(json.dumps(RECORD.to_dict()))
    assert dumped["gtrid"] == "01ff"
    assert dumped["attributes"] == {"crc": 1, "raw": "02", "format_id": 7}


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        jsonable(object())


def test_record_batches_hold_every_record_once() -> None:
    batches = list(schemas.record_batches([RECORD] * 25, "log", "boot_ms", rows=10))
    assert [batch.num_rows for batch in batches] == [10, 10, 5]
    row = batches[0].to_pylist()[0]
    assert batches[0].schema == schemas.RECORDS
    assert (row["log"], row["clock"], row["gtrid"]) == ("log", "boot_ms", b"\x01\xff")
    assert row["transaction"] == -1, "unsigned numbers keep their bits"


def test_a_transaction_row_names_its_evidence() -> None:
    one = Transaction("h2", "l", "k", State.PREPARED, evidence=("f", 8), evidence_type="P")
    (row,) = schemas.transaction_rows([one], Clock.NONE.value)
    batch = schemas.batch_of([row], schemas.TRANSACTIONS)
    read = batch.to_pylist()[0]
    assert (read["state"], read["evidence_file"], read["evidence_offset"]) == ("prepared", "f", 8)


def test_a_finding_row_keeps_its_severity() -> None:
    finding = Finding("torn-tail", Severity.WARNING, "h2", "l", "text", bytes_at_risk=3)
    batch = schemas.batch_of(schemas.finding_rows([finding]), schemas.FINDINGS)
    assert batch.to_pylist()[0]["severity"] == "warning"
    assert batch.to_pylist()[0]["bytes_at_risk"] == 3


def test_bytes_by_outcome_add_up_to_the_file() -> None:
    file = _file(Span(0, 4, Outcome.VALID, "header"), Span(4, 6, Outcome.UNUSED, "fill", "zeros"))
    (row,) = schemas.file_rows([file], "h2", "l")
    assert sum(row[f"{outcome.value}_bytes"] for outcome in Outcome) == row["size"] == 10


@pytest.mark.parametrize(
    ("spans", "complaint"),
    [
        ([(0, 4), (5, 5)], "starts at 5, expected 4"),
        ([(0, 6), (4, 6)], "starts at 4, expected 6"),
        ([(0, 9)], "spans end at 9, the file at 10"),
        ([], "spans end at 0, the file at 10"),
        ([(0, 0), (0, 10)], "empty span at 0"),
    ],
)
def test_spans_that_do_not_tile_are_noticed(spans: list[tuple[int, int]], complaint: str) -> None:
    file = _file(*(Span(offset, length, Outcome.VALID, "x") for offset, length in spans))
    with pytest.raises(AssertionError, match=complaint):
        check_tiling(file)


def test_a_span_that_is_not_valid_must_say_why() -> None:
    with pytest.raises(AssertionError, match="gives no reason"):
        check_tiling(_file(Span(0, 10, Outcome.CORRUPT, "record")))


def test_the_drawn_tree_of_errors_is_the_real_one() -> None:
    drawn = {word for line in (errors.__doc__ or "").splitlines() for word in line.split()}
    defined = {
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, errors.TallystickError)
    }
    assert defined <= drawn


def test_an_error_prints_place_expectation_and_advice() -> None:
    error = errors.CorruptLogError(
        "checksum differs", file="a.log", offset=12, expected="1", found="2", advice="Run verify"
    )
    assert str(error) == ("a.log at offset 12: checksum differs; expected 1; found 2. Run verify")


def _file(*spans: Span) -> LogFile:
    return LogFile("f", 10, "log file", 0, spans=spans)
