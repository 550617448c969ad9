"""Decoders of single values but dates and times, by type byte.

In: bytes, the place behind a type byte, the time zone. Out: a `Value` and the place behind it. A
read past the end raises `IndexError`. Source: the PageLog description, section a.7.
"""

from __future__ import annotations

import struct
import uuid

from tallystick.systems.h2.format.numbers import (
    Bytes,
    decode_string,
    decode_units,
    decode_var_int,
    decode_var_long,
    signed,
)
from tallystick.systems.h2.format.values import value as values
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.java_text import (
    INTERVALS,
    decimal_text,
    double_text,
    float_text,
    interval_text,
    reverse_bits,
)
from tallystick.systems.h2.format.values.value import Decoded, Decoder, EngineFailureError, Value

LOB_IN_DATABASE = -3
LOB_IN_FILE = (-1, -2)


def take(data: Bytes, at: int, count: int) -> tuple[bytes, int]:
    """Exactly ``count`` bytes. Raises `EngineFailureError` for a negative count."""
    if count < 0:
        raise EngineFailureError(f"a length of {count} bytes")
    piece = bytes(data[at : at + count])
    if len(piece) < count:
        raise IndexError
    return piece, at + count


def hex_value(name: str, data: Bytes, at: int, count: int) -> Decoded:
    """``count`` bytes as a value in hex."""
    piece, at = take(data, at, count)
    return Value(name, piece.hex()), at


def _counted_hex(name: str) -> Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        count, at = decode_var_int(data, at)
        return hex_value(name, data, at, count)

    return decode


def _string(name: str) -> Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        count, start = decode_var_int(data, at)
        if count < 0:
            raise EngineFailureError(f"a string of {count} characters")
        text, at = decode_units(data, start, count)
        return Value(name, text), at

    return decode


def _fixed(name: str, form: str) -> Decoder:
    layout = struct.Struct(form)

    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        piece, at = take(data, at, layout.size)
        return Value(name, str(layout.unpack(piece)[0])), at

    return decode


def _int(sign: int) -> Decoder:
    def decode(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
        number, at = decode_var_int(data, at)
        # Java's negation wraps the smallest number to itself.
        return Value("INTEGER", str(signed(sign * number & 0xFFFF_FFFF, 32))), at

    return decode


def _long(sign: int) -> Decoder:
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


def _uuid(data: Bytes, at: int, _zone: Zone, _depth: int) -> Decoded:
    piece, at = take(data, at, 16)
    return Value("UUID", str(uuid.UUID(bytes=piece))), at


def _lob(name: str) -> Decoder:
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


SCALARS: dict[int, Decoder] = {
    values.BYTE: _fixed("TINYINT", ">b"),
    values.SHORT: _fixed("SMALLINT", ">h"),
    values.INT: _int(1),
    values.INT_NEGATIVE: _int(-1),
    values.ENUM: _int(1),
    values.LONG: _long(1),
    values.LONG_NEGATIVE: _long(-1),
    values.DECIMAL: _decimal,
    values.DECIMAL_SMALL_0: _decimal_small_0,
    values.DECIMAL_SMALL: _decimal_small,
    values.DOUBLE: _double,
    values.FLOAT: _float,
    values.BYTES: _counted_hex("VARBINARY"),
    values.JAVA_OBJECT: _counted_hex("OTHER"),
    values.GEOMETRY: _counted_hex("GEOMETRY"),
    values.JSON: _counted_hex("JSON"),
    values.STRING: _string("VARCHAR"),
    values.STRING_IGNORECASE: _string("VARCHAR_IGNORECASE"),
    values.STRING_FIXED: _string("CHAR"),
    values.UUID: _uuid,
    values.BLOB: _lob("BLOB"),
    values.CLOB: _lob("CLOB"),
    values.INTERVAL: _interval,
    values.CUSTOM: _custom,
}
