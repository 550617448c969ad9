"""Every Python example of the README and the guides runs as it stands, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
GUIDES = [
    "README.md",
    "docs/extending.md",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/guide/*.md"))),
]
# These need a service or files of their own, and are run by tests beside what they are about.
ELSEWHERE = {
    f"docs/guide/{one}.md"
    for one in ("pipeline", "testing", "simulate", "cli", "lakehouse", "typed-tables")
}


@pytest.mark.parametrize("name", [name for name in GUIDES if name not in ELSEWHERE])
def test_examples_run_as_they_stand_in_a_process_of_their_own(name: str, tmp_path: Path) -> None:
    text = (ROOT / name).read_text("utf-8")
    program = [""] * text.count("\n")  # so that a traceback names the line in the guide
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        block = match.group(1).splitlines()
        program[line : line + len(block)] = block
    file = tmp_path / "example.py"
    file.write_text("\n".join(program))
    (tmp_path / "folder").mkdir()
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        cwd=tmp_path / "folder", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
