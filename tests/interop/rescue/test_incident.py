"""The walk of the incident ends with the real systems started on the copy, and all money there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.java import classpath

pytestmark = pytest.mark.interop
WALK = Path(__file__).parents[3] / "examples/incident/walk.py"


def test_all_four_systems_have_all_the_money_on_the_mended_copy(tmp_path: Path) -> None:
    classpath(["org.codehaus.btm:btm:2.1.4"])  # skips where nothing can be had
    ran = subprocess.run(
        [sys.executable, str(WALK), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-2:] == ["moved 78 of 78", "total 2000 of 2000"]
    assert "ledger 78 of 78" in ran.stdout.splitlines()
    assert "in doubt on: jms/ledger, " in ran.stdout
    assert "1 LOSES, 1 REFUSES, 1 CANNOT TELL" in ran.stdout
    assert "COMMIT" in (tmp_path / "runbook.md").read_text("utf-8")
