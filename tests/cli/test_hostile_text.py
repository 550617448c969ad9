"""What logs, folders, arguments and errors hold is shown on a terminal, never obeyed by it."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import errors
from tallystick.cli import COMMANDS
from tallystick.cli.act import indoubt
from tallystick.cli.output import Printer
from tallystick.cli.summary import show_summary
from tallystick.indoubt.listing import InDoubt, InDoubtReport
from tallystick.pipeline.summary import RunSummary
from tallystick.printable import logger, printable
from tallystick.records import Finding, Severity
from tallystick.roles import DecisionOutcome, Operation, OperationCode
from tallystick.services.page_store import PageStore
from tallystick.services.write_behind import TargetDownError, WriteBehind, WriteBehindSettings
from tallystick.systems import known
from tallystick.systems.registry import open_decision_log, open_persist_log
from tests.cli.conftest import Answer, Run
from tests.cli.hostile import NAME, SHOWN

UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

FOLDER = NAME.replace("/", "|")
"""As a name in a file system: without a slash."""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One log of the hostile system in a folder with a hostile name, and a file that is no log."""
    monkeypatch.setattr(known, "PACKAGES", {"fake": "tests.cli.hostile"})
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / f"1{FOLDER}").write_text("FAKE\ncommitted 1\nbroken\nprepared 2 aa bb\n")
    (folder / f"2{FOLDER}").write_text("no log")
    return tmp_path


def assert_safe(text: str) -> None:
    """Nothing in the text is obeyed by a terminal, and no name has begun a line."""
    assert not UNSAFE.search(text), UNSAFE.search(text)
    assert not re.search(r"^\[bold", text, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["explain"],
        ["triage"],
        ["scrub"],
        ["verify"],
        ["dump"],
        ["dump", "--salvage"],
        ["backlog", "--numbers"],
        ["indoubt", "list"],
        ["indoubt", "explain", "aa"],
    ],
    ids=" ".join,
)
def test_a_hostile_log_is_shown_and_not_obeyed(
    run: Run, hostile: Path, arguments: list[str]
) -> None:
    said = run(*arguments, hostile)
    assert_safe(said.out + said.err)
    if arguments[0] not in ("backlog", "indoubt"):  # these show logs of services alone
        assert SHOWN.replace("/", "|") in said.out or SHOWN in said.out
        # JSON is ASCII, and gives back what the log holds.
        told = run(*arguments, "--json", hostile)
        assert_safe(told.out + told.err)
        assert told.out.isascii()
        values = (
            [json.loads(line) for line in told.out.splitlines()]
            if arguments[0]
            in (
                "verify",
                "dump",
            )
            else [json.loads(told.out)]
        )
        held = _texts(values)  # a screen of triage names folders only
        assert NAME in held or (arguments[0] == "triage" and any(FOLDER in one for one in held))


def _texts(value: object) -> set[str]:
    if isinstance(value, dict):
        return set().union(*map(_texts, [*value.keys(), *value.values()]))
    if isinstance(value, list):
        return set().union(*map(_texts, value))
    return {value} if isinstance(value, str) else set()


def test_what_is_exported_is_named_safely(run: Run, hostile: Path) -> None:
    said = run("export", hostile, "--to", "jsonl", "-o", hostile / FOLDER / "out.jsonl")
    assert_safe(said.err)
    assert SHOWN.replace("/", "|") in said.err


def test_rows_are_shown_safely(run: Run, tmp_path: Path) -> None:
    name = NAME.encode("utf-8", "replace").decode()
    log = open_persist_log(tmp_path / "log", "cloudtran")
    log.persisting([name], [Operation(OperationCode.INSERT, name, name.encode(), b"v")])[1].wait()
    log.close()
    said = run("rows", tmp_path / "log")
    assert_safe(said.out + said.err)
    assert "[bold]b[/bold]" in said.out
    assert name in _texts(run("rows", "--json", tmp_path / "log").lines)
    assert_safe(run("rows", "--table", "\x1b[1m", tmp_path / "log").err)


