"""What commands write is the owner's alone, whatever the umask allows, and follows no link."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.roles import DecisionOutcome
from tallystick.systems.registry import open_decision_log
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    made = open_decision_log(tmp_path / "log", "bitronix")
    made.decide(b"gtrid", ["a"]).wait()
    made.finish(b"gtrid", ["a"], DecisionOutcome.HEURISTIC)
    made.close()
    return tmp_path / "log"


COMMANDS = {
    **{
        form: ["export", "LOG", "--to", form, "-o", "OUT"] for form in ("jsonl", "parquet", "arrow")
    },
    "convert": ["convert", "LOG", "OUT", "--to", "tally"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_writes_is_the_owners_alone(
    command: str, run: Run, log: Path, tmp_path: Path
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    other.write_text("kept")
    Path(f"{out}.partial").symlink_to(other)
    if command == "convert":
        Path(f"{out}.partial").unlink()
    words = {"LOG": str(log), "OUT": str(out)}
    said = run(*(words.get(one, one) for one in COMMANDS[command]))
    assert said.code == 0, said.err
    made = [out, *out.rglob("*")]
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []
    assert other.read_text() == "kept"
