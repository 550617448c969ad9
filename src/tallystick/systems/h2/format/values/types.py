"""Values of rows: one table of types that says how each is stored, decoded and printed.

In: bytes, an offset in them, the time zone of the writer. Out: a `Value` (type name and text, as
the engine prints them) and the offset after it. A value is one type byte and data; `TYPES` has a
row for each type byte. A read past the end raises `IndexError`; an unknown type byte raises
`FileCorruptedError`. Source: docs/formats/h2.md, "Records".
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from tallystick.systems.h2.format.numbers import (
    Bytes,
    decode_string,
    decode_units,
    decode_var_int,
    decode_var_long,
    signed,
)
from tallystick.systems.h2.format.values.datetime import (
    MS_PER_DAY,
    NS_PER_MS,
    NS_PER_SECOND,
    Zone,
    date_value_text,
    offset_text,
    time_text,
)
from tallystick.systems.h2.format.values.java_text import (
    INTERVALS,
    decimal_text,
    double_text,
    float_text,
    interval_text,
    reverse_bits,
)

# Type bytes, in the order of the engine's own numbers; ranges are given by their first code.
NULL = 0
BYTE = 2
SHORT = 3
INT = 4
LONG = 5
DECIMAL = 6
DOUBLE = 7
FLOAT = 8
TIME = 9
DATE = 10
TIMESTAMP = 11
BYTES = 12
STRING = 13
STRING_IGNORECASE = 14
BLOB = 15
CLOB = 16
ARRAY = 17
RESULT_SET = 18
JAVA_OBJECT = 19
UUID = 20
STRING_FIXED = 21
GEOMETRY = 22
TIMESTAMP_TZ = 24
ENUM = 25
INTERVAL = 26
ROW = 27
INT_0_15 = 32
LONG_0_7 = 48
DECIMAL_0 = 56
DECIMAL_1 = 57
DECIMAL_SMALL_0 = 58
DECIMAL_SMALL = 59
DOUBLE_0 = 60
DOUBLE_1 = 61
FLOAT_0 = 62
FLOAT_1 = 63
BOOLEAN_FALSE = 64
BOOLEAN_TRUE = 65
INT_NEGATIVE = 66
LONG_NEGATIVE = 67
STRING_0_31 = 68
BYTES_0_31 = 100
LOCAL_TIME = 132
LOCAL_DATE = 133
LOCAL_TIMESTAMP = 134
CUSTOM = 135
JSON = 136
TIMESTAMP_TZ_SECONDS = 137
TIME_TZ = 138

NEWER = frozenset((TIMESTAMP_TZ, ENUM, INTERVAL, ROW, CUSTOM, JSON, TIMESTAMP_TZ_SECONDS, TIME_TZ))
"""Types that not every version of the engine knows: 1.3.176 knows none of them."""

CONVERTED = frozenset((DECIMAL, DOUBLE, FLOAT, BYTES)).union(
    range(DECIMAL_0, INT_NEGATIVE), range(BYTES_0_31, LOCAL_TIME)
)
"""Types other than whole numbers that the engine takes for one where it needs a number, each
version in its own way."""

LOB_IN_DATABASE = -3
LOB_IN_FILE = -1
LOB_IN_NAMED_FILE = -2
"""Counts of a BLOB or CLOB that are no counts: where the data are instead."""
_ZONE_STEP_SECONDS = 900
ZONE_SECONDS = 127
ZONE_MINUS_SECONDS = -128
"""Zone offsets are a byte of quarter hours, or one of these and a number of seconds."""
_UUID_SIZE = 16
_NESTING_MAX = 64
"""Arrays in arrays deeper than this are refused; the engine overflows its stack somewhere there."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value other than NULL.

    Attributes:
        type: the engine's name of its type.
        text: the value as the engine prints it, binary as lower-case hex; the values in it, for
            ARRAY, ROW and RESULT_SET.
    """

    type: str
    text: str | tuple[Value | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return ``{"t": type, "v": text}``, nested for arrays."""
        if isinstance(self.text, str):
            return {"t": self.type, "v": self.text}
        return {"t": self.type, "v": [json_of(item) for item in self.text]}


def json_of(value: Value | None) -> dict[str, Any] | None:
    """Return a value's JSON form; None for NULL."""
    return None if value is None else value.to_json()


