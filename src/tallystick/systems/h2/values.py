"""Values of rows: one type byte, then data.

In: bytes, a place in them, the time zone. Out: a `Value` (type name and text, as the engine
prints them) and the place behind it. A read past the end raises `IndexError`; an unknown type
byte raises `FileCorruptedError`. Source: the PageLog description, section a.7.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.systems.h2.fields import (
    Bytes,
    decode_string,
    decode_units,
    decode_var_int,
    decode_var_long,
    signed,
)
from tallystick.systems.h2.texts import (
    INTERVALS,
    decimal_text,
    double_text,
    float_text,
    interval_text,
    reverse_bits,
)
from tallystick.systems.h2.times import (
    MS_PER_DAY,
    NS_PER_MS,
    NS_PER_SECOND,
    Zone,
    date_value_text,
    offset_text,
    time_text,
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

LOB_IN_DATABASE = -3
LOB_IN_FILE = (-1, -2)
_ZONE_STEP_SECONDS = 900
_ZONE_SECONDS = 127
_ZONE_MINUS_SECONDS = -128
_NESTING_MAX = 64
"""Arrays in arrays deeper than this are refused; the engine overflows its stack somewhere there."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value other than NULL: the engine's name of its type, and its text (a list for ARRAY and
    ROW). Binary is lower-case hex."""

    type: str
    text: str | tuple[Value | None, ...]

    def to_json(self) -> dict[str, Any]:
        """``{"t": type, "v": text}``, nested for arrays."""
        if isinstance(self.text, str):
            return {"t": self.type, "v": self.text}
        return {"t": self.type, "v": [json_of(item) for item in self.text]}


def json_of(value: Value | None) -> dict[str, Any] | None:
    """A value's JSON form; None for NULL."""
    return None if value is None else value.to_json()


class FileCorruptedError(Exception):
    """What the engine calls "file corrupted" (a type byte that no release knows): it ends the
    scan of the log quietly."""


class EngineFailureError(Exception):
    """What the engine fails at with a general error, and does not open the database: a negative
    or absurd length, a custom type whose plug-in is missing."""


Decoded = tuple[Value | None, int]
_Decoder = Callable[[Bytes, int, Zone, int], Decoded]


def decode_value(data: Bytes, at: int, zone: Zone, depth: int = 0) -> Decoded:
    """The value at ``at`` (None for NULL) and the place behind it."""
    code = data[at]
    at += 1
    if code == NULL:
        return None, at
    if INT_0_15 <= code < LONG_0_7:
        return Value("INTEGER", str(code - INT_0_15)), at
    if LONG_0_7 <= code < DECIMAL_0:
        return Value("BIGINT", str(code - LONG_0_7)), at
    if STRING_0_31 <= code < BYTES_0_31:
        text, at = decode_units(data, at, code - STRING_0_31)
        return Value("VARCHAR", text), at
    if BYTES_0_31 <= code < LOCAL_TIME:
        return _hex("VARBINARY", data, at, code - BYTES_0_31)
    constant = _CONSTANTS.get(code)
    if constant is not None:
        return constant, at
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise FileCorruptedError(f"value type {code}")
    return decoder(data, at, zone, depth)


def take(data: Bytes, at: int, count: int) -> tuple[bytes, int]:
    """Exactly ``count`` bytes. Raises `EngineFailureError` for a negative count."""
    if count < 0:
        raise EngineFailureError(f"a length of {count} bytes")
    piece = bytes(data[at : at + count])
    if len(piece) < count:
        raise IndexError
    return piece, at + count


def _hex(name: str, data: Bytes, at: int, count: int) -> Decoded:
    piece, at = take(data, at, count)
    return Value(name, piece.hex()), at


def _counted_hex(name: str) -> _Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        count, at = decode_var_int(data, at)
        return _hex(name, data, at, count)

    return decode


def _string(name: str) -> _Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        count, start = decode_var_int(data, at)
        if count < 0:
            raise EngineFailureError(f"a string of {count} characters")
        text, at = decode_units(data, start, count)
        return Value(name, text), at

    return decode


def _fixed(name: str, form: str) -> _Decoder:
    layout = struct.Struct(form)

    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        piece, at = take(data, at, layout.size)
        return Value(name, str(layout.unpack(piece)[0])), at

    return decode


