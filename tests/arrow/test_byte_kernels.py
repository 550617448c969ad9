"""Integers that kernels read are those that `int.from_bytes` gives."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
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


def test_numbers_are_read_where_neither_numba_nor_numpy_is(plain_byte_kernels: ModuleType) -> None:
    data = memoryview(bytes([0xFF, 0xFE, 0xFD, 0xFC, 0xFB, 0xFA, 0xF9, 0xF8, 0x80]))
    assert not plain_byte_kernels.COMPILED
    for read, size, order, signed in CASES:
        found = getattr(plain_byte_kernels, read.__name__)(data, 1)
        assert type(found) is int
        assert found == int.from_bytes(data[1 : 1 + size], order, signed=signed)


@pytest.fixture
def plain_byte_kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setitem(sys.modules, "numpy", None)
    spec = importlib.util.spec_from_file_location("plain_byte_kernels", byte_kernels.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
