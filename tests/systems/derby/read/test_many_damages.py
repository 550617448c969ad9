"""A log with many damaged places is searched for whole groups once, not from each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.systems.derby.format.layout import Envelope
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.read.files import LogBytes
from tests.systems.derby.logs import reading_of
from tests.systems.test_memory import derby

TRANSACTIONS = 500
RECORDS = 3 * TRANSACTIONS
HEADER_END = 5000
"""Offset before which nothing is damaged, so that the file is taken for a log."""


@pytest.mark.parametrize("switch_interval", [1 << 20, 1 << 14])
def test_each_record_is_looked_at_a_few_times_however_many_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch_interval: int
) -> None:
    derby(tmp_path, TRANSACTIONS, switch_interval)
    for path in tmp_path.glob("log[0-9]*.dat"):
        damaged = bytearray(path.read_bytes())
        for place in range(HEADER_END, len(damaged), 200):
            damaged[place] ^= 0x10
        path.write_bytes(damaged)
    looked = 0
    checksum_holds = LogBytes.checksum_holds

    def count(file: LogBytes, envelope: Envelope, body: Body | None) -> bool | None:
        nonlocal looked
        looked += 1
        return checksum_holds(file, envelope, body)

    monkeypatch.setattr(LogBytes, "checksum_holds", count)
    damages = sum(bool(one.reason) for one in reading_of(tmp_path).scan.ranges())
    assert damages > RECORDS // 10
    assert looked < 4 * RECORDS
