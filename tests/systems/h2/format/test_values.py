"""Values of every type: as the engine prints them, and what plain Python values become."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogWriteError, UnsupportedFormatError
from tallystick.systems.h2.engine.recovery import Recovery
from tallystick.systems.h2.engine.tables import StoreError, meta_row
from tallystick.systems.h2.format.catalogue import table_names
from tallystick.systems.h2.format.entries import TABLE_META, Entry, Type
from tallystick.systems.h2.format.numbers import encode_var_int, encode_var_long
from tallystick.systems.h2.format.values.datetime import Zone, zone_named
from tallystick.systems.h2.format.values.encode import Plain, encode_row, encode_value, pack, unpack
from tallystick.systems.h2.format.values.java_text import decimal_text, double_text, float_text
from tallystick.systems.h2.format.values.types import (
    EngineFailureError,
    FileCorruptedError,
    Value,
    decode_row,
    decode_value,
)

UTC = Zone()
NEW_YORK = zone_named("America/New_York")


def read(data: bytes, zone: Zone = UTC) -> Value | None:
    value, at = decode_value(data, 0, zone)
    assert at == len(data)
    return value


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        ("0205", "TINYINT", "5"),
        ("03ffff", "SMALLINT", "-1"),
        ("1990" + "01", "INTEGER", "144"),
        ("2f", "INTEGER", "15"),
        ("428080808008", "INTEGER", "-2147483648"),
        ("43" + "80" * 9 + "01", "BIGINT", "-9223372036854775808"),
        ("37", "BIGINT", "7"),
        ("3b" + "f6ffffff0f" + "01", "DECIMAL", "1E+10"),
        ("06" + "02" + "09" + "00ffffffffffffffff", "DECIMAL", "184467440737095516.15"),
        ("3c", "DOUBLE", "0.0"),
        ("3f", "REAL", "1.0"),
        ("8400ea07", "TIME", "00:00:00.000001002"),
        ("85" + "a1e03e", "DATE", "2008-01-01"),
        ("8a" + "b8be01" + "00" + "84", "TIME WITH TIME ZONE", "06:46:16-31"),
        ("8a" + "00" + "00" + "7f" + "05", "TIME WITH TIME ZONE", "00:00:00+00:00:05"),
        ("14" + "00" * 16, "UUID", "00000000-0000-0000-0000-000000000000"),
        ("0f020a0b", "BLOB", "inline:0a0b"),
        ("10fdffffff0f100403", "CLOB", "lob:table=16,id=4,length=3"),
        ("130a" + "00" * 10, "OTHER", "00" * 10),
        ("16020102", "GEOMETRY", "0102"),
        ("1a0005", "INTERVAL YEAR", "INTERVAL '5' YEAR"),
        ("1af90502", "INTERVAL YEAR TO MONTH", "INTERVAL '-5-2' YEAR TO MONTH"),
        ("1a050180cab5ee01", "INTERVAL SECOND", "INTERVAL '1.5' SECOND"),
        ("1a070102", "INTERVAL DAY TO HOUR", "INTERVAL '1 02' DAY TO HOUR"),
        ("1af7017b", "INTERVAL DAY TO MINUTE", "INTERVAL '-1 02:03' DAY TO MINUTE"),
        ("1a0a0203", "INTERVAL HOUR TO MINUTE", "INTERVAL '2:03' HOUR TO MINUTE"),
    ],
)
def test_values_read_as_the_engine_prints_them(data: str, kind: str, text: str) -> None:
    assert read(bytes.fromhex(data)) == Value(kind, text)


@pytest.mark.parametrize(
    ("number", "scale", "text"),
    [(0, 0, "0"), (12345, 2, "123.45"), (-5, 3, "-0.005"), (1, 7, "1E-7"), (1, -10, "1E+10"),
     (123, -1, "1.23E+3"), (0, 2, "0.00"), (1, 6, "0.000001"), (0, 9, "0E-9")],
)  # fmt: skip
def test_decimals_print_as_in_java(number: int, scale: int, text: str) -> None:
    assert decimal_text(number, scale) == text == str(Decimal(number).scaleb(-scale))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("digits", [4300, 4301, 9000, 250_000])
def test_a_decimal_may_have_more_digits_than_python_prints_of_an_integer(digits: int) -> None:
    one, text = 10**digits // 7, "142857" * (digits // 6 + 1)
    assert decimal_text(one, 0) == text[:digits]
    assert decimal_text(-one, 3) == f"-{text[: digits - 3]}.{text[digits - 3 : digits]}"
    raw = (-one).to_bytes(one.bit_length() // 8 + 1, signed=True)
    assert read(b"\x06" + encode_var_int(3) + encode_var_int(len(raw)) + raw) == Value(
        "DECIMAL", decimal_text(-one, 3)
    )
    assert encode_value(Decimal(decimal_text(-one, 3))).endswith(raw)


@pytest.mark.parametrize(
    ("bits", "text"),
    [(1, "4.9E-324"), (0x7FEFFFFFFFFFFFFF, "1.7976931348623157E308"), (0x3FB999999999999A, "0.1"),
     (0x416312D000000000, "1.0E7"), (0x412E848000000000, "1000000.0"),
     (0x3F50624DD2F1A9FC, "0.001"), (0xFFF0000000000000, "-Infinity"),
     (0x7FF8000000000000, "NaN")],
)  # fmt: skip
def test_doubles_print_as_in_java(bits: int, text: str) -> None:
    assert double_text(bits) == text


@pytest.mark.parametrize(
    ("bits", "text"),
    [(1, "1.4E-45"), (0x7F7FFFFF, "3.4028235E38"), (0x3DCCCCCD, "0.1"), (0x4B189680, "1.0E7")],
)
def test_floats_print_as_in_java(bits: int, text: str) -> None:
    assert float_text(bits) == text


# -- dates --------------------------------------------------------------------------------


def date(minutes: int) -> bytes:
    return bytes((10,)) + encode_var_long(minutes)


def test_summer_date_needs_the_zone_of_the_writer() -> None:
    stored = date((18444 * 1440) - 60)  # 2020-07-01 in New York: an hour short of standard time
    assert read(stored, NEW_YORK) == Value("DATE", "2020-07-01")
    assert read(stored) == Value("DATE", "2020-06-30")


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Asia/Kolkata"])
@pytest.mark.parametrize(
    ("day", "text"),
    [(-719162, "0001-01-01"), (-141427, "1582-10-15"), (-43829, "1850-01-01"),
     (-29035, "1890-07-04"), (-25568, "1899-12-31")],
)  # fmt: skip
def test_a_date_before_1900_is_the_one_that_was_stored_in_any_zone(
    zone: str, day: int, text: str
) -> None:
    """As H2 1.3.176 shows it: Java's calendar has no local mean times, which the zones have."""
    assert read(date(day * 1440), zone_named(zone)) == Value("DATE", text)


