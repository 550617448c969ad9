"""Every example of the testing guide runs, in order, as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "testing.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.long
def test_the_guide_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = GUIDE.read_text("utf-8")
    namespace: dict[str, object] = {"__name__": "guide"}
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        source = "\n" * line + match.group(1)  # so that a traceback names the line in the guide
        exec(compile(source, str(GUIDE), "exec"), namespace)
    out = capsys.readouterr().out
    assert "(exhaustive)" in out
    assert "acknowledged but lost: ['one']" in out
    assert "survived 5 kills" in out
    assert "9 trials at" in out
