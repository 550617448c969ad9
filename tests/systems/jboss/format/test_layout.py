"""Bytes of headers and records, in every generation; the page's example; hostile bytes."""

from __future__ import annotations

import time
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.jboss.engine.loader import java_hash_order
from tallystick.systems.jboss.format.compaction_control import (
    Control,
    decode_control,
    encode_control,
    plan,
)
from tallystick.systems.jboss.format.layout import (
    SHAPES,
    Item,
    Name,
    decode,
    decode_header,
    encode,
    encode_header,
)
from tallystick.systems.jboss.format.narayana import (
    ObjectState,
    heuristic_xid,
    object_state,
    pack_object_state,
    pack_xid,
    xid,
)
from tallystick.systems.jboss.read import scan as walking
from tallystick.systems.jboss.read.scan import VALID, measure_at, numbers, scan

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
        Item(0, 0, Name.ADD, 1, 0, record_id=7, user_type=42, body=b"abc"),
        Item(0, 0, Name.ADD_TX, 1, 0, 5, 8, user_type=0, body=b"x"),
        Item(0, 0, Name.COMMIT, 1, 0, 5, count=1),
    )
    written = encode_header(shape, 1) + b"".join(encode(shape, one) for one in records)
    assert written == example()


def test_example_of_the_page_is_what_we_read() -> None:
    data = memoryview(example())
    rows = list(scan(data, SHAPES["g3"], 1))
    items = [decode(SHAPES["g3"], data, row.offset, row.size) for row in rows]
    assert [row.status for row in rows] == [VALID] * 3
    assert [item.name for item in items] == [Name.ADD, Name.ADD_TX, Name.COMMIT]
    assert (items[0].record_id, items[0].user_type, items[0].body) == (7, 42, b"abc")
    assert (items[2].transaction, items[2].count) == (5, 1)


def test_documented_add_of_2008_is_what_we_write() -> None:
    item = Item(0, 0, Name.ADD, 1, record_id=1, user_type=10, body=bytes([1, 2, 3, 4, 5]))
    expected = "0b 00000001 0000000000000001 00000005 0a 0102030405 0000001b"
    assert encode(SHAPES["g1a"], item) == bytes.fromhex(expected)


SIZES = [
    ("g1a", Name.ADD, 22 + 3),
    ("g3", Name.ADD, 23 + 3),
    ("g3", Name.EVENT, 23 + 3),
    ("g1a", Name.UPDATE_TX, 30 + 3),
    ("g3", Name.ADD_TX, 31 + 3),
    ("g1a", Name.DELETE, 17),
    ("g3", Name.DELETE, 18),
    ("g1a", Name.DELETE_TX, 25),
    ("g1c", Name.DELETE_TX, 29 + 3),
    ("g3", Name.DELETE_TX, 30 + 3),
    ("g1a", Name.COMMIT, 21 + 16),
    ("g1d", Name.COMMIT, 21),
    ("g3", Name.COMMIT, 22),
    ("g1a", Name.PREPARE, 21 + 16),
    ("g1c", Name.PREPARE, 25 + 5 + 16),
    ("g1d", Name.PREPARE, 25 + 5),
    ("g3", Name.PREPARE, 26 + 5),
    ("g3", Name.ROLLBACK, 18),
]


@pytest.mark.parametrize(("shape", "name", "size"), SIZES)
def test_record_has_the_documented_size(shape: str, name: Name, size: int) -> None:
    item = full(name)
    assert len(encode(SHAPES[shape], item)) == size


def full(name: Name) -> Item:
    pairs = ((1, 2), (3, 4))
    extra = b"extra"
    return Item(0, 0, name, 1, 0, *ids_of(name), 1, b"abc", count=2, pairs=pairs, extra=extra)


def ids_of(name: Name) -> tuple[int | None, int | None]:
    transaction = None if name in (Name.EVENT, Name.ADD, Name.UPDATE, Name.DELETE) else 9
    ended = name in (Name.PREPARE, Name.COMMIT, Name.ROLLBACK)
    return transaction, None if ended else 8


@EVERY_SHAPE
@given(data=st.data())
def test_what_is_encoded_is_decoded(name: str, data: st.DataObject) -> None:
    shape = SHAPES[name]
    kinds = [one for one in Name if shape.events or one is not Name.EVENT]
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
    for field in ("name", "file_id", "transaction", "record_id"):
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


@EVERY_SHAPE
@given(raw=st.binary(max_size=400), stamp=st.sampled_from([1, 11, 0x0B0B0B0B]))
def test_random_bytes_are_scanned_to_the_end(name: str, raw: bytes, stamp: int) -> None:
    data = memoryview(raw)
    for row in scan(data, SHAPES[name], stamp):
        assert 0 <= row.offset < len(raw)
        assert row.end <= len(raw)