class FileCorruptedError(Exception):
    """The engine's "file corrupted", for a type byte of no release; it ends a scan quietly."""


class EngineFailureError(Exception):
    """A general error of the engine, with which it does not open the database.

    Reasons: a negative or absurd length, a custom type whose plug-in is missing.
    """


Decoded = tuple[Value | None, int]
"""A value, None for NULL, and the offset after it."""
Decoder = Callable[[Bytes, int, Zone, int], Decoded]
"""Of bytes, the offset after the type byte, the time zone, and the number of enclosing arrays."""
Printer = Callable[..., str]
"""Of the time zone and the numbers that are stored."""


class Layout(IntEnum):
    """How the data after a type byte are stored."""

    FIXED = 0
    """`ValueType.size` bytes."""
    NUMBERS = 1
    """Variable-length numbers; ``size`` has two bits for each, the first one lowest: `INT_NUMBER`
    or `LONG_NUMBER`."""
    COUNTED_BYTES = 2
    """A vI count and so many bytes; a negative count has a meaning of its own."""
    COUNTED_TEXT = 3
    """A vI count and so many UTF-16 units."""
    SHORT_TEXT = 4
    """``size`` UTF-16 units."""
    OTHER = 5
    """Known to the decoder only."""


INT_NUMBER = 1
LONG_NUMBER = 2


class ValueType(NamedTuple):
    """A row of `TYPES`: the engine's name, the layout of the data, and the decoder."""

    name: str
    layout: Layout
    size: int
    decode: Decoder


def decode_value(data: Bytes, at: int, zone: Zone, depth: int = 0) -> Decoded:
    """Return the value at ``at`` (None for NULL) and the offset after it."""
    decode = _DECODERS[data[at]]
    if decode is None:
        raise FileCorruptedError(f"value type {data[at]}")
    return decode(data, at + 1, zone, depth)


def decode_row(data: Bytes, zone: Zone) -> tuple[tuple[Value | None, ...], int]:
    """Return the values of a row (column count first) and the offset after the last one."""
    count, at = decode_var_int(data, 0)
    if count < 0:
        raise EngineFailureError(f"a row of {count} columns")
    values = []
    for _ in range(count):
        value, at = decode_value(data, at, zone)
        values.append(value)
    return tuple(values), at


def holds_type(row: Bytes, zone: Zone, types: Container[int]) -> bool:
    """Return True if a value of a row, as far as it can be read, is of one of the types.

    Values inside of arrays are not looked at.
    """
    try:
        count, at = decode_var_int(row, 0)
        for _ in range(count):
            if row[at] in types:
                return True
            _, at = decode_value(row, at, zone)
    except (IndexError, FileCorruptedError, EngineFailureError):
        return False
    return False


# -- constants and bytes --------------------------------------------------------------------


def _take(data: Bytes, at: int, count: int) -> tuple[bytes, int]:
    if count < 0:
        raise EngineFailureError(f"a length of {count} bytes")
    piece = bytes(data[at : at + count])
    if len(piece) < count:
        raise IndexError
    return piece, at + count


