"""Every operation that Derby can log: its number, its name and its fields, in byte order.

In: a `Cursor` behind an operation's format id. Out: a dictionary of plain values under the names
of the engine's own fields; `spelling` prints them as the engine does. Source:
docs/formats/derby.md, section "Operations".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.errors import LogFormatError
from tallystick.records import Kind, Xid
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.layout import (
    LOGICAL_UNDO_BTREE,
    NULL,
    TRANSACTION_ENTRY,
    TRANSACTION_TABLE,
)

BEGIN = 169
END = 102
CHECKPOINT = 263
CHECKSUM = 453
INSERT = 103
DELETE = 101
UPDATE_FIELD = 109
UPDATE_ROW = 108
PURGE = 106
COPY_ROWS = 210

STATUS_USER = 0
STATUS_INTERNAL = 16
STATUS_ABORTED = 1
STATUS_PREPARED = 2
STATUS_COMMITTED = 4

CONTAINER_CREATE = 1

Fields = dict[str, Any]
_Read = Callable[[Cursor], Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a container; ``segment`` is 0 for tables."""

    segment: int
    container: int
    number: int

    def __str__(self) -> str:
        return f"Page({self.number},Container({self.segment}, {self.container}))"


@dataclass(frozen=True, slots=True)
class Operation:
    """How one operation is called, what it does and how its fields are read."""

    name: str
    kind: Kind
    read: Callable[[Cursor], Fields]


def _c_int(cursor: Cursor) -> int:
    return cursor.compressed_int()


def _c_long(cursor: Cursor) -> int:
    return cursor.compressed_long()


def _int4(cursor: Cursor) -> int:
    return cursor.sint(4)


def _long8(cursor: Cursor) -> int:
    return cursor.sint(8)


def _byte(cursor: Cursor) -> int:
    return cursor.uint(1)


def _boolean(cursor: Cursor) -> bool:
    return cursor.uint(1) != 0


def _container(cursor: Cursor) -> str:
    segment = cursor.compressed_long()
    return f"Container({segment}, {cursor.compressed_long()})"


def _page(cursor: Cursor) -> Page:
    segment = cursor.compressed_long()
    container = cursor.compressed_long()
    return Page(segment, container, cursor.compressed_long())


def _logical_undo(cursor: Cursor) -> str | None:
    number = cursor.uint(2)
    if number == NULL:
        return None
    if number == LOGICAL_UNDO_BTREE:
        return "B2IUndo"
    raise LogFormatError(
        "unknown logical undo",
        offset=cursor.place - 2,
        expected=str(LOGICAL_UNDO_BTREE),
        found=str(number),
    )


def _global_id(cursor: Cursor) -> Xid | None:
    return cursor.global_id()


def _fields(*parts: tuple[str, _Read]) -> Callable[[Cursor], Fields]:
    """A reader of fields in this order."""

    def read(cursor: Cursor) -> Fields:
        return {name: one(cursor) for name, one in parts}

    return read


def _on_page(*parts: tuple[str, _Read]) -> Callable[[Cursor], Fields]:
    """Fields of a page operation: page and its version before the change come first."""
    return _fields(("pageId", _page), ("pageVersion", _c_long), *parts)


_ROW = (("recordId", _c_int), ("undo", _logical_undo), ("doMeSlot", _c_int))


def _counted(cursor: Cursor, fields: Fields, size_min: int) -> range:
    """As many rounds as ``num_rows`` says; refused if the body cannot hold that many."""
    count = fields["num_rows"]
    if count * size_min > cursor.left:
        raise LogFormatError(
            "more rows than the record can hold",
            offset=cursor.place,
            expected=f"at most {cursor.left // size_min}",
            found=str(count),
        )
    return range(count)


def _purge(cursor: Cursor) -> Fields:
    fields = _on_page(("slot", _c_int), ("num_rows", _c_int))(cursor)
    fields["recordIds"] = [cursor.compressed_int() for _ in _counted(cursor, fields, 1)]
    return fields


def _copy_rows(cursor: Cursor) -> Fields:
    fields = _on_page(("num_rows", _c_int), ("destSlot", _c_int))(cursor)
    pairs = [
        (cursor.compressed_int(), cursor.compressed_int()) for _ in _counted(cursor, fields, 2)
    ]
    fields["recordIds"] = [record for record, _ in pairs]
    fields["reservedSpace"] = [space for _, space in pairs]
    return fields


def _container_operation(cursor: Cursor) -> Fields:
    fields = _fields(
        ("containerId", _container), ("containerVersion", _c_long), ("operation", _byte)
    )(cursor)
    created = fields["operation"] == CONTAINER_CREATE
    fields["createByteArray"] = cursor.take(cursor.sint(4)).hex() if created else None
    return fields


