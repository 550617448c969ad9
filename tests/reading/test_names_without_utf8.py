"""A folder named in Latin-1, as on old machines: its logs are read as any other."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import tallystick
from tallystick.reading.tables import TABLES
from tallystick.records import Finding
from tests.indoubt.estates import EXAMPLES

NAMED = os.fsdecode(b"caf\xe9")


@pytest.fixture
def estate(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "mid-phase-two", tmp_path / NAMED)
    return tmp_path


def rows(path: Path, table: str, problems: list[Finding]) -> int:
    return sum(batch.num_rows for batch in tallystick.read_arrow(path, table, problems=problems))


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_such_a_log_has_all_rows(table: str, estate: Path) -> None:
    (estate / "link").symlink_to(NAMED)
    problems: list[Finding] = []
    assert rows(estate / NAMED, table, problems) == rows(estate / "link", table, problems) > 0
    assert problems == []


def test_such_a_log_is_scanned_and_judged_as_any_other(estate: Path) -> None:
    (estate / "link").symlink_to(NAMED)
    counts = [sum(1 for _ in tallystick.scan(estate / name)) for name in (NAMED, "link")]
    assert counts[0] == counts[1] > 0
    answers = [
        [log.judgement.answer for log in tallystick.explain(estate / name).logs]
        for name in (NAMED, "link")
    ]
    assert answers[0] == answers[1]
