"""Bodies of records and the rows in them, byte for byte."""

from __future__ import annotations

import pytest

from tallystick.errors import LogFormatError
from tallystick.records import Kind
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.field_types import CHECKPOINT_TABLE, Page
from tallystick.systems.derby.format.layout import Group, make_instant
from tallystick.systems.derby.format.operations import encode_operation
from tallystick.systems.derby.format.page_rows import (
    Field,
    Images,
    Row,
    images_of,
    read_field,
    read_row,
    rows_of,
)
from tallystick.systems.derby.format.record_body import (
    Body,
    decode_body,
    decode_operation,
    decode_transaction,
    encode_body,
    has_operation,
    kind_of,
)

ABORT = encode_operation(operations.END, {"transactionStatus": 1, "xactId": None})


@pytest.mark.parametrize(
    ("operation", "group", "kind"),
    [
        (operations.END, Group.COMMIT | Group.LAST, Kind.COMMIT),
        (operations.END, Group.ABORT | Group.LAST, Kind.ROLLBACK),
        (operations.END, Group.PREPARE, Kind.PREPARE),
        (operations.BEGIN, Group.FIRST, Kind.BEGIN),
        (operations.INSERT, Group.RAWSTORE | Group.COMMIT, operations.OPERATIONS[103].kind),
    ],
)
def test_an_end_is_what_its_group_says(operation: int, group: Group, kind: Kind) -> None:
    assert kind_of(operation, group) is kind


def test_a_body_without_a_transaction_has_a_null_in_its_place() -> None:
    without = encode_body(Group.RAWSTORE, 0, ABORT)
    assert without[:6].hex() == "008141000000"
    assert without[6 : 6 + len(ABORT)] == ABORT
    assert decode_body(without).transaction is None
    assert decode_transaction(without) is None
    assert decode_transaction(encode_body(Group.RAWSTORE, 7, ABORT)) == 7
    assert has_operation(without)
    assert not has_operation(without[:6] + bytes(2))


def test_the_tail_is_what_the_group_says() -> None:
    plain = encode_body(Group.LAST, 7, ABORT, b"tail")
    undo = encode_body(Group.COMPENSATION, 7, ABORT, undo=make_instant(1, 2))
    assert decode_body(plain + b"pad") == decode_operation(plain + b"pad")
    body = decode_body(plain + b"pad")
    assert (body.optional, body.undo, body.pad) == (b"tail", None, 3)
    assert body.head == len(plain) - len(b"tail") - 4
    assert (body.name, body.kind) == ("EndXact", Kind.PREPARE)
    body = decode_body(undo)
    assert (body.optional, body.undo, body.pad) == (None, make_instant(1, 2), 0)
    checked = encode_body(Group.CHECKSUM | Group.COMPENSATION, 7, ABORT, b"")
    body = decode_body(checked)
    assert (body.optional, body.undo, body.pad) == (None, None, 4)


def test_a_tail_that_is_cut_is_told_and_the_operation_is_read() -> None:
    cut = encode_body(Group.LAST, 7, ABORT, b"tail")[:-1]
    with pytest.raises(LogFormatError) as caught:
        decode_body(cut)
    body = decode_operation(cut)
    assert (body.optional, body.undo, body.pad) == (None, None, 0)
    assert body.tail_error == str(caught.value)
    assert body.fields == {"transactionStatus": 1, "xactId": None}
    assert body.head == len(cut) - 3 - 4


def test_an_unknown_operation_says_its_number_and_its_place() -> None:
    wrong = encode_body(Group.LAST, 7, (999).to_bytes(2) + ABORT[2:])
    with pytest.raises(LogFormatError, match="format id 999") as caught:
        decode_operation(wrong)
    assert caught.value.offset == wrong.index((999).to_bytes(2))


ROW = bytes.fromhex("00 0a 03  00 02 6162  20 0001 63  01")
FIELDS = (Field(0, b"ab"), Field(0x20, b"c"), Field(1, None))


@pytest.mark.parametrize(
    ("raw", "row"),
    [
        (ROW.hex(), Row(0, 10, None, 0, FIELDS)),
        ("04 0a 03 01 00 01 61", Row(4, 10, None, 3, (Field(0, b"a"),))),
        ("02 0a 0007 08", Row(2, 10, (7, 8), 0, ())),
        ("06 0a 0007 08 03 01 05", Row(6, 10, (7, 8), 3, (Field(5, None),))),
        ("00 0a 00", Row(0, 10, None, 0, ())),
    ],
)
def test_rows_are_read(raw: str, row: Row) -> None:
    cursor = Cursor(bytes.fromhex(raw))
    assert read_row(cursor) == row
    assert cursor.left == 0


@pytest.mark.parametrize("cut", range(len(ROW)))
def test_a_row_that_is_cut_is_an_error(cut: int) -> None:
    with pytest.raises(LogFormatError):
        read_row(Cursor(ROW[:cut]))


def test_a_row_has_no_more_fields_than_bytes() -> None:
    with pytest.raises(LogFormatError, match="fields than the row"):
        read_row(Cursor(bytes.fromhex("00 0a 03 01 01")))


def body_of(operation: int, optional: bytes | None) -> Body:
    return Body(Group.RAWSTORE, 7, operation, {"num_rows": 2}, 0, optional)


def test_images_are_those_of_the_operation() -> None:
    other = bytes.fromhex("00 0a 01 01")
    row, after = read_row(Cursor(ROW)), read_row(Cursor(other))
    images = images_of(body_of(operations.INSERT, ROW))
    assert images == Images(after=ROW, row_after=row)
    images = images_of(body_of(operations.UPDATE_ROW, other + ROW))
    assert images == Images(ROW, other, row, after)
    fields = bytes.fromhex("00 01 61  00 02 6263")
    images = images_of(body_of(operations.UPDATE_FIELD, fields + b"more"))
    assert images == Images(fields[3:], fields[:3])
    images = images_of(body_of(operations.DELETE, ROW))
    assert images == Images(before=ROW, row_before=row)
    for nothing in (b"", None):
        assert images_of(body_of(operations.DELETE, nothing)) == Images()
    assert rows_of(body_of(operations.PURGE, ROW + other)) == [row, after]
    assert read_field(Cursor(b"\x21more")) == Field(0x21, None)


def test_a_table_of_transactions_is_printed_in_the_words_of_the_engine() -> None:
    entries = [
        {"xid": 7, "gid": None, "first": make_instant(1, 61), "last": None, "status": 2},
        {"xid": 8, "gid": None, "first": None, "last": make_instant(2, 3), "status": 0},
    ]
    assert CHECKPOINT_TABLE.printed is not None
    assert CHECKPOINT_TABLE.printed(entries) == [
        {"xid": "7", "gid": None, "first": "(1,61)", "last": "null", "status": 2},
        {"xid": "8", "gid": None, "first": "(0,0)", "last": "(2,3)", "status": 0},
    ]


def test_a_page_is_printed_with_its_container() -> None:
    printed = operations.OPERATIONS[operations.INVALIDATE_PAGE].printed(
        {"pageId": Page(1, 2, 3), "pageVersion": 9}
    )
    assert printed == {"pageId": "Page(3,Container(1, 2))", "pageVersion": 9}
