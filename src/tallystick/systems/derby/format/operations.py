"""Every operation that Derby can log: its number, its name and its fields, in byte order.

In: a `Cursor` at an operation's fields, or their values. Out: `Fields` under the names of the
engine's own fields, or an operation's bytes. Source: docs/formats/derby.md, section "Operations".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from tallystick.records import Kind, Xid
from tallystick.systems.derby.format.compressed_numbers import (
    Cursor,
    compressed_int,
    encode_global_id,
    format_id,
)
from tallystick.systems.derby.format.field_types import (
    BOOLEAN,
    BYTE,
    CHECKPOINT_TABLE,
    COMPRESSED_INT,
    COMPRESSED_LONG,
    CONTAINER,
    INSTANT,
    INT,
    LOGICAL_UNDO,
    LONG,
    PAGE,
    SIGNED_BYTE,
    UTF,
    XID,
    Fields,
    FieldType,
)
from tallystick.systems.derby.format.layout import CHECKSUM_OPERATION, Group

CHAIN_ALLOC_PAGE = 97
DELETE = 101
END = 102
INSERT = 103
LOGICAL_UNDO_OF_ROW = 104
PHYSICAL_UNDO = 105
PURGE = 106
CONTAINER_UNDO = 107
UPDATE_ROW = 108
UPDATE_FIELD = 109
ALLOC_PAGE = 111
INVALIDATE_PAGE = 113
BEGIN = 169
COPY_ROWS = 210
INIT_PAGE = 241
OVERFLOW_PAGE = 2
"""In the flag of `INIT_PAGE`: the page is for continuations of rows."""
CONTAINER_CHANGE = 242
CHECKPOINT = 263
SET_RESERVED_SPACE = 287
REMOVE_FILE = 291
COMPRESS_SPACE_10_2 = 454
ENCRYPT_CONTAINER = 459
ENCRYPT_CONTAINER_UNDO = 460
COMPRESS_SPACE = 465

STATUS_USER = 0
STATUS_INTERNAL = 16
STATUS_ABORTED = 1
STATUS_PREPARED = 2
STATUS_COMMITTED = 4

CONTAINER_CREATE = 1
CONTAINER_REMOVE = 4

_OF_PAGES = frozenset(
    {
        BEGIN,
        END,
        ALLOC_PAGE,
        CHAIN_ALLOC_PAGE,
        INIT_PAGE,
        INVALIDATE_PAGE,
        PURGE,
        COMPRESS_SPACE,
        COMPRESS_SPACE_10_2,
    }
)
"""Operations that give pages to a container, take them, or free what deleted rows have left."""


class Tail(Protocol):
    """Fields whose number or presence depends on the fields before them."""

    def read(self, cursor: Cursor, fields: Fields) -> None:
        """Decode them into ``fields``; raises `LogFormatError`."""
        ...

    def encode(self, fields: Fields) -> bytes:
        """Return their bytes."""
        ...


@dataclass(frozen=True, slots=True)
class _RowLists:
    """Lists of compressed ints under ``names``: one int of each list for each row."""

    names: tuple[str, ...]

    def read(self, cursor: Cursor, fields: Fields) -> None:
        width = len(self.names)
        count = fields["num_rows"]
        cursor.check_count(count, width, "rows than the record")
        values = [cursor.compressed_int() for _ in range(count * width)]
        fields |= {name: values[column::width] for column, name in enumerate(self.names)}

    def encode(self, fields: Fields) -> bytes:
        rows = zip(*(fields[name] for name in self.names), strict=True)
        return b"".join(compressed_int(value) for row in rows for value in row)


class _CreateBytes:
    """What a new container is made from, in hex; only where the operation creates one."""

    def read(self, cursor: Cursor, fields: Fields) -> None:
        created = fields["operation"] == CONTAINER_CREATE
        fields["createByteArray"] = cursor.take(cursor.sint(4)).hex() if created else None

    def encode(self, fields: Fields) -> bytes:
        if fields["createByteArray"] is None:
            return b""
        data = bytes.fromhex(fields["createByteArray"])
        return len(data).to_bytes(4) + data


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its name, its kind, its fields in byte order, and its decoder.

    Attributes:
        name: the name of the engine's class.
        kind: what the operation does; for `END` the group of the record decides.
        fields: names and types.
        read: decodes the fields; raises `LogFormatError`.
        tail: fields that depend on those before.
    """

    name: str
    kind: Kind
    fields: tuple[tuple[str, FieldType], ...]
    read: Callable[[Cursor], Fields]
    tail: Tail | None = None

    def encode(self, fields: Fields) -> bytes:
        """Return the bytes of the fields."""
        encoded = b"".join([kind.encode(fields[name]) for name, kind in self.fields])
        return encoded + self.tail.encode(fields) if self.tail else encoded

    def printed(self, fields: Fields) -> Fields:
        """Return the fields as the engine prints them, as plain JSON values."""
        found = dict(fields)
        for name, kind in self.fields:
            if kind.printed is not None:
                found[name] = kind.printed(found[name])
        return found