def _int(sign: int) -> _Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        number, at = decode_var_int(data, at)
        # Java's negation wraps the smallest number to itself.
        return Value("INTEGER", str(signed(sign * number & 0xFFFF_FFFF, 32))), at

    return decode


def _long(sign: int) -> _Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        number, at = decode_var_long(data, at)
        return Value("BIGINT", str(signed(sign * number & (1 << 64) - 1, 64))), at

    return decode


def _decimal(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    scale, at = decode_var_int(data, at)
    count, at = decode_var_int(data, at)
    piece, at = take(data, at, count)
    if not piece:
        raise EngineFailureError("a decimal number without digits")
    return Value("DECIMAL", decimal_text(int.from_bytes(piece, "big", signed=True), scale)), at


def _decimal_small_0(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    unscaled, at = decode_var_long(data, at)
    return Value("DECIMAL", decimal_text(unscaled, 0)), at


def _decimal_small(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    scale, at = decode_var_int(data, at)
    unscaled, at = decode_var_long(data, at)
    return Value("DECIMAL", decimal_text(unscaled, scale)), at


def _double(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    bits, at = decode_var_long(data, at)
    return Value("DOUBLE", double_text(reverse_bits(bits, 64))), at


def _float(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    bits, at = decode_var_int(data, at)
    return Value("REAL", float_text(reverse_bits(bits, 32))), at


def _time(data: Bytes, at: int, zone: Zone, _depth: int) -> Decoded:
    stored, at = decode_var_long(data, at)
    return Value("TIME", time_text(zone.local_ms(stored) % MS_PER_DAY * NS_PER_MS)), at


def _date(data: Bytes, at: int, zone: Zone, _depth: int) -> Decoded:
    stored, at = decode_var_long(data, at)
    return Value("DATE", zone.date_text(zone.local_ms(stored * 60_000) // MS_PER_DAY)), at


def _timestamp(data: Bytes, at: int, zone: Zone, _depth: int) -> Decoded:
    stored, at = decode_var_long(data, at)
    nanos, at = decode_var_int(data, at)
    day, ms = divmod(zone.local_ms(stored), MS_PER_DAY)
    # 1.2 and 1.3 store the nanoseconds of the second, 1.4 those of the millisecond.
    text = time_text(ms * NS_PER_MS + nanos % NS_PER_MS)
    return Value("TIMESTAMP", f"{zone.date_text(day)} {text}"), at


def _timestamp_tz(*, minutes: bool) -> _Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        date, at = decode_var_long(data, at)
        nanos, at = decode_var_long(data, at)
        if minutes:
            offset, at = decode_var_int(data, at)
            offset *= 60
        else:
            offset, at = _zone_seconds(data, at)
        text = f"{date_value_text(date)} {time_text(nanos)}{offset_text(offset)}"
        return Value("TIMESTAMP WITH TIME ZONE", text), at

    return decode


def _time_tz(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    seconds, at = decode_var_int(data, at)
    nanos, at = decode_var_int(data, at)
    offset, at = _zone_seconds(data, at)
    text = time_text(seconds * NS_PER_SECOND + nanos) + offset_text(offset)
    return Value("TIME WITH TIME ZONE", text), at


def _zone_seconds(data: Bytes, at: int) -> tuple[int, int]:
    step = signed(data[at], 8)
    if step == _ZONE_SECONDS:
        return decode_var_int(data, at + 1)
    if step == _ZONE_MINUS_SECONDS:
        seconds, at = decode_var_int(data, at + 1)
        return -seconds, at
    return step * _ZONE_STEP_SECONDS, at + 1


def _local_time(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    ms, at = decode_var_long(data, at)
    nanos, at = decode_var_long(data, at)
    return Value("TIME", time_text(ms * NS_PER_MS + nanos)), at


def _local_date(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    date, at = decode_var_long(data, at)
    return Value("DATE", date_value_text(date)), at


def _local_timestamp(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    date, at = decode_var_long(data, at)
    ms, at = decode_var_long(data, at)
    nanos, at = decode_var_long(data, at)
    return Value("TIMESTAMP", f"{date_value_text(date)} {time_text(ms * NS_PER_MS + nanos)}"), at


def _uuid(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    piece, at = take(data, at, 16)
    return Value("UUID", str(uuid.UUID(bytes=piece))), at


def _lob(name: str) -> _Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        count, at = decode_var_int(data, at)
        if count >= 0:
            piece, at = take(data, at, count)
            return Value(name, f"inline:{piece.hex()}"), at
        if count == LOB_IN_DATABASE:
            table, at = decode_var_int(data, at)
            lob, at = decode_var_long(data, at)
            length, at = decode_var_long(data, at)
            return Value(name, f"lob:table={table},id={lob},length={length}"), at
        return _lob_file(name, data, at, count)

    return decode


def _lob_file(name: str, data: Bytes, at: int, kind: int) -> Decoded:
    table, at = decode_var_int(data, at)
    lob, at = decode_var_int(data, at)
    length = -1
    if kind in LOB_IN_FILE:
        length, at = decode_var_long(data, at)
        at += 1  # a compression flag
    text = f"file:table={table},id={lob},length={length}"
    if kind == LOB_IN_FILE[1]:
        file, at = decode_string(data, at)
        text += f",name={file}"
    return Value(name, text), at


def _collection(name: str) -> _Decoder:
    def decode(data: Bytes, at: int, zone: Zone, depth: int) -> Decoded:
        if depth >= _NESTING_MAX:
            raise EngineFailureError("arrays nested too deeply")
        count, at = decode_var_int(data, at)
        if name == "ARRAY" and count < 0:
            _, at = decode_string(data, at)  # the component class, as releases up to 1.4.197 wrote
            count = ~count
        if count < 0:
            raise EngineFailureError(f"a {name.lower()} of {count} values")
        items = []
        for _ in range(count):
            item, at = decode_value(data, at, zone, depth + 1)
            items.append(item)
        return Value(name, tuple(items)), at

    return decode


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
        at += 1
        items = []
        for _ in range(columns):
            item, at = decode_value(data, at, zone, depth + 1)
            items.append(item)
        rows.append(Value("ROW", tuple(items)))
    return Value("RESULT_SET", tuple(rows)), at + 1


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


def _custom(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    kind, at = decode_var_int(data, at)
    count, at = decode_var_int(data, at)
    take(data, at, count)
    raise EngineFailureError(f"custom type {kind}, whose plug-in the engine would need")


_CONSTANTS = {
    BOOLEAN_FALSE: Value("BOOLEAN", "FALSE"),
    BOOLEAN_TRUE: Value("BOOLEAN", "TRUE"),
    DECIMAL_0: Value("DECIMAL", "0"),
    DECIMAL_1: Value("DECIMAL", "1"),
    DOUBLE_0: Value("DOUBLE", "0.0"),
    DOUBLE_1: Value("DOUBLE", "1.0"),
    FLOAT_0: Value("REAL", "0.0"),
    FLOAT_1: Value("REAL", "1.0"),
}

_DECODERS: dict[int, _Decoder] = {
    BYTE: _fixed("TINYINT", ">b"),
    SHORT: _fixed("SMALLINT", ">h"),
    INT: _int(1),
    INT_NEGATIVE: _int(-1),
    ENUM: _int(1),
    LONG: _long(1),
    LONG_NEGATIVE: _long(-1),
    DECIMAL: _decimal,
    DECIMAL_SMALL_0: _decimal_small_0,
    DECIMAL_SMALL: _decimal_small,
    DOUBLE: _double,
    FLOAT: _float,
    TIME: _time,
    DATE: _date,
    TIMESTAMP: _timestamp,
    TIMESTAMP_TZ: _timestamp_tz(minutes=True),
    TIMESTAMP_TZ_SECONDS: _timestamp_tz(minutes=False),
    TIME_TZ: _time_tz,
    LOCAL_TIME: _local_time,
    LOCAL_DATE: _local_date,
    LOCAL_TIMESTAMP: _local_timestamp,
    BYTES: _counted_hex("VARBINARY"),
    JAVA_OBJECT: _counted_hex("OTHER"),
    GEOMETRY: _counted_hex("GEOMETRY"),
    JSON: _counted_hex("JSON"),
    STRING: _string("VARCHAR"),
    STRING_IGNORECASE: _string("VARCHAR_IGNORECASE"),
    STRING_FIXED: _string("CHAR"),
    UUID: _uuid,
    BLOB: _lob("BLOB"),
    CLOB: _lob("CLOB"),
    ARRAY: _collection("ARRAY"),
    ROW: _collection("ROW"),
    RESULT_SET: _result_set,
    INTERVAL: _interval,
    CUSTOM: _custom,
}
