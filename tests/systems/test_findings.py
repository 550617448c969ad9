"""Findings come from tables of codes, and the documentation from the same tables."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.records import Severity
from tallystick.systems.findings import Code, FindingBuilder, codes
from tallystick.systems.registry import systems

ROOT = Path(__file__).parents[2]
TORN = Code("torn-tail", Severity.WARNING, "The last record is torn.", "Nothing")


def test_a_finding_has_severity_and_advice_of_its_row() -> None:
    finding = FindingBuilder("example", "/log", codes(TORN), "/log/1")(
        "torn-tail", "torn", offset=7
    )
    assert (finding.severity, finding.advice, finding.file) == (
        TORN.severity,
        TORN.advice,
        "/log/1",
    )


def test_a_finding_may_state_its_own_severity_and_advice() -> None:
    build = FindingBuilder("example", "/log", codes(TORN))
    finding = build("torn-tail", "torn", severity=Severity.LOSS, advice="Copy the log")
    assert (finding.severity, finding.advice) == (Severity.LOSS, "Copy the log")


def test_a_code_without_a_row_cannot_be_built() -> None:
    with pytest.raises(KeyError):
        FindingBuilder("example", "/log", codes(TORN))("unknown-code", "text")


@pytest.mark.parametrize("severity", [Severity.DAMAGE, Severity.LOSS])
def test_damage_without_a_next_step_is_refused(severity: Severity) -> None:
    with pytest.raises(ValueError, match="next step"):
        codes(Code("hole", severity, "Bytes are missing."))


def test_two_rows_of_one_code_are_refused() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        codes(TORN, TORN)


def test_every_table_has_a_row_for_unreadable_files() -> None:
    error = LogUnreadableError("permission denied", file="/log/1")
    for system in systems():
        assert system.findings_of("/log").unreadable(error).severity is Severity.DAMAGE


def test_no_system_builds_a_finding_past_its_table() -> None:
    """Outside of the builder nobody calls `Finding` below systems/."""
    for path in (ROOT / "src/tallystick/systems").rglob("*.py"):
        if path.name == "findings.py" and path.parent.name == "systems":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "Finding", f"{path}:{node.lineno}"


def test_meanings_are_sentences_in_the_language_of_the_glossary() -> None:
    for system in systems():
        for row in system.code_table.values():
            assert row.meaning.endswith("."), f"{system.name} {row.code}"
            assert row.meaning[0].isupper() or "." in row.meaning.split()[0]  # a file name


def test_the_page_of_findings_is_what_the_tables_say() -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "findings_page.py"))["page"]()
    page = (ROOT / "docs" / "findings.md").read_text("utf-8")
    assert page == generated, "run: python scripts/findings_page.py"
