"""Names of files, and the line of the high-water mark: there and back, and what is neither."""

from __future__ import annotations

import pytest

from tallystick.storage.crc import crc32
from tallystick.systems.cloudtran.format.file_names import FileName, parse_name
from tallystick.systems.cloudtran.format.high_water_mark import (
    HighWaterMark,
    decode_mark,
    encode_mark,
)


def test_the_parts_of_a_name_come_back() -> None:
    name = FileName("a-b", 12, "20260102T030405Z", "ctl")
    assert str(name) == "a-b-0000000012-20260102T030405Z.ctl"
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "a-000000001-20260102T030405Z.ctl",
        "a-00000000011-20260102T030405Z.ctl",
        "a-0000000001-20260102T030405.ctl",
        "a-0000000001-20260102T030405Z",
        "a-0000000001-20260102T030405Z.ctl.gz",
        "-0000000001-20260102T030405Z.ctl",
        "a.mark",
    ],
)
def test_other_names_are_of_no_log(name: str) -> None:
    assert parse_name(name) is None


MARK = HighWaterMark(1, 2, 3, 4)


def line(text: str) -> bytes:
    return f"{text}{crc32(text.encode()):08x}\n".encode()


def test_a_mark_comes_back_and_one_of_earlier_versions_is_read() -> None:
    text = "serial 1 sequence 2 number 3 "
    assert encode_mark(MARK) == line(f"{text}kept 4 ")
    assert decode_mark(encode_mark(MARK)) == MARK
    assert decode_mark(line(text)) == HighWaterMark(1, 2, 3, 0)
    assert decode_mark(encode_mark(MARK).rstrip()) == MARK


@pytest.mark.parametrize("place", range(len(encode_mark(MARK)) - 1))
def test_a_changed_mark_is_none(place: int) -> None:
    raw = bytearray(encode_mark(MARK))
    raw[place] ^= 1
    assert decode_mark(bytes(raw)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "serial 1 sequence 2 ",
        "serial 1 number 2 sequence 3 ",
        "serial 1 sequence 2 number -3 ",
        "serial 1 sequence 2 number 3 kept x ",
        "serial 1 sequence 2 number 3 kept 4 more 5 ",
    ],
)
def test_a_line_of_other_words_is_no_mark(text: str) -> None:
    assert decode_mark(line(text)) is None
