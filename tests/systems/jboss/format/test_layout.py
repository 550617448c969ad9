"""Bytes of headers and records, in every generation; the example of the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.jboss.format.layout import (
    SHAPES,
    Item,
    RecordType,
    decode,
    decode_header,
    encode,
    encode_header,
)
from tallystick.systems.jboss.read.scan import VALID, measure_at, scan
from tests.systems.jboss.build import full, ids_of

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "jboss.md"


I8 = st.integers(-(1 << 63), (1 << 63) - 1)


I4 = st.integers(0, (1 << 31) - 1)


BYTES = st.binary(max_size=300)


EVERY_SHAPE = pytest.mark.parametrize("name", SHAPES)


def example() -> bytes:
    block = PAGE.read_text().partition("```hex\n")[2].partition("```")[0]
    words = [line.partition("  ")[0] for line in block.splitlines()]
    return bytes.fromhex("".join(words))


def test_example_of_the_page_is_what_we_write() -> None:
    shape = SHAPES["g3"]
    records = (
        Item(0, 0, RecordType.ADD, 1, 0, record_id=7, user_type=42, body=b"abc"),
        Item(0, 0, RecordType.ADD_TX, 1, 0, 5, 8, user_type=0, body=b"x"),
        Item(0, 0, RecordType.COMMIT, 1, 0, 5, count=1),
    )
    written = encode_header(shape, 1) + b"".join(encode(shape, one) for one in records)
    assert written == example()


def test_example_of_the_page_is_what_we_read() -> None:
    data = memoryview(example())
    rows = list(scan(data, SHAPES["g3"], 1))
    items = [decode(SHAPES["g3"], data, row.offset, row.size) for row in rows]
    assert [row.status for row in rows] == [VALID] * 3
    assert [item.type for item in items] == [RecordType.ADD, RecordType.ADD_TX, RecordType.COMMIT]
    assert (items[0].record_id, items[0].user_type, items[0].body) == (7, 42, b"abc")
    assert (items[2].transaction, items[2].count) == (5, 1)


def test_documented_add_of_2008_is_what_we_write() -> None:
    item = Item(0, 0, RecordType.ADD, 1, record_id=1, user_type=10, body=bytes([1, 2, 3, 4, 5]))
    expected = "0b 00000001 0000000000000001 00000005 0a 0102030405 0000001b"
    assert encode(SHAPES["g1a"], item) == bytes.fromhex(expected)


SIZES = [
    ("g1a", RecordType.ADD, 22 + 3),
    ("g3", RecordType.ADD, 23 + 3),
    ("g3", RecordType.EVENT, 23 + 3),
    ("g1a", RecordType.UPDATE_TX, 30 + 3),
    ("g3", RecordType.ADD_TX, 31 + 3),
    ("g1a", RecordType.DELETE, 17),
    ("g3", RecordType.DELETE, 18),
    ("g1a", RecordType.DELETE_TX, 25),
    ("g1c", RecordType.DELETE_TX, 29 + 3),
    ("g3", RecordType.DELETE_TX, 30 + 3),
    ("g1a", RecordType.COMMIT, 21 + 16),
    ("g1d", RecordType.COMMIT, 21),
    ("g3", RecordType.COMMIT, 22),
    ("g1a", RecordType.PREPARE, 21 + 16),
    ("g1c", RecordType.PREPARE, 25 + 5 + 16),
    ("g1d", RecordType.PREPARE, 25 + 5),
    ("g3", RecordType.PREPARE, 26 + 5),
    ("g3", RecordType.ROLLBACK, 18),
]


@pytest.mark.parametrize(("shape", "name", "size"), SIZES)
def test_record_has_the_documented_size(shape: str, name: RecordType, size: int) -> None:
    item = full(name)
    assert len(encode(SHAPES[shape], item)) == size


@pytest.mark.sampled(4)
@EVERY_SHAPE
@given(data=st.data())
def test_what_is_encoded_is_decoded(name: str, data: st.DataObject) -> None:
    shape = SHAPES[name]
    kinds = [one for one in RecordType if shape.events or one is not RecordType.EVENT]
    kind = data.draw(st.sampled_from(kinds))
    transaction, record_id = ids_of(kind)
    item = Item(
        0,
        0,
        kind,
        data.draw(I4),
        data.draw(st.integers(-128, 127)),
        None if transaction is None else data.draw(I8),
        None if record_id is None else data.draw(I8),
        data.draw(st.integers(-128, 127)),
        data.draw(BYTES),
        data.draw(I4),
        tuple(data.draw(st.lists(st.tuples(I4, I4), max_size=5))),
        data.draw(BYTES),
    )
    raw = memoryview(encode(shape, item))
    assert measure_at(raw, 0, shape) == len(raw)
    found = decode(shape, raw, 0, len(raw))
    assert bytes(raw) == encode(shape, found)
    for field in ("type", "file_id", "transaction", "record_id"):
        assert getattr(found, field) == getattr(item, field)
    assert found.body in (None, item.body, b"")


@EVERY_SHAPE
@given(file_id=st.integers(1, 1 << 40), user=I4)
def test_header_comes_back(name: str, file_id: int, user: int) -> None:
    shape = SHAPES[name]
    file_id = file_id & 0x7FFFFFFF if shape.header_size == 4 else file_id
    found = decode_header(shape, encode_header(shape, file_id, user))
    assert found.file_id == file_id
    assert found.stamp == file_id & 0x7FFFFFFF
