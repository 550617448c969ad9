"""Instants and control files; hostile bytes end in an error of ours."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.storage.crc import crc32
from tallystick.systems.derby.format import layout
from tallystick.systems.derby.format.layout import (
    Control,
    Envelope,
    Header,
    decode_control,
    decode_header,
    encode_checksum_body,
    encode_control,
    encode_header,
    encode_record,
    find_record,
    instant_text,
    is_record_at,
    make_instant,
    read_envelope,
    split_instant,
)


@given(st.integers(1, (1 << 31) - 1), st.integers(0, 0x0FFFFFFF))
def test_instants_are_file_and_position(file: int, position: int) -> None:
    instant = make_instant(file, position)
    assert split_instant(instant) == (file, position)
    assert instant_text(instant) == f"({file},{position})"


@given(st.binary(max_size=60))
def test_hostile_control_files_end_in_an_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(LogFormatError):
        decode_control(data)


def test_control_file_comes_back() -> None:
    control = Control(make_instant(1, 41_502), 10, 14, -1, 2)
    assert decode_control(encode_control(control)) == control
    head = bytes.fromhex("00000080 00000009 000000010000a21e 0000000a 0000000e ffffffff 02")
    assert encode_control(control).startswith(head)


def test_header_and_record_have_the_bytes_of_the_document() -> None:
    raw = encode_header(3, make_instant(2, 1))
    assert raw.hex() == "000000800000000900000000000000030000000200000001"
    assert decode_header(raw + b"more") == Header(128, 9, 3, make_instant(2, 1))
    record = encode_record(make_instant(3, 24), b"body")
    assert record.hex() == "000000040000000300000018" + b"body".hex() + "00000004"
    assert encode_checksum_body(5, 0xFFFFFFFF).hex() == (
        "00814900000001c5010000000500000000ffffffff"
    )


@pytest.mark.parametrize("size", [0, 23])
def test_a_header_that_is_cut_is_an_error_that_says_how_long_it_is(size: int) -> None:
    with pytest.raises(LogFormatError, match=f"24 bytes.*{size}"):
        decode_header(encode_header(1, 0)[:size])


CONTROL = encode_control(Control(7, 10, 16, 1, 3))


def test_control_fields_stand_in_their_order_and_say_their_version() -> None:
    control = decode_control(CONTROL)
    assert (control.checkpoint, control.build, control.flags) == (7, 1, 3)
    assert control.version == "10.16"
    assert len(CONTROL) == 48


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (CONTROL[:47], "48 bytes.*47"),
        (CONTROL[:-1] + bytes([CONTROL[-1] ^ 1]), "checksum differs"),
        (bytes([CONTROL[0] ^ 1]) + CONTROL[1:], "checksum differs"),
        (bytes(40) + crc32(bytes(40)).to_bytes(8), "no control file.*128.*0"),
    ],
)
def test_what_is_no_control_file_says_why(raw: bytes, said: str) -> None:
    with pytest.raises(LogFormatError, match=said):
        decode_control(raw)


FIRST, SECOND = make_instant(3, 24), make_instant(3, 44)
FILE = encode_header(3, 0) + encode_record(FIRST, b"body") + encode_record(SECOND, b"b")


def test_an_envelope_is_the_numbers_around_a_body() -> None:
    envelope = read_envelope(memoryview(FILE), 24)
    assert envelope == Envelope(24, 4, FIRST, 4)
    assert (envelope.body, envelope.end) == (36, 44)
    last = read_envelope(memoryview(FILE), 44)
    assert last == Envelope(44, 1, SECOND, 1)
    assert last.end == len(FILE) == 61


@pytest.mark.parametrize("length", [-1, 0, 2])
def test_no_envelope_has_an_empty_body_or_reaches_beyond_its_file(length: int) -> None:
    raw = bytearray(FILE)
    raw[44:48] = length.to_bytes(4, signed=True)
    assert read_envelope(memoryview(raw), 44) is None
    assert read_envelope(memoryview(FILE)[:-1], 44) is None
    assert read_envelope(memoryview(FILE), 46) is None


def test_a_record_is_found_by_its_own_instant_and_both_lengths() -> None:
    data = memoryview(FILE)
    assert [find_record(data, 3, place) for place in (0, 24, 25, 44)] == [24, 24, 44, 44]
    assert find_record(data, 3, 45) is None
    assert find_record(data, 4, 0) is None
    assert is_record_at(data, 3, 24)
    assert not is_record_at(data, 3, 25)
    for place in (24, 27, 31, 35, 43):  # lengths and instant of the first
        raw = bytearray(FILE)
        raw[place] ^= 1
        assert find_record(memoryview(raw), 3, 0) == 44, place


@pytest.mark.parametrize("before", [-17, -12, -8, -5, -1, 0, 1])
def test_a_record_is_found_wherever_it_lies_about_the_window(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_WINDOW", 64)
    place = 128 + before
    raw = bytes(place) + encode_record(make_instant(3, place), b"b") + bytes(100)
    assert find_record(memoryview(raw), 3, 0) == place
    assert find_record(memoryview(raw), 3, place) == place
    assert find_record(memoryview(raw), 3, place + 1) is None
