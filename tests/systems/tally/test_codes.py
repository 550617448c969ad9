"""The table of codes has a row for each code that is reported, and no other."""

from __future__ import annotations

import ast
from pathlib import Path

import tallystick.systems.tally
from tallystick.systems.findings import NO_CODES
from tallystick.systems.tally import SYSTEM

FOLDER = Path(tallystick.systems.tally.__file__).parent
REPORTING = {"report", "_report", "finding"}


def _reported(source: str) -> set[str]:
    """Return the codes in calls that report a finding."""
    codes: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in REPORTING:
                codes.add(str(node.args[0].value))
    return codes


def test_every_reported_code_has_a_row_and_every_row_is_reported() -> None:
    reported = set().union(*(_reported(path.read_text()) for path in FOLDER.rglob("*.py")))
    assert reported | set(NO_CODES) == set(SYSTEM.code_table)
