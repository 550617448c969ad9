"""How often a log is read to judge it, and what a verdict holds of it."""

from __future__ import annotations

from collections import Counter

import pytest

from tallystick.records import Deferred
from tallystick.systems.h2.engine import report
from tallystick.systems.h2.read.scan import Scan
from tests.systems.h2.kit import fixture

CASE = "committed-512"


def test_judging_decodes_a_record_once_then_to_redo_it_then_for_the_blocks_of_large_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = fixture(CASE)
    assert reading._log is not None
    stream = reading._log.stream
    starts: Counter[int] = Counter()
    decode = Scan._decode

    def counted(self: Scan, entry: object, data: bytes, at: int) -> int:
        starts[entry.start] += self.stream is stream  # type: ignore[attr-defined]
        return decode(self, entry, data, at)  # type: ignore[arg-type]

    monkeypatch.setattr(Scan, "_decode", counted)
    reading.findings()
    reading.verdict()
    again = sum(count > 3 for count in starts.values())
    assert len(starts) > 100
    assert again <= 2, "only a record that the end of a window cuts is decoded again"


def test_the_records_of_the_engine_s_part_are_listed_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = fixture(CASE)
    expected = report.engine_part(reading._result)  # type: ignore[arg-type]
    listed: list[object] = []
    records = report._records

    def counted(*args: object) -> object:
        listed.append(args)
        return records(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(report, "_records", counted)
    verdict = reading.verdict()
    assert isinstance(verdict.engine, Deferred)
    assert not listed
    assert dict(verdict.engine) == expected == dict(verdict.engine)
    assert len(listed) == 1
