"""Every row of the table of codes is a finding that some module can make."""

from __future__ import annotations

import ast
from pathlib import Path

from tallystick.systems import derby
from tallystick.systems.derby.codes import CODES
from tallystick.systems.findings import NO_CODES


def test_every_code_of_the_table_is_used() -> None:
    modules = [path for path in Path(derby.__path__[0]).rglob("*.py") if path.name != "codes.py"]
    texts = {
        node.value
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(CODES) - set(NO_CODES) <= texts
    assert derby.SYSTEM.code_table is CODES
