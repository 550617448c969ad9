"""The control file of a compaction: bytes, and what a load reads because of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.jboss.format.compaction_control import (
    Control,
    decode_orders,
    encode_control,
    plan,
)
from tallystick.systems.jboss.format.layout import (
    SHAPES,
    Item,
    RecordType,
    encode,
    encode_header,
)
from tallystick.systems.jboss.read.files import decode_control


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
    item = Item(0, 0, RecordType.ADD, 0, 0, record_id=1, user_type=0, body=raw)
    data = encode_header(SHAPES["g3"], 0) + encode(SHAPES["g3"], item)
    found = decode_control(memoryview(data))
    assert found is None or isinstance(found, Control)


@pytest.mark.parametrize(
    ("body", "control"),
    [
        ("00000000 00000000 00000000", Control((), ())),
        ("00000001 0001 61 00000000 00000000 ff", Control(("a",), ())),
        ("00000001 0000 00000000 00000001 0001 62 0000", Control(("",), (), (("b", ""),))),
        ("00000001 0000", None),
        ("00000001 0001", None),
        ("00000002 0000 00000000", None),
        ("00000000 00000000 00000001 0000", None),
        ("00000000 00000000", None),
        ("00000001 0001 ff 00000000 00000000", None),
    ],
)
def test_orders_have_the_bytes_of_the_document(body: str, control: Control | None) -> None:
    assert decode_orders(memoryview(bytes.fromhex(body))) == control
