"""Types of an operation's fields: one declaration gives decoder, encoder, printed form and size.

In: a `Cursor`, or a value. Out: a value, or its bytes, or what the engine prints for it. Source:
docs/formats/derby.md, sections "Numbers and objects" and "Operations".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.errors import LogFormatError
from tallystick.records import Xid
from tallystick.systems.derby.format.compressed_numbers import (
    Cursor,
    compressed_int,
    compressed_long,
    encode_counter,
    encode_global_id,
    format_id,
)
from tallystick.systems.derby.format.layout import (
    LOGICAL_UNDO_BTREE,
    NULL,
    TRANSACTION_ENTRY,
    TRANSACTION_ID,
    TRANSACTION_TABLE,
    instant_text,
)


class OtherObjectError(LogFormatError):
    """An object of another class, which the engine reads as well, and does not use."""


Fields = dict[str, Any]
"""Values of an operation by the names of the engine's own fields."""

LOGICAL_UNDO_TEXT = "B2IUndo"


@dataclass(frozen=True, slots=True)
class FieldType:
    """How values of one type are decoded, encoded and printed, and how long they are.

    Attributes:
        read: decodes a value; raises `LogFormatError`.
        encode: returns a value's bytes.
        printed: returns what the engine prints for a value, as a plain JSON value; None if that is
            the value itself.
        longs: number of compressed longs that a value consists of; 0 if it has another form.
        ints: the same for compressed ints.
        fixed: the same for bytes of a fixed size.
    """

    read: Callable[[Cursor], Any]
    encode: Callable[[Any], bytes]
    printed: Callable[[Any], Any] | None = None
    longs: int = 0
    ints: int = 0
    fixed: int = 0


@dataclass(frozen=True, slots=True)
class Container:
    """A container of pages; ``segment`` is 0 for tables."""

    segment: int
    number: int

    @property
    def file(self) -> str:
        """Its file, below the database's folder."""
        return f"seg{self.segment}/c{self.number:x}.dat"

    def __str__(self) -> str:
        return f"Container({self.segment}, {self.number})"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a container; ``segment`` is 0 for tables."""

    segment: int
    container: int
    number: int

    @property
    def file(self) -> str:
        """The container's file, below the database's folder."""
        return self.of.file

    @property
    def of(self) -> Container:
        """The container."""
        return Container(self.segment, self.container)

    def __str__(self) -> str:
        return f"Page({self.number},Container({self.segment}, {self.container}))"


def global_id_text(xid: Xid | None) -> str | None:
    """Return a global id as ``formatId:gtrid:bqual`` with both parts in hex; None for None."""
    return None if xid is None else str(xid)


# -- readers and encoders ------------------------------------------------------------------------


def _fixed(size: int, *, signed: bool = True) -> FieldType:
    return FieldType(
        (lambda cursor: cursor.sint(size)) if signed else (lambda cursor: cursor.uint(size)),
        lambda value: value.to_bytes(size, signed=signed),
        fixed=size,
    )


def _encode_utf(text: str) -> bytes:
    """Encode each UTF-16 unit by itself, and NUL in two bytes: modified UTF-8."""
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    separate = "".join(chr(high << 8 | low) for high, low in pairs)
    raw = separate.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    return len(raw).to_bytes(2) + raw


def _read_container(cursor: Cursor) -> Container:
    segment = cursor.compressed_long()
    return Container(segment, cursor.compressed_long())


def _encode_container(container: Container) -> bytes:
    return compressed_long(container.segment) + compressed_long(container.number)


def _read_page(cursor: Cursor) -> Page:
    segment = cursor.compressed_long()
    container = cursor.compressed_long()
    return Page(segment, container, cursor.compressed_long())


def _encode_page(page: Page) -> bytes:
    return b"".join(map(compressed_long, (page.segment, page.container, page.number)))


def _read_logical_undo(cursor: Cursor) -> str | None:
    number = cursor.uint(2)
    if number == NULL:
        return None
    if number == LOGICAL_UNDO_BTREE:
        return LOGICAL_UNDO_TEXT
    raise LogFormatError(
        "unknown logical undo",
        offset=cursor.place - 2,
        expected=str(LOGICAL_UNDO_BTREE),
        found=str(number),
    )


def _encode_logical_undo(undo: str | None) -> bytes:
    return format_id(LOGICAL_UNDO_BTREE if undo else NULL)


def _read_checkpoint_table(cursor: Cursor) -> list[Fields]:
    cursor.compressed_int()
    if cursor.compressed_int() != 1 or cursor.null():
        return []
    if (found := cursor.uint(2)) != TRANSACTION_TABLE:
        raise OtherObjectError(
            "no transaction table", expected=str(TRANSACTION_TABLE), found=str(found)
        )
    count = cursor.compressed_int()
    cursor.check_count(count, 2, "rows than the record")
    return [_read_entry(cursor) for _ in range(count)]


def _read_entry(cursor: Cursor) -> Fields:
    cursor.expect(TRANSACTION_ENTRY, "transaction table entry")
    if (number := cursor.transaction()) is None:
        raise LogFormatError("an entry of the transaction table names no transaction")
    return {
        "xid": number,
        "gid": cursor.global_id(),
        "first": cursor.counter(),
        "last": cursor.counter(),
        "status": cursor.sint(4),
    }


def _encode_checkpoint_table(entries: list[Fields]) -> bytes:
    encoded = [_encode_entry(entry) for entry in entries]
    head = b"\0\1" + format_id(TRANSACTION_TABLE) + compressed_int(len(encoded))
    return head + b"".join(encoded)


def _encode_entry(entry: Fields) -> bytes:
    number = format_id(TRANSACTION_ID) + compressed_long(entry["xid"])
    counters = encode_counter(entry["first"]) + encode_counter(entry["last"])
    status: bytes = entry["status"].to_bytes(4)
    return (
        format_id(TRANSACTION_ENTRY) + number + encode_global_id(entry["gid"]) + counters + status
    )


def _printed_table(entries: list[Fields]) -> list[Fields]:
    return [
        {
            "xid": str(entry["xid"]),
            "gid": global_id_text(entry["gid"]),
            "first": instant_text(entry["first"] or 0),
            "last": "null" if entry["last"] is None else instant_text(entry["last"]),
            "status": entry["status"],
        }
        for entry in entries
    ]


# -- the types -----------------------------------------------------------------------------------

COMPRESSED_INT = FieldType(Cursor.compressed_int, compressed_int, ints=1)
COMPRESSED_LONG = FieldType(Cursor.compressed_long, compressed_long, longs=1)
INT = _fixed(4)
LONG = _fixed(8)
SIGNED_BYTE = _fixed(1)
BYTE = _fixed(1, signed=False)
BOOLEAN = FieldType(lambda cursor: cursor.uint(1) != 0, lambda flag: bytes((flag,)), fixed=1)
UTF = FieldType(Cursor.utf, _encode_utf)
INSTANT = FieldType(Cursor.compressed_long, compressed_long, instant_text, longs=1)
CONTAINER = FieldType(_read_container, _encode_container, str, longs=2)
PAGE = FieldType(_read_page, _encode_page, str, longs=3)
LOGICAL_UNDO = FieldType(_read_logical_undo, _encode_logical_undo, fixed=2)
XID = FieldType(Cursor.global_id, encode_global_id, global_id_text)
CHECKPOINT_TABLE = FieldType(_read_checkpoint_table, _encode_checkpoint_table, _printed_table)
"""The open transactions: a list of `Fields` xid, gid, first, last and status."""