@EVERY_SHAPE
def test_kernel_is_the_plain_function(name: str) -> None:
    """Compiled or not, the scan gives the same rows."""
    shape = SHAPES[name]
    records = b"".join(encode(shape, replace(full(one), file_id=3)) for one in list(Name)[1:])
    stale = records.replace(b"\0\0\0\3", b"\0\0\0\2")
    data = encode_header(shape, 3) + records + stale + records[:70] + bytes(20)
    plain = getattr(walking.walk, "py_func", walking.walk)
    state, rows = array("q", [shape.header_size, 0, 1 << 20, len(data)]), array("q", bytes(3200))
    table = walking._TABLE
    shown = numbers(shape)
    names = ("measure", "measure_ending", "signed4", "check_is_right")
    kept = {one: getattr(walking, one) for one in names}
    try:
        for one, compiled in kept.items():
            setattr(walking, one, getattr(compiled, "py_func", compiled))
        count = plain(data, len(data), 3, shown, shown, table, state, rows)
    finally:
        for one, compiled in kept.items():
            setattr(walking, one, compiled)
    ours = [
        (row.offset, row.size, row.status, row.file_id) for row in scan(memoryview(data), shape, 3)
    ]
    assert [tuple(rows[4 * i : 4 * i + 4]) for i in range(count)] == ours


@pytest.mark.parametrize("name", ["g1a", "g1d", "g3", "hash"])
def test_scan_of_hostile_bytes_is_linear(name: str) -> None:
    """Places that look like records, each claiming the rest of the file."""
    shape = SHAPES[name]
    one = encode(shape, Item(0, 0, Name.ADD, 1, 0, record_id=1, user_type=1, body=b""))
    hostile = bytearray(one[: shape.fields_at + 8] + (1 << 18).to_bytes(4, "big"))
    data = memoryview(encode_header(shape, 1) + bytes(hostile) * 40_000)
    list(scan(data[:4096], shape, 1))  # compile
    begin = time.perf_counter()
    assert sum(1 for _ in scan(data, shape, 1)) <= 40_000
    assert time.perf_counter() - begin < 10


# -- control file ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["g1d", "g2", "g3", "hash"])
def test_control_file_comes_back(name: str) -> None:
    control = Control(("a-1.amq", "a-2.amq"), ("a-5.amq.cmp",), (("x.tmp", "y.amq"),))
    assert decode_control(memoryview(encode_control(SHAPES[name], control))) == control


def test_torn_control_file_orders_nothing() -> None:
    raw = encode_control(SHAPES["g3"], Control(("a-1.amq",), ("a-5.amq.cmp",)))
    assert all(decode_control(memoryview(raw[:cut])) is None for cut in range(len(raw)))


def test_control_file_is_applied_on_paper() -> None:
    names = ["a-1.amq", "a-2.amq", "a-3.amq", "a-5.amq.cmp", "a-9.amq.cmp"]
    control = Control(("a-1.amq", "a-2.amq"), ("a-5.amq.cmp",))
    assert plan(names, control, "amq") == {"a-3.amq": "a-3.amq", "a-5.amq.cmp": "a-5.amq"}
    assert plan(names, None, "amq") == {n: n for n in names[:3]}


@given(raw=st.binary(max_size=200))
def test_control_file_of_random_names_is_refused_or_read(raw: bytes) -> None:
    item = Item(0, 0, Name.ADD, 0, 0, record_id=1, user_type=0, body=raw)
    data = encode_header(SHAPES["g3"], 0) + encode(SHAPES["g3"], item)
    found = decode_control(memoryview(data))
    assert found is None or isinstance(found, Control)


# -- bodies ---------------------------------------------------------------------------------


@given(st.binary(max_size=64), st.binary(max_size=64), st.integers(-(1 << 31), (1 << 31) - 1))
def test_xid_comes_back(gtrid: bytes, bqual: bytes, format_id: int) -> None:
    raw = format_id.to_bytes(4, "big", signed=True)
    raw += len(bqual).to_bytes(4, "big") + bqual + len(gtrid).to_bytes(4, "big") + gtrid
    found = xid(raw)
    assert found is not None
    assert (found.format_id, found.gtrid, found.bqual) == (format_id, gtrid, bqual)
    assert pack_xid(found) == raw
    assert xid(raw + b"\0") is None
    assert heuristic_xid(raw + b"\1") == (found, True)
    assert heuristic_xid(raw + b"\2") is None


@given(BYTES)
def test_other_bodies_are_no_xid_and_no_object(raw: bytes) -> None:
    found = xid(raw)
    assert found is None or pack_xid(found) == raw
    state = object_state(raw)
    assert state is None or pack_object_state(state) == raw


@given(st.binary(min_size=28, max_size=28), st.text(max_size=20), BYTES, st.booleans())
def test_object_state_comes_back(uid: bytes, name: str, state: bytes, old: bool) -> None:
    one = ObjectState(uid, name, state, b"") if old else ObjectState(uid, name, state)
    assert object_state(pack_object_state(one)) == one


def test_deletes_come_in_the_order_of_a_java_hash_set() -> None:
    assert java_hash_order([33, 1, 17, 16, 1]) == [16, 33, 1, 17]
    assert java_hash_order([1 << 32, 3, 2]) == [1 << 32, 2, 3]
