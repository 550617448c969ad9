"""Row and field images of pages, as log records carry them.

In: the optional data of an operation. Out: the images before and after, raw and cut into fields.
Column types are not in the log. Source: docs/formats/derby.md, section "Rows and fields".
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.record_body import Body

ROW_OVERFLOW = 2
ROW_FIRST_FIELD = 4
FIELD_NULL = 1
FIELD_OVERFLOW = 2
"""The field holds the place of its bytes: page and record id of their first part."""
FIELD_NONEXISTENT = 5
FIELD_FIXED_LENGTH = 0x20


@dataclass(frozen=True, slots=True)
class Field:
    """One column: its status byte, and its bytes or None for null or nonexistent."""

    status: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Row:
    """A row image; ``overflow`` is (page, record id) of its continuation."""

    status: int
    record_id: int
    overflow: tuple[int, int] | None
    first_field: int
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Images:
    """The images of one operation: raw bytes, and decoded where they are whole rows."""

    before: bytes | None = None
    after: bytes | None = None
    row_before: Row | None = None
    row_after: Row | None = None


def read_field(cursor: Cursor) -> Field:
    """Decode one field; raises `LogFormatError`."""
    status = cursor.uint(1)
    if status & FIELD_NULL:
        return Field(status, None)
    fixed = status & FIELD_FIXED_LENGTH
    return Field(status, cursor.take(cursor.uint(2) if fixed else cursor.compressed_int()))


def read_row(cursor: Cursor) -> Row:
    """Decode one row; raises `LogFormatError`."""
    status = cursor.uint(1)
    record_id = cursor.compressed_int()
    overflow = None
    if status & ROW_OVERFLOW:
        page = cursor.compressed_long()
        overflow = page, cursor.compressed_int()
    first = cursor.compressed_int() if status & ROW_FIRST_FIELD else 0
    if status & ROW_OVERFLOW and not status & ROW_FIRST_FIELD:
        return Row(status, record_id, overflow, first, ())
    count = cursor.compressed_int()
    cursor.check_count(count, 1, "fields than the row")
    fields = tuple(read_field(cursor) for _ in range(count))
    return Row(status, record_id, overflow, first, fields)


def rows_of(body: Body) -> list[Row]:
    """Decode the rows of a purge or copy; raises `LogFormatError`."""
    cursor = Cursor(body.optional or b"")
    return [read_row(cursor) for _ in range(body.fields["num_rows"])]


def images_of(body: Body) -> Images:
    """Decode the images of an insert, update or delete; raises `LogFormatError`."""
    data = body.optional or b""
    cursor = Cursor(data)
    if body.operation == operations.INSERT:
        return Images(after=data, row_after=read_row(cursor))
    if body.operation == operations.UPDATE_ROW:
        after = read_row(cursor)
        cut = cursor.place
        return Images(data[cut:], data[:cut], read_row(cursor), after)
    if body.operation == operations.UPDATE_FIELD:
        read_field(cursor)
        cut = cursor.place
        read_field(cursor)
        return Images(data[cut : cursor.place], data[:cut])
    if data:
        return Images(before=data, row_before=read_row(cursor))
    return Images()
