"""Every command at a terminal of 80 columns and 24 lines.

No line is longer, but one that is typed or copied whole; what is gravest is on the last screen; a
command ends with the exit code that the guide documents.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import struct
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick import Journal, cli
from tallystick.cli import COMMANDS
from tallystick.cli.output import Printer, Unbroken, say_finding
from tallystick.records import Finding, Severity
from tallystick.services.page_store import PageStore
from tests.indoubt.estates import EXAMPLES

COLUMNS, LINES = 80, 24
ESTATE = "examples/estate"
LOST, ORPHAN = f"{ESTATE}/h2-commit-not-flushed", f"{ESTATE}/orphan"
LOST_ID = "62616e6b2d3100000000004f0c2400000055"
DERBY = f"{ORPHAN}/derby"


@dataclass(frozen=True)
class Case:
    """A command, its exit code, and what stands on its last screen.

    Attributes:
        words: what is typed; ``{tmp}`` is a folder with a journal, a page store and room.
    """

    words: str
    code: int = 0
    last: str = ""


CASES = [
    Case(f"triage {ESTATE}", 1, "LOSES  1 global transaction: closed by bitronix"),
    Case(f"explain {LOST}", 1, "LOSES  1 global transaction: closed by bitronix"),
    Case(f"explain {LOST}/h2", 1, "SAFE AFTER A CRASH  h2"),
    Case(f"inspect {LOST}", 1, "LOSES  1 global transaction: closed by bitronix"),
    Case(f"verify {LOST}", 1, "loss lost-commit"),
    Case(f"rows --in-doubt {DERBY}", 0, "2 rows: 2 in doubt"),
    Case(f"history {DERBY} ID=40006", 0, "IN DOUBT  transaction 351"),
    Case(f"asof {DERBY} --before 269 --table APP.TRANSFERS", 0, "whole"),
    Case(f"diff {DERBY} {LOST}/derby", 1, "B alone"),
    Case(f"sql {DERBY} 'SELECT * FROM records'", 0, "columns"),
    Case(f"dump {DERBY} --kind prepare"),
    Case(f"dump {DERBY} --stats", 0, "1 prepared"),
    Case(f"export {DERBY} --to csv --table transactions -o {{tmp}}/out.csv"),
    Case(f"indoubt list {ESTATE}", 1, "due: commit (lost-commit)"),
    Case(f"indoubt explain {LOST_ID} {LOST}", 1, "due: commit (lost-commit)"),
    Case("indoubt settle {tmp}/journal 62616e6b --commit", 2, "tallystick: "),
    Case(f"runbook {ORPHAN}", 1, "Released by"),
    Case("repair examples/incident/logs/bitronix --to {tmp}/mended", 0, "Mended in 1 place"),
    Case(f"salvage {ORPHAN}/artemis --as journal --to {{tmp}}/saved", 0, "Written: "),
    Case(f"bundle {ORPHAN}/derby -o {{tmp}}/ticket.zip", 0, "ticket.zip"),
    Case(f"undo {DERBY} --transaction 218", 0, "-- WARNING: APP.ACCOUNTS 1:19 was changed later"),
    Case(f"redo {DERBY} --transaction 218", 0, "INSERT INTO"),
    Case("replay {tmp}/journal --target a=sqlite:///{tmp}/a.db", 2, "is no write-behind service"),
    Case(f"convert {ORPHAN}/bitronix {{tmp}}/converted --to tally", 0, "converted"),
    Case("doctor {tmp}/journal", 1, "problem"),
    Case(f"scrub {DERBY} --rate 0", 0, "1 log, 0 damaged"),
    Case(f"backlog {ORPHAN}", 2, "no write-behind log is here"),
    Case("store check {tmp}/store", 0, "0 tables, 0 defects"),
    Case("pipeline run {tmp}/nothing", 2, "--out"),
    Case("report {tmp}/nothing", 2, "nothing"),
    Case("demo {tmp}/demo", 0, "inspect --json"),
    Case("bench list"),
    Case("explain --error XSDB4"),
    Case(f"dump {ORPHAN} --since 2020 --resource pg --kind commit --outcome none", 2, "is no time"),
    Case(f"indoubt explain 6272616e {ORPHAN}", 2, "Give more of it"),
    Case(f"rows {DERBY} --table APP.TRANSFER", 2, "Did you mean APP.TRANSFERS"),
]  # fmt: skip


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("terminal")
    with Journal(path / "journal") as journal:
        journal.add(1, b"one")
    PageStore(path / "store").close()
    return path


@contextlib.contextmanager
def terminal(written: list[str]) -> Iterator[None]:
    """Make standard output and standard error a terminal; gather the lines of its text."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    pieces: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # its end
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with (
            os.fdopen(theirs, "w", encoding="utf-8") as stream,
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(stream),
        ):
            yield
    finally:
        reader.join()
        os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(pieces).decode())
    written += [line.split("\r")[-1] for line in text.replace("\r\n", "\n").split("\n")]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parents[1])
    for name, value in {"TERM": "xterm", "COLUMNS": COLUMNS, "LINES": LINES}.items():
        monkeypatch.setenv(name, str(value))


