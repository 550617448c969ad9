"""The hex example of the specification is what the code writes and reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystick.storage.crc import crc32
from tallystick.systems.tally.format.columns import UnplacedRecord, encode_plain
from tallystick.systems.tally.format.headers import SegmentHeader, encode_segment_header
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import (
    DATA_OFFSET,
    HEADER_SIZE,
    GroupHeader,
    encode_group_header,
    group_length,
)
from tallystick.systems.tally.read.records import rows_of
from tallystick.systems.tally.read.walk import SegmentView

pytestmark = pytest.mark.both_cores

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "tally.md"
IDENTITY = bytes(range(16))
TIME_US = 1_700_000_000_000_000


def _segment() -> SegmentHeader:
    return SegmentHeader(IDENTITY, 1, 1, 16 << 10, created_us=TIME_US)


def _group() -> bytes:
    payload = encode_plain(Code.APPEND, [b"one", b"three"])
    length = group_length(payload.size, 512)
    data = b"".join(payload.buffers).ljust(length - 2 * HEADER_SIZE, b"\0")
    header = GroupHeader(
        0, length, 1, DATA_OFFSET, 1, 2, payload.columns, payload.size, payload.size, TIME_US, 0,
        crc32(data), _segment().checksum(), IDENTITY[:8],
    )  # fmt: skip
    encoded = encode_group_header(header)
    return encoded + data + encoded


def hex_dump(data: bytes, start: int) -> str:
    """Sixteen bytes a line; a star stands for lines of zeros."""
    lines: list[str] = []
    for place in range(0, len(data), 16):
        piece = data[place : place + 16]
        if not any(piece):
            if lines[-1] != "*":
                lines.append("*")
            continue
        lines.append(f"{start + place:06x}  {piece.hex(' ')}")
    return "\n".join(lines)


def _example(title: str) -> str:
    match = re.search(rf"### {title}.*?```\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)
    assert match is not None
    return match[1]


def test_hex_of_the_segment_header_is_what_we_write() -> None:
    assert _example("A segment header") == hex_dump(encode_segment_header(_segment()), 0)


def test_hex_of_the_group_is_what_we_write() -> None:
    assert _example("A group") == hex_dump(_group(), DATA_OFFSET)


def test_example_is_read_as_the_page_says() -> None:
    head = encode_segment_header(_segment()).ljust(4096, b"\0")
    view = SegmentView((head + head + _group()).ljust(16 << 10, b"\0"), _segment())
    first, end = view.walk()
    assert (first.case.value, end.case.value) == ("valid", "end")
    assert first.header is not None
    rows = list(rows_of(view.payload(first.header), first.header, None))
    assert [row.record for row in rows] == [UnplacedRecord(1, b"one"), UnplacedRecord(1, b"three")]
