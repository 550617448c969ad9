"""Count the lines of code below a folder: no comments, docstrings or blank lines.

``python scripts/code_lines.py [FOLDER] [--since COMMIT]``: lines per package, by default of
``src/tallystick/systems``; with ``--since`` also what each commit after that one has changed, and
the sum.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tokenize
from collections import Counter
from pathlib import PurePosixPath

FOLDER = "src/tallystick/systems"
DEPTH = 5
"""Parts of the path of a package that has a line of its own."""
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Return how many lines of a module bear code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        # A text that is a statement of its own: a docstring, or one below a constant.
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            lines.difference_update(range(value.lineno, (value.end_lineno or 0) + 1))
    return len(lines)


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def by_package(commit: str, folder: str) -> Counter[str]:
    """Return the lines of code of a commit, by package."""
    found: Counter[str] = Counter()
    for path in git("ls-tree", "-r", "--name-only", commit, folder).splitlines():
        if path.endswith(".py"):
            package = "/".join(PurePosixPath(path).parent.parts[:DEPTH])
            found[package] += code_lines(git("show", f"{commit}:{path}"))
    return found


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", default=FOLDER)
    parser.add_argument("--since", metavar="COMMIT")
    given = parser.parse_args()
    now = by_package("HEAD", given.folder)
    for package, lines in sorted(now.items()):
        print(f"{lines:7,}  {package}")
    print(f"{now.total():7,}  in all")
    if given.since:
        before = by_package(given.since, given.folder).total()
        print(f"since {given.since}: {now.total() - before:+,}")
        commits = git("log", "--reverse", "--format=%h %s", f"{given.since}..", "--", given.folder)
        for line in commits.splitlines():
            after = by_package(line.split()[0], given.folder).total()
            print(f"{after - before:+7,}  {line}")
            before = after


if __name__ == "__main__":
    main()
