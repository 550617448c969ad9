"""Check that every test is in exactly one of make test, interop, nightly (what is long) and soak.

Usage: python scripts/test_ids.py [BEFORE]. BEFORE is what `pytest --collect-only -q` printed once:
then it also prints which of those tests are gone, by another name or none. Exit code 1 if a test is
in no part or in several.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = {
    "make test": ("not soak and not interop and not long",),
    "make nightly": ("long and not soak",),
    "make interop": ("interop and not soak and not long", "tests/interop", "tests/pipeline"),
    "make soak": ("soak",),
}
"""The marks of each part, and the folders that it collects."""


def ids(lines: list[str]) -> set[str]:
    """Return the names of tests among the lines that a collection prints."""
    return {line for line in lines if line.startswith("tests/") and "::" in line}


def collected(*options: str) -> set[str]:
    """Return the tests that pytest collects with these options."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ids(answer.stdout.splitlines())


def main(before: str | None = None) -> int:
    """Print what is wrong; return the exit code."""
    parts = {name: collected("-m", *what) for name, what in PARTS.items()}
    everything = collected()
    for name, part in parts.items():
        print(f"{len(part):6d} {name}")
    print(f"{len(everything):6d} in all")
    times = Counter(test for part in parts.values() for test in part)
    wrong = [test for test in sorted(everything | set(times)) if times[test] != 1]
    for test in wrong:
        print(f"in {times[test]} parts: {test}")
    for test in sorted(ids(Path(before).read_text().splitlines()) - everything) if before else []:
        print(f"gone: {test}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