def _null(_data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    return None, at


def _constant(name: str, text: str) -> ValueType:
    value = Value(name, text)
    return ValueType(name, Layout.FIXED, 0, lambda _data, at, _zone, _depth: (value, at))


def _fixed(name: str, size: int, text: Callable[[bytes], str]) -> ValueType:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        piece, at = _take(data, at, size)
        return Value(name, text(piece)), at

    return ValueType(name, Layout.FIXED, size, decode)


def _unpacked(form: str) -> Callable[[bytes], str]:
    layout = struct.Struct(form)
    return lambda piece: str(layout.unpack(piece)[0])


def _uuid_text(piece: bytes) -> str:
    return str(uuid.UUID(bytes=piece))


def _counted_bytes(name: str) -> ValueType:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        count, at = decode_var_int(data, at)
        piece, at = _take(data, at, count)
        return Value(name, piece.hex()), at

    return ValueType(name, Layout.COUNTED_BYTES, 0, decode)


def _counted_text(name: str) -> ValueType:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        count, start = decode_var_int(data, at)
        if count < 0:
            raise EngineFailureError(f"a string of {count} characters")
        text, at = decode_units(data, start, count)
        return Value(name, text), at

    return ValueType(name, Layout.COUNTED_TEXT, 0, decode)


def _short_text(count: int) -> ValueType:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        text, at = decode_units(data, at, count)
        return Value("VARCHAR", text), at

    return ValueType("VARCHAR", Layout.SHORT_TEXT, count, decode)


# -- numbers --------------------------------------------------------------------------------

_NUMBER_CODES = {"i": INT_NUMBER, "l": LONG_NUMBER}
_NUMBER_DECODERS = {"i": decode_var_int, "l": decode_var_long}


def _numbers(name: str, kinds: str, text: Printer) -> ValueType:
    """Return a type of variable-length numbers: an ``i`` or ``l`` in ``kinds`` for each."""
    size = sum(_NUMBER_CODES[kind] << 2 * at for at, kind in enumerate(kinds))
    decoders = [_NUMBER_DECODERS[kind] for kind in kinds]
    (decode_first, *_) = decoders

    def decode_one(data: Bytes, at: int, zone: Zone, _depth: int) -> Decoded:
        number, at = decode_first(data, at)
        return Value(name, text(zone, number)), at

    def decode_several(data: Bytes, at: int, zone: Zone, _depth: int) -> Decoded:
        numbers = []
        for decode in decoders:
            number, at = decode(data, at)
            numbers.append(number)
        return Value(name, text(zone, *numbers)), at

    decode = decode_one if len(decoders) == 1 else decode_several
    return ValueType(name, Layout.NUMBERS, size, decode)


def _plain_text(_zone: Zone, number: int) -> str:
    return str(number)


def _negated_int_text(_zone: Zone, number: int) -> str:
    # Java's negation wraps the smallest number to itself.
    return str(signed(-number & 0xFFFF_FFFF, 32))


def _negated_long_text(_zone: Zone, number: int) -> str:
    return str(signed(-number & (1 << 64) - 1, 64))


def _small_decimal_text(_zone: Zone, scale: int, unscaled: int) -> str:
    return decimal_text(unscaled, scale)


def _double_text(_zone: Zone, bits: int) -> str:
    return double_text(reverse_bits(bits, 64))


def _float_text(_zone: Zone, bits: int) -> str:
    return float_text(reverse_bits(bits, 32))


def _decimal(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    scale, at = decode_var_int(data, at)
    count, at = decode_var_int(data, at)
    piece, at = _take(data, at, count)
    if not piece:
        raise EngineFailureError("a decimal number without digits")
    return Value("DECIMAL", decimal_text(int.from_bytes(piece, "big", signed=True), scale)), at


# -- dates and times ------------------------------------------------------------------------


def _time_text(zone: Zone, stored_ms: int) -> str:
    return time_text(zone.local_ms(stored_ms) % MS_PER_DAY * NS_PER_MS)


def _date_text(zone: Zone, stored_minutes: int) -> str:
    return zone.date_text(zone.local_ms(stored_minutes * 60_000) // MS_PER_DAY)


def _timestamp_text(zone: Zone, stored_ms: int, nanos: int) -> str:
    day, ms = divmod(zone.local_ms(stored_ms), MS_PER_DAY)
    # 1.2 and 1.3 store the nanoseconds of the second, 1.4 those of the millisecond.
    return f"{zone.date_text(day)} {time_text(ms * NS_PER_MS + nanos % NS_PER_MS)}"


def _timestamp_tz_text(_zone: Zone, date: int, nanos: int, offset_minutes: int) -> str:
    return f"{date_value_text(date)} {time_text(nanos)}{offset_text(offset_minutes * 60)}"


def _local_time_text(_zone: Zone, ms: int, nanos: int) -> str:
    return time_text(ms * NS_PER_MS + nanos)


def _local_date_text(_zone: Zone, date: int) -> str:
    return date_value_text(date)


def _local_timestamp_text(zone: Zone, date: int, ms: int, nanos: int) -> str:
    return f"{date_value_text(date)} {_local_time_text(zone, ms, nanos)}"


def _timestamp_tz_seconds(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    date, at = decode_var_long(data, at)
    nanos, at = decode_var_long(data, at)
    offset, at = _zone_seconds(data, at)
    text = f"{date_value_text(date)} {time_text(nanos)}{offset_text(offset)}"
    return Value("TIMESTAMP WITH TIME ZONE", text), at


def _time_tz(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    seconds, at = decode_var_int(data, at)
    nanos, at = decode_var_int(data, at)
    offset, at = _zone_seconds(data, at)
    text = time_text(seconds * NS_PER_SECOND + nanos) + offset_text(offset)
    return Value("TIME WITH TIME ZONE", text), at


def _zone_seconds(data: Bytes, at: int) -> tuple[int, int]:
    step = signed(data[at], 8)
    if step == ZONE_SECONDS:
        return decode_var_int(data, at + 1)
    if step == ZONE_MINUS_SECONDS:
        seconds, at = decode_var_int(data, at + 1)
        return -seconds, at
    return step * _ZONE_STEP_SECONDS, at + 1


def _interval(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    ordinal = signed(data[at], 8)
    negative = ordinal < 0
    if negative:
        ordinal = ~ordinal
    leading, at = decode_var_long(data, at + 1)
    remaining = 0
    if ordinal >= INTERVALS.index("SECOND"):
        remaining, at = decode_var_long(data, at)
    if ordinal >= len(INTERVALS):
        raise EngineFailureError(f"interval kind {ordinal}")
    text = interval_text(ordinal, leading, remaining, negative=negative)
    return Value(f"INTERVAL {INTERVALS[ordinal]}", text), at


# -- large objects, collections, plug-ins ---------------------------------------------------

STORED_OBJECT: Final = re.compile(r"lob:table=-?\d+,id=(-?\d+),length=(-?\d+)")
"""Text of a large object in the database: its number and its length."""


def stored_object(value: Value) -> int | None:
    """Return the number of the large object in the database that a value names, if it does."""
    if value.type not in ("BLOB", "CLOB") or not isinstance(value.text, str):
        return None
    found = STORED_OBJECT.fullmatch(value.text)
    return None if found is None else int(found[1])


def _lob(name: str) -> ValueType:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        count, at = decode_var_int(data, at)
        if count >= 0:
            piece, at = _take(data, at, count)
            return Value(name, f"inline:{piece.hex()}"), at
        if count == LOB_IN_DATABASE:
            table, at = decode_var_int(data, at)
            lob, at = decode_var_long(data, at)
            length, at = decode_var_long(data, at)
            return Value(name, f"lob:table={table},id={lob},length={length}"), at
        return _lob_file(name, data, at, count)

    return ValueType(name, Layout.COUNTED_BYTES, 0, decode)


def _lob_file(name: str, data: Bytes, at: int, kind: int) -> Decoded:
    table, at = decode_var_int(data, at)
    lob, at = decode_var_int(data, at)
    length, packed = -1, ""
    if kind in (LOB_IN_FILE, LOB_IN_NAMED_FILE):
        length, at = decode_var_long(data, at)
        packed = ",packed" if data[at] else ""
        at += 1
    text = f"file:table={table},id={lob},length={length}{packed}"
    if kind == LOB_IN_NAMED_FILE:
        file, at = decode_string(data, at)
        text += f",name={file}"
    return Value(name, text), at


def _items(data: Bytes, at: int, zone: Zone, depth: int, count: int) -> tuple[Any, int]:
    items = []
    for _ in range(count):
        item, at = decode_value(data, at, zone, depth + 1)
        items.append(item)
    return tuple(items), at


def _collection(name: str) -> ValueType:
    def decode(data: Bytes, at: int, zone: Zone, depth: int) -> Decoded:
        if depth >= _NESTING_MAX:
            raise EngineFailureError("arrays nested too deeply")
        count, at = decode_var_int(data, at)
        if name == "ARRAY" and count < 0:
            _, at = decode_string(data, at)  # the component class, as releases up to 1.4.197 wrote
            count = ~count
        if count < 0:
            raise EngineFailureError(f"a {name.lower()} of {count} values")
        items, at = _items(data, at, zone, depth, count)
        return Value(name, items), at

    return ValueType(name, Layout.OTHER, 0, decode)


def _result_set(data: Bytes, at: int, zone: Zone, depth: int) -> Decoded:
    if depth >= _NESTING_MAX:
        raise EngineFailureError("result sets nested too deeply")
    columns, at = decode_var_int(data, at)
    if columns < 0:
        raise EngineFailureError(f"a result set of {columns} columns")
    for _ in range(columns):
        for decode in (decode_string, decode_string, decode_var_int, decode_var_long):
            _, at = decode(data, at)
        _, at = decode_var_int(data, at)
    rows = []
    while data[at]:
        items, at = _items(data, at + 1, zone, depth, columns)
        rows.append(Value("ROW", items))
    return Value("RESULT_SET", tuple(rows)), at + 1


def _custom(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    kind, at = decode_var_int(data, at)
    count, at = decode_var_int(data, at)
    _take(data, at, count)
    raise EngineFailureError(f"custom type {kind}, whose plug-in the engine would need")


TYPES: dict[int, ValueType] = {
    NULL: ValueType("NULL", Layout.FIXED, 0, _null),
    BYTE: _fixed("TINYINT", 1, _unpacked(">b")),
    SHORT: _fixed("SMALLINT", 2, _unpacked(">h")),
    INT: _numbers("INTEGER", "i", _plain_text),
    LONG: _numbers("BIGINT", "l", _plain_text),
    DECIMAL: ValueType("DECIMAL", Layout.OTHER, 0, _decimal),
    DOUBLE: _numbers("DOUBLE", "l", _double_text),
    FLOAT: _numbers("REAL", "i", _float_text),
    TIME: _numbers("TIME", "l", _time_text),
    DATE: _numbers("DATE", "l", _date_text),
    TIMESTAMP: _numbers("TIMESTAMP", "li", _timestamp_text),
    BYTES: _counted_bytes("VARBINARY"),
    STRING: _counted_text("VARCHAR"),
    STRING_IGNORECASE: _counted_text("VARCHAR_IGNORECASE"),
    BLOB: _lob("BLOB"),
    CLOB: _lob("CLOB"),
    ARRAY: _collection("ARRAY"),
    RESULT_SET: ValueType("RESULT_SET", Layout.OTHER, 0, _result_set),
    JAVA_OBJECT: _counted_bytes("OTHER"),
    UUID: _fixed("UUID", _UUID_SIZE, _uuid_text),
    STRING_FIXED: _counted_text("CHAR"),
    GEOMETRY: _counted_bytes("GEOMETRY"),
    TIMESTAMP_TZ: _numbers("TIMESTAMP WITH TIME ZONE", "lli", _timestamp_tz_text),
    ENUM: _numbers("INTEGER", "i", _plain_text),
    INTERVAL: ValueType("INTERVAL", Layout.OTHER, 0, _interval),
    ROW: _collection("ROW"),
    **{INT_0_15 + number: _constant("INTEGER", str(number)) for number in range(16)},
    **{LONG_0_7 + number: _constant("BIGINT", str(number)) for number in range(8)},
    DECIMAL_0: _constant("DECIMAL", "0"),
    DECIMAL_1: _constant("DECIMAL", "1"),
    DECIMAL_SMALL_0: _numbers("DECIMAL", "l", _plain_text),
    DECIMAL_SMALL: _numbers("DECIMAL", "il", _small_decimal_text),
    DOUBLE_0: _constant("DOUBLE", "0.0"),
    DOUBLE_1: _constant("DOUBLE", "1.0"),
    FLOAT_0: _constant("REAL", "0.0"),
    FLOAT_1: _constant("REAL", "1.0"),
    BOOLEAN_FALSE: _constant("BOOLEAN", "FALSE"),
    BOOLEAN_TRUE: _constant("BOOLEAN", "TRUE"),
    INT_NEGATIVE: _numbers("INTEGER", "i", _negated_int_text),
    LONG_NEGATIVE: _numbers("BIGINT", "l", _negated_long_text),
    **{STRING_0_31 + count: _short_text(count) for count in range(32)},
    **{BYTES_0_31 + count: _fixed("VARBINARY", count, bytes.hex) for count in range(32)},
    LOCAL_TIME: _numbers("TIME", "ll", _local_time_text),
    LOCAL_DATE: _numbers("DATE", "l", _local_date_text),
    LOCAL_TIMESTAMP: _numbers("TIMESTAMP", "lll", _local_timestamp_text),
    CUSTOM: ValueType("CUSTOM", Layout.OTHER, 0, _custom),
    JSON: _counted_bytes("JSON"),
    TIMESTAMP_TZ_SECONDS: ValueType(
        "TIMESTAMP WITH TIME ZONE", Layout.OTHER, 0, _timestamp_tz_seconds
    ),
    TIME_TZ: ValueType("TIME WITH TIME ZONE", Layout.OTHER, 0, _time_tz),
}
_DECODERS = [TYPES[code].decode if code in TYPES else None for code in range(256)]
