"""Records as JSON."""

from __future__ import annotations

import json

import pytest

from tallystick.records import (
    DeferredList,
    Kind,
    Outcome,
    Record,
    jsonable,
)

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


def test_a_deferred_list_is_made_once_when_it_is_asked_for() -> None:
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return [3, 4, 5]

    found = DeferredList(make)
    assert made == []
    assert (len(found), found[0], found[1:], [*found]) == (3, 3, [4, 5], [3, 4, 5])
    assert found == [3, 4, 5] != [3]
    assert (repr(found), jsonable(found)) == ("[3, 4, 5]", [3, 4, 5])
    assert made == [1]
