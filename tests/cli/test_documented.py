"""Every command and every option of reading stands in the guide."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tallystick.cli import COMMANDS, tallystick

GUIDE = (Path(__file__).parents[2] / "docs/guide/cli.md").read_text("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_has_help(name: str) -> None:
    assert f"`tallystick {name}" in GUIDE
    answer = CliRunner().invoke(tallystick, [name, "--help"])
    assert answer.exit_code == 0
    assert len(answer.output.splitlines()) > 3


@pytest.mark.parametrize("option", ["--timezone", "--boot-password", "--encryption-key", "--set"])
def test_every_reading_option_is_documented(option: str) -> None:
    assert option in GUIDE