def _checkpoint(cursor: Cursor) -> Fields:
    fields = {
        "redoLWM": cursor.compressed_long(),
        "undoLWM": cursor.compressed_long(),
    }
    cursor.compressed_int()
    table = _table(cursor) if cursor.compressed_int() else []
    return {**fields, "transactionTable": table}


def _table(cursor: Cursor) -> list[Fields]:
    cursor.expect(TRANSACTION_TABLE, "transaction table")
    return [_entry(cursor) for _ in _counted(cursor, {"num_rows": cursor.compressed_int()}, 2)]


def _entry(cursor: Cursor) -> Fields:
    cursor.expect(TRANSACTION_ENTRY, "transaction table entry")
    return {
        "xid": cursor.transaction(),
        "gid": cursor.global_id(),
        "first": cursor.counter(),
        "last": cursor.counter(),
        "status": cursor.sint(4),
    }


OPERATIONS: dict[int, Operation] = {
    BEGIN: Operation(
        "BeginXact",
        Kind.BEGIN,
        _fields(("transactionStatus", _int4), ("xactId", _global_id)),
    ),
    END: Operation(
        "EndXact",
        Kind.COMMIT,  # or rollback, or prepare: `kind_of` tells
        _fields(("xactId", _global_id), ("transactionStatus", _c_int)),
    ),
    CHECKPOINT: Operation("CheckpointOperation", Kind.CHECKPOINT, _checkpoint),
    CHECKSUM: Operation(
        "ChecksumOperation",
        Kind.CONTROL,
        _fields(
            ("checksumAlgo", lambda cursor: cursor.sint(1)),
            ("dataLength", _int4),
            ("checksumValue", _long8),
        ),
    ),
    INSERT: Operation("InsertOperation", Kind.ADD, _on_page(*_ROW, ("insertFlag", _byte))),
    DELETE: Operation("DeleteOperation", Kind.DELETE, _on_page(*_ROW, ("delete", _boolean))),
    UPDATE_FIELD: Operation(
        "UpdateFieldOperation", Kind.UPDATE, _on_page(*_ROW, ("fieldId", _c_int))
    ),
    UPDATE_ROW: Operation(
        "UpdateOperation", Kind.UPDATE, _on_page(("doMeSlot", _c_int), ("recordId", _c_int))
    ),
    PURGE: Operation("PurgeOperation", Kind.PAGE, _purge),
    COPY_ROWS: Operation("CopyRowsOperation", Kind.PAGE, _copy_rows),
    287: Operation(
        "SetReservedSpaceOperation",
        Kind.PAGE,
        _on_page(
            ("doMeSlot", _c_int), ("recordId", _c_int), ("newValue", _c_int), ("oldValue", _c_int)
        ),
    ),
    241: Operation(
        "InitPageOperation",
        Kind.PAGE,
        _on_page(
            ("nextRecordId", _c_int),
            ("initFlag", _c_int),
            ("pageOffset", _c_long),
            ("pageFormatId", _int4),
        ),
    ),
    113: Operation("InvalidatePageOperation", Kind.PAGE, _on_page()),
    111: Operation(
        "AllocPageOperation",
        Kind.PAGE,
        _on_page(("newPageNumber", _c_long), ("doStatus", _c_int), ("undoStatus", _c_int)),
    ),
    97: Operation(
        "ChainAllocPageOperation",
        Kind.PAGE,
        _on_page(("newAllocPageNum", _c_long), ("newAllocPageOffset", _c_long)),
    ),
    465: Operation(
        "CompressSpacePageOperation",
        Kind.PAGE,
        _on_page(("newHighestPage", _int4), ("num_pages_truncated", _c_int)),
    ),
    454: Operation(
        "CompressSpacePageOperation10_2",
        Kind.PAGE,
        _on_page(("newHighestPage", _c_int), ("num_pages_truncated", _c_int)),
    ),
    104: Operation("LogicalUndoOperation", Kind.UNDO, _on_page(("recordId", _c_int))),
    105: Operation("PhysicalUndoOperation", Kind.UNDO, _on_page()),
    242: Operation("ContainerOperation", Kind.PAGE, _container_operation),
    107: Operation(
        "ContainerUndoOperation",
        Kind.UNDO,
        _fields(("containerId", _container), ("containerVersion", _c_long)),
    ),
    291: Operation(
        "RemoveFileOperation",
        Kind.PAGE,
        _fields(("name", Cursor.utf), ("generationId", _long8), ("removeAtOnce", _boolean)),
    ),
    459: Operation("EncryptContainerOperation", Kind.PAGE, _fields(("containerId", _container))),
    460: Operation("EncryptContainerUndoOperation", Kind.UNDO, _fields()),
}
"""By format id."""
