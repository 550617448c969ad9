"""The guide of the simulator runs as it stands: it finds the bug in its example, and no other."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guide" / "simulate.md"
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_guide_finds_its_planted_bug_and_not_its_cure(tmp_path: Path) -> None:
    found = dict(enumerate(_BLOCK.findall(GUIDE.read_text("utf-8"))))
    (_, lines), (_, scenario), (_, command), (_, in_a_test) = (found[one] for one in range(4))
    (tmp_path / "lines.py").write_text(lines)
    (tmp_path / "scenarios.py").write_text(scenario)
    (tmp_path / "in_a_test.py").write_text(f"import lines\n{in_a_test}")

    first = _run(tmp_path, *shlex.split(command)[1:])
    assert first.returncode == 1, first.stderr
    assert "acknowledged but lost" in first.stdout
    replay = shlex.split(first.stdout.strip().splitlines()[-1])
    again = _run(tmp_path, *replay[1:])
    assert again.returncode == 1
    assert "acknowledged but lost" in again.stdout
    assert "SimulationError" in _run(tmp_path, "in_a_test.py").stderr

    cured = lines.replace(
        "self.file.datasync()\n                self.synced = self.end",
        "end = self.end\n                self.file.datasync()\n                self.synced = end",
    )
    assert cured != lines
    (tmp_path / "lines.py").write_text(cured)
    assert _run(tmp_path, *shlex.split(command)[1:]).returncode == 0
    assert _run(tmp_path, *replay[1:]).returncode == 0
