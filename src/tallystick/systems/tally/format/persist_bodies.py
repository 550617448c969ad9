"""Bodies of the persist log on the way of a commit: made, and folded in, at little cost.

In: a transaction's targets and operations, or the body of a persisting or persisted record. Out: a
body as `tallystick.systems.tally.format.bodies.encode_entry` makes it, or names of targets. The
running log folds in each record that it writes; operations are measured here, and decoded when
somebody wants them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

from tallystick.errors import CorruptLogError
from tallystick.roles import Operation
from tallystick.systems.tally.format.bodies import (
    COUNT,
    EVERY_TARGET,
    NO_VALUE,
    OPERATION_CODES,
    OPERATION_HEAD,
    decode_names,
    encode_entry,
)

_CODES = {code: index for index, code in enumerate(OPERATION_CODES)}


def encode_persisting(
    targets: tuple[str, ...], operations: Iterable[Operation], reference: str
) -> bytes:
    """The body of a persisting record. Raises `ValueError` for an operation whose target is none
    of ``targets``, and for a text that is too long."""
    indices, head = _head(targets)
    text = reference.encode()
    try:
        pieces = [head, COUNT.pack(len(text)), text]
        for one in operations:
            collection, key, value = one.collection.encode(), one.key, one.value
            size = NO_VALUE if value is None else len(value)
            pieces += (
                OPERATION_HEAD.pack(
                    _CODES[one.code], indices[one.target], len(collection), len(key), size
                ),
                collection,
                key,
                value or b"",
            )
    except KeyError as error:
        raise ValueError(f"{error} is not a target of this transaction") from error
    except struct.error as error:
        raise ValueError(f"a text is too long: {error}") from error
    return b"".join(pieces)


@lru_cache(maxsize=256)
def _head(targets: tuple[str, ...]) -> tuple[dict[str | None, int], bytes]:
    """The index of each target, and how every entry for them begins."""
    indices: dict[str | None, int] = {name: index for index, name in enumerate(targets)}
    indices[None] = EVERY_TARGET
    return indices, encode_entry(targets, "", ())[: -COUNT.size]


def entry_targets(body: bytes) -> tuple[str, ...]:
    """Targets of a persisting record. Raises `CorruptLogError` if its parts do not fit it."""
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
    """Targets of a persisted record. Raises `CorruptLogError`."""
    return _names(body)


_last_head: list[tuple[bytes, tuple[str, ...]]] = [(b"", ())]
"""How the last entry began, and its targets: the next one most often begins so, too. A head says
where it ends, so a body that starts with it has these targets."""


def _head_of(body: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The names, as bytes and as texts."""
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
    """A log has few sets of targets, and one of them in every record."""
    return decode_names(body)[0]


@lru_cache(maxsize=256)
def every(targets: tuple[str, ...]) -> frozenset[str]:
    """The targets as a set, the same one for every entry that waits for all of them."""
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
