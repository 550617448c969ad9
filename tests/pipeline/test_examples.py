"""The examples run, and say what they promise."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tallystick.cli.output import Printer
from tests.fixtures import fixture_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
GUIDE = Path(__file__).parents[2] / "docs/guide/typed-tables.md"


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


def guide_examples() -> list[str]:
    """Return the examples in Python of the guide of typed tables."""
    text = GUIDE.read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_example_of_typed_tables_gives_the_rows_of_the_table(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    example, _ = guide_examples()
    logs = str(fixture_dir("derby") / "rollbacks")
    names: dict[str, Any] = {"spark": spark}
    exec(example.replace("logs/", logs), names)
    assert [tuple(row) for row in names["rows"].collect()] == [
        (1, "UNO"),
        (2, "two"),
        (3, "three"),
        (7, "seven"),
    ]
    assert "VARCHAR" in capsys.readouterr().out


def test_a_run_judges_a_database_and_a_broker_whole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    run = runpy.run_path(str(EXAMPLES / "run.py"))
    run["unpack"](EXAMPLES / "surroundings", tmp_path)
    run["show_whole"](Printer(), tmp_path)
    said = capsys.readouterr().out
    assert "LOSES  broker orders: 221.msg is missing; 223.msg is empty" in said
    assert "REFUSES  database bank: Page(1,Container(0, 1168)) is at version 127" in said
    assert said.count("The log alone: SAFE AFTER A CRASH.") == 2
