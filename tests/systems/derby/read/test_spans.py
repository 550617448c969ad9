"""Neighbouring ranges of one kind are one span; empty ones are left out."""

from __future__ import annotations

from tallystick.records import Outcome, Span
from tallystick.storage.source import ByteSource
from tallystick.systems.derby.format.layout import Envelope
from tallystick.systems.derby.read.files import LogBytes
from tallystick.systems.derby.read.spans import ByteRange, spans_of

FILE = LogBytes(1, ByteSource("/log/log1.dat", memoryview(bytes(100))))


def record(offset: int, outcome: Outcome, reason: str = "") -> ByteRange:
    envelope = Envelope(offset, 4, 0, 4)
    return ByteRange(FILE, offset, 20, outcome, "record", reason, envelope)


def test_neighbours_of_one_kind_are_one_span() -> None:
    ranges = [
        ByteRange(FILE, 0, 24, Outcome.VALID, "file header"),
        record(24, Outcome.VALID),
        record(44, Outcome.VALID),
        record(64, Outcome.TORN, "cut"),
        ByteRange(FILE, 84, 0, Outcome.UNUSED, "zero fill"),
        ByteRange(FILE, 84, 16, Outcome.UNUSED, "zero fill"),
    ]
    assert list(spans_of(ranges)) == [
        Span(0, 24, Outcome.VALID, "file header"),
        Span(24, 40, Outcome.VALID, "records"),
        Span(64, 20, Outcome.TORN, "records", "cut"),
        Span(84, 16, Outcome.UNUSED, "zero fill"),
    ]
    assert list(spans_of([])) == []
