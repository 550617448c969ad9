"""The command line has the habits of others: completion, help in groups, a hint after a slip."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from tallystick import Journal
from tallystick.cli import COMMANDS, COMPLETE, GROUPS
from tallystick.cli.look.explain import _show_list
from tallystick.cli.output import PrintedTexts, Printer
from tests.cli.conftest import Run
from tests.fixtures import cases, fixture_dir
from tests.indoubt.estates import EXAMPLES
from tests.need import need


@pytest.fixture
def tool(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which ``tallystick`` is a command."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "tallystick"
    path.write_text(f"#!{sys.executable}\nfrom tallystick.cli import main\nmain()\n")
    path.chmod(0o755)
    return os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path),
    }  # fmt: skip


def said(tool: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=tool, text=True, check=False, capture_output=True, timeout=120
    )


def test_the_package_can_be_run(tool: dict[str, str]) -> None:
    answer = said(tool, sys.executable, "-m", "tallystick", "--version")
    assert (answer.returncode, answer.stdout[:10]) == (0, "tallystick")
    assert said(tool, sys.executable, "-m", "tallystick", "dump").returncode == 2


def test_an_interrupt_while_modules_are_loaded_is_a_sentence(
    tool: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    tool["PYTHONPATH"] = f"{tmp_path}:{tool.get('PYTHONPATH', '')}"
    answer = said(tool, sys.executable, "-m", "tallystick", "triage", ".")
    assert (answer.returncode, answer.stderr) == (130, "tallystick: interrupted\n")


LETTERS = "\u00fcber \u65e5\u672c \U0001f4be"
"""In a name: one that Latin-1 has, two that it has not, and one beyond 16 bits."""


ASKED = [
    "triage", "explain", "inspect", "dump", "indoubt list", "explain --json", "export --to csv",
    "sql",
]  # fmt: skip
ALL_OF_THEM = """
import sys
from tallystick.cli import main
for words in {asked!r}:
    path = [*sys.argv[1:], "select kind from records"][: 2 if words == "sql" else 1]
    try:
        main([*words.split(), *path])
    except SystemExit as end:
        print(words, "ended with", end.code, flush=True)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape", "latin-1", "utf-8"])
def test_letters_that_a_terminal_has_not_are_shown_as_escapes(
    tool: dict[str, str], encoding: str, tmp_path: Path
) -> None:
    """Old estates have locales of one byte; Python refuses to write other letters there."""
    path = tmp_path / LETTERS
    with Journal(path) as log:
        log.append(LETTERS.encode())
    answer = subprocess.run(
        (sys.executable, "-c", ALL_OF_THEM.format(asked=ASKED), path),
        env=tool | {"PYTHONIOENCODING": encoding}, check=False, capture_output=True, timeout=120,
    )  # fmt: skip
    said, parts = answer.stdout.decode("utf-8" if encoding == "utf-8" else "latin-1"), {}
    for words in ASKED:
        parts[words], ended, said = said.partition(f"{words} ended with 0\n")
        assert ended, answer.stderr
    shown = LETTERS if encoding == "utf-8" else "\\u65e5\\u672c \\U0001f4be"
    assert shown in parts["explain"]
    assert json.loads(parts["explain --json"])["logs"][0]["path"] == str(path)
    corner = parts["sql"][0]
    assert corner == ("\u250c" if encoding == "utf-8" else "+")


SCRIPTS = {
    "bash": """
        eval "$(_TALLYSTICK_COMPLETE=bash_source tallystick)"
        COMP_WORDS=(tallystick {}) COMP_CWORD={}
        _tallystick_completion tallystick
        printf '%s\\n' "${{COMPREPLY[@]}}"
        complete -p tallystick
        """,
    "zsh": """
        autoload -U compinit && compinit -u -D
        eval "$(_TALLYSTICK_COMPLETE=zsh_source tallystick)"
        _describe() {{ eval "print -l \\$$3"; }}; compadd() {{ eval "print -l \\$${{@[-1]}}"; }}
        words=(tallystick {}) CURRENT=$(({} + 1))
        _tallystick_completion
        print complete $_comps[tallystick]
        """,
    "fish": """
        _TALLYSTICK_COMPLETE=fish_source tallystick | source
        complete -C "tallystick {}" # {}
        complete -c tallystick
        """,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.parametrize(
    ("words", "found"),
    [("tri", "triage"), ("indoubt ex", "explain"), ("export --table ch", "changes")],
)
def test_shells_complete_commands_and_options(
    tool: dict[str, str], shell: str, words: str, found: str
) -> None:
    source = said(tool | {COMPLETE: f"{shell}_source"}, "tallystick")
    assert (source.returncode, source.stderr) == (0, "")
    assert "_tallystick_completion" in source.stdout
    need(shell)
    answer = said(tool, shell, "-c", SCRIPTS[shell].format(words, len(words.split())))
    assert found in answer.stdout.replace(":", " ").split(), answer.stdout + answer.stderr
    assert "tallystick" in answer.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("explan", "Did you mean 'explain'?"),
        ("indobut", "Did you mean 'indoubt'?"),
        ("qqqq", "tallystick --help lists all"),
        (str(EXAMPLES), f"It is a path. Did you mean: tallystick triage {EXAMPLES}"),
    ],
)
def test_a_slip_is_answered_with_what_may_have_been_meant(run: Run, typed: str, hint: str) -> None:
    answer = run(typed, "x")
    assert (answer.code, answer.out) == (2, "")
    assert f"No such command {typed!r}" in answer.err
    assert hint in answer.err


