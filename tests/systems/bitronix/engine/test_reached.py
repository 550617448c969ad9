"""Which records 2.1.4 reaches when it skips damage, against its cursor run from the start."""

from __future__ import annotations

import pytest

from tallystick.systems.bitronix.engine.cursor_v2 import RandomAccessCursor
from tallystick.systems.bitronix.engine.events import Accepted
from tallystick.systems.bitronix.engine.reached import ReachedRecords, reached_pieces
from tallystick.systems.bitronix.read.files import Part
from tallystick.systems.bitronix.read.scan import CountedWalk, RecordSpan
from tests.systems.bitronix.logs import CASES, file_bytes, parts_of, record

RECORDS = [record(8, number, "a", "jdbc/b") for number in range(6)]


def spans_of(content: bytes) -> list[RecordSpan]:
    return list(CountedWalk(memoryview(content)).spans())


def check_against_cursor(content: bytes) -> None:
    data = memoryview(content)
    accepted = {
        event.offset for event in RandomAccessCursor(data).events() if isinstance(event, Accepted)
    }
    reached = ReachedRecords(data)
    for span in spans_of(content):
        assert reached.reaches(span) == (span.record is not None and span.offset in accepted)


@pytest.mark.parametrize("case", CASES)
def test_reached_records_are_those_the_cursor_accepts(case: str) -> None:
    for part in parts_of(case):
        check_against_cursor(part or b"")


@pytest.mark.parametrize("place", range(21, 21 + 2 * RECORDS[0].size))
def test_a_changed_byte_loses_the_records_that_the_cursor_skips(place: int) -> None:
    content = bytearray(file_bytes(RECORDS, 9_000, size=900))
    content[place] ^= 0x41
    check_against_cursor(bytes(content))


def test_the_cursor_is_out_of_step_after_a_wrong_length_until_it_meets_the_walk() -> None:
    content = bytearray(file_bytes(RECORDS, 9_000, size=900))
    content[21 + 7] ^= 1
    reached = ReachedRecords(memoryview(bytes(content)))
    assert reached.in_step
    damaged, *_ = spans_of(bytes(content))
    assert not reached.reaches(damaged)
    assert not reached.in_step


def test_a_missing_file_has_no_pieces() -> None:
    part = Part(1, None, None)
    assert list(reached_pieces(part, None)) == []
