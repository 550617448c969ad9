"""Properties files, as Java reads them (tests/interop/properties compares with Java itself)."""

from __future__ import annotations

import pytest

from tallystick.systems.java_properties import parse_properties, without_property

CASES: list[tuple[bytes, dict[str, str]]] = [
    (b"a=1\nb = 2\r\nc: 3\rd 4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    (b"# no\n  ! no\n\n \t\na=b # yes", {"a": "b # yes"}),
    (b"a = one, \\\n   two\\\r\n\tthree\nb=2", {"a": "one, twothree", "b": "2"}),
    (b"a=ends\\\\\nb=2", {"a": "ends\\", "b": "2"}),
    (b"a\\=b\\:c\\ d=x\\ty\\n\\u00e9\\q", {"a=b:c d": "x\ty\n\u00e9q"}),
    (b"a==b\nc=:d\ne:=f", {"a": "=b", "c": ":d", "e": "=f"}),
    (b"a\nb=\n=c", {"a": "", "b": "", "": "c"}),
    (b"a=1\na=2", {"a": "2"}),
    (b"caf\xe9=\x85\x0b", {"caf\u00e9": "\x85\x0b"}),
    (b"a=b  \n", {"a": "b  "}),
    (b"a=b\\", {"a": "b"}),
    (b"\\\n#no\n\\\n\na=b\n\\", {"a": "b"}),
    (b"", {}),
]


@pytest.mark.parametrize(("data", "found"), CASES)
def test_values_by_name(data: bytes, found: dict[str, str]) -> None:
    assert parse_properties(data) == found


def test_an_escape_without_digits_is_an_error() -> None:
    with pytest.raises(ValueError, match="no character"):
        parse_properties(b"a=\\u12")


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"b=1\nlogDevice=/x\nc=2\n#--- last", b"b=1\nc=2\n#--- last"),
        (b"b=1\r\n  log\\u0044evice : /x\\\r\n  /y\r\nc=2\r\n", b"b=1\r\nc=2\r\n"),
        (b"logDevice=1\rb=2\rlogDevice /x", b"b=2\r"),
        (b"#logDevice=1\n\nlogDevices=1\nb=\\\nlogDevice=1\n",) * 2,
        (b"logDevice=/x\\", b""),
        (b"\xe9=\x85\nlogDevice=\xe9\x85\n\xff", b"\xe9=\x85\n\xff"),
        (b"", b""),
    ],
)
def test_a_property_is_taken_out_and_every_other_byte_stays(data: bytes, left: bytes) -> None:
    assert without_property(data, "logDevice") == left


@pytest.mark.parametrize(("data", "found"), CASES)
def test_without_a_property_the_others_are_what_they_were(
    data: bytes, found: dict[str, str]
) -> None:
    for name in found:
        left = {other: value for other, value in found.items() if other != name}
        assert parse_properties(without_property(data, name)) == left
    assert without_property(data, "no such") == data
