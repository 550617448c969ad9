"""docs/security.md: every line names a test that exists; what no other test holds is held here."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()
SOURCE = ROOT / "src"

ALLOWED = {
    ("pickle", "pipeline/tables/write_task.py"),  # Spark's task of the same program, not a log
    ("subprocess", "disposal/disposers.py"),  # the command of a configuration, never a shell
    ("xml", "systems/jboss/applications/broker_xml.py"),  # whether settings are whole; no handler
    ("xml", "systems/jboss/applications/imports.py"),  # quotes attributes that are written
    ("subprocess", "cli/build/bench.py"),  # this Python, with programs of the repository
}
TURN_INTO_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "xml", "yaml", "subprocess"}
CALLS = {"eval", "exec", "__import__", "os.system", "os.popen"}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[-1] != "test"]


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:50])
def test_every_line_names_a_test_that_exists(row: list[str]) -> None:
    assert len(row) == 3
    path, _, name = row[-1].strip("`").partition("::")
    assert name.startswith("test_")
    assert name in functions(path)


def test_every_part_of_the_page_has_lines() -> None:
    parts = [part for part in PAGE.split("\n## ")[1:] if not part.startswith("What is not")]
    assert len(parts) == 6
    assert all(part.count("\n| ") > 4 for part in parts)


@cache
def modules() -> list[tuple[str, ast.Module]]:
    found = sorted((SOURCE / "tallystick").rglob("*.py"))
    return [
        (str(path.relative_to(SOURCE / "tallystick")), ast.parse(path.read_text()))
        for path in found
    ]


def turned_into_code(tree: ast.Module) -> set[str]:
    """Return what a module uses that could run bytes as code."""
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {one.name.partition(".")[0] for one in node.names} & TURN_INTO_CODE
        elif isinstance(node, ast.ImportFrom):
            used |= {(node.module or "").partition(".")[0]} & TURN_INTO_CODE
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            used |= {called} & CALLS
            used |= {"shell" for one in node.keywords if one.arg == "shell"}
    return used


def test_no_module_turns_bytes_into_code() -> None:
    found = {(name, path) for path, tree in modules() for name in turned_into_code(tree)}
    assert found == ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from xml import sax",
        "eval('1')",
        "import os\nos.system('x')",
        "f(shell=1)",
    ],
)
def test_what_turns_bytes_into_code_is_noticed(text: str) -> None:
    assert turned_into_code(ast.parse(text))


def environment(tree: ast.Module) -> set[str]:
    """Return the names in capitals of a module that looks at ``os.environ``."""
    if not any(
        isinstance(node, ast.Attribute) and node.attr == "environ" for node in ast.walk(tree)
    ):
        return set()
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {text for text in texts if re.fullmatch(r"(?!O_)[A-Z]+(_+[A-Z]+)+|MASTER", text)}


def test_every_environment_variable_is_on_the_page() -> None:
    found = {name for _, tree in modules() for name in environment(tree)}
    assert {"TALLYSTICK_PURE", "TALLYSTICK_TRACEBACK", "TALLYSTICK_UNPACKED_MAX"} <= found
    assert sorted(name for name in found if f"`{name}`" not in PAGE) == []


# -- the audit of dependencies --------------------------------------------------------------------


@pytest.fixture(scope="module")
def audit() -> Any:
    place = ROOT / "scripts" / "audit.py"
    made = importlib.util.spec_from_file_location("audit", place)
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


WEAK = {
    "dependencies": [
        {"name": "good", "version": "1", "vulns": []},
        {"name": "bad", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]},
        {"name": "unknown", "skip_reason": "not found"},
    ]
}


def test_the_audit_fails_for_what_it_must(audit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found, missed = audit.weaknesses(WEAK)
    assert found == ["bad 2: CVE-1, mended in 3"]
    assert missed == ["unknown: not found"]
    assert audit.judged(found, [], required=False) == 1
    assert "CVE-1" in capsys.readouterr().err
    assert audit.judged([], [], required=True) == 0


def test_an_audit_that_could_not_ask_says_so_and_fails_where_it_is_required(
    audit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.weaknesses(None) == ([], ["everything"])
    assert audit.judged([], ["everything"], required=False) == 0
    assert "NOT AUDITED" in capsys.readouterr().err
    assert audit.judged([], ["everything"], required=True) == 1


def test_what_is_not_pinned_or_has_no_known_licence_is_told(audit: Any) -> None:
    lock = audit.pinned(
        "one==1.0\n    # via x\nTwo_b[extra]==2.0 ; python_version < '4'\n"
        "two-b==3.0 ; python_version >= '4'\n"
    )
    assert lock == {"one": "1.0", "two-b": "2.0"}
    assert audit.unpinned({"one": "1.0", "two-b": "2.1", "pip": "1"}, lock) == [
        "two-b 2.1 is installed, 2.0 is pinned"
    ]
    assert audit.unknown_licences({"a": "MIT", "b": "Apache-2.0", "c": ""}) == [
        "c: the licence '' is not known"
    ]


def test_every_package_of_the_lock_that_is_here_has_a_known_licence(audit: Any) -> None:
    lock = audit.pinned((ROOT / "requirements.lock").read_text())
    stated = {
        name: audit.licence_of(one)
        for one in audit.distributions()
        if (name := audit.normal(one.metadata["Name"])) in lock
    }
    assert len(stated) > 30
    assert audit.unknown_licences(stated) == []
