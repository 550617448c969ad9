"""Values of rows from their bytes: one type byte, then data.

In: bytes, a place in them, the time zone. Out: a `Value` (type name and text, as the engine
prints them) and the place behind it. A read past the end raises `IndexError`; an unknown type
byte raises `FileCorruptedError`. Source: the PageLog description, section a.7.
"""

from __future__ import annotations

from tallystick.systems.h2.format.numbers import (
    Bytes,
    decode_string,
    decode_units,
    decode_var_int,
    decode_var_long,
)
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.datetime_decoders import MOMENTS
from tallystick.systems.h2.format.values.scalars import SCALARS, hex_value
from tallystick.systems.h2.format.values.value import (
    ARRAY,
    BOOLEAN_FALSE,
    BOOLEAN_TRUE,
    BYTES_0_31,
    DECIMAL_0,
    DECIMAL_1,
    DOUBLE_0,
    DOUBLE_1,
    FLOAT_0,
    FLOAT_1,
    INT_0_15,
    LOCAL_TIME,
    LONG_0_7,
    NULL,
    RESULT_SET,
    ROW,
    STRING_0_31,
    Decoded,
    Decoder,
    EngineFailureError,
    FileCorruptedError,
    Value,
)

_NESTING_MAX = 64
"""Arrays in arrays deeper than this are refused; the engine overflows its stack somewhere there."""


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
        return hex_value("VARBINARY", data, at, code - BYTES_0_31)
    constant = _CONSTANTS.get(code)
    if constant is not None:
        return constant, at
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise FileCorruptedError(f"value type {code}")
    return decoder(data, at, zone, depth)


def _collection(name: str) -> Decoder:
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

_DECODERS: dict[int, Decoder] = (
    SCALARS
    | MOMENTS
    | {
        ARRAY: _collection("ARRAY"),
        ROW: _collection("ROW"),
        RESULT_SET: _result_set,
    }
)
