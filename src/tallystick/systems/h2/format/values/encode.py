"""Rows as bytes from plain Python values, for writers.

In: None, bool, int, float, str, bytes, `Decimal`. Out: column count and values as the engine
stores them. An int is an INT where it fits, else a BIGINT, whatever the type of the column.
`pack` and `unpack` make a row of one binary value from opaque bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal

from tallystick.errors import CorruptLogError, LogWriteError
from tallystick.systems.h2.format.numbers import (
    decode_var_int,
    encode_units,
    encode_var_int,
    encode_var_long,
    utf16_units,
)
from tallystick.systems.h2.format.values import types as values
from tallystick.systems.h2.format.values.java_text import reverse_bits

Plain = None | bool | int | float | str | bytes | Decimal
SHORT_MAX = 31
"""Characters or bytes up to which the length is part of the type byte."""
_CANONICAL_NAN = 0x7FF8_0000_0000_0000


def encode_row(items: Sequence[Plain]) -> bytes:
    """Encode column count and values: the bytes after the length of an ADD record."""
    return encode_var_int(len(items)) + b"".join(encode_value(item) for item in items)


def encode_value(item: Plain) -> bytes:
    """Encode one value.

    Raises:
        LogWriteError: an int has more than 64 bits, or a Decimal is not finite.
    """
    if item is None:
        return bytes((values.NULL,))
    if isinstance(item, bool):
        return bytes((values.BOOLEAN_TRUE if item else values.BOOLEAN_FALSE,))
    if isinstance(item, int):
        return _encode_int(item)
    if isinstance(item, float):
        return _encode_float(item)
    if isinstance(item, str):
        return _encode_text(item)
    if isinstance(item, bytes):
        return _encode_bytes(item)
    return _encode_decimal(item)


def _encode_int(number: int) -> bytes:
    if 0 <= number < values.LONG_0_7 - values.INT_0_15:
        return bytes((values.INT_0_15 + number,))
    if -(1 << 31) <= number < 1 << 31:
        code = values.INT_NEGATIVE if number < 0 else values.INT
        return bytes((code,)) + encode_var_int(abs(number))
    if -(1 << 63) <= number < 1 << 63:
        code = values.LONG_NEGATIVE if number < 0 else values.LONG
        return bytes((code,)) + encode_var_long(abs(number))
    raise LogWriteError(f"{number} needs more than 64 bits", advice="Give it as a Decimal")


def _encode_float(number: float) -> bytes:
    if number == 0:
        return bytes((values.DOUBLE_0,))
    if number == 1:
        return bytes((values.DOUBLE_1,))
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    bits = _CANONICAL_NAN if number != number else bits
    return bytes((values.DOUBLE,)) + encode_var_long(reverse_bits(bits, 64))


def _encode_text(text: str) -> bytes:
    units = utf16_units(text)
    if len(units) <= SHORT_MAX:
        return bytes((values.STRING_0_31 + len(units),)) + encode_units(units)
    return bytes((values.STRING,)) + encode_var_int(len(units)) + encode_units(units)


def _encode_bytes(data: bytes) -> bytes:
    if len(data) <= SHORT_MAX:
        return bytes((values.BYTES_0_31 + len(data),)) + data
    return bytes((values.BYTES,)) + encode_var_int(len(data)) + data


def _encode_decimal(number: Decimal) -> bytes:
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise LogWriteError(f"{number} is no number that a DECIMAL can hold")
    unscaled = int(Decimal((sign, digits, 0)))  # its text may be longer than ``int`` reads
    if exponent == 0 and unscaled in (0, 1):
        return bytes((values.DECIMAL_0 + unscaled,))
    if -(1 << 63) <= unscaled < 1 << 63:
        if exponent == 0:
            return bytes((values.DECIMAL_SMALL_0,)) + encode_var_long(unscaled)
        scale = encode_var_int(-exponent)
        return bytes((values.DECIMAL_SMALL,)) + scale + encode_var_long(unscaled)
    size = unscaled.bit_length() // 8 + 1
    packed = unscaled.to_bytes(size, "big", signed=True)
    return bytes((values.DECIMAL,)) + encode_var_int(-exponent) + encode_var_int(size) + packed


def pack(data: bytes) -> bytes:
    """Encode opaque bytes as a row of one binary value."""
    return encode_var_int(1) + _encode_bytes(data)


def unpack(row: bytes) -> bytes:
    """Return the bytes that `pack` took.

    Raises:
        CorruptLogError: the row is not one binary value.
    """
    if len(row) >= 2 and row[0] == 1:
        if values.BYTES_0_31 <= row[1] <= values.BYTES_0_31 + SHORT_MAX:
            return row[2:]
        if row[1] == values.BYTES:
            _, at = decode_var_int(row, 2)
            return row[at:]
    raise CorruptLogError("the row is not one binary value", found=row[:16].hex())
