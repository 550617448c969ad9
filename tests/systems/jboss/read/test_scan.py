"""The scan of a file: hostile bytes, and kernels against plain functions."""

from __future__ import annotations

import time
from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.systems.jboss.format.layout import (
    SHAPES,
    Item,
    RecordType,
    encode,
    encode_header,
)
from tallystick.systems.jboss.read import scan as scanning
from tallystick.systems.jboss.read.scan import numbers, scan
from tests.systems.jboss.build import full

EVERY_SHAPE = pytest.mark.parametrize("name", SHAPES)


@EVERY_SHAPE
@given(raw=st.binary(max_size=400), stamp=st.sampled_from([1, 11, 0x0B0B0B0B]))
def test_random_bytes_are_scanned_to_the_end(name: str, raw: bytes, stamp: int) -> None:
    data = memoryview(raw)
    for row in scan(data, SHAPES[name], stamp):
        assert 0 <= row.offset < len(raw)
        assert row.end <= len(raw)


@EVERY_SHAPE
def test_kernel_is_the_plain_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled or not, the scan gives the same rows."""
    shape = SHAPES[name]
    records = b"".join(encode(shape, replace(full(one), file_id=3)) for one in list(RecordType)[1:])
    stale = records.replace(b"\0\0\0\3", b"\0\0\0\2")
    data = encode_header(shape, 3) + records + stale + records[:70] + bytes(20)
    state, rows = array("q", [shape.header_size, 0, 1 << 20, len(data)]), array("q", bytes(3200))
    shown = numbers(shape)
    count = scanning.walk(memoryview(data), len(data), 3, shown, shown, state, rows)
    monkeypatch.setattr(scanning, "COMPILED_FROM", 0)
    monkeypatch.setattr(scanning, "LOADED_FROM", 0)
    ours = [
        (row.offset, row.size, row.status, row.file_id) for row in scan(memoryview(data), shape, 3)
    ]
    assert [tuple(rows[4 * i : 4 * i + 4]) for i in range(count)] == ours


@pytest.mark.parametrize("name", ["g1a", "g1d", "g3", "hash"])
def test_scan_of_hostile_bytes_is_linear(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places that look like records, each claiming the rest of the file."""
    monkeypatch.setattr(scanning, "COMPILED_FROM", 0)
    monkeypatch.setattr(scanning, "LOADED_FROM", 0)
    shape = SHAPES[name]
    one = encode(shape, Item(0, 0, RecordType.ADD, 1, 0, record_id=1, user_type=1, body=b""))
    hostile = bytearray(one[: shape.fields_at + 8] + (1 << 18).to_bytes(4, "big"))
    data = memoryview(encode_header(shape, 1) + bytes(hostile) * 40_000)
    list(scan(data[:4096], shape, 1))  # compile
    begin = time.perf_counter()
    assert sum(1 for _ in scan(data, shape, 1)) <= 40_000
    assert time.perf_counter() - begin < 10
