"""Rows of a container where the log begins, by its pages and what the log did to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError
from tallystick.storage.crc import crc32
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.containers import (
    Before,
    Container,
    Key,
    columns_of,
    open_container,
)

NUMBER = 1168
PAGE_SIZE = 4096

Columns = dict[int, bytes | None]


def field(data: bytes | None) -> bytes:
    return b"\x01" if data is None else b"\0" + len(data).to_bytes(1) + data


def record(number: int, *fields: bytes, deleted: bool = False, after: Key | None = None) -> bytes:
    """A row as a page has it; ``after`` is where it goes on."""
    head = bytes((deleted | (6 if after else 0), number))
    if after is not None:
        head += after[0].to_bytes(2) + after[1].to_bytes(1) + b"\0"
    return head + len(fields).to_bytes(1) + b"".join(fields)


def page(version: int, *rows: bytes, overflow: bool = False) -> bytes:
    head = b"\0\x75\0\0" + bytes((overflow, 1)) + version.to_bytes(8) + len(rows).to_bytes(2)
    body, slots = bytearray(head.ljust(60, b"\0")), b""
    for row in rows:
        slots = len(body).to_bytes(2) + len(row).to_bytes(2) + b"\0\0" + slots
        body += row
    body = body.ljust(PAGE_SIZE - 8 - len(slots), b"\0") + slots
    return bytes(body) + crc32(body).to_bytes(8)


def container(folder: Path, *pages: bytes) -> Container:
    """A container in a database whose log is in the folder's folder ``log``."""
    first = bytes(0x6C) + b"\x50" + (116).to_bytes(4) + bytes(4) + PAGE_SIZE.to_bytes(4)
    (folder / "seg0").mkdir()
    path = folder / "seg0" / f"c{NUMBER:x}.dat"
    path.write_bytes(first.ljust(PAGE_SIZE, b"\0") + b"".join(pages))
    return Container(open_container(str(folder / "log"), NUMBER))


def done(operation: int, version: int, number: int, data: bytes = b"", **fields: object) -> Body:
    """An operation on the first page, which had that version."""
    known = {"pageId": Page(0, NUMBER, 1), "pageVersion": version, "recordId": number, **fields}
    return Body(Group(256), 5, operation, known, 0, data)


def rows_before(stored: Container, *bodies: Body) -> dict[Key, Columns]:
    before = Before(stored)
    for place, body in enumerate(bodies):
        before.note(body, place)
    return {key: columns_of(part, before) for key, part in before.rows()}


CONTROL = record(6, field(b"what the table is"))


def test_what_the_log_brought_to_a_page_is_taken_back(tmp_path: Path) -> None:
    stored = container(
        tmp_path,
        page(
            20,
            CONTROL,
            record(7, field(b"new"), field(b"same")),
            record(8, field(b"inserted")),
            record(9, field(b"gone"), deleted=True),
            record(10, field(b"untouched")),
            record(11, field(b"gone before"), deleted=True),
        ),
    )
    old, new = record(7, field(b"old"), b"\x05"), record(7, field(b"new"), b"\x05")
    older, other = record(7, field(b"oldest"), b"\x05"), record(7, field(b"old"), b"\x05")
    found = rows_before(
        stored,
        done(operations.UPDATE_ROW, 15, 7, other + older),
        done(operations.UPDATE_ROW, 16, 7, new + old),
        done(operations.INSERT, 17, 8, record(8, field(b"inserted"))),
        done(operations.DELETE, 18, 9, delete=True),
        done(operations.DELETE, 20, 10, delete=True),  # it is not on the page yet
    )
    assert found == {
        (1, 7): {0: b"oldest", 1: b"same"},
        (1, 9): {0: b"gone"},
        (1, 10): {0: b"untouched"},
    }


def test_old_values_of_what_was_rolled_back_are_those_before_its_transaction(
    tmp_path: Path,
) -> None:
    """Its first change was before the log, so the second one's old value was never committed."""
    stored = container(tmp_path, page(20, CONTROL, record(7, field(b"committed"))))
    mine, second = record(7, field(b"mine"), b"\x05"), record(7, field(b"mine, too"), b"\x05")
    update = done(operations.UPDATE_ROW, 15, 7, second + mine)
    undone = replace(done(operations.PHYSICAL_UNDO, 16, 7), undo=0)
    before_the_log = replace(done(operations.PHYSICAL_UNDO, 17, 7), undo=-1)
    assert rows_before(stored, update, undone, before_the_log) == {(1, 7): {0: b"committed"}}
    late = replace(done(operations.PHYSICAL_UNDO, 20, 7), undo=0)  # it is not on the page yet
    assert rows_before(stored, update, late) == {(1, 7): {0: b"mine"}}


def test_a_purged_row_comes_from_the_log(tmp_path: Path) -> None:
    stored = container(tmp_path, page(20, CONTROL))
    purged = done(operations.PURGE, 19, 0, record(7, field(b"x"), deleted=True), recordIds=[7])
    purged.fields["num_rows"] = 1
    deleted = done(operations.DELETE, 18, 7, delete=True)
    assert rows_before(stored, deleted, purged) == {(1, 7): {0: b"x"}}
    assert rows_before(stored, purged) == {}  # it was deleted before the log


def test_rows_and_values_go_on_on_other_pages(tmp_path: Path) -> None:
    first_piece = record(6, field(b"long "), b"\x02\x03\0\x02\x07")
    stored = container(
        tmp_path,
        page(
            5,
            CONTROL,
            record(7, field(b"a"), after=(2, 8)),
            record(9, b"\x02\x03\0\x02\x06"),
            record(10, b"\x02\x03\0\x02\x3f", field(b"b")),
        ),
        page(
            5,
            first_piece,
            record(7, field(b"value")),
            b"\x04\x08\x01\x01" + field(b"further"),
            overflow=True,
        ),
    )
    assert rows_before(stored) == {
        (1, 7): {0: b"a", 1: b"further"},
        (1, 9): {0: b"long value"},
        (1, 10): {1: b"b"},  # a part of the first column is not there
    }


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    damaged = bytearray(page(5, CONTROL, record(7, field(b"a"))))
    damaged[100] ^= 1
    with pytest.raises(CorruptLogError, match="another checksum"):
        rows_before(container(tmp_path, bytes(damaged)))


def test_without_a_database_there_are_no_rows(tmp_path: Path) -> None:
    assert rows_before(Container(open_container(str(tmp_path / "log"), NUMBER))) == {}
