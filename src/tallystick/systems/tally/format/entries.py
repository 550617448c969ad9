"""Encode and decode the bodies of the persist log's records.

In: targets, a reference and operations of a transaction. Out: the body of a persisting record, and
back. Pure functions, no I/O; integers are little-endian, texts UTF-8:

    targets     count u16; each: length u16, name
    reference   length u16, text
    operations  to the end; each: code u8 (index into `OPERATION_CODES`), index of its target u16
                (`EVERY_TARGET`: all), length of the collection u16, of the key i32, of the value
                i32 (`NO_VALUE`: none); collection, key, value

The body of a persisted record are names (`tallystick.systems.tally.format.bodies`). Recovery has
no use for operations: `entry_targets` verifies their lengths without decoding them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from tallystick.arguments import bytes_of, text, texts
from tallystick.errors import CorruptLogError
from tallystick.roles import Operation, OperationCode
from tallystick.systems.tally.format.bodies import COUNT, NAME_MAX, Cursor, decode_names

OPERATION_HEAD: Final = struct.Struct("<BHHii")
"""Code, index of the target, lengths of collection, key and value."""
EVERY_TARGET: Final = 0xFFFF
NO_VALUE: Final = -1
OPERATION_CODES: Final = (
    OperationCode.OPAQUE,
    OperationCode.INSERT,
    OperationCode.UPDATE,
    OperationCode.DELETE,
)

_CODES = {code: index for index, code in enumerate(OPERATION_CODES)}


# -- encode -------------------------------------------------------------------------------


def encode_entry(
    targets: tuple[str, ...], reference: str, operations: Iterable[Operation]
) -> bytes:
    """Encode the body of a persisting record.

    Raises:
        TypeError: a part has another type.
        ValueError: the target of an operation is not in ``targets``, or a text is too long.
    """
    indices, head = _head(targets)
    stored = text(reference, "reference", NAME_MAX).encode()
    try:
        pieces = [head, COUNT.pack(len(stored)), stored]
        for code, collection, key, value, target in operations:
            name = _collection(collection)
            key = bytes_of(key, "key")
            value = None if value is None else bytes_of(value, "value")
            size = NO_VALUE if value is None else len(value)
            head = OPERATION_HEAD.pack(_CODES[code], indices[target], len(name), len(key), size)
            pieces += (head, name, key, value or b"")
    except KeyError as error:
        raise ValueError(f"{error} is not a target of this transaction") from error
    except struct.error as error:
        raise ValueError(f"a text is too long: {error}") from error
    return b"".join(pieces)


def target_names(targets: object) -> tuple[str, ...]:
    """Return the targets of an entry. Raises `TypeError` or `ValueError` for what is none."""
    return _targets(targets) if type(targets) is tuple else _target_names(targets)


def _target_names(targets: object) -> tuple[str, ...]:
    return texts(targets, "targets", EVERY_TARGET - 1)


# A program has few sets of targets, and few collections.
_targets = lru_cache(maxsize=256)(_target_names)


@lru_cache(maxsize=256, typed=True)
def _collection(name: object) -> bytes:
    return text(name, "collection", NAME_MAX).encode()


@lru_cache(maxsize=256)
def _head(targets: tuple[str, ...]) -> tuple[dict[str | None, int], bytes]:
    """Return the index of each target, and the encoded targets."""
    indices: dict[str | None, int] = {name: index for index, name in enumerate(targets)}
    indices[None] = EVERY_TARGET
    pieces = [COUNT.pack(len(targets))]
    for name in targets:
        stored = name.encode()
        pieces += (COUNT.pack(len(stored)), stored)
    return indices, b"".join(pieces)


# -- decode -------------------------------------------------------------------------------


def decode_entry(body: bytes) -> tuple[tuple[str, ...], str, tuple[Operation, ...]]:
    """Return targets, reference and operations of a persisting record.

    Raises:
        CorruptLogError: the parts do not fit the body.
    """
    cursor = Cursor(body)
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
        name = None if target == EVERY_TARGET else targets[target]
        operations.append(Operation(OPERATION_CODES[code], collection, key, value, name))
    return targets, reference, tuple(operations)


def entry_targets(body: bytes) -> tuple[str, ...]:
    """Return the targets of a persisting record; verify, but do not decode, its operations.

    Raises:
        CorruptLogError: the parts do not fit the body.
    """
    head, targets = _last_head[0]
    if not head or not body.startswith(head):
        head, targets = _head_of(body)
        _last_head[0] = head, targets
    try:
        end = len(head)
        end += COUNT.size + COUNT.unpack_from(body, end)[0]
        while end < len(body):
            end += _operation_size(body, end, len(targets))
    except struct.error as error:
        raise _unfit("an entry", f"{len(body)} bytes") from error
    if end != len(body):
        raise _unfit(f"{end} bytes", str(len(body)))
    return targets


def mark_targets(body: bytes) -> tuple[str, ...]:
    """Return the targets of a persisted record.

    Raises:
        CorruptLogError: the body holds no names.
    """
    return _names(body)


_last_head: list[tuple[bytes, tuple[str, ...]]] = [(b"", ())]
"""Encoded targets of the last entry, and their names: the next entry most often has the same. The
encoding states where it ends, so a body that starts with it has these targets."""


def _head_of(body: bytes) -> tuple[bytes, tuple[str, ...]]:
    try:
        (count,) = COUNT.unpack_from(body)
        end = COUNT.size
        for _ in range(count):
            end += COUNT.size + COUNT.unpack_from(body, end)[0]
    except struct.error as error:
        raise _unfit("an entry", f"{len(body)} bytes") from error
    head = body[:end]
    return head, _names(head)


@lru_cache(maxsize=256)
def _names(body: bytes) -> tuple[str, ...]:
    return decode_names(body)[0]


@lru_cache(maxsize=256)
def target_set(targets: tuple[str, ...]) -> frozenset[str]:
    """Return the targets as a set, the same object for all entries with these targets."""
    return frozenset(targets)


def _operation_size(body: bytes, place: int, targets: int) -> int:
    code, target, name_size, key_size, value_size = OPERATION_HEAD.unpack_from(body, place)
    if code >= len(OPERATION_CODES) or (target != EVERY_TARGET and target >= targets):
        raise _unfit("a known operation and target", f"{code} for {target}")
    if key_size < 0 or value_size < NO_VALUE:
        raise _unfit("lengths from 0 on", f"{key_size} and {value_size}")
    return int(OPERATION_HEAD.size + name_size + key_size + max(value_size, 0))


def _unfit(expected: str, found: str) -> CorruptLogError:
    return CorruptLogError("the body of a record does not fit", expected=expected, found=found)
