"""The compiled walk against the plain scan: rows of every value type, pages of every fault."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import encode_add
from tallystick.systems.h2.format.numbers import encode_var_int, encode_var_long
from tallystick.systems.h2.format.page_kernels import count_whole_pages
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.types import (
    INT_NUMBER,
    TYPES,
    EngineFailureError,
    FileCorruptedError,
    Layout,
    decode_row,
)
from tallystick.systems.h2.read.stream import PageFile, data_fault
from tallystick.systems.h2.runs import walk as kernels

PAGE_SIZE = 512


def sample(code: int) -> bytes:
    """Return a value of this type byte, made from nothing but its row in the table."""
    kind = TYPES[code]
    data = bytearray((code,))
    size = kind.size
    if kind.layout is Layout.NUMBERS:
        while size:
            data += encode_var_int(300) if size & 3 == INT_NUMBER else encode_var_long(70_000)
            size >>= 2
    elif kind.layout in (Layout.COUNTED_BYTES, Layout.COUNTED_TEXT):
        data += encode_var_int(3) + b"abc"
    else:
        data += b"x" * size
    return bytes(data)


def walked(row: bytes) -> tuple[int, int]:
    """Return how many records the walk reads of a row, and why it ended."""
    record = encode_add(3, 16, 1, row)
    table = np.empty((kernels.COLUMNS, 4), np.int64)
    data = np.frombuffer(bytearray(record), np.uint8)  # of read-only ones it is compiled again
    rows, _, why = kernels.walk(data, 0, True, PAGE_SIZE, table)
    return rows, why


MEASURED = [code for code, kind in TYPES.items() if kind.layout is not Layout.OTHER]


@pytest.mark.sampled(43)
@pytest.mark.parametrize("code", MEASURED)
def test_walk_and_decoder_agree_on_the_size_of_every_type(code: int) -> None:
    value = sample(code)
    row = encode_var_int(2) + value + value
    assert decode_row(row, Zone())[1] == len(row)
    assert walked(row) == (1, kernels.MORE)
    assert walked(row + b"\0") == (0, kernels.IRREGULAR)
    assert walked(row[:-1]) == (0, kernels.IRREGULAR)


def test_values_that_only_their_decoder_can_measure_are_left_to_the_plain_scan() -> None:
    for code in set(range(256)) - set(MEASURED):
        if code != 17:  # an array, whose values the walk reads as if they were columns
            assert walked(bytes((1, code, 0, 0, 0, 0))) == (0, kernels.IRREGULAR)


@given(st.binary(max_size=60))
def test_a_row_that_the_walk_accepts_is_one_that_the_scan_decodes(row: bytes) -> None:
    if walked(row) == (1, kernels.MORE):
        try:
            assert decode_row(row, Zone())[1] == len(row)
        except (EngineFailureError, FileCorruptedError):
            pytest.fail("the engine does not read what the walk accepts")


@given(st.integers(0, 4), st.integers(0, PAGE_SIZE - 1), st.integers(1, 255))
def test_whole_pages_are_counted_as_the_plain_test_finds_them(
    page: int, at: int, bits: int
) -> None:
    bodies = [bytes((number,)) * (PAGE_SIZE - layout.DATA_START) for number in range(5)]
    data = bytearray(
        b"".join(layout.encode_data(n, 1, -7, body, PAGE_SIZE) for n, body in enumerate(bodies))
    )
    data[page * PAGE_SIZE + at] ^= bits
    pages = PageFile("made", memoryview(data), layout.StaticHeader(PAGE_SIZE))
    faults = [data_fault(pages, number, -7) for number in (*range(5), 5, -1)]
    plain = next(number for number, fault in enumerate(faults) if fault is not None)
    ids, keys = np.array([*range(5), 5, -1]), np.full(7, -7)
    assert count_whole_pages(np.frombuffer(data, np.uint8), ids, keys, PAGE_SIZE) == plain
