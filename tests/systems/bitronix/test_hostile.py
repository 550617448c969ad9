"""Any bytes at all: no error but the documented ones, spans that tile, linear time."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick.systems.bitronix.format.layout import HEADER_LENGTH, FileHeader
from tallystick.systems.bitronix.reader import BitronixReading
from tallystick.testing.spans import check_tiling
from tests.kit import same_rows
from tests.systems.bitronix.logs import file_bytes, record, write_pair

RECORDS = [record(status, n, "a", "jdbc/b") for n, status in enumerate((0, 7, 2, 8, 3, 8, 5))]
WHOLE = file_bytes(RECORDS, 9_000, size=900)
QUARTER = 1 << 18
"""A quarter of a megabyte: work on it that exceeds its limit is not linear."""
LIMIT_S = 15


def look_at(reading: BitronixReading) -> None:
    for file in reading.files():
        check_tiling(file)
    list(reading.transactions())
    list(reading.records(salvage=True))
    reading.verdict().to_dict()
    same_rows(reading)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=600), st.booleans())
def test_random_bytes(tmp_path: Path, content: bytes, with_header: bool) -> None:
    header = FileHeader(9_000, 0, HEADER_LENGTH + len(content)).encode() if with_header else b""
    look_at(write_pair(tmp_path, header + content, WHOLE))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(
    st.lists(
        st.tuples(st.integers(0, len(WHOLE) - 8), st.binary(min_size=1, max_size=8)), max_size=4
    ),
    st.integers(0, len(WHOLE)),
)
def test_random_damage(tmp_path: Path, changes: list[tuple[int, bytes]], cut: int) -> None:
    content = bytearray(WHOLE)
    for place, value in changes:
        content[place : place + len(value)] = value
    look_at(write_pair(tmp_path, bytes(content[:cut]), WHOLE))


@pytest.mark.parametrize("size", [*range(0, 60, 7), 21, 57, 58, len(WHOLE) - 1])
def test_every_way_to_cut_a_file(tmp_path: Path, size: int) -> None:
    look_at(write_pair(tmp_path, WHOLE[:size], WHOLE[:size]))


def _nested(size: int) -> bytes:
    """Starts of records, each with a length that leads to one end marker at the end of all."""
    body = bytearray()
    while len(body) < size:
        rest = size - len(body)
        body += struct.pack(">iiiqiIb", 8, rest, 28, 1, 1, 0, 0) + struct.pack(">i", 1 << 30)
    return bytes(body) + b"xntB" * 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "body",
    [
        bytes(QUARTER),
        b"\xff" * (QUARTER),
        random.Random(3).randbytes(QUARTER),
        b"xntB" * (QUARTER // 4),
        b"\0\0\0\x1c" * (QUARTER // 4),
        _nested(QUARTER),
    ],
    ids=["zeros", "ones", "random", "end markers", "header lengths", "nested lengths"],
)
def test_anything_takes_seconds(tmp_path: Path, body: bytes) -> None:
    content = FileHeader(9_000, 0, HEADER_LENGTH + len(body)).encode() + body
    begin = time.process_time()
    look_at(write_pair(tmp_path, content, WHOLE))
    assert time.process_time() - begin < LIMIT_S


@pytest.mark.parametrize("position", [1 << 62, -1, -(1 << 63), (1 << 63) - 1])
def test_a_position_beyond_everything_ends(tmp_path: Path, position: int) -> None:
    content = WHOLE[:13] + position.to_bytes(8, "big", signed=True) + WHOLE[21:]
    look_at(write_pair(tmp_path, content, WHOLE))
