"""Entries of a block, byte for byte: what is persisting, what is persisted.

An entry is a head, the application's reference, a list of targets and, if it is persisting,
its operations. All integers are unsigned and little-endian (the time is signed); sizes in bytes,
times in microseconds since 1970-01-01 UTC. Source: docs/formats/cloudtran.md, section Entry.
Nothing here opens a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from tallystick.arguments import bytes_of, text
from tallystick.errors import LogFormatError
from tallystick.systems.cloudtran.format.layout import DATA_SIZE_MAX, Buffer

# -- entry: head, reference, target list, operations -------------------------------------

# bytes that follow this field; kind; flags; bytes of the reference; number; time
_ENTRY_HEAD = Struct("<IBBHQq")
ENTRY_HEAD_SIZE = _ENTRY_HEAD.size
LENGTH_FIELD_SIZE = 4
ENTRY_KIND_AT, ENTRY_FLAGS_AT, ENTRY_REFERENCE_SIZE_AT = 4, 5, 6
ENTRY_NUMBER_AT, ENTRY_TIME_AT = 8, 16
_TARGET_COUNT = Struct("<H")
_OPERATION_COUNT = Struct("<I")
# index into the target list; code; bytes of the collection's name
_OPERATION_HEAD = Struct("<HBH")
_BLOB_SIZE = Struct("<I")
TARGET_COUNT_SIZE, OPERATION_COUNT_SIZE = _TARGET_COUNT.size, _OPERATION_COUNT.size
OPERATION_HEAD_SIZE, BLOB_SIZE_SIZE = _OPERATION_HEAD.size, _BLOB_SIZE.size
OPERATION_CODE_AT, OPERATION_NAME_SIZE_AT = 2, 3
EVERY_TARGET = 0xFFFF
NO_VALUE = 0xFFFFFFFF
REFERENCE_SIZE_MAX = 0xFFFF
TARGET_SIZE_MAX = 0xFF
TARGETS_MAX = 0xFFFF
COLLECTION_SIZE_MAX = 0xFFFF
NUMBER_MAX = (1 << 64) - 1


class EntryKind(IntEnum):
    """Kinds of entries."""

    PERSISTING = 1
    PERSISTED = 2


class PersistingFlag(IntFlag):
    """Flags of a persisting entry."""

    CARRIED_FORWARD = 1


class PersistedFlag(IntFlag):
    """Flags of a persisted entry; discarded implies all targets."""

    ALL_TARGETS = 1
    DISCARDED = 2


ALL_TARGETS = int(PersistedFlag.ALL_TARGETS)
"""As a plain number: its arithmetic is ten times as fast."""


class OperationKind(IntEnum):
    """The effect of an operation on a row."""

    OPAQUE = 0
    INSERT = 1
    UPDATE = 2
    DELETE = 3


class Operation(NamedTuple):
    """One operation; ``target`` is an index into the entry's targets, None means every one."""

    target: int | None
    kind: OperationKind
    collection: str
    key: bytes
    value: bytes | None


class Entry(NamedTuple):
    """A persisting or persisted entry. A persisted one names targets, or all of them by flag."""

    kind: EntryKind
    number: int
    time: int
    targets: tuple[str, ...]
    operations: tuple[Operation, ...] = ()
    reference: str = ""
    flags: int = 0

    @property
    def all_targets(self) -> bool:
        """True if every target holds the transaction."""
        return self.kind is EntryKind.PERSISTED and bool(self.flags & ALL_TARGETS)

    @property
    def discarded(self) -> bool:
        """True if an operator gave the transaction up."""
        return self.kind is EntryKind.PERSISTED and bool(self.flags & PersistedFlag.DISCARDED)

    @property
    def carried_forward(self) -> bool:
        """True if the entry repeats an older one, so that the older file becomes redundant."""
        return self.kind is EntryKind.PERSISTING and bool(
            self.flags & PersistingFlag.CARRIED_FORWARD
        )


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """An entry with its offset in the unpacked entries and its length, length field included."""

    entry: Entry
    offset: int
    length: int
    body: bytes
    """The bytes after the reference: target list and operations, as stored."""


# -- encode ------------------------------------------------------------------------------