@pytest.mark.parametrize(
    ("day", "text"),
    [(0, "1970-01-01"), (-719162, "0001-01-01"), (-719163, "0-12-31"), (2932897, "10000-01-01"),
     (-719528 - 365, "-1-01-01")],
)  # fmt: skip
def test_days_of_any_year(day: int, text: str) -> None:
    assert read(date(day * 1440)) == Value("DATE", text)
    assert UTC.date_text(day) == text


def test_days_before_1582_by_either_calendar() -> None:
    day = -171_597  # written by 1.3 as 1500-02-28
    assert Zone().date_text(day) == "1500-03-09"
    assert Zone(julian=True).date_text(day) == "1500-02-28"
    assert Zone(julian=True).date_text(-141_427) == "1582-10-15"
    assert Zone(julian=True).date_text(-141_428) == "1582-10-04"


@given(st.integers(-(1 << 62), 1 << 62))
def test_any_time_reads_in_any_zone(stored: int) -> None:
    for zone in (UTC, NEW_YORK):
        read(bytes((11,)) + encode_var_long(stored) + encode_var_int(5), zone)


def test_nanoseconds_of_both_releases_mean_the_same() -> None:
    new = bytes((11,)) + encode_var_long(123) + encode_var_int(456_789)
    old = bytes((11,)) + encode_var_long(123) + encode_var_int(123_456_789)
    assert read(new) == read(old) == Value("TIMESTAMP", "1970-01-01 00:00:00.123456789")


