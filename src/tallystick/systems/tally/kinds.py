"""What a record of the native log means: its code, and the form of its body.

In: a code and a body. Out: the house's `Kind`, the name of the type, and the parsed body.
Pure functions, no I/O. A code with the bit `IGNORABLE` may be skipped by a reader that does
not know it; any other unknown code makes a reader refuse the log.

    codes   role            body
    1-6     record journal  the application's bytes
    16-19   transactions    begin: none; prepare, commit: `Ending`; rollback: none
    32-37   undo/redo       undo: image; redo: table, row; truncate: table; checkpoint: `bytes`
    48-52   decisions       resources; heuristic and settle too; note: state and resources
    64-66   persist log     persisting: entry; persisted: targets; discard: none
    128     events of a newer version that may be ignored
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tallystick.errors import CorruptLogError
from tallystick.records import Kind, State, Xid

IGNORABLE: Final = 0x80


class Code(IntEnum):
    """The codes of this version."""

    APPEND = 1
    """A plain record of the application, without id."""
    ADD = 2
    UPDATE = 3
    DELETE = 4
    MOVED_ADD = 5
    """A live record written again by compaction: replaces everything known of its id."""
    MOVED_UPDATE = 6
    BEGIN = 16
    PREPARE = 17
    COMMIT = 18
    ROLLBACK = 19
    UNDO = 32
    """The image of a page (key) as of the last checkpoint."""
    UNDO_EMPTY = 33
    """The page (key) was empty as of the last checkpoint."""
    REDO_ADD = 34
    REDO_REMOVE = 35
    TRUNCATE = 36
    CHECKPOINT = 37
    NOTE = 48
    DECISION = 49
    FINISH = 50
    HEURISTIC = 51
    SETTLE = 52
    PERSISTING = 64
    PERSISTED = 65
    DISCARD = 66

    @property
    def type_name(self) -> str:
        """The type as records carry it."""
        return self.name.lower()


KIND_OF: Final[dict[Code, Kind]] = {
    Code.APPEND: Kind.ADD,
    Code.ADD: Kind.ADD,
    Code.UPDATE: Kind.UPDATE,
    Code.DELETE: Kind.DELETE,
    Code.MOVED_ADD: Kind.ADD,
    Code.MOVED_UPDATE: Kind.UPDATE,
    Code.BEGIN: Kind.BEGIN,
    Code.PREPARE: Kind.PREPARE,
    Code.COMMIT: Kind.COMMIT,
    Code.ROLLBACK: Kind.ROLLBACK,
    Code.UNDO: Kind.UNDO,
    Code.UNDO_EMPTY: Kind.UNDO,
    Code.REDO_ADD: Kind.ADD,
    Code.REDO_REMOVE: Kind.DELETE,
    Code.TRUNCATE: Kind.TRUNCATE,
    Code.CHECKPOINT: Kind.CHECKPOINT,
    Code.NOTE: Kind.STATUS,
    Code.DECISION: Kind.DECISION,
    Code.FINISH: Kind.COMMIT,
    Code.HEURISTIC: Kind.HEURISTIC,
    Code.SETTLE: Kind.STATUS,
    Code.PERSISTING: Kind.PERSISTING,
    Code.PERSISTED: Kind.PERSISTED,
    Code.DISCARD: Kind.PERSISTED,
}
NAMES: Final[dict[int, tuple[Kind, str]]] = {
    code.value: (kind, code.type_name) for code, kind in KIND_OF.items()
}
WITH_RESOURCES: Final = frozenset(
    {Code.NOTE, Code.DECISION, Code.FINISH, Code.HEURISTIC, Code.PERSISTING, Code.PERSISTED}
)
"""Codes whose bodies name resources or targets."""
ELEMENTS: Final = frozenset(
    {
        Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE, Code.BEGIN,
        Code.REDO_ADD, Code.REDO_REMOVE, Code.TRUNCATE,
    }
)  # fmt: skip
"""Codes that, in a transaction, are counted by its prepare and commit records."""

_PAIR = struct.Struct("<QI")
COUNT = struct.Struct("<H")
_XID = struct.Struct("<iBB")
_ROW = struct.Struct("<i")
_TIME = struct.Struct("<q")


def name_of(code: int) -> tuple[Kind, str]:
    """Kind and type name of any code; unknown ones are `Kind.UNKNOWN`."""
    return NAMES.get(code) or (Kind.UNKNOWN, f"code {code}")


def must_know(code: int) -> bool:
    """True for an unknown code that may not be skipped."""
    return code not in NAMES and not code & IGNORABLE


# -- endings: prepare and commit ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """The body of a prepare or commit record.

    ``pairs`` are (segment, number of the transaction's elements in it), so that a hole or a
    missing segment is seen. ``xid`` names the branch, ``extra`` belongs to the application.
    The gtrid of the xid is in the record's own column.
    """

    pairs: tuple[tuple[int, int], ...]
    xid: Xid | None = None
    extra: bytes = b""


def encode_ending(ending: Ending) -> bytes:
    """count u16, pairs (u64, u32); xid present u8, [format i32, bqual length u8]; bqual; extra."""
    pairs = b"".join(_PAIR.pack(*pair) for pair in ending.pairs)
    xid = ending.xid
    form, bqual = (0, b"") if xid is None else (xid.format_id, xid.bqual)
    head = _XID.pack(form, len(bqual), xid is not None)
    return COUNT.pack(len(ending.pairs)) + pairs + head + bqual + ending.extra


def decode_ending(body: bytes, gtrid: bytes = b"") -> Ending:
    """The ending in a body. Raises `CorruptLogError`."""
    cursor = _Cursor(body)
    (count,) = cursor.take(COUNT)
    pairs = tuple(
        (segment, number) for segment, number in (cursor.take(_PAIR) for _ in range(count))
    )
    form, size, present = cursor.take(_XID)
    bqual = cursor.piece(size)
    return Ending(pairs, Xid(form, gtrid, bqual) if present else None, cursor.rest())


# -- rows of the undo/redo log ------------------------------------------------------------


def encode_row(table: int, row: bytes = b"") -> bytes:
    """table i32, row."""
    return _ROW.pack(table) + row


def decode_row(body: bytes) -> tuple[int, bytes]:
    """Table and row. Raises `CorruptLogError`."""
    cursor = _Cursor(body)
    (table,) = cursor.take(_ROW)
    return table, cursor.rest()


# -- decisions and targets ----------------------------------------------------------------


def encode_names(names: Collection[str], rest: bytes = b"") -> bytes:
    """count u16; per name length u16 and UTF-8, in order of names; then ``rest``."""
    pieces = [COUNT.pack(len(names))]
    for name in sorted(names):
        text = name.encode()
        pieces += (COUNT.pack(len(text)), text)
    return b"".join(pieces) + rest


def decode_names(body: bytes) -> tuple[tuple[str, ...], bytes]:
    """Names, and what follows them. Raises `CorruptLogError`."""
    cursor = _Cursor(body)
    (count,) = cursor.take(COUNT)
    names = tuple(cursor.text() for _ in range(count))
    return names, cursor.rest()


def encode_decision(names: Collection[str], since_us: int) -> bytes:
    """names, then the time i64 of the decision: for one that is written again."""
    return encode_names(names, _TIME.pack(since_us))


def decode_decision(body: bytes) -> tuple[tuple[str, ...], int | None]:
    """Names, and the time of a decision that was written again. Raises `CorruptLogError`."""
    names, rest = decode_names(body)
    return names, _TIME.unpack(rest)[0] if len(rest) == _TIME.size else None


def encode_note(state: State, resources: Collection[str]) -> bytes:
    """names, then the state as text."""
    return encode_names(resources, state.value.encode())


# -- persist log --------------------------------------------------------------------------

OPERATION_HEAD = struct.Struct("<BHHii")
EVERY_TARGET = 0xFFFF
NO_VALUE = -1
OPERATION_CODES: Final = ("opaque", "insert", "update", "delete")


@dataclass(frozen=True, slots=True)
class PersistOperation:
    """One operation: index into `OPERATION_CODES`, index of the target or None for each."""

    code: int
    collection: str
    key: bytes
    value: bytes | None
    target: int | None


def encode_entry(
    targets: Sequence[str], reference: str, operations: Iterable[PersistOperation]
) -> bytes:
    """names of targets; reference u16 + UTF-8; operations to the end, each:
    code u8, target u16 (65535: every), collection length u16, key and value length i32
    (-1: no value), collection, key, value."""
    text = reference.encode()
    pieces = [COUNT.pack(len(targets))]
    for name in targets:
        pieces += (COUNT.pack(len(name.encode())), name.encode())
    pieces += (COUNT.pack(len(text)), text)
    for one in operations:
        collection = one.collection.encode()
        value = one.value or b""
        size = NO_VALUE if one.value is None else len(value)
        target = EVERY_TARGET if one.target is None else one.target
        head = OPERATION_HEAD.pack(one.code, target, len(collection), len(one.key), size)
        pieces += (head, collection, one.key, value)
    return b"".join(pieces)


def decode_entry(body: bytes) -> tuple[tuple[str, ...], str, tuple[PersistOperation, ...]]:
    """Targets, reference and operations. Raises `CorruptLogError`."""
    cursor = _Cursor(body)
    (count,) = cursor.take(COUNT)
    targets = tuple(cursor.text() for _ in range(count))
    reference = cursor.text()
    operations = []
    while not cursor.at_end:
        code, target, collection_size, key_size, value_size = cursor.take(OPERATION_HEAD)
        if code >= len(OPERATION_CODES) or (target != EVERY_TARGET and target >= count):
            raise cursor.unfit("a known operation and target", f"{code} for {target}")
        collection = cursor.utf8(cursor.piece(collection_size))
        key = cursor.piece(key_size)
        value = None if value_size == NO_VALUE else cursor.piece(value_size)
        where = None if target == EVERY_TARGET else target
        operations.append(PersistOperation(code, collection, key, value, where))
    return targets, reference, tuple(operations)


class _Cursor:
    """Reads a body front to back; every way to run over its end is a `CorruptLogError`."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._place = 0

    @property
    def at_end(self) -> bool:
        return self._place >= len(self._body)

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.piece(form.size))

    def piece(self, size: int) -> bytes:
        start = self._place
        if size < 0 or start + size > len(self._body):
            raise self.unfit(f"{size} bytes more", f"{len(self._body) - start}")
        self._place = start + size
        return self._body[start : self._place]

    def text(self) -> str:
        (size,) = self.take(COUNT)
        return self.utf8(self.piece(size))

    def utf8(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.unfit("UTF-8", data.hex()) from error

    def rest(self) -> bytes:
        return self.piece(len(self._body) - self._place)

    def unfit(self, expected: str, found: str) -> CorruptLogError:
        return CorruptLogError("the body of a record does not fit", expected=expected, found=found)
