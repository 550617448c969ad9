"""What judges read by the compiled walk is what the plain scan reads, wherever it stops."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import pytest

from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.runs.pieces import OWN_TABLES, LogPieces
from tests.fixtures import cases
from tests.kit import read_in_runs
from tests.systems.h2.kit import fixture, opened, page_file

LEFT_OUT = {"row", "values", "image", "stored", "size", "pages"}
KEPT = [one.name for one in fields(Entry) if one.name not in LEFT_OUT]


def plain(entry: Entry) -> tuple[Any, ...]:
    own = entry.code == Type.ADD and entry.table in OWN_TABLES
    whole = (entry.row, entry.image) if entry.fault else ()
    return (*(getattr(entry, name) for name in KEPT), entry.values if own or whole else (), whole)


def check(stream: Any, zone: Zone) -> int:
    """Compare both ways of reading; return how many records there are that are not in order."""
    scan, pieces = Scan(stream, zone), LogPieces(stream, zone)
    expected = [plain(one) for one in scan.entries()]
    assert [plain(one) for one in pieces.entries()] == expected
    assert pieces.end == scan.end
    return sum(bool(one[-1]) for one in expected)


@pytest.fixture(autouse=True)
def in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_runs(monkeypatch)


@pytest.mark.sampled(25)
@pytest.mark.parametrize("case", cases("h2"))
def test_entries_of_every_fixture_are_those_of_the_scan(case: str) -> None:
    log = fixture(case)._log
    assert log is not None
    check(log.stream, log.zone)


@pytest.mark.parametrize("seed", range(40))
def test_entries_of_damaged_bytes_are_those_of_the_scan(seed: int) -> None:
    rng = random.Random(seed)
    log = fixture("committed-512")._log
    assert log is not None
    body = bytearray(log.stream.bodies(0, len(log.stream.data_pages)))
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    stream = opened(bytes(page_file(bytes(body)))).stream
    assert stream is not None
    check(stream, log.zone)
