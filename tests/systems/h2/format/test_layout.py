"""Headers, page checksum, trunk and data pages: there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import StaticHeader, Trunk, VariableHeader

INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
SIZES = st.sampled_from([64, 128, 512, 2048, 4096, 32768])


@given(SIZES, INT, st.integers(1, 1 << 20))
def test_trunk_pages_come_back(size: int, key: int, page: int) -> None:
    ids = tuple(range(page + 1, page + 1 + layout.trunk_capacity(size)))
    trunk = Trunk(page, page, key, ids[-1] + 1, ids)
    packed = layout.encode_trunk(trunk, size)
    assert len(packed) == size
    assert layout.checksum_ok(packed, page)
    assert layout.decode_trunk(packed, page) == trunk


@pytest.mark.parametrize(
    ("size", "capacity"), [(128, 27), (256, 59), (512, 123), (1024, 251), (2048, 507), (4096, 1019)]
)
def test_trunk_capacity(size: int, capacity: int) -> None:
    assert layout.trunk_capacity(size) == capacity


@pytest.mark.parametrize("count", [-1, 28, 32767])
def test_trunk_count_that_does_not_fit_is_corrupt(count: int) -> None:
    page = bytearray(layout.encode_trunk(Trunk(5, 5, 1, 0, ()), 128))
    page[15:17] = count.to_bytes(2, "big", signed=True)
    with pytest.raises(CorruptLogError, match="more data pages than fit"):
        layout.decode_trunk(bytes(page), 5)


@given(SIZES, st.binary(max_size=53), st.data())
def test_checksum_sees_its_seven_bytes_and_no_other(
    size: int, body: bytes, data: st.DataObject
) -> None:
    page = bytearray(layout.encode_data(9, 5, 1, body, size))
    at = data.draw(st.integers(3, size - 1))
    page[at] ^= data.draw(st.integers(1, 255))
    covered = {6, size // 2 - 1, size // 2, size - 2, size - 1}
    if at not in covered:
        assert layout.checksum_ok(bytes(page), 9)


def test_checksum_of_an_array_is_that_of_its_bytes() -> None:
    page = bytes([255]) * 512
    array: Any = np.frombuffer(page, np.uint8)  # as the kernel has it without its compiler
    assert layout.checksum(array, 9) == layout.checksum(page, 9)


def test_page_of_another_number_has_another_checksum() -> None:
    page = layout.encode_data(9, 5, 1, b"x", 512)
    assert layout.checksum_ok(page, 9)
    assert not layout.checksum_ok(page, 10)
    assert layout.checksum_ok(bytes(512), 77)


@given(SIZES, LONG, INT, INT, INT)
def test_headers_come_back(size: int, counter: int, key: int, trunk: int, data: int) -> None:
    header = VariableHeader(counter, key, trunk, data)
    page = layout.encode_variable_header(header, size)
    assert layout.decode_variable_header(page) == header
    flipped = page[:-1] + bytes((page[-1] ^ 1,))
    assert layout.decode_variable_header(flipped) is None
    static = StaticHeader(size)
    assert layout.decode_static_header(layout.encode_static_header(static), "f") == static


@pytest.mark.parametrize("size", [0, -1, 63, 1000, 65536, 1 << 30])
def test_impossible_page_size_is_corrupt(size: int) -> None:
    head = bytearray(layout.encode_static_header(StaticHeader(512)))
    head[48:52] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptLogError, match="page size"):
        layout.decode_static_header(bytes(head), "f")


def test_short_file_is_no_page_store() -> None:
    with pytest.raises(UnsupportedFormatError):
        layout.decode_static_header(layout.MAGIC, "f")
