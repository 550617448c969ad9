"""Instants and control files; hostile bytes end in an error of ours."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import LogFormatError
from tallystick.systems.derby.format.layout import (
    Control,
    decode_control,
    encode_control,
    instant_text,
    make_instant,
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