def _operation(
    name: str, kind: Kind, tail: Tail | None = None, /, **fields: FieldType
) -> Operation:
    readers = [(field, one.read) for field, one in fields.items()]

    def read(cursor: Cursor) -> Fields:
        return {field: one(cursor) for field, one in readers}

    def read_with_tail(cursor: Cursor) -> Fields:
        found = read(cursor)
        if tail is not None:
            tail.read(cursor, found)
        return found

    return Operation(name, kind, tuple(fields.items()), read_with_tail if tail else read, tail)


_PAGE = {"pageId": PAGE, "pageVersion": COMPRESSED_LONG}
"""A page, and its version before the change: first in every operation on a page."""
_ROW = {"recordId": COMPRESSED_INT, "undo": LOGICAL_UNDO, "doMeSlot": COMPRESSED_INT}
_CONTAINER = {"containerId": CONTAINER, "containerVersion": COMPRESSED_LONG}

OPERATIONS: dict[int, Operation] = {
    BEGIN: _operation("BeginXact", Kind.BEGIN, transactionStatus=INT, xactId=XID),
    END: _operation("EndXact", Kind.COMMIT, xactId=XID, transactionStatus=COMPRESSED_INT),
    CHECKPOINT: _operation(
        "CheckpointOperation",
        Kind.CHECKPOINT,
        redoLWM=INSTANT,
        undoLWM=INSTANT,
        transactionTable=CHECKPOINT_TABLE,
    ),
    CHECKSUM_OPERATION: _operation(
        "ChecksumOperation",
        Kind.CONTROL,
        checksumAlgo=SIGNED_BYTE,
        dataLength=INT,
        checksumValue=LONG,
    ),
    INSERT: _operation("InsertOperation", Kind.ADD, **_PAGE, **_ROW, insertFlag=BYTE),
    DELETE: _operation("DeleteOperation", Kind.DELETE, **_PAGE, **_ROW, delete=BOOLEAN),
    UPDATE_FIELD: _operation(
        "UpdateFieldOperation", Kind.UPDATE, **_PAGE, **_ROW, fieldId=COMPRESSED_INT
    ),
    UPDATE_ROW: _operation(
        "UpdateOperation", Kind.UPDATE, **_PAGE, doMeSlot=COMPRESSED_INT, recordId=COMPRESSED_INT
    ),
    PURGE: _operation(
        "PurgeOperation",
        Kind.PAGE,
        _RowLists(("recordIds",)),
        **_PAGE,
        slot=COMPRESSED_INT,
        num_rows=COMPRESSED_INT,
    ),
    COPY_ROWS: _operation(
        "CopyRowsOperation",
        Kind.PAGE,
        _RowLists(("recordIds", "reservedSpace")),
        **_PAGE,
        num_rows=COMPRESSED_INT,
        destSlot=COMPRESSED_INT,
    ),
    SET_RESERVED_SPACE: _operation(
        "SetReservedSpaceOperation",
        Kind.PAGE,
        **_PAGE,
        doMeSlot=COMPRESSED_INT,
        recordId=COMPRESSED_INT,
        newValue=COMPRESSED_INT,
        oldValue=COMPRESSED_INT,
    ),
    INIT_PAGE: _operation(
        "InitPageOperation",
        Kind.PAGE,
        **_PAGE,
        nextRecordId=COMPRESSED_INT,
        initFlag=COMPRESSED_INT,
        pageOffset=COMPRESSED_LONG,
        pageFormatId=INT,
    ),
    INVALIDATE_PAGE: _operation("InvalidatePageOperation", Kind.PAGE, **_PAGE),
    ALLOC_PAGE: _operation(
        "AllocPageOperation",
        Kind.PAGE,
        **_PAGE,
        newPageNumber=COMPRESSED_LONG,
        doStatus=COMPRESSED_INT,
        undoStatus=COMPRESSED_INT,
    ),
    CHAIN_ALLOC_PAGE: _operation(
        "ChainAllocPageOperation",
        Kind.PAGE,
        **_PAGE,
        newAllocPageNum=COMPRESSED_LONG,
        newAllocPageOffset=COMPRESSED_LONG,
    ),
    COMPRESS_SPACE: _operation(
        "CompressSpacePageOperation",
        Kind.PAGE,
        **_PAGE,
        newHighestPage=INT,
        num_pages_truncated=COMPRESSED_INT,
    ),
    COMPRESS_SPACE_10_2: _operation(
        "CompressSpacePageOperation10_2",
        Kind.PAGE,
        **_PAGE,
        newHighestPage=COMPRESSED_INT,
        num_pages_truncated=COMPRESSED_INT,
    ),
    LOGICAL_UNDO_OF_ROW: _operation(
        "LogicalUndoOperation", Kind.UNDO, **_PAGE, recordId=COMPRESSED_INT
    ),
    PHYSICAL_UNDO: _operation("PhysicalUndoOperation", Kind.UNDO, **_PAGE),
    CONTAINER_CHANGE: _operation(
        "ContainerOperation", Kind.PAGE, _CreateBytes(), **_CONTAINER, operation=BYTE
    ),
    CONTAINER_UNDO: _operation("ContainerUndoOperation", Kind.UNDO, **_CONTAINER),
    REMOVE_FILE: _operation(
        "RemoveFileOperation", Kind.PAGE, name=UTF, generationId=LONG, removeAtOnce=BOOLEAN
    ),
    ENCRYPT_CONTAINER: _operation("EncryptContainerOperation", Kind.PAGE, containerId=CONTAINER),
    ENCRYPT_CONTAINER_UNDO: _operation("EncryptContainerUndoOperation", Kind.UNDO),
}
"""By format id."""


