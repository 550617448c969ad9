"""The body of a log record: group, transaction, operation and tail.

In: the bytes between the two lengths, decrypted. Out: a `Body`. Decoding raises
`LogFormatError`; surplus bytes after the tail are counted, never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tallystick.errors import LogFormatError
from tallystick.records import Kind, Xid
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import (
    Cursor,
    compressed_int,
    compressed_long,
    format_id,
)
from tallystick.systems.derby.format.field_types import Fields
from tallystick.systems.derby.format.layout import LOG_RECORD, NULL, TRANSACTION_ID, Group
from tallystick.systems.derby.format.operations import OPERATIONS

BODY_SIZE_MIN = 11
"""Format id 2, group 1, null transaction 2, operation 2, and at least 4 bytes of tail or fields."""

_COMMIT, _ABORT = int(Group.COMMIT), int(Group.ABORT)
_Head = tuple[Group, int | None, int, Fields]
"""Group, transaction, operation and fields."""


def kind_of(operation: int, group: int) -> Kind:
    """Return what a record does, by its operation and its group."""
    if operation != operations.END:
        return OPERATIONS[operation].kind
    if group & _COMMIT:
        return Kind.COMMIT
    return Kind.ROLLBACK if group & _ABORT else Kind.PREPARE


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded log record.

    ``head`` counts the bytes before the tail, ``pad`` the surplus bytes after it. The tail is
    ``undo`` (instant of the undone record) in a compensation record, else ``optional``;
    ``tail_error`` says what is wrong with a tail that `decode_operation` could not read.
    """

    group: Group
    transaction: int | None
    operation: int
    fields: Fields
    head: int
    optional: bytes | None = None
    undo: int | None = None
    pad: int = 0
    tail_error: str = ""

    @property
    def name(self) -> str:
        """The engine's name of the operation."""
        return OPERATIONS[self.operation].name

    @property
    def kind(self) -> Kind:
        """What the record does, in the words of the field."""
        return kind_of(self.operation, self.group)

    @property
    def xid(self) -> Xid | None:
        """The global id of a begin or end record."""
        xid: Xid | None = self.fields.get("xactId")
        return xid


def decode_group(data: bytes | memoryview) -> tuple[Group, Cursor]:
    """Decode the group only; returns it and a cursor after it. Raises `LogFormatError`."""
    cursor = Cursor(data)
    cursor.expect(LOG_RECORD, "log record")
    return Group(cursor.compressed_int()), cursor


def decode_body(data: bytes | memoryview) -> Body:
    """Decode the whole body; raises `LogFormatError`."""
    return _with_tail(*_decode_head(data))


def decode_operation(data: bytes | memoryview) -> Body:
    """Decode a body as the engine does, which reads the tail later, or never.

    Raises:
        LogFormatError: what precedes the tail cannot be read.
    """
    cursor, head = _decode_head(data)
    place = cursor.place
    try:
        return _with_tail(cursor, head)
    except LogFormatError as error:
        return Body(*head, place, tail_error=str(error))


def decode_transaction(data: bytes | memoryview) -> int | None:
    """Decode the number of the transaction only; raises `LogFormatError`."""
    return decode_group(data)[1].transaction()


def has_operation(data: bytes | memoryview) -> bool:
    """Return whether the operation is not the null object; raises `LogFormatError`."""
    cursor = decode_group(data)[1]
    cursor.transaction()
    return not cursor.null()


def _decode_head(data: bytes | memoryview) -> tuple[Cursor, _Head]:
    group, cursor = decode_group(data)
    transaction = cursor.transaction()
    return cursor, (group, transaction, *_read_operation(cursor))


def _read_operation(cursor: Cursor) -> tuple[int, Fields]:
    operation = cursor.uint(2)
    if operation not in OPERATIONS:
        raise LogFormatError(
            "unknown operation", offset=cursor.place - 2, found=f"format id {operation}"
        )
    return operation, OPERATIONS[operation].read(cursor)


def decode_alone(data: bytes) -> int:
    """Return the number of an operation without a body around it.

    Raises:
        LogFormatError: it is unknown, cut, or more follows it, which would be taken for the tail.
    """
    cursor = Cursor(data)
    operation, _ = _read_operation(cursor)
    if cursor.left:
        raise LogFormatError("more follows the operation", offset=cursor.place)
    return operation


def _with_tail(cursor: Cursor, head: _Head) -> Body:
    group, place = head[0], cursor.place
    optional = undo = None
    if group & Group.CHECKSUM:
        pass  # the engine reads no tail, whatever else the group says
    elif group & Group.COMPENSATION:
        undo = cursor.sint(8)
    else:
        optional = cursor.take(cursor.sint(4))
    return Body(*head, place, optional, undo, cursor.left)


def encode_body(
    group: int, transaction: int, operation: bytes, optional: bytes = b"", undo: int | None = None
) -> bytes:
    """Return a record body; ``undo`` is the instant of the record that it compensates."""
    head = _head(group, bool(transaction))
    number = compressed_long(transaction) if transaction else b""
    if undo is not None:
        return head + number + operation + undo.to_bytes(8)
    return b"".join((head, number, operation, len(optional).to_bytes(4), optional))


@cache
def _head(group: int, numbered: bool) -> bytes:
    """Return what precedes the transaction's number; there are few groups."""
    number = TRANSACTION_ID if numbered else NULL
    return format_id(LOG_RECORD) + compressed_int(group) + format_id(number)
