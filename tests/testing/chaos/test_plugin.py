"""The options of the command line choose the trials."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TEST = """
from pathlib import Path
from tallystick.testing.chaos import Scenario

pytest_plugins = ["tallystick.testing.chaos.plugin"]
"""
BODY = """
from tallystick.testing.chaos import Scenario

def test_it(chaos, tmp_path):
    def work(number, on_step):
        on_step("one")
        on_step("two")
        (tmp_path / str(number)).touch()

    look = lambda number: (tmp_path / str(number)).exists()
    report = chaos.run(Scenario(work, lambda: True, look))
    print("trials", report.trials)
"""


def test_a_fault_and_a_step_are_chosen_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(TEST)
    (tmp_path / "test_it.py").write_text(BODY)

    def trials(*options: str) -> str:
        answer = subprocess.run(
            [sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider", *options],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout.partition("trials ")[2].split()[0]

    assert trials() == "9"
    assert trials("--chaos-fault", "kill", "--chaos-fault", "stop", "--chaos-step", "1") == "3"
    assert trials("--chaos-sample", "4", "--chaos-seed", "9") == "5"
