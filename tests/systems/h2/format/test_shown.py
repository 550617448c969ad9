"""Values as a query shows them."""

from __future__ import annotations

import pytest

from tallystick.systems.h2.engine.large_objects import unpacked_block
from tallystick.systems.h2.format.values.geometry import geometry_text
from tallystick.systems.h2.format.values.shown import Presentation, Shown
from tallystick.systems.h2.format.values.types import Value


def _new(number: int, _position: int) -> bytes | None:
    return {7: b"na\xc3\xafve", 8: b"\x00\xff"}.get(number)


NEW = Presentation(_new, 200)
OLD = Presentation(_new, 197)


@pytest.mark.parametrize(
    ("value", "declared", "shown"),
    [
        (None, "INT", None),
        (Value("CLOB", "inline:6ec3af"), "CLOB", "nï"),
        (Value("CLOB", "lob:table=1,id=7,length=5"), "CLOB", "naïve"),
        (Value("BLOB", "inline:"), "BLOB", ""),
        (Value("BLOB", "lob:table=1,id=8,length=2"), "BLOB", "00ff"),
        (Value("JSON", b'{"a":1}'.hex()), "JSON", '{"a":1}'),
        (Value("INTEGER", "1"), "ENUM('a', 'b''c', 'd')", "b'c"),
        (Value("INTEGER", "1"), "INT", "1"),
        (Value("ROW", (Value("BIGINT", "1"), None, Value("ROW", ()))), "ARRAY",
         "ROW (1, null, ROW ())"),
        (Value("ARRAY", (Value("ROW", (Value("BIGINT", "1"),)), None)), "ARRAY", "[ROW (1), null]"),
        (Value("TIMESTAMP WITH TIME ZONE", "2020-01-02 03:04:05+01"), "",
         "2020-01-02 03:04:05+01"),
    ],
)  # fmt: skip
def test_values_are_what_a_query_shows(value: Value | None, declared: str, shown: Shown) -> None:
    assert NEW.shown(value, 0, declared) == shown


def test_arrays_of_older_releases_have_parentheses() -> None:
    assert OLD.shown(Value("ARRAY", (Value("INTEGER", "1"), Value("ARRAY", ()))), 0) == "(1, ())"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Value("TIMESTAMP WITH TIME ZONE", "0-01-02 03:04:05-01:30"), "0-01-02 03:04:05.0-01:30"),
        (Value("TIMESTAMP WITH TIME ZONE", "2020-01-02 03:04:05.5+01"), "2020-01-02 03:04:05.5+01"),
        (Value("ARRAY", (Value("TIMESTAMP", "2020-01-02 03:04:05"), Value("TIME", "01:02:03"))),
         "(2020-01-02 03:04:05.0, 01:02:03)"),
    ],
)  # fmt: skip
def test_moments_of_older_releases_always_have_a_fraction(value: Value, shown: Shown) -> None:
    assert Presentation(_new, 196).shown(value, 0) == shown


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        (Value("CLOB", "lob:table=1,id=9,length=5"), "CLOB"),
        (Value("CLOB", "lob:table=1,id=7,length=6"), "CLOB"),
        (Value("BLOB", "file:table=1,id=2,length=-1"), "BLOB"),
        (Value("INTEGER", "3"), "ENUM('a', 'b')"),
        (Value("GEOMETRY", "00"), "GEOMETRY"),
    ],
)
def test_what_cannot_be_had_is_said(value: Value, declared: str) -> None:
    assert NEW.shown(value, 0, declared) == {"lost": value.text}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("00000000013ff80000000000004000000000000000", "POINT (1.5 2)"),
        ("0101000000000000000000f83f0000000000000040", "POINT (1.5 2)"),
        ("00200000010000" + "10e6" + "3ff00000000000004000000000000000", "SRID=4326;POINT (1 2)"),
        ("00000000017ff80000000000007ff8000000000000", "POINT EMPTY"),
        ("000000000200000000", "LINESTRING EMPTY"),
        ("0000000007000000010000000002000000010000000000000000" + "0" * 16,
         "GEOMETRYCOLLECTION (LINESTRING (0 0))"),
        ("00800000013ff000000000000040000000000000004415af1d78b58c40", "POINT Z (1 2 1E20)"),
        ("0000000009", None),
        ("00", None),
        ("0000000007ffffffff", None),
    ],
)  # fmt: skip
def test_geometries_are_text(data: str, text: str | None) -> None:
    assert geometry_text(bytes.fromhex(data)) == text


@pytest.mark.parametrize("size", [0, 5, 200, 20_000, 3_000_000])
def test_sizes_of_compressed_blocks_have_one_to_four_bytes(size: int) -> None:
    limits = (0x80, 0x4000, 0x20_0000, 0x1000_0000)
    more = sum(size >= one for one in limits)
    head = (size | (0, 0x8000, 0xC0_0000, 0xE000_0000)[more]).to_bytes(more + 1)
    assert unpacked_block(b"\0" + head + bytes(size)) == bytes(size)
    assert unpacked_block(b"\1" + head + b"") is None or not size
    assert unpacked_block(b"\3" + head) is None
