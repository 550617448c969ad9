"""Hold the table "What runs where" of docs/versions.md against the versions that are here.

Usage: python scripts/versions.py [--write]. In: this machine, on which all tests of a landing run.
Out: nothing, or with ``--write`` the table's first column anew; exit code 1 where
the table says something else. What is not on this machine keeps its cell.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/versions.md"


def package(name: str) -> str | None:
    """Return the first two numbers of an installed package's version."""
    try:
        return ".".join(version(name).split(".")[:2])
    except PackageNotFoundError:
        return None


def server(pattern: str, *programs: str | Path) -> str | None:
    """Return what the pattern finds in the version that the first of these programs tells."""
    for program in filter(None, map(shutil.which, map(str, programs))):
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        if found := re.search(pattern, told.stdout):
            return found[1]
    return None


def here() -> dict[str, str | None]:
    """Return what a landing on this machine runs on, by the row of the table."""
    newest_first = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    mariadb = server(r"(\d+\.\d+)\.\d+-MariaDB", "mariadbd", "/usr/sbin/mariadbd")
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "PySpark": package("pyspark"),
        "PostgreSQL": server(r"(\d+)\.", *newest_first, "postgres"),
        "MariaDB, MySQL": mariadb and f"MariaDB {mariadb}",
        "processor": platform.machine().replace("_", "-"),
    }


def filled(page: str, found: Mapping[str, str | None]) -> str:
    """Return the page with the first column of its table filled.

    Raises:
        KeyError: The table has no row of that name.
    """
    for name, value in found.items():
        page, count = re.subn(
            rf"^(\| {re.escape(name)} \|)[^|]*\|",
            lambda row, value=value: f"{row[1]} {value} |" if value else row[0],
            page,
            flags=re.MULTILINE,
        )
        if count != 1:
            raise KeyError(name)
    return page


def main(arguments: list[str]) -> int:
    """Compare, or write; returns the exit code."""
    before = PAGE.read_text("utf-8")
    after = filled(before, here())
    if "--write" in arguments:
        PAGE.write_text(after, "utf-8")
    elif after != before:
        print(f"versions: {PAGE} tells of others than run here: {here()}", file=sys.stderr)
        print("versions: type: python scripts/versions.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
