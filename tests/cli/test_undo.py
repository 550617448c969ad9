"""``tallystick undo`` and ``redo``: what is printed, written and refused; exit codes."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import click
import pytest

from tallystick.cli.output import print_script
from tallystick.systems.h2.reader import H2Reading
from tests.cli.conftest import Run
from tests.cli.test_triage import at_terminal
from tests.indoubt.estates import EXAMPLES

H2 = EXAMPLES / "orphan/h2"


def test_statements_are_printed_or_written_and_nothing_else(run: Run, tmp_path: Path) -> None:
    printed = run("undo", H2, "--transaction", "5@1")
    assert printed.code == 0
    assert printed.err == ""
    target = tmp_path / "undo.sql"
    written = run("undo", H2, "--transaction", "5@1", "-o", target)
    assert (written.code, written.out) == (0, "")
    assert written.err == f"2 changes in {target}; nothing was run\n"
    assert target.read_text() == printed.out
    (told,) = run("undo", H2, "--transaction", "5@1", "--json").lines
    assert [act["text"] for act in told["acts"]] == [
        line.removesuffix(";") for line in printed.out.splitlines() if not line.startswith("--")
    ]


def test_a_log_is_no_output(run: Run, tmp_path: Path) -> None:
    log = Path(shutil.copytree(H2, tmp_path / "h2")) / next(H2.iterdir()).name
    before = log.read_bytes()
    assert run("undo", log.parent, "--transaction", "5@1", "-o", log).code == 2
    assert log.read_bytes() == before


def test_a_row_that_cannot_be_told_is_exit_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(H2Reading, "rows_before", lambda *_: iter(()))
    told = run("undo", H2, "--transaction", "5@1")
    assert told.code == 1
    assert "-- CANNOT TELL: " in told.out


@pytest.mark.parametrize("called", ["nothing", "5", "5@99", "", "@", "\x1b[31m"])
def test_an_id_that_is_no_one_transaction_is_wrong_usage(run: Run, called: str) -> None:
    answer = run("redo", H2, "--transaction", called)
    assert answer.code == 2
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1
    assert "\x1b" not in answer.err


def test_a_text_of_several_lines_is_broken_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is copied from the terminal into a database."""
    remark, text = f"-- {'of one ' * 20}row", f"it''s;\n-- {'of it ' * 20}"
    script = f'{remark}\nDELETE FROM "T\n" WHERE "C" = \'{text}\' LIMIT 1;\n{remark}\n'
    printed = io.StringIO()
    monkeypatch.setattr(printed, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", printed)
    monkeypatch.setattr(click, "echo", lambda lines, **_: printed.write(lines.decode()))
    print_script(script)
    shown = printed.getvalue()
    assert text in shown
    assert shown.startswith("-- of one")
    assert shown.count(remark) == 0


def test_comments_fit_a_terminal() -> None:
    shown = at_terminal(24, 80, "", "undo", str(H2), "--transaction", "5@1")
    assert not [
        line for line in shown if line.startswith("--") and len(line) > 80 and "h2" not in line
    ]
