"""What the numbers of blocks and transactions prove."""

from __future__ import annotations

from pathlib import Path

from tallystick.records import Severity
from tallystick.systems.cloudtran.verdict.findings import numbers_text
from tests.systems.cloudtran.blocks import NAME, block, entry, reading


def test_missing_file_and_missing_blocks_are_reported(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(block(0, 1, entry(1)))
    later = tmp_path / NAME.replace("0001-", "0003-")
    later.write_bytes(block(0, 4, entry(9), serial=3))
    verdict = reading(tmp_path).verdict()
    report = verdict.engine["report_policy"]
    assert [one["code"] for one in report["warnings"]] == ["missing-file"]
    assert [(one["state"], one["blocks"]) for one in report["lost"]] == [("missing-blocks", 2)]
    assert {"transactions": [2, 8]} in verdict.strict["lost"]


def test_findings_asked_first_have_the_files_that_cannot_be_read(tmp_path: Path) -> None:
    for serial in (1, 2):
        path = tmp_path / NAME.replace("0001-", f"000{serial}-")
        path.write_bytes(block(0, serial, entry(serial), serial=serial))
    first, second = reading(tmp_path, disk_block_size="512"), reading(tmp_path)
    path.unlink()
    found = [(one.code, one.severity, one.file) for one in first.findings()]
    assert found == [("unreadable", Severity.LOSS, str(path))]
    assert second.verdict().strict["findings"] == {"unreadable": 1}


def test_ranges_of_lost_numbers_may_be_of_any_size() -> None:
    """A hostile number stands far from the others; a range of so many has no len()."""
    ranges = [range(3, 4), range(7, 10), range(11, (1 << 64) - 2)]
    assert numbers_text(ranges) == f"3, 7-9, 11-{(1 << 64) - 3}"
