"""Types and values as Derby stores them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tallystick.errors import LogFormatError
from tallystick.systems.derby.format.sql_values import Plain, SqlType, read_type

NUMBER = 19
DECIMAL = 198


def stored_type(
    name: str, number: int = NUMBER, precision: int = 0, scale: int = 0, width: int = 0
) -> bytes:
    """A type as the catalogue has it."""
    flag = b"\0" if number == DECIMAL else b""
    text = len(name).to_bytes(2) + name.encode()
    tail = precision.to_bytes(4) + scale.to_bytes(4) + b"\1" + width.to_bytes(4)
    return b"\0\x0e" + number.to_bytes(2) + flag + text + tail


def sql_type(name: str, width: int = 40) -> SqlType:
    return read_type(stored_type(name, DECIMAL if name == "DECIMAL" else NUMBER, 12, 3, width))


@pytest.mark.parametrize(
    ("name", "declared", "kind"),
    [
        ("INTEGER", "INTEGER", "int"),
        ("DECIMAL", "DECIMAL(12,3)", "decimal(12,3)"),
        ("VARCHAR", "VARCHAR(40)", "string"),
        ("CHAR () FOR BIT DATA", "CHAR (40) FOR BIT DATA", "binary"),
        ("BLOB", "BLOB(40)", "binary"),
        ("TIMESTAMP", "TIMESTAMP", "timestamp_ntz"),
        ('"APP"."MONEY"', '"APP"."MONEY"', "string"),
    ],
)
def test_types_have_their_names_and_kinds(name: str, declared: str, kind: str) -> None:
    found = sql_type(name)
    assert (found.declared, found.kind) == (declared, kind)


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("SMALLINT", "fffe", -2),
        ("BIGINT", "0000000000000003", 3),
        ("REAL", "3fc00000", 1.5),
        ("DOUBLE", "4004000000000000", 2.5),
        ("DECIMAL", "0302cfc7", "-12.345"),
        ("BOOLEAN", "01", True),
        ("BOOLEAN", "00", False),
        ("CHAR", "00056162202020", "ab   "),
        ("VARCHAR", "0009" + "naïve€".encode().hex(), "naïve€"),
        ("VARCHAR", "0002c080", "\0"),
        ("VARCHAR", "0006eda0bdedb880", "\U0001f600"),
        ("VARCHAR", "0000", ""),
        ("LONG VARCHAR", "0000" + b"x".hex() * 3 + "e00000", "xxx"),
        ("CLOB", "0000f00004" + b"clob".hex(), "clob"),
        ("CLOB", "0000f00000" + b"clob".hex() + "e00000", "clob"),
        ("CLOB", "0004" + b"clob".hex(), "clob"),
        ("CHAR () FOR BIT DATA", "8401020304", "01020304"),
        ("BLOB", "80", ""),
        ("BLOB", "a00020" + "07" * 32, "07" * 32),
        ("BLOB", "c000000020" + "07" * 32, "07" * 32),
        ("BLOB", "00000000" + "07" * 5, "07" * 5),
        ("DATE", "07e4021d", "2020-02-29"),
        ("TIME", "00173b3a00000000", "23:59:58"),
        ("TIMESTAMP", "07e4021d00173b3a075bcd15", "2020-02-29 23:59:58.123456789"),
        ("XML", "0000" + "0004" + b"<a/>".hex(), "<a/>"),
        ('"APP"."MONEY"', "00ff", "00ff"),
    ],
)  # fmt: skip
def test_values_are_read(name: str, data: str, value: Plain) -> None:
    assert sql_type(name).read(bytes.fromhex(data)) == value


@pytest.mark.parametrize("digits", range(1, 39))
def test_a_decimal_has_all_of_its_digits(digits: int) -> None:
    """Derby has up to 31 digits, the widest type of Spark 38."""
    largest = int("1234567890" * 4) // 10 ** (40 - digits)
    for number in (largest, -largest, 10**digits - 1, 1 - 10**digits, 0, 1, -1):
        packed = number.to_bytes(number.bit_length() // 8 + 1, signed=True)
        for scale in range(digits + 1):
            shown = sql_type("DECIMAL").read(bytes([scale, len(packed)]) + packed)
            sign, shown_digits, exponent = Decimal(str(shown)).as_tuple()
            assert int("".join(map(str, shown_digits))) == abs(number)
            assert (sign, -int(exponent)) == (number < 0, scale)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("VARCHAR", "000561"),
        ("VARCHAR", "0001ff"),
        ("CLOB", "0000f00005" + b"clob".hex()),
        ("BLOB", "a0002007"),
        ("DECIMAL", "03"),
        ("DATE", "07e4"),
        ("REAL", "3f"),
    ],
)
def test_a_value_that_is_cut_is_an_error(name: str, data: str) -> None:
    with pytest.raises(LogFormatError):
        sql_type(name).read(bytes.fromhex(data))


def test_a_type_that_is_cut_is_an_error() -> None:
    whole = stored_type("INTEGER")
    for size in range(len(whole) - 13):
        with pytest.raises(LogFormatError):
            read_type(whole[:size])
