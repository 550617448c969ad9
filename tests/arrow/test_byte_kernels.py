"""Integers that kernels read are those that `int.from_bytes` gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arrow import byte_kernels

CASES: list[tuple[Callable[..., Any], int, Literal["little", "big"], bool]] = [
    (byte_kernels.le_uint16, 2, "little", False),
    (byte_kernels.le_uint32, 4, "little", False),
    (byte_kernels.le_int32, 4, "little", True),
    (byte_kernels.le_int64, 8, "little", True),
    (byte_kernels.be_uint16, 2, "big", False),
    (byte_kernels.be_uint32, 4, "big", False),
    (byte_kernels.be_int32, 4, "big", True),
    (byte_kernels.be_int64, 8, "big", True),
]


@pytest.mark.parametrize(("read", "size", "order", "signed"), CASES)
@given(data=st.binary(min_size=12, max_size=12), place=st.integers(0, 4))
def test_a_number_is_what_its_bytes_say(
    read: Callable[..., Any],
    size: int,
    order: Literal["little", "big"],
    signed: bool,
    data: bytes,
    place: int,
) -> None:
    expected = int.from_bytes(data[place : place + size], order, signed=signed)
    array = np.frombuffer(data, np.uint8)
    assert read(array, place) == expected
    plain = getattr(read, "py_func", read)
    assert plain(array, place) == expected
