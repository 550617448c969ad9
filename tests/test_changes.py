"""scripts/changes.py: the fragments become the chapter of a version, and none is lost."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts/changes.py"))


def test_fragments_become_the_chapter_of_a_version(script: Any, tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## Unreleased\n\n## 0.1.0\n\n- first\n")
    (tmp_path / "changelog.d").mkdir()
    fragments = {
        "a": "- Derby: one\n  goes on.\n- **Fixed**: `triage` two.\n",
        "b": "- **Changed**: Derby three.\n- Four, of Derby.\n",
    }
    for name, text in fragments.items():
        (tmp_path / "changelog.d" / f"{name}.md").write_text(text)
    script["gather"](tmp_path, "0.2.0", "2026-01-31")
    assert list((tmp_path / "changelog.d").iterdir()) == []
    assert (tmp_path / "CHANGELOG.md").read_text() == (
        "# Changes\n\n## Unreleased\n\n## 0.2.0 (2026-01-31)\n\n"
        f"### {script['CHANGED']}\n\n- Derby three.\n\n"
        "### Command line and reports\n\n- `triage` two.\n\n"
        "### Derby\n\n- Derby: one\n  goes on.\n- Four, of Derby.\n\n## 0.1.0\n\n- first\n"
    )


def test_every_fragment_is_a_list(script: Any) -> None:
    for path in ROOT.glob("changelog.d/*.md"):
        assert all(one.startswith("- ") for one in script["entries"](path.read_text("utf-8"))), path
