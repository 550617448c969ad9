"""What judges read by the compiled walk is what the plain scan reads, wherever it stops."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import pytest

from tallystick.systems.h2.format.entries import Entry, Type
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.read import skim
from tallystick.systems.h2.read.scan import Scan
from tallystick.systems.h2.read.skim import OWN_TABLES, Skim
from tests.fixtures import cases
from tests.systems.h2.kit import fixture, opened, page_file

LEFT_OUT = {"row", "values", "image", "stored", "size", "pages"}
KEPT = [one.name for one in fields(Entry) if one.name not in LEFT_OUT]


def plain(entry: Entry) -> tuple[Any, ...]:
    own = entry.code == Type.ADD and entry.table in OWN_TABLES
    return (*(getattr(entry, name) for name in KEPT), entry.values if own else ())


def check(stream: Any, zone: Zone) -> None:
    scan, quick = Scan(stream, zone), Skim(stream, zone)
    assert [plain(one) for one in quick.entries()] == [plain(one) for one in scan.entries()]
    assert quick.end == scan.end


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skim, "compiled", lambda _stream: True)


@pytest.mark.parametrize("case", cases("h2"))
def test_entries_of_every_fixture_are_those_of_the_scan(case: str) -> None:
    found = fixture(case)._stream()
    assert found is not None
    file, stream = found
    check(stream, file.zone)


@pytest.mark.parametrize("seed", range(40))
def test_entries_of_damaged_bytes_are_those_of_the_scan(seed: int) -> None:
    rng = random.Random(seed)
    found = fixture("committed-512")._stream()
    assert found is not None
    body = bytearray(found[1].bodies(0, len(found[1].data_pages)))
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    stream = opened(bytes(page_file(bytes(body)))).stream
    assert stream is not None
    check(stream, found[0].zone)
