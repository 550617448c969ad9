"""Print what to run after a change: the tests that mirror the changed files, and the contracts.

Usage: python scripts/quick.py [COMMIT]. Changed is what differs from the commit, by default from
the one at which this branch left main, and what is new. `src/tallystick/a/b.py` is mirrored by
`tests/a/test_b.py`; where there is no such file, and for a helper of tests, by the tests that stand
directly in its folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRACTS = [
    Path("tests", f"test_{name}.py") for name in ("architecture", "documents", "public_names")
]


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none where it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.splitlines()


def changed(*base: str) -> list[Path]:
    """Return the files that differ from a commit, and the new ones, relative to the project."""
    since = base or git("merge-base", "HEAD", "main") or ["HEAD"]
    names = git("diff", "--name-only", *since) + git("ls-files", "--others", "--exclude-standard")
    return [Path(name) for name in names]


def mirrors(path: Path, root: Path = ROOT) -> Iterator[Path]:
    """Yield the test files that mirror a file; all paths are relative to the project."""
    if path.suffix != ".py" or path.parts[0] not in {"src", "tests"}:
        return
    folder = Path("tests", *path.parts[2 if path.parts[0] == "src" else 1 : -1])
    exact = folder / (path.name if path.name.startswith("test_") else f"test_{path.name}")
    if (root / exact).is_file():
        yield exact
    elif not path.name.startswith("test_"):
        yield from (one.relative_to(root) for one in sorted((root / folder).glob("test_*.py")))


if __name__ == "__main__":
    tests = {test for path in changed(*sys.argv[1:2]) for test in mirrors(path)}
    print(*CONTRACTS, *sorted(tests - set(CONTRACTS)))
