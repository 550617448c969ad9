"""Every Python example of the README and the guides runs as it stands, in an empty folder."""

from __future__ import annotations

import re
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
ELSEWHERE = {"docs/guide/pipeline.md", "docs/guide/testing.md", "docs/guide/cli.md"}


@pytest.mark.parametrize("name", [name for name in GUIDES if name not in ELSEWHERE])
def test_examples_run_as_they_stand(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text("utf-8")
    namespace: dict[str, object] = {"__name__": "example"}
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        source = "\n" * line + match.group(1)  # so that a traceback names the line in the guide
        exec(compile(source, name, "exec", dont_inherit=True), namespace)