def encode_entry(entry: Entry) -> bytes:
    """Return an entry with its length field.

    Raises:
        LogFormatError: a part does not fit into its field.
    """
    _check(entry)
    reference = entry.reference.encode()
    parts = [_encode_targets(entry.targets)]
    if entry.kind is EntryKind.PERSISTING:
        parts.append(_OPERATION_COUNT.pack(len(entry.operations)))
        parts.extend(map(_encode_operation, entry.operations))
    body = b"".join(parts)
    length = ENTRY_HEAD_SIZE - LENGTH_FIELD_SIZE + len(reference) + len(body)
    if len(reference) > REFERENCE_SIZE_MAX or length > DATA_SIZE_MAX:
        raise LogFormatError(
            "the reference or the entry is too long", found=f"{len(reference)} and {length} bytes"
        )
    head = _ENTRY_HEAD.pack(
        length, entry.kind, entry.flags, len(reference), entry.number, entry.time
    )
    return head + reference + body


def encode_all_persisted(number: int, time: int) -> bytes:
    """Return the entry that says that every target holds a transaction, with its length field."""
    length = ENTRY_HEAD_SIZE - LENGTH_FIELD_SIZE + len(_NO_TARGETS)
    return _ENTRY_HEAD.pack(length, _PERSISTED, ALL_TARGETS, 0, number, time) + _NO_TARGETS


def _check(entry: Entry) -> None:
    if not 0 < entry.number <= NUMBER_MAX:
        raise LogFormatError("a transaction number is 64 bits and not 0")
    if bool(entry.targets) == entry.all_targets:
        raise LogFormatError("an entry names targets, unless it is persisted in all of them")
    targets = len(entry.targets)
    for one in entry.operations:
        if one.target is None or 0 <= one.target < targets:
            continue
        raise LogFormatError("an operation is for a target that its entry does not name")


@lru_cache(maxsize=256)
def _encode_targets(targets: tuple[str, ...]) -> bytes:
    """Encode names; cached, as a program has few sets of targets."""
    names = [target.encode() for target in targets]
    if len(names) > TARGETS_MAX or not all(0 < len(name) <= TARGET_SIZE_MAX for name in names):
        raise LogFormatError("a target's name is 1 to 255 bytes, and there are at most 65535")
    return _TARGET_COUNT.pack(len(names)) + b"".join(bytes((len(name),)) + name for name in names)


_NO_TARGETS = _encode_targets(())
_PERSISTED = int(EntryKind.PERSISTED)


@lru_cache(maxsize=1024, typed=True)
def _encode_operation_head(target: int | None, kind: OperationKind, name: str) -> bytes:
    """Encode what comes before the key; cached, as a program has few collections."""
    collection = text(name, "collection").encode()
    if len(collection) > COLLECTION_SIZE_MAX:
        raise LogFormatError("a collection's name is at most 65535 bytes")
    index = EVERY_TARGET if target is None else target
    return _OPERATION_HEAD.pack(index, kind, len(collection)) + collection


def _encode_operation(operation: Operation) -> bytes:
    target, kind, collection, key, value = operation
    key = bytes_of(key, "key")
    value = None if value is None else bytes_of(value, "value")
    parts = [
        _encode_operation_head(target, kind, collection),
        _BLOB_SIZE.pack(len(key)),
        key,
        _BLOB_SIZE.pack(NO_VALUE if value is None else len(value)),
        value or b"",
    ]
    return b"".join(parts)


# -- decode ------------------------------------------------------------------------------


def parse_entries(entries: Buffer) -> list[PlacedEntry]:
    """Return all entries, which must use up the bytes exactly.

    Raises:
        LogFormatError: the bytes are not a run of entries.
    """
    view = memoryview(entries)
    found = []
    place = 0
    while place < len(view):
        placed = parse_entry(view, place)
        found.append(placed)
        place += placed.length
    return found


