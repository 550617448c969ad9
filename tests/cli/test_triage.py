"""``tallystick triage``: one screen, the gravest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.pipeline.fake import MARK


@pytest.fixture
def many(logs: Path) -> Path:
    for number in range(200):
        folder = logs / f"log {number:03}"
        folder.mkdir()
        (folder / "a.fake").write_bytes(MARK + (b"broken\n" if number % 20 == 7 else b""))
    return logs


def test_hundreds_of_logs_fit_on_one_screen(run: Run, many: Path) -> None:
    answer = run("triage", many)
    assert answer.code == 1
    lines = answer.out.splitlines()
    assert len(lines) < 25
    assert lines[0].startswith("LOSES  11 logs")
    assert lines[2] == f"    tallystick explain {many / 'bad'}"
    assert lines[4] == f"    tallystick explain '{many / 'log 007'}'"
    assert any(line.startswith("SAFE  ") for line in lines)


def test_its_json_has_every_log(run: Run, many: Path) -> None:
    logs = run("triage", "--json", many).json["logs"]
    answers = [log["answer"] for log in logs]
    assert len(logs) > 200
    assert answers == sorted(answers)  # loses, safe
    assert all(log["next"].startswith("tallystick ") for log in logs)


def test_exit_codes(run: Run, logs: Path) -> None:
    assert run("triage", logs / "good").code == 0
    assert run("triage", logs).code == 1
    empty = logs / "nothing"
    empty.mkdir()
    assert run("triage", empty).code == 2
