"""The fast walk of the 2.1.4 cursor gives the same events as the walk call by call."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.systems.bitronix.engine.cursor_v2 import RandomAccessCursor
from tallystick.systems.bitronix.engine.events import Refused, Stop, singles
from tallystick.systems.bitronix.format.layout import END_MARKER, HEADER_LENGTH, FileHeader
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tests.systems.bitronix.logs import CASES, file_bytes, parts_of, record, write_pair

LIMIT_S = 5
"""Seconds. Walked call by call the file takes ten and more on the same machine."""


class PlainCursor(RandomAccessCursor):
    """Every refusal on its own, every record field by field, as the original reads."""

    def _skip_equal_refusals(self, _limit: int | None) -> int:
        return 0

    def _whole(self) -> TransactionLogRecord | None:
        return None


def check_same(content: bytes) -> None:
    data = memoryview(content)
    assert list(singles(RandomAccessCursor(data).events())) == list(PlainCursor(data).events())


def groups(lengths: tuple[int, ...], markers: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """The bytes of one refusal: status, L, and what stands in place of an end marker."""
    number = st.sampled_from(lengths).map(lambda one: struct.pack(">i", one))
    parts = (st.binary(min_size=4, max_size=4), number, st.sampled_from(markers))
    return st.tuples(*parts).map(b"".join)


NOWHERE = groups(
    (0, 4, 5, -1, -(1 << 31), -(1 << 31) + 3, -(1 << 31) + 4), (END_MARKER, bytes(4), b"\xff" * 4)
)
PIECES = st.one_of(
    st.integers(0, 90).map(bytes),
    st.lists(NOWHERE, max_size=5).map(b"".join),
    st.binary(max_size=9),
    st.sampled_from(
        [
            record(8, 1, "a", "jdbc/b").encode(),
            record(3, 2, gtrid=b"").encode(),
            record(0, 3, "x" * 9000).encode(),
        ]
    ),
)


@settings(max_examples=400)
@given(st.lists(PIECES, max_size=7), st.integers(-40, 40), st.sampled_from([0, 1 << 40]))
def test_quick_and_plain_walk_agree(pieces: list[bytes], off: int, far: int) -> None:
    body = b"".join(pieces)
    position = HEADER_LENGTH + len(body) + off + far
    check_same(FileHeader(9_000, 0, position).encode() + body)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", CASES)
def test_quick_and_plain_walk_agree_on_damaged_samples(case: str) -> None:
    source = random.Random(case)
    for part in parts_of(case):
        for _ in range(3 if part else 0):
            content = bytearray(part[: 1 << 16] if part else b"")
            for _ in range(min(len(content), 4)):
                content[source.randrange(min(len(content), 2000))] ^= 1 << source.randrange(8)
            check_same(bytes(content))


@pytest.mark.parametrize("limit", range(HEADER_LENGTH, HEADER_LENGTH + 60))
def test_a_limit_ends_a_run_where_single_steps_end(limit: int) -> None:
    data = memoryview(FileHeader(9_000, 0, 1 << 40).encode() + bytes(100))
    quick, plain = RandomAccessCursor(data), PlainCursor(data)
    while quick.place < limit:
        quick.step(limit)
    while plain.place < limit:
        plain.step()
    assert quick.place == plain.place


def test_a_run_over_zeros_is_one_event() -> None:
    content = FileHeader(9_000, 0, HEADER_LENGTH + 1200).encode() + bytes(1200)
    run, stop = RandomAccessCursor(memoryview(content)).events()
    assert isinstance(run, Refused)
    assert (run.times, run.stride, run.single(99).offset) == (100, 12, HEADER_LENGTH + 99 * 12)
    assert isinstance(stop, Stop)
    assert stop.offset == len(content)


@pytest.mark.parametrize("fill", [b"\0", b"\xff", bytes(8) + END_MARKER], ids=repr)
def test_a_megabyte_counted_but_never_written_takes_no_time(tmp_path: Path, fill: bytes) -> None:
    whole = file_bytes([record(8, 1, "a"), record(3, 2, "a")], 9_000, size=1 << 16)
    body = (fill * (1 << 20))[: 1 << 20]
    content = whole[:13] + (1 << 40).to_bytes(8, "big") + whole[21 : -(1 << 15)] + body
    reading = write_pair(tmp_path, content, content)
    begin = time.process_time()
    reading.verdict()
    list(reading.records())
    list(reading.transactions())
    assert time.process_time() - begin < LIMIT_S