def keeps_house(operation: int, fields: Fields) -> bool:
    """Return whether an operation changes no row, table or index: nobody misses it alone.

    A container is removed after its drop was committed.
    """
    if operation == CONTAINER_CHANGE:
        return bool(fields["operation"] == CONTAINER_REMOVE)
    return operation in _OF_PAGES


# -- encode --------------------------------------------------------------------------------------


def encode_operation(number: int, fields: Fields) -> bytes:
    """Return format id and fields of an operation, as `LogToFile.log` takes them.

    Args:
        number: a key of `OPERATIONS`.
        fields: a value for each of its fields, by name.

    Raises:
        KeyError: there is no such operation, or a field is missing.
    """
    return format_id(number) + OPERATIONS[number].encode(fields)


# Begin and end are on the commit path: without a global id they are encoded once for all, and with
# one without a dictionary of fields.

_BEGIN_ID, _END_ID = format_id(BEGIN), format_id(END)


def encode_begin(status: int, xid: Xid | None) -> bytes:
    """Return a begin operation; ``status`` is `STATUS_USER` or `STATUS_INTERNAL`."""
    if xid is None:
        return _begin_without_xid(status)
    return _BEGIN_ID + status.to_bytes(4) + encode_global_id(xid)


def encode_end(status: int, xid: Xid | None) -> bytes:
    """Return an end operation; ``status`` says committed, aborted or prepared."""
    if xid is None:
        return _end_without_xid(status)
    return _END_ID + encode_global_id(xid) + compressed_int(status)


@cache
def _begin_without_xid(status: int) -> bytes:
    return encode_operation(BEGIN, {"transactionStatus": status, "xactId": None})


@cache
def _end_without_xid(status: int) -> bytes:
    return encode_operation(END, {"transactionStatus": status, "xactId": None})


_FLAGS_OF_STATUS = {
    STATUS_ABORTED: Group.LAST | Group.ABORT,
    STATUS_PREPARED: Group.PREPARE,
    STATUS_COMMITTED: Group.LAST | Group.COMMIT,
}
"""The flags of an end record, by its status."""
CHECKED_FLAGS = (
    Group.FIRST | Group.LAST | Group.COMPENSATION | Group.COMMIT | Group.ABORT | Group.PREPARE
)
"""The flags that say what a record does for its transaction."""


def flags_of(operation: int, status: int) -> Group:
    """Return the flags that a record of an operation has; the status is that of an end."""
    if operation == BEGIN:
        return Group.FIRST
    if operation == END:
        return _FLAGS_OF_STATUS.get(status, Group(0))
    return Group.COMPENSATION if OPERATIONS[operation].kind is Kind.UNDO else Group(0)
