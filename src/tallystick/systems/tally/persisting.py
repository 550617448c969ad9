"""Which targets a record of the persist log is for, without taking all of it apart.

In: the body of a persisting or persisted record. Out: names of targets. The running log folds in
each record that it writes; operations are measured here, and decoded when somebody wants them.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from tallystick.errors import CorruptLogError
from tallystick.systems.tally.kinds import (
    COUNT,
    EVERY_TARGET,
    NO_VALUE,
    OPERATION_CODES,
    OPERATION_HEAD,
    decode_names,
)


def entry_targets(body: bytes) -> tuple[str, ...]:
    """Targets of a persisting record. Raises `CorruptLogError` if its parts do not fit it."""
    try:
        targets, end = _targets(body)
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


def _targets(body: bytes) -> tuple[tuple[str, ...], int]:
    """The names, and where they end."""
    (count,) = COUNT.unpack_from(body)
    end = COUNT.size
    for _ in range(count):
        end += COUNT.size + COUNT.unpack_from(body, end)[0]
    return _names(body[:end]), end


@lru_cache(maxsize=256)
def _names(body: bytes) -> tuple[str, ...]:
    """A log has few sets of targets, and one of them in every record."""
    return decode_names(body)[0]


def _operation_size(body: bytes, place: int, targets: int) -> int:
    code, target, name_size, key_size, value_size = OPERATION_HEAD.unpack_from(body, place)
    if code >= len(OPERATION_CODES) or (target != EVERY_TARGET and target >= targets):
        raise _unfit("a known operation and target", f"{code} for {target}")
    if key_size < 0 or value_size < NO_VALUE:
        raise _unfit("lengths from 0 on", f"{key_size} and {value_size}")
    return int(OPERATION_HEAD.size + name_size + key_size + max(value_size, 0))


def _unfit(expected: str, found: str) -> CorruptLogError:
    return CorruptLogError("the body of a record does not fit", expected=expected, found=found)
