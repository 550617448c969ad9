"""Operations come back from their bytes; hostile bodies end in an error of ours."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.records import Xid
from tallystick.systems.derby.format import field_types, operations
from tallystick.systems.derby.format.compressed_numbers import (
    Cursor,
    compressed_int,
    encode_global_id,
    format_id,
)
from tallystick.systems.derby.format.layout import Group, make_instant
from tallystick.systems.derby.format.operations import (
    OPERATIONS,
    encode_begin,
    encode_end,
    encode_operation,
)
from tallystick.systems.derby.format.page_rows import images_of
from tallystick.systems.derby.format.record_body import decode_body, encode_body

xids = st.builds(
    Xid,
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(max_size=255),
    st.binary(max_size=255),
)


@given(st.integers(1, 1 << 40), st.none() | xids, st.sampled_from([1, 2, 4]))
def test_begin_and_end_come_back(number: int, xid: Xid | None, status: int) -> None:
    begin = encode_body(Group.FIRST, number, encode_begin(16, xid))
    end = encode_body(Group.LAST, number, encode_end(status, xid))
    assert decode_body(begin).xid == decode_body(end).xid == xid
    assert decode_body(end).transaction == number
    assert decode_body(end).fields["transactionStatus"] == status
    fields = {"transactionStatus": status, "xactId": xid}
    assert encode_begin(status, xid) == encode_operation(operations.BEGIN, fields)
    assert encode_end(status, xid) == encode_operation(operations.END, fields)


@given(st.integers(0, (1 << 62)), st.integers(0, (1 << 62)), st.none() | xids)
def test_checkpoint_with_its_table_comes_back(redo: int, undo: int, xid: Xid | None) -> None:
    entries = [{"xid": 7, "gid": xid, "first": make_instant(1, 61), "last": None, "status": 2}]
    fields = {"redoLWM": redo, "undoLWM": undo, "transactionTable": entries}
    operation = encode_operation(operations.CHECKPOINT, fields)
    assert decode_body(encode_body(Group.RAWSTORE, 7, operation)).fields == fields


_OPERATIONS = sorted(operations.OPERATIONS)


@given(st.sampled_from(_OPERATIONS), st.sampled_from([0x100, 0x184, 0x900]), st.binary())
def test_hostile_bodies_end_in_an_error_of_ours(operation: int, group: int, rest: bytes) -> None:
    head = b"\0\x81" + compressed_int(group) + b"\0\x93\0\1" + operation.to_bytes(2)
    with contextlib.suppress(LogFormatError):
        body = decode_body(head + rest)
        if body.operation in (operations.INSERT, operations.UPDATE_ROW):
            images_of(body)


longs = st.integers(0, (1 << 63) - 1)
ints = st.integers(0, (1 << 31) - 1)
VALUES: dict[field_types.FieldType, st.SearchStrategy[Any]] = {
    field_types.COMPRESSED_INT: ints,
    field_types.COMPRESSED_LONG: longs,
    field_types.INSTANT: longs,
    field_types.INT: st.integers(-(1 << 31), (1 << 31) - 1),
    field_types.LONG: st.integers(-(1 << 63), (1 << 63) - 1),
    field_types.SIGNED_BYTE: st.integers(-128, 127),
    field_types.BYTE: st.integers(0, 255),
    field_types.BOOLEAN: st.booleans(),
    field_types.UTF: st.text(st.characters(max_codepoint=0xFFFF), max_size=20),
    field_types.CONTAINER: st.builds(field_types.Container, longs, longs),
    field_types.PAGE: st.builds(field_types.Page, longs, longs, longs),
    field_types.LOGICAL_UNDO: st.sampled_from([None, field_types.LOGICAL_UNDO_TEXT]),
    field_types.XID: st.none() | xids,
    field_types.CHECKPOINT_TABLE: st.just([]),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("number", OPERATIONS)
@given(data=st.data())
def test_every_operation_comes_back(number: int, data: st.DataObject) -> None:
    fields = {name: data.draw(VALUES[kind], name) for name, kind in OPERATIONS[number].fields}
    if "num_rows" in fields:
        fields["num_rows"] = data.draw(st.integers(0, 4))
        for name in (
            ("recordIds", "reservedSpace") if number == operations.COPY_ROWS else ("recordIds",)
        ):
            fields[name] = data.draw(
                st.lists(ints, min_size=fields["num_rows"], max_size=fields["num_rows"])
            )
    if number == operations.CONTAINER_CHANGE:
        created = fields["operation"] == operations.CONTAINER_CREATE
        fields["createByteArray"] = "0102" if created else None
    encoded = encode_operation(number, fields)
    assert encoded[:2] == format_id(number)
    cursor = Cursor(encoded, 2)
    assert OPERATIONS[number].read(cursor) == fields
    assert cursor.left == 0


def test_text_is_written_as_modified_utf_8() -> None:
    encode = field_types.UTF.encode
    assert encode("a\0é") == b"\0\5a\xc0\x80\xc3\xa9"
    assert encode("\U0001f600") == b"\0\6\xed\xa0\xbd\xed\xb8\x80"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\xc1\xa1", "aa"),  # overlong
        (b"\xe0\x80\xaf\0", "/\0"),
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ud83d\ude00"),
        (b"\xf0\x9f\x98\x80", None),  # four bytes
        (b"\xc3", None),
        (b"\x80", None),
    ],
)
def test_text_is_read_as_java_reads_modified_utf_8(raw: bytes, text: str | None) -> None:
    data = len(raw).to_bytes(2) + raw
    if text is None:
        with pytest.raises(LogFormatError):
            field_types.UTF.read(Cursor(data))
    else:
        assert field_types.UTF.read(Cursor(data)) == text


def test_second_part_of_a_global_id_that_is_cut_off_ends_in_zeros() -> None:
    """The engine makes an array of that length and reads what there is; none is too long."""
    long = Xid(7, b"g" * 65, b"b" * 255)
    assert Cursor(encode_global_id(long)).global_id() == long
    assert Cursor(b"\x01\x48\0\0\0\7\1g\3b").global_id() == Xid(7, b"g", b"b\0\0")
    with pytest.raises(LogFormatError):
        Cursor(b"\x01\x48\0\0\0\7\3g").global_id()


def test_printed_forms_are_those_of_the_engine() -> None:
    page = field_types.Page(0, 1168, 1)
    printed = OPERATIONS[operations.INVALIDATE_PAGE].printed({"pageId": page, "pageVersion": 7})
    assert printed == {"pageId": "Page(1,Container(0, 1168))", "pageVersion": 7}
    assert field_types.global_id_text(Xid(7, b"\1", b"\xff")) == "7:01:ff"
    assert field_types.global_id_text(None) is None
