"""The CRC-32 of kernels is zlib's, compiled and interpreted, of any range and continued."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arrow import crc_kernel, plain_bytes
from tallystick.arrow.numba_kernel import kernel

_ALL_ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    "crc32_of", [crc_kernel.crc32_of, plain_bytes.crc32_of], ids=["compiled", "plain"]
)
@given(data=st.binary(max_size=200), begin=st.integers(0, 20))
def test_crc_of_a_range_is_zlibs(crc32_of: Callable[..., Any], data: bytes, begin: int) -> None:
    begin = min(begin, len(data))
    found = crc32_of(np.frombuffer(data, np.uint8), begin, len(data))
    assert found == zlib.crc32(data[begin:])


def test_crc_of_bytes_without_numpy_is_zlibs() -> None:
    data = memoryview(bytes(range(100)))
    assert plain_bytes.crc32_of(data, 3, 90) == zlib.crc32(data[3:90])


@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_crc_is_continued_over_two_ranges(data: bytes, cut: int) -> None:
    cut = min(cut, len(data))
    array, table = np.frombuffer(data, np.uint8), crc_kernel.CRC_TABLE
    first = crc_kernel.crc_range(array, 0, cut, _ALL_ONES, table)
    both = crc_kernel.crc_range(array, cut, len(data), first, table)
    assert int(both) ^ _ALL_ONES == zlib.crc32(data)


def test_a_kernel_may_call_it_without_a_table() -> None:
    @kernel
    def last_differs(data: Any, size: int, expected: int) -> bool:
        return bool(crc_kernel_of(data, 0, size) != expected)

    data = np.arange(50, dtype=np.uint8)
    assert not last_differs(data, 50, zlib.crc32(data.tobytes()))
    assert last_differs(data, 49, zlib.crc32(data.tobytes()))


crc_kernel_of = crc_kernel.crc32_of