def test_every_command_has_a_case() -> None:
    assert {case.words.split()[0] for case in CASES} == set(COMMANDS)


@pytest.mark.sampled(8)
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_a_command_fits_a_terminal(case: Case, tmp: Path) -> None:
    lines = list[str]()
    words = [word.replace("{tmp}", str(tmp)) for word in shlex.split(case.words)]
    with terminal(lines), pytest.raises(SystemExit) as ended:
        cli.main(words)
    shown = "\n".join(lines)
    assert ended.value.code == case.code, shown
    assert [line for line in lines if len(line) > COLUMNS and not is_whole(line)] == []
    assert case.last in " ".join(line.strip() for line in lines[-LINES:]), shown


_WHOLE = re.compile(
    r"\s*((\$ )?tallystick .*|(at |evidence: |\w+: |\w+  )?\S*/\S+( offset \d+)?|[(']?\S+[,.)']*"
    r"|[A-Z]+ .*;|Open it with: .*)"
)


def is_whole(line: str) -> bool:
    """Return whether a line is a command, a statement, an id or a path, and so is not broken."""
    return _WHOLE.fullmatch(line) is not None


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("colour", ["xterm", "dumb"])
def test_a_line_goes_on_below_its_beginning_and_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    monkeypatch.setenv("TERM", colour)
    path = "/data/my logs/" + "x" * 70
    lines = list[str]()
    with terminal(lines):
        out = Printer()
        out.line("  Why: ", ("words " * 20, "bold"), Unbroken(path), " and more of them")
        rows = out.rows_of([(("  Why: ", "words " * 20, Unbroken(path), " and more of them"), "")])
    assert lines == [
        "  Why: words words words words words words words words words words words words",
        "    words words words words words words words words",
        f"    {path}",
        "    and more of them",
        "",
    ]
    assert rows == 5  # the path goes on in the next line of the terminal


@pytest.mark.usefixtures("environment")
def test_a_command_in_a_sentence_is_not_broken() -> None:
    lines = list[str]()
    with terminal(lines):
        Printer().line("It is " + "very " * 12 + "bad. Type: tallystick explain --log-only logs")
    assert lines[1] == "  tallystick explain --log-only logs"


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("command", ["rows", "export", "sql"])
def test_csv_at_a_terminal_is_shown_and_not_obeyed(command: str, tmp_path: Path) -> None:
    with Journal(tmp_path / "be\x07ll\u202e\xe9") as journal:
        journal.add(1, b"one")
    lines, query = list[str](), ["SELECT log FROM logs"] if command == "sql" else []
    with terminal(lines), pytest.raises(SystemExit):
        cli.main([command, str(tmp_path), *query, "--to", "csv"])
    assert "be\\x07ll\\u202e\xe9" in lines[1]


@pytest.mark.usefixtures("environment")
def test_a_path_that_has_blanks_is_not_broken(tmp_path: Path) -> None:
    path = str(tmp_path / ("my logs of " * 9 + "today"))
    finding = Finding(
        "odd", Severity.DAMAGE, "h2", path, f"the file {path} ends early", file=path,
        expected="more", found="less", advice=f"Look into {path} and copy it",
    )  # fmt: skip
    for with_styles in (True, False):
        lines = list[str]()
        with terminal(lines):
            if with_styles:
                Printer().finding(finding)
            else:
                say_finding(finding)
        assert [line.strip() for line in lines].count(path) == 2, lines
    lines = list[str]()
    with terminal(lines), pytest.raises(SystemExit):
        cli.main(["dump", path])
    assert any(path in line for line in lines), lines


def test_wide_letters_count_as_the_terminal_shows_them(environment: None) -> None:  # noqa: ARG001
    lines = list[str]()
    with terminal(lines):
        Printer().line("帳簿 " * 20)
    assert [line.count("帳簿") for line in lines] == [16, 4, 0]


def test_in_a_pipe_a_line_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    Printer().line("word " * 40)
    assert capsys.readouterr().out == "word " * 40 + "\n"
