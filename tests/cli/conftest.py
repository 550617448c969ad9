"""The command line run in this process, over logs of the fake system."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tallystick import cli
from tallystick.systems import known


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Answer]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``tallystick ARGUMENTS`` and give back what it printed."""

    def run_command(*arguments: str | Path) -> Answer:
        with pytest.raises(SystemExit) as exit_:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Answer(int(exit_.value.code or 0), printed.out, printed.err)

    return run_command


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the fake system is known."""
    monkeypatch.setattr(known, "PACKAGES", {"fake": "tests.pipeline.fake"})


@pytest.fixture
def logs(tmp_path: Path, fake: None) -> Path:  # noqa: ARG001 - for its effect
    """Two whole logs, one damaged one and a file that is no log."""
    for name, text in {
        "good/1.fake": "committed 1\nprepared 2 aa bb\n",
        "good/2.fake": "committed 3\nactive 4\n",
        "other/1.fake": "committed 1\n",
        "bad/1.fake": "committed 1\nbroken\ncommitted 2\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("FAKE\n" + text)
    (tmp_path / "notes.txt").write_text("hello")
    return tmp_path
