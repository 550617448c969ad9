"""What the numbers of blocks and transactions prove."""

from __future__ import annotations

from pathlib import Path

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
