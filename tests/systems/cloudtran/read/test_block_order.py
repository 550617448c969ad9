"""Repeated and left-over blocks over several files."""

from __future__ import annotations

from pathlib import Path

from tallystick.records import Outcome
from tests.systems.cloudtran.blocks import NAME, block, entry, reading


def test_repeated_blocks_at_the_head_of_a_file_are_not_left_overs(tmp_path: Path) -> None:
    """What a writer does after a failed sync: the unacknowledged blocks again, same numbers."""
    (tmp_path / NAME).write_bytes(block(0, 1, entry(1)) + block(512, 2, entry(2)))
    second = block(0, 2, entry(2), serial=2) + block(512, 3, entry(3), serial=2)
    (tmp_path / NAME.replace("0001-", "0002-")).write_bytes(second)
    report = reading(tmp_path).verdict().engine["report_policy"]
    assert [one["txid"] for one in report["pending"]] == [1, 2, 3]
    assert (report["lost"], report["warnings"]) == ([], [])


def test_file_of_another_serial_is_stale(tmp_path: Path) -> None:
    (tmp_path / NAME.replace("0001-", "0007-")).write_bytes(block(0, 1, entry(1)))
    one = reading(tmp_path)
    assert list(one.records()) == []
    (record,) = one.records(salvage=True)
    assert (record.outcome, record.attributes["salvaged"]) == (Outcome.STALE, True)
    assert one.verdict().engine["report_policy"]["warnings"][0]["code"] == "stale-tail"