def test_a_path_is_quoted_where_it_is_meant(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two words; rm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "triage 'two words; rm'" in run("two words; rm").err


def test_help_has_groups_with_three_examples_each(run: Run) -> None:
    text = run("--help").out
    assert [line for line in text.splitlines() if len(line) > 80] == []
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert [one for one in listed if one in COMMANDS] == list(COMMANDS)
    for first, (title, examples) in GROUPS.items():
        group = text[text.index(title) :]
        assert group.index(f"  {first} ") < group.index("$ tallystick")
        named = examples.split("; ")
        assert len(named) == 3
        for example in named:
            assert f"$ tallystick {example}\n" in text
            assert example.split()[0] in COMMANDS


@pytest.mark.parametrize("rate", ["20", "1.5", "20/s"])
def test_a_rate_without_its_unit_is_refused(run: Run, tmp_path: Path, rate: str) -> None:
    answer = run("scrub", tmp_path, "--rate", rate)
    assert (answer.code, "has no unit: a rate, such as 20MB/s" in answer.err) == (2, True)
    assert run("scrub", tmp_path, "--every", "6").code == 2


@pytest.mark.parametrize("rate", ["0", "1GiB/s", "1gb", "900M", "999999999b/s", "1Gi"])
def test_a_rate_with_its_unit_is_taken(run: Run, rate: str) -> None:
    assert run("scrub", EXAMPLES / "orphan/artemis", "--rate", rate).code == 0


@pytest.mark.parametrize(
    ("option", "given"),
    [
        *(("--every", given) for given in ("nan", "-1", "0", "soon")),
        *(("--alert-after", given) for given in ("nan", "-1")),
    ],
)
def test_what_is_no_time_is_no_option_of_a_stream(
    run: Run, tmp_path: Path, option: str, given: str
) -> None:
    out = tmp_path / "tables"
    answer = run("pipeline", "run", tmp_path, "--out", out, "--stream", option, given)
    assert answer.code == 2
    assert option in answer.err
    assert not out.exists()


@pytest.mark.parametrize(
    "command", ["triage", "explain", "verify", "dump", "backlog", "indoubt list"]
)
@pytest.mark.parametrize("system", ["bitronix", "derby", "h2", "jboss", "cloudtran"])
def test_a_setting_that_no_system_knows_is_refused_beside_every_system(
    run: Run, command: str, system: str
) -> None:
    answer = run(*command.split(), fixture_dir(system) / cases(system)[0], "--set", "foo=1")
    assert (answer.code, answer.out) == (2, "")
    assert "has the setting foo; expected " in answer.err


def test_a_setting_is_taken_if_one_of_several_paths_knows_it(run: Run) -> None:
    paths = EXAMPLES / "orphan/artemis", EXAMPLES / "orphan/h2"
    assert run("indoubt", "list", *paths, "--set", "h2.calendar=julian").code == 1
    assert run("indoubt", "list", *paths, "--set", "h2.calender=julian").code == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arguments", [["triage"], ["explain"], ["dump", "--json"], ["inspect"]])
def test_a_process_without_standard_output_has_its_exit_code(
    arguments: list[str], tmp_path: Path
) -> None:
    """As daemons are, and what a shell starts with `>&-`."""
    Journal(tmp_path / "log").close()
    command = [sys.executable, "-m", "tallystick", *arguments, str(tmp_path / "log")]
    ran = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_very_many_open_decisions_are_told_in_the_time_that_reading_takes() -> None:
    """Each was compared with all before it, also those that are folded."""
    printed = PrintedTexts()
    compared = 0
    is_new = printed.is_new

    def counted(text: str) -> bool:
        nonlocal compared
        compared += 1
        return is_new(text)

    with mock.patch.object(printed, "is_new", counted), redirect_stdout(io.StringIO()) as shown:
        _show_list(Printer(), "In doubt", [f"transaction {one}" for one in range(10_000)], printed)
    assert compared <= 100
    assert "more (--json lists all)" in shown.getvalue()
