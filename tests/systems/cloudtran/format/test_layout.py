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
