"""The examples run, and say what they promise."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_walkthrough_finds_what_is_due(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    found = runpy.run_path(str(EXAMPLES / "walkthrough.py"))
    assert found["spark"] is spark
    resolutions = {row.resolution for row in found["due"].collect()}
    assert resolutions == {"commit", "rollback", "foreign", "heuristic_mismatch"}
    reported = capsys.readouterr().out
    assert "jdbc/branch-b rolled back against the decision to commit" in reported
    assert "lost-commit" in reported
