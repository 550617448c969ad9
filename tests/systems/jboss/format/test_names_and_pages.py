"""Names of journal files, pages of messages, and what notes say of ids."""

from __future__ import annotations

import pytest

from tallystick.systems.jboss.format.file_names import (
    extension_of,
    number_of,
    prefix_of,
)
from tallystick.systems.jboss.format.layout import SHAPES, Item, RecordType, encode, encode_body
from tallystick.systems.jboss.format.messages import counted, ids_given
from tallystick.systems.jboss.format.pages import contents_of


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("activemq-data-12.amq", ("activemq-data", 12, "amq")),
        ("a-1.hq.cmp", ("a", 1, "hq")),
        ("a-1.amq.tmp", ("a", 1, "amq")),
        ("a-1.amq.bkp.tmp.cmp", ("a", 1, "amq")),
        ("a-123456789012345678.jbm", ("a", 123456789012345678, "jbm")),
        ("a-1234567890123456789.jbm", ("", 0, "")),
        ("a-x.amq", ("", 0, "")),
        ("-1.amq", ("", 0, "")),
        ("a-1", ("", 0, "")),
        ("server.lock", ("", 0, "")),
    ],
)
def test_a_name_has_its_parts_or_none(name: str, parts: tuple[str, int, str]) -> None:
    assert (prefix_of(name), number_of(name), extension_of(name)) == parts


PAGE = b"{\0\0\0\3abc}" + b"{\0\0\0\0}" + b"{\0\0\0\1x}"


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (PAGE, 3),
        (PAGE + b"\0" * 9, 3),
        (PAGE[:-1], 2),
        (PAGE[:-3], 2),
        (PAGE[:9], 1),
        (PAGE[:8], 0),
        (b"x" + PAGE[1:], 0),
        (PAGE[:8] + b"x" + PAGE[9:], 0),
        (b"{\xff\xff\xff\xff}" + PAGE, 0),
        (b"{\0\0\0\4abc}", 0),
    ],
)
def test_a_page_has_its_whole_messages(data: bytes, count: int) -> None:
    assert contents_of(memoryview(data)).messages == count


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("transaction", [None, 5])
def test_the_shorter_way_writes_what_the_longer_writes(name: str, transaction: int | None) -> None:
    shape = SHAPES[name]
    kind = RecordType.ADD if transaction is None else RecordType.ADD_TX
    short = encode_body(shape, kind, transaction, 7, 42, b"abc")
    item = Item(0, 0, kind, 0, 0, transaction, 7, user_type=42, body=b"abc")
    long = encode(shape, item)
    assert short[:-4] == long[:-4]
    assert int.from_bytes(short[-4:]) == len(short)


def note(limit: int) -> bytes:
    return limit.to_bytes(8) + b"more"


@pytest.mark.parametrize(
    ("notes", "given"),
    [
        ([], None),
        ([(7, note(7))], None),
        ([(7, note(100))], range(7, 101)),
        ([(50, note(50)), (7, note(100))], range(7, 51)),
        ([(7, note(100)), (50, note(50)), (60, note(200))], range(60, 201)),
    ],
)
def test_ids_given_are_those_since_the_last_start(
    notes: list[tuple[int, bytes]], given: range | None
) -> None:
    assert ids_given(notes) == given


@pytest.mark.parametrize(
    ("user_type", "body", "count"),
    [
        (40, bytes(8) + (7).to_bytes(8), 7),
        (40, bytes(8) + (7).to_bytes(8)[:-1], 0),
        (41, bytes(8) + (-2).to_bytes(4, signed=True) + b"more", -2),
        (41, bytes(11), 0),
    ],
)
def test_a_counter_counts_from_its_ninth_byte(user_type: int, body: bytes, count: int) -> None:
    assert counted(user_type, body) == count
