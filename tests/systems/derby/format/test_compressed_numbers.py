"""Compressed numbers at the borders of their forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.derby.format.compressed_numbers import (
    Cursor,
    compressed_int,
    compressed_long,
)


@pytest.mark.parametrize(
    ("value", "size"),
    [(0, 1), (63, 1), (64, 2), (16_383, 2), (16_384, 4), ((1 << 31) - 1, 4)],
)
def test_compressed_int_takes_the_shortest_form(value: int, size: int) -> None:
    data = compressed_int(value)
    assert len(data) == size
    assert Cursor(data).compressed_int() == value


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 2),
        (16_383, 2),
        (16_384, 4),
        ((1 << 30) - 1, 4),
        (1 << 30, 8),
        ((1 << 63) - 1, 8),
    ],
)
def test_compressed_long_takes_the_shortest_form(value: int, size: int) -> None:
    data = compressed_long(value)
    assert len(data) == size
    assert Cursor(data).compressed_long() == value


@pytest.mark.parametrize("data", ["4001", "80000001"])
def test_longer_forms_are_accepted(data: str) -> None:
    assert Cursor(bytes.fromhex(data)).compressed_int() == 1


@given(st.integers(0, (1 << 31) - 1))
def test_any_int_comes_back(value: int) -> None:
    assert Cursor(compressed_int(value)).compressed_int() == value
