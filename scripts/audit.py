"""Audit what is installed: pinned, under a known licence, without a known weakness.

Usage: python scripts/audit.py. Exit code 1 if something must be done. Weaknesses are asked for with
pip-audit, in an environment of its own; where no advisory database answers, that is said loudly,
and it fails only where the environment variable TALLYSTICK_REQUIRE names ``advisories``: a machine
without a network must be able to check everything else.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
OURS = {"tallystick", "tallystick-fast"}
TOOLS = {"pip", "setuptools", "wheel", "uv"}
"""What an environment has by itself; it is not pinned, but audited."""
LICENCES = re.compile(
    r"MIT|BSD|APACHE|ISC|PSF|PYTHON|MPL|MOZILLA|ZPL|ZOPE|UNLICENSE|PUBLIC DOMAIN|LGPL|OPENLDAP|"
    r"OLDAP|UPL|UNIVERSAL PERMISSIVE|CNRI|ZLIB|BOOST|HPND",
    re.IGNORECASE,
)
KNOWN = {"atheris": "Apache-2.0"}
"""Licences of packages whose metadata state none."""


def normal(name: str) -> str:
    """Return the name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lock: str) -> dict[str, str]:
    """Return the versions that a lock file pins for this interpreter, by name."""
    found = {}
    for line in re.findall(r"^[A-Za-z0-9][^#\n]*", lock, re.MULTILINE):
        one = Requirement(line.strip())
        if one.marker is None or one.marker.evaluate():
            found[normal(one.name)] = str(one.specifier).removeprefix("==")
    return found


def unpinned(installed: Mapping[str, str], lock: Mapping[str, str]) -> list[str]:
    """Return what is installed and not pinned, or in another version."""
    return [
        f"{name} {version} is installed, {lock.get(name, 'nothing')} is pinned"
        for name, version in sorted(installed.items())
        if name not in OURS | TOOLS and lock.get(name) != version
    ]


def licence_of(one: Distribution) -> str:
    """Return what a distribution states about its licence."""
    stated = one.metadata
    texts = [stated.get("License-Expression"), *(stated.get_all("Classifier") or ())]
    named = [text for text in texts if text and ("License ::" in text or "::" not in text)]
    return "; ".join([*named, (stated.get("License") or "")[:60]]).strip("; ")


def unknown_licences(stated: Mapping[str, str]) -> list[str]:
    """Return the packages whose licence is none of those that may be used."""
    return [
        f"{name}: the licence {text!r} is not known"
        for name, text in sorted(stated.items())
        if not LICENCES.search(KNOWN.get(name, text))
    ]


def weaknesses(report: Any) -> tuple[list[str], list[str]]:
    """Return the weaknesses that pip-audit reports, and what it could not look up.

    ``report`` is its JSON; None where it gave none.
    """
    packages: Iterable[Any] = report["dependencies"] if report else ()
    found, missed = [], [] if report else ["everything"]
    for one in packages:
        if "skip_reason" in one:
            missed.append(f"{one['name']}: {one['skip_reason']}")
        for known in one.get("vulns", ()):
            mended = ", ".join(known["fix_versions"]) or "no version yet"
            found.append(f"{one['name']} {one['version']}: {known['id']}, mended in {mended}")
    return found, missed


def asked(home: Path) -> Any:
    """Return the report of pip-audit about the lock file; None if no database answered."""
    python = home / "bin" / "python"
    commands = [
        [sys.executable, "-m", "venv", str(home)],
        [str(python), "-m", "pip", "install", "--quiet", "pip-audit>=2.9"],
    ]
    if not python.exists():
        for command in commands:
            if subprocess.run(command, check=False).returncode:
                return None
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", "20"]
    lock = ["--requirement", str(ROOT / "requirements.lock")]
    answer = subprocess.run(
        [str(python), "-m", "pip_audit", *options, *lock, "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return json.loads(answer.stdout)
    except json.JSONDecodeError:
        return None


def judged(problems: list[str], missed: list[str], *, required: bool) -> int:
    """Print the result; return the exit code."""
    for line in problems:
        print(f"audit: {line}", file=sys.stderr)
    if missed:
        print(
            f"audit: NOT AUDITED FOR WEAKNESSES: no advisory database knows of {len(missed)} "
            f"packages: {missed[0]}. Run it where one can be reached",
            file=sys.stderr,
        )
    return 1 if problems or (missed and required) else 0


def main() -> int:
    """Audit this environment."""
    found = {normal(one.metadata["Name"]): one for one in distributions()}
    lock = pinned((ROOT / "requirements.lock").read_text())
    problems = unpinned({name: one.version for name, one in found.items()}, lock)
    problems += unknown_licences({name: licence_of(one) for name, one in found.items()})
    weak, missed = weaknesses(asked(ROOT / ".venv-audit"))
    required = "advisories" in os.environ.get("TALLYSTICK_REQUIRE", "").split(",")
    print(f"audit: {len(found)} packages, {len(problems) + len(weak)} problems", file=sys.stderr)
    return judged(problems + weak, missed, required=required)


if __name__ == "__main__":
    sys.exit(main())
