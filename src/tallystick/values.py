"""Values as JSON: what JSON knows stays plain, everything else is tagged and read back exactly.

In: values of rows, outcomes and payloads. Out: canonical JSON text, the same for the same value.

    datetime, date, time    {"$tallystick": ["datetime", "2026-01-31T12:00:00+01:00"]}; ISO 8601, a
                            time zone as its offset; a third item 1 is ``fold``
    timedelta               ["timedelta", [days, seconds, microseconds]]
    Decimal, UUID           ["decimal", "1.10"], ["uuid", "…"]
    bytes                   ["bytes", "…"], Base64; bytearray and memoryview become bytes
    subclasses of these     as what they are a subclass of, if that equals them; with a serializer,
                            what that returns
    NaN, infinities         ["float", "nan"], "inf", "-inf"
    an object with the key  ["object", {…}]
    "$tallystick"

A tag that is not known here is left as it is. What earlier versions wrote has no tags.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tallystick.errors import TransactionUsageError

TAG = "$tallystick"

_FORM: dict[str, Any] = {
    "sort_keys": True, "separators": (",", ":"), "ensure_ascii": False, "allow_nan": False,
}  # fmt: skip
_ENCODER = json.JSONEncoder(**_FORM)
_make_pieces: Any = getattr(json.encoder, "c_make_encoder", None)
_pieces = _make_pieces and _make_pieces(
    None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", True, False, False
)
"""What `_ENCODER` makes anew for each value, where the interpreter has it; without its check for
objects that hold themselves, which end in `RecursionError`."""
_PLAIN = (str, int, type(None))


def encode_value(value: Any, serializer: Callable[[Any], Any] | None = None) -> str:
    """Return a value as canonical JSON.

    Args:
        value: what JSON knows, and the types above, in lists and mappings, too.
        serializer: is called with any other value, and returns one that can be encoded.

    Raises:
        TransactionUsageError: the value, or one in it, has no encoding.
    """
    try:
        return _encoded(value, serializer)
    except RecursionError as error:
        raise TransactionUsageError(
            "a value that holds itself, or is nested too deeply, has no encoding"
        ) from error
    except (TypeError, ValueError, ArithmeticError, BufferError) as error:  # of a buffer with gaps
        raise TransactionUsageError(f"a value has no encoding: {error}") from error


def _encoded(value: Any, serializer: Callable[[Any], Any] | None) -> str:
    try:
        text = "".join(_pieces(value, 0)) if _pieces else _ENCODER.encode(value)
        if TAG in text:
            text = _ENCODER.encode(_tagged(value, serializer))
    except (TypeError, ValueError):  # not plain
        text = _ENCODER.encode(_tagged(value, serializer))
    _require_text_keys(value)
    if not text.isascii():
        text.encode()  # a lone surrogate has no UTF-8, which is what stores it
    return text


def _require_text_keys(value: Any) -> None:
    """Raise `TypeError` for a key that JSON would make a text of, or two keys one text."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            kinds = sorted({type(key).__name__ for key in value if not isinstance(key, str)})
            raise TypeError(f"a mapping has keys of type {', '.join(kinds)}; expected texts (str)")
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for one in value:
        if not isinstance(one, _PLAIN):
            _require_text_keys(one)


def decode_value(text: str) -> Any:
    """Return the value of a JSON text. Raises `ValueError` if it is none."""
    if TAG not in text:
        return _DECODER.decode(text)
    return _restored(_DECODER.decode(text))


def untagged(value: Any) -> Any:
    """Return a decoded value as plain JSON that databases read: text where JSON has no type."""
    if isinstance(value, Mapping):
        return {key: untagged(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [untagged(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, timedelta):
        return f"{value.days} days {value.seconds}.{value.microseconds:06} seconds"
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value


def _tagged(value: Any, serializer: Callable[[Any], Any] | None) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        made = {key: _tagged(one, serializer) for key, one in value.items()}
        return {TAG: ["object", made]} if TAG in made else made
    if isinstance(value, list | tuple):
        return [_tagged(one, serializer) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else {TAG: ["float", repr(float(value))]}
    if (tag := _tag_of(value, exactly=serializer is not None)) is not None:
        return {TAG: tag}
    if serializer is None:
        raise TransactionUsageError(
            f"a value of the type {type(value).__module__}.{type(value).__qualname__} has no "
            "encoding",
            expected="text, numbers, booleans, None, datetime, date, time, timedelta, Decimal, "
            "UUID, bytes, lists and mappings of these",
            advice="Convert it, or give a serializer= that does",
        )
    return _tagged(serializer(value), None)


def _tag_of(value: Any, *, exactly: bool) -> list[Any] | None:
    """Return the name and the parts of a value; None if it has no encoding.

    Drivers and test libraries have subclasses of these types. One counts as what it is a subclass
    of if that equals it (not a moment with nanoseconds), unless ``exactly``: a serializer knows
    better.
    """
    kinds = (type(value),) if exactly else type(value).__mro__
    kind = next((one for one in kinds if one in _TAGS), None)
    if kind is None:
        return None
    name, make = _TAGS[kind]
    parts = make(value)
    if kind is type(value) or _FROM[name](*parts) == value:
        return [name, *parts]
    return None


def _moment(value: datetime | time) -> list[Any]:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise ValueError(
            f"the zone {value.tzinfo} gives {value!r} no offset, which a time of day alone may not "
            "have: it would lose its zone. Give a datetime, or the time without its zone"
        )
    return [value.isoformat(), 1] if value.fold else [value.isoformat()]


def _base64(value: bytes | bytearray | memoryview) -> list[str]:
    return [base64.b64encode(value).decode("ascii")]


_TAGS: dict[type, tuple[str, Callable[[Any], list[Any]]]] = {
    datetime: ("datetime", _moment),
    time: ("time", _moment),
    date: ("date", lambda one: [one.isoformat()]),
    timedelta: ("timedelta", lambda one: [[one.days, one.seconds, one.microseconds]]),
    Decimal: ("decimal", lambda one: [str(one)]),
    UUID: ("uuid", lambda one: [str(one)]),
    bytes: ("bytes", _base64),
    bytearray: ("bytes", _base64),
    memoryview: ("bytes", _base64),
}
_FROM: dict[str, Callable[..., Any]] = {
    "datetime": lambda text, fold=0: datetime.fromisoformat(text).replace(fold=fold),
    "time": lambda text, fold=0: time.fromisoformat(text).replace(fold=fold),
    "date": date.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "float": float,
}


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(one) for one in value]
    if not isinstance(value, dict):
        return value
    tag = value.get(TAG)
    if len(value) == 1 and isinstance(tag, list) and tag and isinstance(tag[0], str):
        name, *rest = tag
        if name == "object" and len(rest) == 1 and isinstance(rest[0], dict):
            return {key: _restored(one) for key, one in rest[0].items()}
        if name in _FROM:
            try:
                return _FROM[name](*rest)
            except (TypeError, ValueError, ArithmeticError) as error:
                raise ValueError(f"the value {tag!r} cannot be read: {error}") from error
    return {key: _restored(one) for key, one in value.items()}


_DECODER = json.JSONDecoder()