def test_branches_in_doubt_are_named_safely(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = {"resource": NAME, "log": NAME, "state": "prepared", "due": NAME, "bqual": None}
    one = InDoubt(1, b"\xaa", NAME, NAME, NAME, NAME, None, (branch,), NAME, 1.0)
    problem = Finding("not-read", Severity.DAMAGE, NAME, NAME, NAME)
    report = InDoubtReport([one], {NAME: NAME}, [problem])
    monkeypatch.setattr(indoubt, "gather", lambda *_: report)
    for arguments in (["list", "x"], ["explain", "aa", "x"]):
        said = run("indoubt", *arguments)
        assert "[bold]b[/bold]" in said.out.replace("\n", "").replace(" ", "")
        assert_safe(said.out)
        assert NAME in _texts(run("indoubt", *arguments, "--json").json)


def test_a_page_store_names_its_prepared_safely(run: Run, tmp_path: Path) -> None:
    name = NAME[:-1]  # this one is stored as UTF-8
    with PageStore(tmp_path / "store") as store:
        store.create_table("t")
        session = store.begin()
        session.table("t")[1] = b"x"
        session.prepare(name)
    said = run("store", "check", tmp_path / "store")
    assert_safe(said.out)
    assert printable(name) in said.out


def test_conversion_names_its_target_safely(run: Run, tmp_path: Path) -> None:
    log = open_decision_log(tmp_path / "log", "bitronix")
    log.decide(b"gtrid", ["a"]).wait()
    log.finish(b"gtrid", ["a"], DecisionOutcome.HEURISTIC)
    log.close()
    said = run("convert", tmp_path / "log", tmp_path / FOLDER, "--to", "tally")
    assert said.code == 0, said.err
    assert_safe(said.out)
    assert SHOWN.replace("/", "|") in said.out


def test_replay_names_what_is_pending_safely(run: Run, tmp_path: Path) -> None:
    def down(_: object) -> None:
        raise TargetDownError("away")

    name, settings = NAME[:-1], WriteBehindSettings(close_timeout=0.0)
    with (
        WriteBehind(tmp_path / "spool", {"orders": down}, settings=settings) as behind,
        behind.begin(reference=name) as tx,
    ):
        tx.insert("orders", {"id": 1}, {"state": "new"})
    away = "orders=mysql+pymysql://root@127.0.0.1:1/orders"
    said = run("replay", tmp_path / "spool", "--target", away)
    assert printable(name) in said.out
    assert_safe(said.out + said.err)


def test_the_summary_of_a_pipeline_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    branch = {"resource": NAME, "system": NAME, "state": NAME}
    due = {"resolution": "commit", "gtrid": b"\xaa", "owner": NAME, "branches": [branch]}
    row = {"severity": NAME, "code": NAME, "message": NAME, "file": NAME, "offset": 1}
    one = {NAME: 1}
    summary = RunSummary(
        one, 1, one, one, {NAME: one}, {"commit": 1}, [due], one, [row], [NAME], [NAME], 1.0
    )
    show_summary(Printer(), summary, NAME)
    out = capsys.readouterr().out
    assert_safe(out)
    assert out.count(SHOWN.replace("_", " ")) > 8


@pytest.mark.parametrize(
    ("command", "option"),
    [("indoubt list", "--resource"), ("replay", "--target"), ("doctor", "--resource")],
)
@pytest.mark.parametrize("url", ["postgresql://u:hunter2@h/db", "db=postgresql://u:hunter2@[h/db"])
def test_a_wrong_url_is_not_quoted_with_its_password(
    run: Run, tmp_path: Path, command: str, option: str, url: str
) -> None:
    said: Answer = run(*command.split(), str(tmp_path), option, url)
    assert said.code != 0
    assert "hunter2" not in said.out + said.err


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("bench", "demo")])
def test_a_wrong_argument_is_quoted_safely(
    run: Run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for a command that would make what it is given
    argument = NAME.replace("\n", "")
    for arguments in (
        [argument],
        [f"{tmp_path}/nowhere/{argument}"],
        [f"--{argument}"],
        [argument, argument],
    ):
        said: Answer = run(command, *arguments)
        assert said.code != 0
        assert_safe(said.out + said.err)


def test_what_should_not_have_happened_is_said_safely(
    run: Run, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise sqlite3.Error(NAME)

    monkeypatch.setattr("tallystick.cli.look.inspect.inspect", fail)
    said = run("inspect", hostile)
    assert SHOWN in said.err
    assert_safe(said.err)


def test_colours_of_a_terminal_are_ours_only(hostile: Path) -> None:
    del hostile
    import io

    from rich.console import Console

    screen = io.StringIO()
    printer = Printer()
    printer._console = Console(file=screen, force_terminal=True, soft_wrap=True)  # type: ignore[assignment]
    printer.line((NAME, "bold"), NAME, style="red")
    ours = re.sub("\x1b\\[[0-9;]*m", "", screen.getvalue())
    assert_safe(ours)
    assert "\x1b]" not in screen.getvalue()


@pytest.mark.parametrize(
    "make",
    [
        lambda: errors.CorruptLogError(
            NAME, file=NAME, offset=1, expected=NAME, found=NAME, advice=NAME
        ),
        lambda: errors.MissingExtraError(NAME, NAME),
    ],
)
def test_the_text_of_an_error_is_printable(make: Callable[[], errors.TallystickError]) -> None:
    error = make()
    assert_safe(str(error))
    assert SHOWN in str(error)
    assert error.message.startswith(NAME)


def test_what_is_logged_is_printable(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    log = logger("tallystick.test")
    handler = logging.StreamHandler()
    log.logger.addHandler(handler)
    try:
        log.warning("%s failed: %d", NAME, 3)
        log.warning("%s failed: %d", "plain", 3)
        try:
            raise ValueError(NAME)
        except ValueError:
            log.exception("of %s", NAME)
    finally:
        log.logger.removeHandler(handler)
    assert not UNSAFE.search(capfd.readouterr().err)  # a traceback has lines
    assert caplog.records[0].getMessage() == f"{SHOWN} failed: 3"
    assert caplog.records[1].args == ("plain", 3)


def test_every_logger_is_the_printable_one() -> None:
    source = Path(errors.__file__).parent
    others = [
        str(path)
        for path in source.rglob("*.py")
        if "getLogger" in path.read_text() and path.name != "printable.py"
    ]
    assert others == []


def test_only_one_module_of_the_command_line_prints() -> None:
    folder = Path(errors.__file__).parent / "cli"
    for path in folder.rglob("*.py"):
        if path.name not in ("output.py", "bench.py"):  # a benchmark prints its own names
            assert not re.search(
                r"click\.echo|[^.\w]print\(|sys\.stdout\.write", path.read_text()
            ), path