def parse_entry(view: memoryview, place: int) -> PlacedEntry:
    """Return the entry at ``place``.

    Raises:
        LogFormatError: no valid entry stands there.
    """
    if len(view) - place < ENTRY_HEAD_SIZE:
        raise LogFormatError("an entry's head is cut off", offset=place)
    size, kind, flags, reference_size, number, time = _ENTRY_HEAD.unpack_from(view, place)
    end = place + LENGTH_FIELD_SIZE + size
    body = place + ENTRY_HEAD_SIZE + reference_size
    if end > len(view) or body > end:
        raise LogFormatError("an entry is longer than its block", offset=place)
    if kind not in (1, 2) or flags not in ((0, 1) if kind == 1 else (0, 1, 3)) or number == 0:
        raise LogFormatError(
            "not an entry", offset=place, found=f"kind {kind}, flags {flags}, number {number}"
        )
    reference = _text(view[place + ENTRY_HEAD_SIZE : body])
    cursor = _Cursor(view, body, end)
    targets = cursor.targets()
    if bool(targets) == (kind == EntryKind.PERSISTED and bool(flags & PersistedFlag.ALL_TARGETS)):
        raise LogFormatError("targets and flags of an entry disagree", offset=place)
    operations = cursor.operations(len(targets)) if kind == EntryKind.PERSISTING else ()
    if cursor.place != end:
        raise LogFormatError("an entry has left-over bytes", offset=cursor.place)
    entry = Entry(EntryKind(kind), number, time, targets, operations, reference, flags)
    return PlacedEntry(entry, place, end - place, bytes(view[body:end]))


@dataclass(slots=True)
class _Cursor:
    """Reads the parts of one entry, never beyond its end."""

    view: memoryview
    place: int
    end: int

    def take(self, size: int) -> memoryview:
        start = self.place
        if size > self.end - start:
            raise LogFormatError("a part reaches beyond its entry", offset=start)
        self.place = start + size
        return self.view[start : self.place]

    def number(self, form: Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def targets(self) -> tuple[str, ...]:
        return tuple(self._target() for _ in range(self.number(_TARGET_COUNT)))

    def _target(self) -> str:
        size = self.take(1)[0]
        if size == 0:
            raise LogFormatError("a target has no name", offset=self.place - 1)
        return _text(self.take(size))

    def operations(self, targets: int) -> tuple[Operation, ...]:
        return tuple(self._operation(targets) for _ in range(self.number(_OPERATION_COUNT)))

    def _operation(self, targets: int) -> Operation:
        index, code, size = _OPERATION_HEAD.unpack(self.take(_OPERATION_HEAD.size))
        if code > OperationKind.DELETE or (index >= targets and index != EVERY_TARGET):
            raise LogFormatError("not an operation", found=f"code {code}, target {index}")
        collection = _text(self.take(size))
        key = bytes(self.take(self.number(_BLOB_SIZE)))
        value_size = self.number(_BLOB_SIZE)
        value = None if value_size == NO_VALUE else bytes(self.take(value_size))
        target = None if index == EVERY_TARGET else index
        return Operation(target, OperationKind(code), collection, key, value)


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise LogFormatError(f"not UTF-8: {error}") from error


@lru_cache(maxsize=1024)
def target_names(listed: bytes) -> tuple[str, ...]:
    """Return the names of an exact list of targets; cached, as a program has few of them."""
    found = []
    place = TARGET_COUNT_SIZE
    while place < len(listed):
        end = place + 1 + listed[place]
        found.append(listed[place + 1 : end].decode())
        place = end
    return tuple(found)


def signed(number: int) -> int:
    """Return the signed number of 64 bits with the bits of an unsigned one.

    Tables have no unsigned columns; no writer comes that far, so only damage shows the difference.
    """
    return number if number < 1 << 63 else number - (1 << 64)


def unsigned(number: int) -> int:
    """Return the number of which `signed` made this one."""
    return number & NUMBER_MAX


@dataclass(frozen=True, slots=True)
class Suspect:
    """What looks like an entry in damaged data: for information, never applied.

    ``offset`` counts from the first entry of the block; ``length`` includes the length field.
    """

    kind: EntryKind
    number: int
    time: int
    offset: int
    length: int


def parse_suspects(entries: Buffer) -> list[Suspect]:
    """Return what still looks like entries, up to the first that does not."""
    view = memoryview(entries)
    found: list[Suspect] = []
    place = 0
    while len(view) - place >= ENTRY_HEAD_SIZE:
        size, kind, _, _, number, time = _ENTRY_HEAD.unpack_from(view, place)
        length = LENGTH_FIELD_SIZE + size
        if kind not in (1, 2) or number == 0 or not ENTRY_HEAD_SIZE <= length <= len(view) - place:
            break
        found.append(Suspect(EntryKind(kind), number, time, place, length))
        place += length
    return found
