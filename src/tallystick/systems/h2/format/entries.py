"""Log records: their types, their bytes, and `Entry`, the object that a scan makes of each.

In: session, table, row, page. Out: the bytes of a record. The first byte is the type, the fields
follow; there is no length and no checksum.
Source: docs/formats/h2.md, "Records".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tallystick.systems.h2.format.lzf import compress
from tallystick.systems.h2.format.numbers import (
    Bytes,
    decode_var_int,
    decode_var_long,
    encode_string,
    encode_var_int,
    encode_var_long,
)
from tallystick.systems.h2.format.values.types import Value


class Type(IntEnum):
    """First byte of a record.

    The engine skips 10 to 127, which it does not know, one byte each; 128 and above (negative in
    Java) end the log.
    """

    NOOP = 0
    UNDO = 1
    COMMIT = 2
    PREPARE_COMMIT = 3
    ROLLBACK = 4
    ADD = 5
    REMOVE = 6
    TRUNCATE = 7
    CHECKPOINT = 8
    FREE_LOG = 9


UNKNOWN_FIRST = 10
END_FIRST = 128
UNDO_RAW = 0
UNDO_EMPTY = 1
"""Sizes of an undo image that are no sizes: a raw page follows, or nothing (the page was empty)."""
TABLE_META = -1
"""The page index: the table of all tables and indexes."""
META_COLUMNS = 6
"""Columns of its rows; options and columns of the index are the last ones."""
TABLE_CATALOG = 0
"""SYS: the SQL of all objects."""
CHANGE_TYPES = frozenset((Type.ADD, Type.REMOVE, Type.TRUNCATE))
"""Records that the commit of their session decides about."""
SESSION_TYPES = CHANGE_TYPES | {Type.COMMIT, Type.PREPARE_COMMIT, Type.ROLLBACK}
"""Records that name a session."""


# -- encode ---------------------------------------------------------------------------------


def encode_undo(page: int, image: bytes | None) -> bytes:
    """Encode an undo image: empty, LZF where that is clearly smaller than the page, else raw."""
    head = bytes((Type.UNDO,)) + encode_var_int(page)
    if image is None or image[0] == 0:
        return head + encode_var_int(UNDO_EMPTY)
    packed = compress(image)
    if packed is None:
        return head + encode_var_int(UNDO_RAW) + image
    return head + encode_var_int(len(packed)) + packed


def encode_commit(session: int) -> bytes:
    """Encode the commit of a session."""
    return bytes((Type.COMMIT,)) + encode_var_int(session)


def encode_rollback(session: int) -> bytes:
    """Encode the rollback of a session that is in doubt."""
    return bytes((Type.ROLLBACK,)) + encode_var_int(session)


def encode_prepare(session: int, name: str) -> bytes:
    """Encode that the session can commit its transaction of this name."""
    return bytes((Type.PREPARE_COMMIT,)) + encode_var_int(session) + encode_string(name)


def encode_add(session: int, table: int, key: int, row: bytes) -> bytes:
    """Encode an added row; ``row``: column count and values."""
    head = bytes((Type.ADD,)) + encode_var_int(session) + encode_var_int(table)
    return head + encode_var_long(key) + encode_var_int(len(row)) + row


def encode_remove(session: int, table: int, key: int) -> bytes:
    """Encode a removed row."""
    head = bytes((Type.REMOVE,)) + encode_var_int(session)
    return head + encode_var_int(table) + encode_var_long(key)


def encode_truncate(session: int, table: int) -> bytes:
    """Encode that all rows of a table are removed."""
    return bytes((Type.TRUNCATE,)) + encode_var_int(session) + encode_var_int(table)


def encode_checkpoint() -> bytes:
    """Encode the end of a section."""
    return bytes((Type.CHECKPOINT,))


def encode_free_log(pages: list[int]) -> bytes:
    """Encode that the log gives these pages back."""
    head = bytes((Type.FREE_LOG,)) + encode_var_int(len(pages))
    return head + b"".join(encode_var_int(page) for page in pages)


# -- decode ---------------------------------------------------------------------------------


def decode_keyed_row(data: Bytes, at: int) -> tuple[int, bytes, int]:
    """Return the key and the bytes of an added row whose key is at ``at``, and the offset after it.

    Raises:
        IndexError: the data end before.
    """
    key, at = decode_var_long(data, at)
    count, at = decode_var_int(data, at)
    end = at + max(count, 0)
    if end > len(data):
        raise IndexError("the row ends after the data")
    return key, bytes(data[at:end]), end


def begun_row(data: Bytes, at: int) -> bytes:
    """Return as much as the data hold of the bytes of an added row, whose key is at ``at``.

    Raises:
        IndexError: the data end before the row begins.
    """
    _, at = decode_var_long(data, at)
    _, at = decode_var_int(data, at)
    return bytes(data[at:])


# -- records of a scan ----------------------------------------------------------------------


@dataclass(slots=True)
class Entry:
    """One record of a scan, or no-ops in a row as one; `read.records` makes a `Record` of it.

    Only the fields of its type are set.

    Attributes:
        pos: its position in the log: records count from 1, no-ops included.
        section: the number of checkpoints before it.
        code: its first byte.
        start: its offset in the stream.
        length: its bytes.
        type: the name of its `Type`, or `INCOMPLETE` or `UNKNOWN`.
        fault: what is wrong with it; empty where nothing is.
    """

    pos: int
    section: int
    code: int
    start: int
    length: int = 0
    type: str = ""
    count: int = 1
    """How many records it is: no-ops in a row are one entry."""
    session: int = 0
    table: int = 0
    key: int = 0
    row: bytes = b""
    """Column count and values, as stored."""
    values: tuple[Value | None, ...] = ()
    page: int = 0
    """The page of an undo image, or the data page that holds a prepare record."""
    size: int = 0
    """Size of an undo image as stored: 0 raw, 1 empty, else bytes of LZF."""
    stored: bytes = b""
    image: bytes = b""
    """The undo image as the engine expands it: one page, its checksum possibly stale."""
    name: str = ""
    pages: tuple[int, ...] = ()
    fault: str = ""
    odd: str = ""
    """Of a record that is cut off: why the engine cannot have begun it so; empty if it can have."""

    @property
    def is_known(self) -> bool:
        """True for a record that is whole and of a type that the engine knows."""
        return self.type not in (INCOMPLETE, UNKNOWN)

    @property
    def session_bound(self) -> bool:
        """True for a record that the commit of its session decides about."""
        return self.code in CHANGE_TYPES


INCOMPLETE = "INCOMPLETE"
UNKNOWN = "UNKNOWN"
"""`Entry.type` of a record that is cut off, and of a byte that is no record."""
