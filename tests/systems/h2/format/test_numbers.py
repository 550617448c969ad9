"""Variable-length numbers and strings: there and back, in the engine's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.h2.format import numbers as fields

INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INT, LONG)
def test_numbers_come_back(number: int, long: int) -> None:
    packed = fields.encode_var_int(number)
    assert fields.decode_var_int(packed + b"\xff", 0) == (number, len(packed))
    packed = fields.encode_var_long(long)
    assert fields.decode_var_long(packed + b"\xff", 0) == (long, len(packed))
    assert fields.var_long_size(long) == len(packed)


@pytest.mark.parametrize("bits", range(63))
def test_numbers_of_every_length_come_back(bits: int) -> None:
    for number in ((1 << bits) - 1, 1 << bits, -(1 << bits)):
        packed = fields.encode_var_long(number)
        assert fields.decode_var_long(packed, 0) == (number, len(packed))
        assert fields.var_long_size(number) == len(packed)


@pytest.mark.parametrize(
    ("number", "packed"),
    [(0, "00"), (127, "7f"), (128, "8001"), (-1, "ffffffff0f"), (-(1 << 31), "8080808008")],
)
def test_numbers_have_the_engine_s_bytes(number: int, packed: str) -> None:
    assert fields.encode_var_int(number).hex() == packed


def test_minus_one_is_ten_bytes_as_a_long() -> None:
    assert fields.encode_var_long(-1) == b"\xff" * 9 + b"\x01"


def test_fifth_byte_of_an_int_is_used_whole_and_overflow_dropped() -> None:
    assert fields.decode_var_int(b"\xff\xff\xff\xff\xff\x01", 0) == (-1, 5)


@given(st.text(st.characters(codec="utf-16", categories=None), max_size=80))
def test_strings_come_back(text: str) -> None:
    packed = fields.encode_string(text)
    assert fields.decode_string(packed + b"x", 0) == (text, len(packed))


@pytest.mark.parametrize(("text", "packed"), [("é", "01c329"), ("€", "01e2022c")])
def test_strings_are_not_utf_8(text: str, packed: str) -> None:
    assert fields.encode_string(text).hex() == packed


def test_short_data_is_an_index_error() -> None:
    for data in (b"", b"\x80", b"\x80\x80\x80\x80"):
        with pytest.raises(IndexError):
            fields.decode_var_int(data, 0)
    with pytest.raises(IndexError):
        fields.decode_string(b"\x05abc", 0)


@pytest.mark.parametrize(
    ("unit", "packed"),
    [
        (0x7F, "7f"), (0x80, "c200"), (0x7FF, "df3f"), (0x800, "e02000"), (0xD800, "ed2000"),
        (0xDFFF, "ed3f3f"), (0xFFFF, "ef3f3f"),
    ],
)  # fmt: skip
def test_a_unit_has_one_to_three_bytes(unit: int, packed: str) -> None:
    text = chr(unit)
    assert list(fields.utf16_units(text)) == [unit]
    assert fields.encode_units([unit]).hex() == packed
    assert fields.decode_units(bytes.fromhex(packed) + b"x", 0, 1) == (text, len(packed) // 2)


def test_a_negative_count_is_no_unit() -> None:
    assert fields.decode_units(b"abc", 1, -2) == ("", 1)
    assert fields.decode_units(b"abc", 1, 0) == ("", 1)
    assert fields.decode_units(b"abc", 1, 1) == ("b", 2)
