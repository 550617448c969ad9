"""Blocks come back as they were written; hostile sizes are refused."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.format.entries import Entry, encode_entry
from tallystick.systems.cloudtran.format.layout import Prologue, encode_block
from tallystick.systems.cloudtran.read.scan import BlockState
from tests.systems.cloudtran.blocks import block_data, blocks
from tests.systems.cloudtran.strategies import entries


def test_zlib_bomb_is_bounded() -> None:
    bomb = zlib.compress(bytes(50 << 20))
    with pytest.raises(LogFormatError, match="at most 1048576"):
        layout.unpack_entries(Prologue(1, 1, 1), bytes(16) + bomb, 1 << 20)


@given(st.lists(entries, max_size=5), st.sampled_from([0, 1]), st.sampled_from([512, 4096]))
def test_block_comes_back_as_it_was_written(made: list[Entry], codec: int, size: int) -> None:
    data = block_data(Prologue(3, 7, codec), b"".join(map(encode_entry, made)))
    raw = encode_block(0, len(made), data, size)
    assert len(raw) % size == 0
    assert raw[:84] == raw[-84:]
    (one,) = blocks(raw, size)
    assert one.state is BlockState.OK
    assert [placed.entry for placed in one.entries] == made


PROLOGUE = Prologue(3, 7, 1)
DATA = layout.encode_data(PROLOGUE, b"packed")


def test_a_block_has_the_bytes_of_the_document() -> None:
    assert DATA[:16].hex(" ") == "01 01 00 00 03 00 00 00 07 00 00 00 00 00 00 00"
    raw = encode_block(512, 2, DATA, 512)
    header = layout.parse_header(raw, 0)
    crc = zlib.crc32(DATA)
    assert header == layout.Header(layout.SIGNATURE, 512, 2, len(DATA), crc)
    assert layout.parse_header(raw, len(raw) - 84) == header
    numbers = (512, 2, len(DATA))
    packed = b"".join(one.to_bytes(4, "little") for one in numbers) + crc.to_bytes(8, "little")
    assert raw[:84] == layout.SIGNATURE + packed


@pytest.mark.parametrize("place", [-1, 1, 84])
def test_a_header_outside_of_the_data_is_none(place: int) -> None:
    assert layout.parse_header(bytes(84), place) is None
    assert layout.parse_header(bytes(84), 0) is not None


@pytest.mark.parametrize(
    ("data_size", "block_size", "length"),
    [(0, 512, 512), (512 - 168, 512, 512), (512 - 167, 512, 1024), (16, 65536, 65536)],
)
def test_a_block_is_whole_disk_blocks(data_size: int, block_size: int, length: int) -> None:
    assert layout.block_length(data_size, block_size) == length
    assert len(encode_block(0, 0, bytes(data_size), block_size)) == length


@pytest.mark.parametrize(
    "prologue",
    [
        Prologue(0, 1),
        Prologue((1 << 32) - 1, (1 << 64) - 1, 1),
        Prologue(1, 1, closing=True),
    ],
)
def test_a_prologue_comes_back(prologue: Prologue) -> None:
    assert layout.parse_prologue(layout.encode_data(prologue, b"")) == prologue


@pytest.mark.parametrize(
    ("place", "bad", "said"),
    [
        (0, 0, "version 0"),
        (0, 2, "version 2"),
        (1, 2, "codec 2"),
        (2, 2, "flags 2"),
        (3, 1, "flags 256"),
        (8, 0, "not a prologue"),  # sequences count from 1
        (2, 1, "a closing block holds nothing"),
    ],
)
def test_a_wrong_value_in_a_prologue_is_refused(place: int, bad: int, said: str) -> None:
    wrong = bytearray(DATA)
    wrong[place] = bad
    with pytest.raises(LogFormatError, match=said):
        layout.parse_prologue(wrong)


def test_a_closing_block_with_entries_and_a_cut_prologue_are_refused() -> None:
    with pytest.raises(LogFormatError, match="closing block"):
        layout.parse_prologue(layout.encode_data(Prologue(1, 1, 0, closing=True), b"x"))
    with pytest.raises(LogFormatError, match="shorter"):
        layout.parse_prologue(DATA[:15])
    assert layout.parse_prologue(DATA[:16]) == PROLOGUE


def test_entries_are_one_whole_stream_of_at_most_the_size_that_is_allowed() -> None:
    packed = bytes(16) + zlib.compress(b"e" * 100)
    assert bytes(layout.unpack_entries(Prologue(1, 1), packed)) == packed[16:]
    assert layout.unpack_entries(PROLOGUE, packed, 100) == b"e" * 100
    for wrong in (packed[:-1], packed + b"x", packed[:16] + b"y" + packed[17:], packed[:16]):
        with pytest.raises(LogFormatError):
            layout.unpack_entries(PROLOGUE, wrong)
    with pytest.raises(LogFormatError, match="at most 99 unpacked"):
        layout.unpack_entries(PROLOGUE, packed, 99)
