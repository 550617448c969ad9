"""The spans of a file are a sequence that is made when it is asked for."""

from __future__ import annotations

from tallystick.records import Outcome, Span
from tallystick.systems.cloudtran.format.layout import HEADER_SIZE
from tallystick.systems.cloudtran.read.spans import FileSpans
from tests.systems.cloudtran.blocks import block, blocks, entry

ZEROS = 512


def spans_of(data: bytes) -> FileSpans:
    found = FileSpans(len(data))
    for one in blocks(data):
        found.add_block(one)
    return found


def test_spans_of_whole_blocks_are_counted_taken_and_compared_like_a_tuple() -> None:
    data = block(0, 1, entry(1)) + block(512, 2, entry(2)) + bytes(ZEROS)
    found = spans_of(data)
    as_tuple = tuple(found)
    assert len(found) == len(as_tuple) == 9
    assert found[0] == Span(0, HEADER_SIZE, Outcome.VALID, "header")
    assert found[-1] == Span(1024, ZEROS, Outcome.UNUSED, "preallocated", as_tuple[-1].reason)
    assert found[4:] == as_tuple[4:]
    assert found == as_tuple
    assert repr(found) == repr(as_tuple)
    assert hash(found) == hash(spans_of(data))
    assert found == spans_of(data) != spans_of(data[:-ZEROS])
