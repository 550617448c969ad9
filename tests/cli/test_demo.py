"""``tallystick demo``: what a newcomer sees first."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.indoubt.estates import EXAMPLES


def test_the_demo_writes_the_estate_and_walks_through_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run("demo", "here")
    assert answer.code == 0
    assert filecmp.dircmp(EXAMPLES, "here").left_list == filecmp.dircmp(EXAMPLES, "here").right_list
    for words in ("$ tallystick triage here", "$ tallystick indoubt list here", "lost"):
        assert words in answer.out
    assert "  tallystick runbook here" in answer.out.splitlines()


def test_the_demo_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for taken in (tmp_path, tmp_path / "mine"):
        answer = run("demo", str(taken))
        assert (answer.code, answer.out) == (2, "")
        assert "exists; name a folder that does not" in answer.err
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]
