"""Variable-length numbers and strings of the page log.

In: bytes and an offset in them. Out: the value and the offset after it; and back. A read past the
end raises `IndexError`, which the scan takes for the end of the stream.
Source: docs/formats/h2.md, "Records".
"""

from __future__ import annotations

from collections.abc import Sequence

Bytes = bytes | bytearray | memoryview
VAR_INT_MAX = 5
VAR_LONG_MAX = 10
"""Bytes of a variable-length number of 32 and of 64 bits at most."""

_MASK32 = (1 << 32) - 1
_MASK64 = (1 << 64) - 1


def signed(value: int, bits: int) -> int:
    """Return an unsigned bit pattern as a signed number."""
    return value - (1 << bits) if value >> (bits - 1) else value


INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


def encode_var_int(value: int) -> bytes:
    """Encode a signed 32-bit number in 1 to 5 bytes, least significant 7 bits first."""
    return _encode_var(value & _MASK32)


def encode_var_long(value: int) -> bytes:
    """Encode a signed 64-bit number in 1 to 10 bytes."""
    return _encode_var(value & _MASK64)


def var_long_size(value: int) -> int:
    """Return how many bytes `encode_var_long` makes of a number."""
    return ((value & _MASK64 | 1).bit_length() + 6) // 7


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def _encode_var(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_var_int(data: Bytes, at: int) -> tuple[int, int]:
    """Decode a signed 32-bit number; the fifth byte is used whole and never continues."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in (7, 14, 21):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    value |= data[at + 1] << 28
    return signed(value & _MASK32, 32), at + 2


def decode_var_long(data: Bytes, at: int) -> tuple[int, int]:
    """Decode a signed 64-bit number of any length; shifts wrap at 64 bits, as in Java."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (shift & 63)
        if byte < 0x80:
            return signed(value & _MASK64, 64), at
        shift += 7


def encode_string(text: str) -> bytes:
    """Encode a string: count of UTF-16 units, then the units."""
    units = utf16_units(text)
    return encode_var_int(len(units)) + encode_units(units)


def decode_string(data: Bytes, at: int) -> tuple[str, int]:
    """Decode a string with its count in front."""
    count, at = decode_var_int(data, at)
    return decode_units(data, at, count)


def utf16_units(text: str) -> Sequence[int]:
    """Return the UTF-16 code units of a text; lone surrogates are kept."""
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H").tolist()


def encode_units(units: Sequence[int]) -> bytes:
    """Encode each unit in 1 to 3 bytes; not UTF-8: following bytes carry no 0x80 bit."""
    out = bytearray()
    for unit in units:
        if unit < 0x80:
            out.append(unit)
        elif unit < 0x800:
            out += bytes((0xC0 | unit >> 6, unit & 0x3F))
        else:
            out += bytes((0xE0 | unit >> 12, unit >> 6 & 0x3F, unit & 0x3F))
    return bytes(out)


def decode_units(data: Bytes, at: int, count: int) -> tuple[str, int]:
    """Decode ``count`` UTF-16 units as text; the first byte alone says how many follow."""
    plain = bytes(data[at : at + count]) if count > 0 else b""
    if len(plain) == max(count, 0) and plain.isascii():
        return plain.decode("ascii"), at + max(count, 0)
    out = bytearray()
    for _ in range(count):
        unit = data[at]
        at += 1
        if unit >= 0xE0:
            unit = (unit & 0xF) << 12 | (data[at] & 0x3F) << 6 | data[at + 1] & 0x3F
            at += 2
        elif unit >= 0x80:
            unit = (unit & 0x1F) << 6 | data[at] & 0x3F
            at += 1
        out += unit.to_bytes(2, "little")
    return out.decode("utf-16-le", "surrogatepass"), at