def test_unknown_zone_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="time zone"):
        zone_named("Atlantis/Poseidonis")


# -- bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1, 23, 28, 31, 139, 200, 255])
def test_unknown_type_is_what_the_engine_calls_corrupted(code: int) -> None:
    with pytest.raises(FileCorruptedError):
        decode_value(bytes((code, 0, 0)), 0, UTC)


@pytest.mark.parametrize(
    "data", ["0cffffffff0f", "0dffffffff0f", "1bffffffff0f", "1a0d0101", "0600" + "00"]
)
def test_absurd_lengths_make_the_engine_fail(data: str) -> None:
    with pytest.raises(EngineFailureError):
        decode_value(bytes.fromhex(data), 0, UTC)


def test_nested_arrays_end() -> None:
    with pytest.raises(EngineFailureError):
        decode_value(b"\x11\x01" * 5_000 + b"\0", 0, UTC)


@given(st.binary(max_size=120))
def test_any_bytes_decode_or_fail_in_a_known_way(data: bytes) -> None:
    try:
        decode_value(data, 0, NEW_YORK)
    except (IndexError, FileCorruptedError, EngineFailureError):
        return


# -- writing ------------------------------------------------------------------------------

PLAIN: st.SearchStrategy[Plain] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.text(max_size=50),
    st.binary(max_size=50),
    st.decimals(allow_nan=False, allow_infinity=False),
)


@given(st.lists(PLAIN, max_size=6))
def test_plain_values_come_back_as_text(items: list[Plain]) -> None:
    row = encode_row(items)
    values, end = decode_row(row, UTC)
    assert end == len(row)
    for item, value in zip(items, values, strict=True):
        assert (value is None) == (item is None)
        if isinstance(item, bytes):
            assert value == Value("VARBINARY", item.hex())
        elif isinstance(item, str):
            assert value == Value("VARCHAR", item)
        elif isinstance(item, Decimal) and value is not None:
            assert Decimal(str(value.text)) == item
        elif isinstance(item, float) and value is not None:
            assert repr(float(str(value.text))) == repr(item if item else 0.0)
        elif type(item) is int and value is not None:
            assert value.text == str(item)


def test_numbers_that_no_type_holds_are_refused() -> None:
    with pytest.raises(LogWriteError):
        encode_value(1 << 63)
    with pytest.raises(LogWriteError):
        encode_value(Decimal("NaN"))


@given(st.binary(max_size=200))
def test_opaque_rows_come_back(data: bytes) -> None:
    assert unpack(pack(data)) == data
    assert decode_row(pack(data), UTC) == ((Value("VARBINARY", data.hex()),), len(pack(data)))


@pytest.mark.parametrize("text", ["--5", "\u00b2", "9" * 5000, "5 x", "", "-"])
def test_what_only_looks_like_a_number_in_the_engines_own_tables_is_none(text: str) -> None:
    odd = Value("VARCHAR", text)
    with pytest.raises(StoreError, match="no numbers"):
        meta_row((Value("INTEGER", "1"), odd, odd, odd))
    assert table_names([(odd, None, None, Value("VARCHAR", "CREATE TABLE T("))]) == table_names([])
    recovery = Recovery()
    row = (Value("INTEGER", "7"), None, None, odd)
    recovery.observe(Entry(1, 1, Type.ADD, 0, table=TABLE_META, values=row))
    assert recovery.index_roots == {}
